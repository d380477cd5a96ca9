#!/usr/bin/env python3
"""pml/dr on the virtual cluster: every byte is right whatever the kernel does to a rail.

Each fault is made while a message is under way, is shown by its counter to
have struck, and is followed by more rounds.  Then the mechanism that the test
is about is switched off, and the same fault must not be survived.
"""

import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
import ftring  # noqa: E402
from fttap import check, comment, main  # noqa: E402

DR = {"pml": "dr", "btl": "tcp,self"}
DEADLINE = 60
# How long a run that does nothing is watched before it counts as hanging.
WATCHED_SECONDS = 8
# Without a mechanism a run may stand still by itself before the fault has been made. That proves nothing, so another one is
# begun. A run gets under way within seconds, or never.
STORIES = 6
START_SECONDS = 20


def without(mechanism):
    """dr with one of its mechanisms switched off by its test switch."""
    parameters = dict(DR, pml_dr_test_disable=mechanism)
    if mechanism == "duplicate":
        # Four ranks on two cores answer late now and then, also by a second: only the fault is to make duplicates.
        parameters.update(pml_dr_rto_min_us=2000000, pml_dr_rto_initial_us=2000000)
    return parameters


def not_survived(story):
    """Check that the run hangs, ends with an error, or has wrong bytes."""
    story.drain()
    if story.rounds(10, seconds=WATCHED_SECONDS):
        code = story.finish()
        check(code != 0, "the run ended well without the mechanism: the fault proves nothing")
    elif story.run.ended():
        check(story.run.wait() != 0, "the run ended well without the mechanism")


# The faults: each begins in the middle of a round of large messages -----------

def cut(how, direction="both"):
    def fault(cluster, story):
        story.under_way("bulk", rounds=6)
        began = time.monotonic()
        cluster.tool("cut", "n1", "0", "--how", how, "--direction", direction)
        yield
        comment(f"went on {time.monotonic() - began:.1f} s after the cut")
        if how in ("drop", "reset"):
            ftring.counters_add_up(cluster, "drop", "n1", "0")
        yield
    return fault


def corrupt(rate, packets=20):
    def fault(cluster, story):
        story.under_way("bulk")
        cluster.tool("corrupt", "n1", "0", "--rate", rate)
        check(cluster.await_struck("corrupt", "n1", "0", packets, story.end), "nothing was struck")
        yield
        yield
    return fault


def lose(rate):
    def fault(cluster, story):
        story.under_way("bulk")
        cluster.tool("lose", "n1", "0", "--rate", rate)
        check(cluster.await_struck("lose", "n1", "0", 20, story.end), "nothing was struck")
        yield
        yield
    return fault


def blackout(kind):
    """A silent cut that is healed: what TCP held back then comes after all."""
    def fault(cluster, story):
        story.under_way(kind, rounds=6)
        cluster.tool("cut", "n1", "0", "--how", "drop")
        check(cluster.await_struck("drop", "n1", "0", 1, story.end), "nothing was struck")
        # What was cut off has been sent again over the other rail when rounds go on.
        story.drain()
        story.rounds(3, seconds=WATCHED_SECONDS)
        cluster.tool("heal", "n1", "0")
        # TCP tries again when its timer expires, which was set back at each failure.
        while "backoff:" in cluster.tool("run", "n1", "ss", "-Htni"):
            check(time.monotonic() < story.end, "TCP does not go on over the healed rail")
        yield
        yield
    return fault


def everything(cluster, story):
    """Loss and corruption on both rails of one host, then a cut of one."""
    for rail in ("0", "1"):
        cluster.tool("lose", "n1", rail, "--rate", "0.005")
        cluster.tool("corrupt", "n1", rail, "--rate", "0.02")
    story.under_way("bulk", rounds=4)
    check(cluster.await_struck("corrupt", "n1", "0", 5, story.end), "nothing was corrupted")
    check(cluster.await_struck("lose", "n1", "0", 5, story.end), "nothing was lost")
    cluster.tool("cut", "n1", "0", "--how", "drop")
    yield
    ftring.counters_add_up(cluster, "drop", "n1", "0")
    yield


# Tests ------------------------------------------------------------------------

def survives(fault, text, kinds=""):
    def test():
        with ftcluster.Cluster() as cluster:
            with ftring.Story(cluster, DR, DEADLINE, kinds=kinds) as story:
                steps = fault(cluster, story)
                next(steps)
                story.goes_on()
                next(steps)
                story.finish_right()
    test.__doc__ = f"{text} is survived and every byte is right"
    return test


class Doubtful(ftring.Story):
    """A run without a mechanism."""

    def under_way(self, kind="", rounds=2):
        if not self.rounds(rounds, kind, START_SECONDS):
            self.run.stop()
            self.run.tell()
            raise ftring.NotUnderWay(f"the run did not come to its {rounds}. round {kind}")


def fails_without(mechanism, fault, text, kinds="bulk"):
    def test():
        for left in reversed(range(STORIES)):
            with ftcluster.Cluster() as cluster, Doubtful(cluster, without(mechanism), DEADLINE, kinds=kinds) as story:
                try:
                    next(fault(cluster, story))
                    check(time.monotonic() + WATCHED_SECONDS < story.end, "no time is left to watch it")
                except AssertionError as stood_still:
                    comment(f"{stood_still}, before the whole fault was made")
                    if not left:
                        raise
                else:
                    not_survived(story)
                    return
    test.__doc__ = f"{text} is not survived without {mechanism}"
    return test


def right_without_fault():
    """without a fault every byte is right"""
    with ftcluster.Cluster() as cluster:
        with ftring.Story(cluster, DR, DEADLINE) as story:
            story.under_way(rounds=40)
            story.finish_right()


TESTS = [
    right_without_fault,
    survives(cut("drop"), "a silent cut of a rail", "bulk,storm"),
    survives(cut("drop", "in"), "a silent cut of what a host receives on a rail", "bulk,storm"),
    survives(cut("drop", "out"), "a silent cut of what a host sends on a rail", "bulk,storm"),
    survives(cut("link-down"), "a rail without carrier", "bulk,storm"),
    survives(cut("reset"), "a rail cut by connection resets"),
    survives(cut("reset-once"), "a reset of a rail's connections"),
    survives(corrupt(0.05), "corruption on the wire"),
    survives(lose(0.01), "loss of packets"),
    survives(blackout("bulk"), "a cut that is healed"),
    survives(everything, "loss, corruption and a cut together"),
    # What is read as a header may end the run with the first packets that were struck.
    fails_without("checksum", corrupt(0.05, 1), "corruption on the wire"),
    fails_without("retransmit", cut("drop"), "a silent cut of a rail"),
    fails_without("failover", cut("drop"), "a silent cut of a rail"),
    # Small ones: each that comes twice is a message too many.
    fails_without("duplicate", blackout("storm"), "a cut that is healed", "storm"),
]

if __name__ == "__main__":
    main(TESTS)
