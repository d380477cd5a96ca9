"""The files of btl/vader in /dev/shm, which stay behind when ranks are ended by force.

Whose they are their processes tell while they live: each maps its own, and
those of the ranks of its job that it talks to.
"""

import os

FOLDER = "/dev/shm/vader_segment."


def of(pids):
    """The files that these processes have mapped: {(name, inode)}."""
    found = set()
    for pid in pids:
        try:
            with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
                lines = maps.read().split("\n")
        except OSError:
            continue
        for line in lines:
            fields = line.split(maxsplit=5)
            if len(fields) == 6 and fields[5].startswith(FOLDER):
                found.add((fields[5], int(fields[4])))
    return found


def remove(files):
    """Remove what is left of them, once their processes have ended."""
    for name, inode in files:
        try:
            if os.stat(name).st_ino == inode:
                os.unlink(name)
        except FileNotFoundError:
            pass
