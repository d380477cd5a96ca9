"""Runs a program that spawns processes.

Debian's runtime has a race of its own: a spawned process now and then stays in PMIx_Init for ever,
whatever the PML (with ob1 in 5 of 45 runs on a busy machine of two cores). Such a run is told from
one that hangs in MPI by the process that has not come as far as to listen for connections after
PATIENCE seconds, and is repeated. The program must use btl/tcp.
"""

import os
import time

import ftmpi
from fttap import comment

RUNS = 5
LISTENING = "0A"
PATIENCE = 15  # by far more than the start takes on a busy machine
EVERY = 5


def listens(pid):
    """Whether a process has a socket that listens, as every rank with btl/tcp has."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}", encoding="ascii") as lines:
            fields = [line.split() for line in lines]
        inodes |= {entry[9] for entry in fields[1:] if entry[3] == LISTENING}
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
        except FileNotFoundError:
            continue
        if target.startswith("socket:[") and target[8:-1] in inodes:
            return True
    return False


def age(pid):
    """For how many seconds there has been such a process."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
        began = int(stat.read().rsplit(")", 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began / os.sysconf("SC_CLK_TCK")


def unborn(pids):
    """Those that have not got through the runtime's own start."""
    found = []
    for pid in pids:
        try:
            if age(pid) > PATIENCE and not listens(pid):
                found.append(pid)
        except OSError:  # it ends meanwhile
            pass
    return found


def run(command, deadline):
    """ftmpi.run, again when a process was not born. The caller is a subreaper."""
    for _ in range(RUNS):
        result = ftmpi.run(command, deadline, show_stacks=True, look=unborn, every=EVERY)
        if not result.seen:
            break
        comment("a spawned process stayed in PMIx_Init: the runtime's own; once more")
    return result
