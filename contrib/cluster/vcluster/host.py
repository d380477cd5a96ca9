"""The init process of one virtual host: it runs commands on request.

It plays the part of a login daemon.  A request comes over a Unix socket
together with the three standard files; the answer is the exit status.  As
init of the host's PID namespace it also reaps every orphan, and its end is
the end of everything on the host.
"""

import os
import select
import signal
import socket
import tempfile
import time

from . import linux, wire

TERM_TO_KILL_SECONDS = 3.0


def become_host(plan, host):
    """Turn this process, already init of a new PID namespace, into the host."""
    linux.die_with_parent(signal.SIGKILL)
    linux.unshare(linux.CLONE_NEWNET | linux.CLONE_NEWUTS | linux.CLONE_NEWNS
                  | linux.CLONE_NEWIPC)
    linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
    linux.mount_proc()
    # Shared memory must not be shared between hosts: names would collide.
    linux.mount("tmpfs", "/dev/shm", "tmpfs", linux.MS_NOSUID | linux.MS_NODEV)
    linux.show_own_network_devices(tempfile.mkdtemp(dir="/dev/shm"))
    linux.mount(plan.path("hosts"), "/etc/hosts", "", linux.MS_BIND)
    socket.sethostname(host)


def plug_in(plan, host, run):
    """Give the host's ends of the cables their addresses."""
    run(["ip", "link", "set", "lo", "up"])
    for network in plan.networks:
        name = plan.interface(network)
        run(["ip", "link", "set", name, "address", plan.hardware_address(host, network)])
        run(["ip", "address", "add", plan.address(host, network) + "/24", "dev", name])
        run(["ip", "link", "set", name, "up"])
    neighbours = plan.neighbours(host)
    if neighbours:
        run(["ip", "-batch", "-"], neighbours)


class Job:
    """One running command and the connection that asked for it."""

    def __init__(self, line, pid, keep):
        self.line = line
        self.pid = pid
        self.keep = keep
        self.kill_at = None


class Host:
    """The request loop."""

    def __init__(self, listener):
        self._listener = listener
        self._lines = {}
        self._jobs = {}
        self._wake_r, wake_w = os.pipe()
        os.set_blocking(self._wake_r, False)
        os.set_blocking(wake_w, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)

    def serve(self):
        while True:
            waiting = [j.kill_at for j in self._jobs.values() if j.kill_at is not None]
            timeout = max(0.0, min(waiting) - time.monotonic()) if waiting else None
            ready, _, _ = select.select(
                [self._listener, self._wake_r, *self._lines], [], [], timeout)
            for fd in ready:
                if fd is self._listener:
                    sock, _ = self._listener.accept()
                    self._lines[sock.fileno()] = wire.Line(sock)
                elif fd == self._wake_r:
                    self._drain()
                elif fd in self._lines:
                    self._read(self._lines[fd])
            self._reap()
            self._kill_overdue()

    def _drain(self):
        try:
            os.read(self._wake_r, 4096)
        except BlockingIOError:
            pass

    def _read(self, line):
        try:
            messages = line.feed()
        except (wire.Closed, ConnectionError, ValueError):
            self._hang_up(line)
            return
        for message in messages:
            if "run" in message:
                self._start(line, message["run"])
            elif "signal" in message:
                self._signal(line, message["signal"])

    def _hang_up(self, line):
        del self._lines[line.fileno()]
        line.close()
        for fd in line.fds:
            os.close(fd)
        for job in self._jobs.values():
            if job.line is line:
                job.line = None
                if not job.keep:
                    kill_group(job.pid, signal.SIGTERM)
                    job.kill_at = time.monotonic() + TERM_TO_KILL_SECONDS

    def _start(self, line, request):
        if len(line.fds) < 3:
            line.send({"error": "three open files must come with a command"})
            return
        fds, line.fds = line.fds[:3], line.fds[3:]
        pid = os.fork()
        if pid == 0:
            execute(request, fds)
        for fd in fds:
            os.close(fd)
        self._jobs[pid] = Job(line, pid, bool(request.get("keep")))

    def _signal(self, line, number):
        for job in self._jobs.values():
            if job.line is line:
                kill_group(job.pid, number)

    def _reap(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            job = self._jobs.pop(pid, None)
            if job is None or job.line is None:
                continue
            try:
                job.line.send({"exit": os.waitstatus_to_exitcode(status)})
            except OSError:
                pass  # the asker left at the same moment

    def _kill_overdue(self):
        now = time.monotonic()
        for job in self._jobs.values():
            if job.kill_at is not None and job.kill_at <= now:
                kill_group(job.pid, signal.SIGKILL)
                job.kill_at = None


def kill_group(pid, number):
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        pass


def execute(request, fds):
    """In the child: become the command. Never returns."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP,
                       signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        # Either makes the group by which the command is ended. Linux divides the cores among sessions before
        # it does among processes (sched(7), autogroup), so hosts with a session each take turns.
        if request["env"].get("FT_CLUSTER_ONE_SESSION") == "1":
            os.setpgid(0, 0)
        else:
            os.setsid()
        # The received numbers may themselves be 0..2: move them out of the way.
        high = [os.dup(fd) for fd in fds]
        while min(high) < 3:
            high = [os.dup(fd) for fd in high]
        for target, fd in enumerate(high):
            os.dup2(fd, target)
        os.closerange(3, 256)
        os.chdir(request["cwd"])
        os.execvpe(request["argv"][0], request["argv"], request["env"])
    except OSError as failed:
        message = f"cluster: cannot run {request['argv'][0]}: {failed.strerror}\n"
        os.write(2, message.encode())
    finally:
        os._exit(127)
