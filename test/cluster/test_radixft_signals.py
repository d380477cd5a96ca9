#!/usr/bin/env python3
"""errmgr/radixft: the signals that a user sends to mpirun: Ctrl-Z, and Ctrl-C after a rank has died."""

import os
import signal
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
from fttap import check, main  # noqa: E402
from test_radixft import RADIXFT, Job, appended, processes  # noqa: E402
from test_radixft_hardware import stopped  # noqa: E402
from test_radixft_hung import hung  # noqa: E402

HOSTS = 3
STOP_LIMIT_MS = 1500


def send(job, number):
    """A signal for mpirun."""
    (_, pid), = processes(job.cluster, "^mpirun")
    os.kill(pid, number)


def suspend(job):
    """Ctrl-Z, until all ranks stand still."""
    send(job, signal.SIGTSTP)
    while not all(stopped(pid) for _, pid in processes(job.cluster, "^/.*survivors")):
        check(time.monotonic() < job.end and not job.run.ended(), "the ranks are not stopped")


def suspended_and_continued():
    """Ranks that mpirun has stopped for longer than a rank may be, and let go on, are not accused"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        with Job(cluster, deaths=1, ranks=HOSTS, mca=hung(100, 60000, STOP_LIMIT_MS)) as job:
            job.ready()
            suspend(job)
            check(not ftcluster.wait_readable([job.run], time.monotonic() + 2 * STOP_LIMIT_MS / 1000), "mpirun has ended")
            send(job, signal.SIGCONT)
            job.kill("^/.*survivors", "n2")
            job.verdict()
            check("ends it" not in job.run.err, "somebody was accused")
            job.nothing_left()


def suspended_and_orphaned(mca):
    """Ranks that mpirun has stopped, and mpirun is killed: they go on, and the job runs to its end."""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        with Job(cluster, deaths=1, ranks=HOSTS, mca=mca) as job:
            job.ready()
            suspend(job)
            send(job, signal.SIGKILL)
            job.verdict_without_mpirun()
            check("ends it" not in appended(job.folder, ".err"), "somebody was accused")


def orphaned():
    """mpirun is killed when it has stopped the ranks: they go on, and the job runs to its end"""
    suspended_and_orphaned(hung(100, 60000, STOP_LIMIT_MS))


def orphaned_unwatched():
    """The same without a self-check"""
    suspended_and_orphaned([*RADIXFT, "--mca", "errmgr_radixft_self_check", "0"])


def interrupted():
    """Ctrl-C when a rank has died: mpirun says that the job was ended, its code is 1, and nothing is left"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        with Job(cluster, deaths=2, ranks=HOSTS) as job:
            job.ready()
            job.kill("^/.*survivors", "n2")
            while "is dead (" not in job.run.err:
                check(time.monotonic() < job.end and not job.run.ended(), "mpirun does not hear of the death")
            send(job, signal.SIGINT)
            check(job.code() == 1, f"mpirun's exit code is {job.run.code}")
            check(f"radixft: 1 of {HOSTS} ranks died, and the job was ended." in job.run.err, "mpirun's last words are wrong")
            job.nothing_left()


main([suspended_and_continued, orphaned, orphaned_unwatched, interrupted], ftcluster.SIDE_BY_SIDE)
