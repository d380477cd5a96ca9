"""Which clusters exist, and removal of those that nobody owns any more.

Each cluster's state folder holds "cluster.json".  The registry, one folder a
user, holds a small file per cluster that names its state folder, so that a
cluster can be found after its owner is gone.
"""

import json
import os
import select
import shutil
import signal

from . import linux, wire

STOP_DEADLINE = 10.0
OWN_NAMES = ("sock", "tmp", "hosts", "hostfile", "rsh", "log", "cluster.json")


def folder():
    # One place whatever $TMPDIR says: a temporary folder may go with its owner.
    path = f"/tmp/ompi-ft-clusters-{os.getuid()}"
    os.makedirs(path, mode=0o700, exist_ok=True)
    if os.stat(path).st_uid != os.getuid():
        raise OSError(f"{path} belongs to somebody else")
    return path


def enter(record):
    """Make a cluster known; record is what cluster.json holds."""
    text = json.dumps(record, indent=1) + "\n"
    for path in (os.path.join(record["plan"]["state"], "cluster.json"),
                 os.path.join(folder(), f"{record['pid']}.json")):
        with open(path + ".new", "w", encoding="utf-8") as out:
            out.write(text)
        os.rename(path + ".new", path)


def read(state):
    """The record of the cluster in this state folder, or None."""
    return _load(os.path.join(state, "cluster.json"))


def all_records():
    names = sorted(os.listdir(folder()))
    records = (_load(os.path.join(folder(), n)) for n in names if n.endswith(".json"))
    return [r for r in records if r is not None]


def _load(path):
    try:
        with open(path, encoding="utf-8") as source:
            return json.load(source)
    except (OSError, ValueError):
        return None


def alive(record):
    began = record["start_time"]
    return began is not None and linux.start_time(record["pid"]) == began


def owner_gone(record):
    return (record["owner"] is not None
            and linux.start_time(record["owner"]) != record["owner_start_time"])


def remove(record):
    """End a cluster and remove its files. Does nothing twice; bounded in time."""
    stopped = True
    if alive(record):
        stopped = _stop(record)
    if not stopped:
        raise OSError(f"the cluster's supervisor, process {record['pid']}, did not end")
    state = record["plan"]["state"]
    for name in OWN_NAMES:
        path = os.path.join(state, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        elif os.path.lexists(path):
            os.unlink(path)
    if record.get("made_state") and os.path.isdir(state) and not os.listdir(state):
        os.rmdir(state)
    entry = os.path.join(folder(), f"{record['pid']}.json")
    if os.path.exists(entry):
        os.unlink(entry)


def _stop(record):
    try:
        fd = os.pidfd_open(record["pid"])
    except ProcessLookupError:
        return True
    try:
        if not alive(record):
            return True
        try:
            line = wire.connect(os.path.join(record["plan"]["state"], "sock", "switch"))
            line.send({"op": "down"})
            if _ended(fd, STOP_DEADLINE):
                return True
        except OSError:
            pass
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        return _ended(fd, STOP_DEADLINE)
    finally:
        os.close(fd)


def _ended(pidfd, seconds):
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(int(seconds * 1000)))


def reap():
    """Remove every cluster whose supervisor or owner is gone; their states."""
    removed = []
    for record in all_records():
        if not alive(record) or owner_gone(record):
            remove(record)
            removed.append(record["plan"]["state"])
    return removed
