#!/usr/bin/env python3
"""errmgr/radixft: a rank that calls MPI_Comm_spawn dies, before the new ones are started or at a point of the call."""

import os
import signal
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
from fttap import check, comment, main  # noqa: E402
from test_radixft import RADIXFT  # noqa: E402
from test_radixft_join import DEADLINE, PATIENT, RANKS, job, view_held_up  # noqa: E402


def nobody_waits():
    """The rank that spawns dies before the new ones are started: these find nobody in MPI_Init, and are ended"""
    with job(*PATIENT, "--mca", "pml", "dr") as it:
        with view_held_up(it, b"z"):
            os.kill(it.pid_of("^/.*joins n3", "n2"), signal.SIGKILL)
        it.says("MPI_Comm_spawn fails, because rank 2 of those that called it")
        it.command(b"a")
        it.hears("joined", "nothing can be spawned any more")
        it.finishes(RANKS - 1)


# dies_at.hpp; at the last two only the root of the call comes by.
POINTS = {"connect": 2, "connected": 3, "context_id": 4, "activate": 5, "published": 1, "spawn": 6}
ROOT, STANDS = 8, 16  # joins.cc


def caller_dies(role, with_host, point):
    """One of those who spawn runs on the new ranks' host, and dies at a point of the call."""
    def test():
        with job(*RADIXFT, "--mca", "pml", "dr", again="n2") as it:
            it.command(bytes([0x80 | POINTS[point] | role | (STANDS if with_host else 0)]))
            it.hears("stands" if with_host else "dies", "it did not get there")
            if with_host:
                it.cluster.tool("kill", "n2")
            ended = []
            for _ in range(RANKS - 1):
                ended.append(it.marks.wait(lambda t: t.startswith(("refused", "went on")), it.end, it.run))
                check(ended[-1], "a rank does not return from MPI_Comm_spawn")
            check(not it.cluster.await_none("^/.*joins die", it.end), "a new rank is still there")
            if with_host:
                it.cluster.tool("boot", "n2")
            for letter in (b"a", b"b"):
                it.command(letter)
                it.hears("joined", "nothing can be spawned any more")
            it.finishes(RANKS - 1)
            comment(", ".join(text for _, text in ended))

    test.__doc__ = (f"A caller of MPI_Comm_spawn, {'' if role else 'not '}its root, dies at '{point}' of it "
                    f"{'together with its host' if with_host else 'alone'}; the new ranks are on its host")
    return test


def parts_and_leaves():
    """A rank does not join those who part from a dead one, and leaves when their job is over: its daemon lives"""
    with ftcluster.Cluster() as cluster:
        with open(os.path.join(cluster.state, "hostfile"), "w", encoding="utf-8") as hosts:
            hosts.writelines(f"n{h} slots=3\n" for h in range(2))
        run = cluster.mpirun(*RADIXFT, "--mca", "pml", "dr", "--map-by", "node", "-np", "2",
                             os.path.join(ftcluster.build_dir(), "test", "mpi", "survivors", "disconnects"), "left",
                             deadline=DEADLINE, env=ftcluster.component_env())
        code = run.wait()
        good = code == 0 and run.out.count("parted") == 3 and "radixft: 1 of 4 ranks died" in run.err
        if not good:
            run.tell(40)
        check(good, f"exit code {code}")


if __name__ == "__main__":
    main([nobody_waits, parts_and_leaves] + [caller_dies(role, with_host, point) for role in (0, ROOT) for with_host in (False, True)
                           for point in list(POINTS)[:None if role else -2]], ftcluster.SIDE_BY_SIDE)
