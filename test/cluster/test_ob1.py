#!/usr/bin/env python3
"""Stock ob1 on the virtual cluster: right without a fault, and what faults do to it.

These are the same faults that pml/dr has to survive; here it shows that they
strike.  If one of them leaves ob1 unharmed, the test of dr proves nothing.
"""

import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
import ftring  # noqa: E402
from fttap import check, main  # noqa: E402

OB1 = {"pml": "ob1", "btl": "tcp,self"}
# How long a run that does nothing is watched before it counts as hanging.
WATCHED_SECONDS = 6
DEADLINE = 40


def not_survived(story):
    """Check that the run does not get on: it hangs, or it ended with an error."""
    story.drain()
    went_on = story.rounds(10, seconds=WATCHED_SECONDS)
    check(not went_on, "ob1 went on as if nothing had happened")
    if story.run.ended():
        check(story.run.wait() != 0, "ob1 ended well though it was cut off")


def right_without_fault():
    """without a fault every byte is right"""
    with ftcluster.Cluster() as cluster:
        with ftring.Story(cluster, OB1, DEADLINE) as story:
            story.under_way(rounds=40)
            story.finish_right()


def loss_is_left_to_tcp():
    """packets lost at random are TCP's business: every byte is right"""
    with ftcluster.Cluster() as cluster:
        cluster.tool("lose", "n1", "0", "--rate", "0.01")
        with ftring.Story(cluster, OB1, DEADLINE) as story:
            story.under_way(rounds=20)
            story.finish_right()
        ftring.counters_add_up(cluster, "lose", "n1", "0")


def corruption_reaches_the_application():
    """bytes rewritten on the wire are delivered to the application"""
    with ftcluster.Cluster() as cluster:
        with ftring.Story(cluster, OB1, DEADLINE) as story:
            story.under_way()
            cluster.tool("corrupt", "n1", "0", "--rate", "0.05")
            check(cluster.await_struck("corrupt", "n1", "0", 20, story.end), "nothing struck")
            story.goes_on()
            check(story.finish() != 0, "the program found every byte right")
            check(" wrong, first at " in story.run.err, story.run.err)


def cut_by(how):
    def test():
        with ftcluster.Cluster() as cluster:
            with ftring.Story(cluster, OB1, DEADLINE, kinds="bulk") as story:
                story.under_way("bulk", rounds=10)
                cluster.tool("cut", "n1", "0", "--how", how)
                not_survived(story)
                if how in ("drop", "reset"):
                    ftring.counters_add_up(cluster, "drop", "n1", "0")
    test.__doc__ = f"a rail cut by {how} in the middle of a message is not survived"
    return test


if __name__ == "__main__":
    main([right_without_fault, loss_is_left_to_tcp, corruption_reaches_the_application,
          cut_by("drop"), cut_by("link-down"), cut_by("reset")])
