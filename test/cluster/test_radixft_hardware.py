#!/usr/bin/env python3
"""errmgr/radixft: a daemon that mpirun has asked for its hardware is lost before it answers, in the launch and in a spawn.

mpirun asks the first daemon of each kind of host for the whole of its hardware,
and maps nothing before that has answered. The daemons of some hosts say that
theirs is of another kind, and stop when they are asked
(test/mpi/survivors/other_hardware.cc).
"""

import contextlib
import os
import signal
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
from fttap import check, main  # noqa: E402
from test_radixft import processes  # noqa: E402
from test_radixft_init import HOSTS, WAITS, start  # noqa: E402
from test_radixft_join import ONE_LAUNCH, SPAWN_FAILED, job_on, launch_wait  # noqa: E402
from test_radixft_short import ANYWHERE, Ports, begins, ends, says, settings  # noqa: E402


def other(*hosts):
    """The options of mpirun with which the daemons of these hosts are of another kind."""
    library = os.path.join(ftcluster.build_dir(), "test", "mpi", "survivors", ".libs", "other_hardware.so")
    check(os.access(library, os.R_OK), f"{library} is missing: run make check, or set FT_BUILD")
    return ["--mca", "orte_launch_agent", f"env LD_PRELOAD={library} FT_OTHER_HARDWARE={','.join(hosts)} orted"]


def stopped(pid):
    """Whether a process stands still by a signal."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"
    return False


def asked(it, *hosts):
    """Waits until a daemon on one of these hosts has been asked; the host and the daemon."""
    while True:
        for host, pid in processes(it.cluster, "^orted"):
            if host in hosts and stopped(pid):
                return host, pid
        check(time.monotonic() < it.end and not it.run.ended(), "no daemon is asked for its hardware")


def loses(it, pid):
    """The daemon that was asked dies."""
    os.kill(pid, signal.SIGKILL)
    it.struck = time.monotonic()


def leaves(it, pid):
    """A daemon ends by itself."""
    ftcluster.await_end(pid, it.end)
    check(time.monotonic() < it.end, "the daemon that was given up stays")


def nobody_else():
    """The one daemon of its kind dies when it is asked: the job begins without it or, where it may not, ends"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        for allowed in (1, 0):
            with start(cluster, ANYWHERE, WAITS, mca=settings(allowed, *other("n2"))) as it:
                loses(it, asked(it, "n2")[1])
                if allowed:
                    begins(it, HOSTS - 1)
                else:
                    ends(it, "the daemon on n2 ended before the job had begun")


def another_of_its_kind():
    """One of two of a kind dies when it is asked: the other one is asked, and the job begins with that"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        for mate_dies in (False, True):
            with start(cluster, ANYWHERE, WAITS, mca=settings(2, *other("n2", "n3")), verbose=2) as it:
                first, pid = asked(it, "n2", "n3")
                mate = "n3" if first == "n2" else "n2"
                says(it, f"daemon {mate[1]} has called")
                loses(it, pid)
                _, pid = asked(it, mate)
                if mate_dies:
                    loses(it, pid)
                    begins(it, HOSTS - 2, missing=("n2", "n3"))
                else:
                    os.kill(pid, signal.SIGCONT)
                    begins(it, HOSTS - 1, missing=(first,))


def who_was_not_asked():
    """Of two of a kind the one dies that was not asked: the job begins when the other one has answered"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster, \
            start(cluster, ANYWHERE, WAITS, mca=settings(2, *other("n2", "n3")), verbose=2) as it:
        first, pid = asked(it, "n2", "n3")
        mate = "n3" if first == "n2" else "n2"
        says(it, f"daemon {mate[1]} has called")
        it.kill("^orted", mate)
        says(it, f"goes on without daemon {mate[1]}")
        os.kill(pid, signal.SIGCONT)
        begins(it, HOSTS - 1, missing=(mate,))


def does_not_answer():
    """One that is asked and stands still is given up after launch_wait, and told to leave when it answers after all"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster, contextlib.ExitStack() as jobs:
        with ONE_LAUNCH:
            wait = launch_wait()
            it = jobs.enter_context(start(cluster, "modex", WAITS, mca=settings(1, *other("n2"), wait=wait), victim=0))
            _, pid = asked(it, "n2")
            it.hears("stands", "the rank did not get there")
        check(f"daemon on n2 has not told its hardware within {wait} ms" in " ".join(it.run.err.split()), "it says another reason")
        os.kill(pid, signal.SIGCONT)
        leaves(it, pid)
        it.release()
        begins(it, HOSTS - 1)


def newcomer():
    """A newcomer dies, its port behind it, or stands still when it is asked: the spawn fails, and its host can be added again"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster, contextlib.ExitStack() as jobs:
        with ONE_LAUNCH:
            wait = launch_wait()
            it = jobs.enter_context(job_on(cluster, *settings(0, *other("n3"), wait=wait)))
        for dies in (True, False):
            with ONE_LAUNCH:
                it.command(b"a")
                _, pid = asked(it, "n3")
            if dies:
                with Ports(pid) as ports:
                    os.kill(pid, signal.SIGKILL)
                    check(ports.knocked(it.end), "mpirun does not knock")
            it.hears("refused " + SPAWN_FAILED, "the spawn did not fail")
            it.says("n3: its daemon " + ("ended before it was a member" if dies else "has not told its hardware within " + str(wait) + " ms"))
            if not dies:
                os.kill(pid, signal.SIGCONT)
                leaves(it, pid)
        with ONE_LAUNCH:
            it.command(b"a")
            os.kill(asked(it, "n3")[1], signal.SIGCONT)
            it.hears("joined", "the host cannot be added any more")
        it.finishes()


# The longest ones first: the others fit in beside them.
TESTS = [newcomer, does_not_answer, another_of_its_kind, nobody_else, who_was_not_asked]

if __name__ == "__main__":
    if named := [test for test in TESTS if test.__name__ in sys.argv[1:]]:
        main(named)
    main(TESTS, len(TESTS))
