#!/usr/bin/env python3
"""errmgr/radixft: ranks that hang, and ranks that only look like it.

The hang is a real one: a deadlock inside a function of MPI's progress engine, or a SIGSTOP from
outside. The daemon must end that rank and no other, and all survivors must know.
"""

import os
import re
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
from fttap import check, main  # noqa: E402
from test_radixft import RADIXFT, Job, processes, rank_of  # noqa: E402

RANKS = 4


def hung(*limits):
    """Options for a job whose limits (report, hang, stop) are these, in ms."""
    names = ("self_check", "hang_limit", "stop_limit")
    return [*RADIXFT, *(word for name, value in zip(names, limits)
                        for word in ("--mca", f"errmgr_radixft_{name}", str(value)))]


def pid_of(cluster, rank):
    """The process of a rank."""
    return next(pid for _, pid in processes(cluster, "^/.*survivors") if rank_of(pid) == rank)


def deadlock_is_ended():
    """A rank that deadlocks inside MPI is ended by its daemon, and the others know"""
    with ftcluster.Cluster(hosts=2) as cluster:
        with Job(cluster, "--hang", "3", "--pvars", deaths=1, ranks=RANKS, mca=hung(100, 1500, 0)) as job:
            check(job.verdict() == {3}, "another rank was ended")
            check(re.search(r"rank 3 on n1: hung inside MPI, ended by its daemon", job.run.err),
                  "the last words do not say that it hung")
            told = re.findall(r"^pvars \d+:.* hung=(\d+)", job.run.out, re.M)
            check(told == ["1"] * (RANKS - 1), f"the survivors count {told} hung ranks")
            job.nothing_left()


def deadlock_in_a_handler_is_ended():
    """A rank that deadlocks in what the handler of a socket calls is ended too, under pml/dr"""
    with ftcluster.Cluster(hosts=2) as cluster:
        with Job(cluster, "--hang-in-handler", "3", deaths=1, ranks=RANKS,
                 mca=[*hung(100, 1500, 0), "--mca", "pml", "dr", "--mca", "btl", "tcp,self"]) as job:
            check(job.verdict() == {3}, "another rank was ended")
            check(re.search(r"rank 3 on n1: hung inside MPI, ended by its daemon", job.run.err),
                  "the last words do not say that it hung")
            job.nothing_left()


def stopped_rank_is_ended():
    """A rank that is stopped alone and not let go on is ended; one that is stopped shortly is not"""
    with ftcluster.Cluster(hosts=2) as cluster:
        with Job(cluster, deaths=1, ranks=RANKS, mca=hung(100, 60000, 4000)) as job:
            job.ready()
            passing = pid_of(cluster, 0)
            os.kill(passing, signal.SIGSTOP)
            os.kill(pid_of(cluster, 1), signal.SIGSTOP)
            # Its daemon looks ten times a second.
            check(not ftcluster.wait_readable([job.run], time.monotonic() + 1), "mpirun has ended")
            os.kill(passing, signal.SIGCONT)
            check(job.verdict() == {1}, "another rank was ended")
            check(re.search(r"rank 1 on n1: was stopped and not let go on", job.run.err),
                  "the last words do not say that it was stopped")
            job.nothing_left()


def the_healthy_are_let_be():
    """Nobody is accused who computes, waits in MPI, has announced a standstill, or sits in a debugger"""
    with ftcluster.Cluster(hosts=2) as cluster:
        with Job(cluster, "--compute", "0:6000", "--stand", "1:6000", ranks=RANKS,
                 mca=hung(200, 3000, 1500)) as job:
            job.ready()
            # Attached for longer than a stopped rank would be let live.
            held = subprocess.run(["gdb", "-p", str(pid_of(cluster, 2)), "-batch", "-nx",
                                   "-iex", "set auto-load off", "-ex", "shell sleep 3"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  timeout=60, check=False)
            check(held.returncode == 0, f"gdb returned {held.returncode}")
            job.verdict()
            check("refused" not in job.run.out, "the announcement was refused")
            check("ends it" not in job.run.err, "somebody was accused")
            job.nothing_left()


if __name__ == "__main__":
    # Beside others the healthy might not get the processor for as long as the limits are.
    main([deadlock_is_ended, deadlock_in_a_handler_is_ended, stopped_rank_is_ended], ftcluster.SIDE_BY_SIDE, alone=[the_healthy_are_let_be])
