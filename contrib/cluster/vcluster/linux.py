"""System calls for namespaces and mounts, through the C library."""

import ctypes
import errno
import os

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_BIND = 0x1000
MNT_DETACH = 2
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8

PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result, what):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags):
    """Leave the namespaces named by flags for new ones."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def setns(fd, kind):
    """Enter the namespace behind the open file fd."""
    _check(_libc.setns(ctypes.c_int(fd), ctypes.c_int(kind)), "setns")


def mount(source, target, kind, flags=0, data=""):
    """Mount, as mount(2)."""
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode() if kind else None,
        ctypes.c_ulong(flags), data.encode() if data else None)
    _check(result, f"mount {kind or source} on {target}")


def die_with_parent(signal_number):
    """Have the kernel send this process signal_number when its parent ends."""
    _check(_libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal_number), 0, 0, 0),
           "prctl")


def enter_private_namespaces():
    """Put this process, and the next child as init, into fresh namespaces.

    Without the privilege to do so directly it is tried through a user
    namespace.  Raises OSError (EPERM, ENOSPC, ...) when that is refused too.
    Returns the name of the way that worked: "direct" or "user".
    """
    wanted = CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC
    try:
        unshare(wanted)
        way = "direct"
    except OSError as refused:
        if refused.errno != errno.EPERM:
            raise
        uid, gid = os.geteuid(), os.getegid()
        unshare(CLONE_NEWUSER)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"0 {uid} 1")
        _write("/proc/self/gid_map", f"0 {gid} 1")
        unshare(wanted)
        way = "user"
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    return way


def mount_proc():
    """Give this PID namespace its own view of /proc."""
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)


def show_own_network_devices(folder):
    """Have /sys/class/net list the devices of this network namespace, as UCX wants to see them.

    folder is an empty one to use meanwhile. Where the kernel does not permit it, nothing is changed.
    """
    try:
        mount("sysfs", folder, "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    except OSError:
        return
    try:
        mount(os.path.join(folder, "class", "net"), "/sys/class/net", "", MS_BIND)
    finally:
        _check(_libc.umount2(folder.encode(), MNT_DETACH), f"umount {folder}")


def _write(path, text):
    with open(path, "w", encoding="ascii") as out:
        out.write(text)


def start_time(pid):
    """Start time of a process in clock ticks, or None when there is none.

    Together with the number it names a process for good: numbers are reused.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return None if fields[0] == "Z" else int(fields[19])
