#!/usr/bin/env python3
"""pml/dr on hosts with one rail: the only path between healthy ranks breaks.

A connection that the kernel aborts is made anew, and every byte is right.
Where nothing leads to a rank any more for good, what concerns it ends with an
error, what does not goes on, and MPI_Finalize returns.
"""

import os
import re
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
import ftring  # noqa: E402
from fttap import check, main  # noqa: E402

DR = {"pml": "dr", "btl": "tcp,self", "pml_dr_stats": 1}
DEADLINE = 60
RAIL = ("n1", "0")
WATCHED_SECONDS = 8
RESETS = 20
LOST_PEER = os.path.join(ftcluster.build_dir(), "test", "mpi", "semantics", "lost_peer")


def reset_again_and_again():
    """connections of the only rail are reset, three times, and made anew"""
    with ftcluster.Cluster(rails=1) as cluster:
        with ftring.Story(cluster, DR, DEADLINE, kinds="bulk") as story:
            for _ in range(3):
                story.under_way("bulk", rounds=3)
                cluster.tool("cut", *RAIL, "--how", "reset-once")
                story.goes_on(rounds=5)
            story.finish_right()
            backs = re.findall(r"paths_up=(\d+)", story.run.err)
            check(sum(map(int, backs)) > 0, "no connection was seen to break and made anew")


def reset_and_silent_for_a_while():
    """the only rail is reset and refuses connections until it is healed"""
    with ftcluster.Cluster(rails=1) as cluster:
        with ftring.Story(cluster, DR, DEADLINE) as story:
            story.under_way("bulk", rounds=3)
            cluster.tool("cut", *RAIL, "--how", "reset")
            check(cluster.await_struck("drop", *RAIL, 3, story.end), "nothing was struck")
            cluster.tool("heal", *RAIL)
            story.goes_on()
            story.finish_right()


def reset_without_making_it_anew():
    """a reset of the only rail is not survived when connections are not made anew"""
    with ftcluster.Cluster(rails=1) as cluster:
        off = dict(DR, pml_dr_reconnect_ms=0)
        with ftring.Story(cluster, off, DEADLINE, kinds="bulk") as story:
            story.under_way("bulk", rounds=3)
            for _ in range(RESETS):  # one that comes while nothing is under way harms nobody
                cluster.tool("cut", *RAIL, "--how", "reset-once")
                story.drain()
                if not story.rounds(10, seconds=WATCHED_SECONDS):
                    break
            else:
                check(False, "the run goes on")
            check(not story.run.ended() or story.run.wait() != 0, "the run ended well")


def dead_for_good(how):
    """Cut the only rail of one of three hosts and leave it."""
    # Ranks that live go without a core for less than that.
    settings = dict(DR, pml_dr_give_up_ms=4000, pml_dr_keepalive_ms=300, pml_dr_reconnect_ms=2500)
    with ftcluster.Cluster(hosts=3, rails=1) as cluster:
        marks = cluster.marks()
        options = [word for name, value in settings.items() for word in ("--mca", name, value)]
        run = cluster.mpirun("-np", 3, "--map-by", "node", *options, LOST_PEER, marks.path,
                             deadline=DEADLINE, env=ftcluster.component_env())
        end = time.monotonic() + DEADLINE
        check(marks.wait(lambda text: text == "talks", end, run), "the ranks never talked")
        cluster.tool("cut", *RAIL, "--how", how)
        code = run.wait()
        marks.close()
        if code != 0 or run.out.count("survived") != 3:
            run.tell()
            raise AssertionError(f"exit code {code}")


def silent_for_good():
    """a rank behind a silent rail is given up, the others go on, MPI_Finalize returns"""
    dead_for_good("drop")


def refused_for_good():
    """a rank behind a rail that resets all is given up, the others go on, MPI_Finalize returns"""
    dead_for_good("reset")


TESTS = [reset_again_and_again, reset_and_silent_for_a_while, reset_without_making_it_anew,
         silent_for_good, refused_for_good]

if __name__ == "__main__":
    main(TESTS)
