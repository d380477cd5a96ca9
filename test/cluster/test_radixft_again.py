#!/usr/bin/env python3
"""errmgr/radixft: a newcomer that stands still, or is cut off, while it joins and goes on after the spawn has failed; and its
host, added again."""

import contextlib
import os
import re
import signal
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
from fttap import check, main  # noqa: E402
from test_radixft_join import (EVERYTHING, ONE_LAUNCH, PATIENT, SPAWN_FAILED, asks_to_join, job_on, launch_wait,  # noqa: E402
                               proposes_newcomer, select_on, view_held_up)


@contextlib.contextmanager
def job():
    """One whose newcomers have little time, as has one that was given up. The launch must be over in that time, too, and a
    newcomer that nothing befalls be a member: they are not launched beside each other."""
    with ftcluster.Cluster() as cluster, contextlib.ExitStack() as jobs:
        with ONE_LAUNCH:
            it = jobs.enter_context(job_on(cluster, *PATIENT, "--mca", "errmgr_radixft_launch_wait", str(launch_wait())))
        yield it


@contextlib.contextmanager
def stopped(it):
    """The newcomer's daemon stands still; it goes on at the end."""
    daemon = it.pid_of("^orted", "n3")
    os.kill(daemon, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(daemon, signal.SIGCONT)


@contextlib.contextmanager
def cut_off(it):
    """The newcomer's host reaches nobody and is reached by nobody; the network heals at the end."""
    it.cluster.tool("cut", "n3", "m", "--how", "drop")
    try:
        yield
    finally:
        it.cluster.ask("heal", host="n3", rail="m")


def until(it, holds, what):
    """Waits for something that a log will tell."""
    with select_on(it.run) as ended:
        while not holds():
            check(time.monotonic() < it.end and not ended(), what)


def proposed(it):
    """mpirun has proposed a view with the newcomer."""
    until(it, lambda: proposes_newcomer(log_of(it, 0)), "mpirun proposes no view with the newcomer")


def asked(it):
    """The newcomer's own engine has begun."""
    until(it, lambda: asks_to_join(it.logs), "the newcomer does not ask to join")


def invited(_):
    """mpirun has told the members of the newcomer, and the newcomer of them."""


def log_of(it, daemon):
    return next(os.path.join(it.logs, name) for name in os.listdir(it.logs) if name.endswith(f"-{daemon}.log"))


def refused(it):
    it.hears("refused " + SPAWN_FAILED, "the spawn did not fail")


def joins_again(it, old):
    """The host has joined, with another daemon than the old one, and none of the members was lost."""
    event = it.marks.wait(lambda t: t.startswith(("joined", "refused")), it.end, it.run)
    check(event and event[1].startswith("joined"), f"the host cannot be added any more: {event}")
    check(it.pid_of("^orted", "n3") != old, "the daemon that was given up is the one that has joined")
    it.finishes()
    said = re.findall(r"\[daemon 0\] [\d.]+ (daemon 3 on n3 is (?:to join|a member now)|installed view \d+: \d+ daemons)",
                      it.run.err)
    views = [text.split(": ")[1] for text in said if text.startswith("installed")]
    check(views == ["4 daemons"], f"mpirun tells {said}")
    check(said.count("daemon 3 on n3 is to join") == 2, f"mpirun tells {said}")


@contextlib.contextmanager
def given_up(it, failure, moment):
    """A newcomer fails at this moment, and the spawn is refused; it goes on at the end. Its daemon's number."""
    with contextlib.ExitStack() as fails:
        with ONE_LAUNCH, view_held_up(it):
            moment(it)
            old = it.pid_of("^orted", "n3")
            fails.enter_context(failure(it))
        refused(it)
        yield old


def goes_on_then_added(failure, moment, how):
    """It goes on, and its host is added again at once."""
    def test():
        with job() as it, contextlib.ExitStack() as launch:
            with given_up(it, failure, moment) as old:
                launch.enter_context(ONE_LAUNCH)
            it.command(b"a")
            joins_again(it, old)

    test.__doc__ = (f"A newcomer {how} and goes on after the spawn has failed: it leaves, no daemon is lost, and its host can "
                    "be added at once")
    return test


def added_then_goes_on(failure, moment, how):
    """The same, but its host is added again while the newcomer has not gone on."""
    def test():
        with job() as it, contextlib.ExitStack() as launch:
            with given_up(it, failure, moment) as old:
                it.command(b"a")
                refused(it)
                it.says("had started there may still live")
                launch.enter_context(ONE_LAUNCH)
                it.command(b"a")
                until(it, lambda: it.run.err.count("a spawn waits until daemon 3") == 2, "the spawn does not wait")
            joins_again(it, old)

    test.__doc__ = (f"While a newcomer that {how} has not gone on, a spawn on its host fails and mpirun says why; one that "
                    "waits when it goes on does not")
    return test


def goes_on_when_the_job_is_over():
    """A newcomer that was given up holds up nobody: the job ends well while it stands still, and it leaves when it goes on"""
    with job() as it:
        with given_up(it, stopped, asked):
            it.command(b"q")
            check(it.run.wait() == 0, f"mpirun's exit code is {it.run.code}")
            it.pid_of("^orted", "n3")
        check(not it.cluster.await_none(EVERYTHING, it.end), "processes are left")


# The longest ones first: the others fit in beside them. No more at a time, for a job's time goes by while it waits for its turn
# to launch something.
AT_A_TIME = 2
TESTS = [added_then_goes_on(stopped, asked, "stood still when it had asked"),
         added_then_goes_on(cut_off, invited, "was cut off before it had asked"),
         goes_on_then_added(stopped, invited, "stands still before it has asked"),
         goes_on_then_added(cut_off, proposed, "is cut off when its view is proposed"),
         goes_on_when_the_job_is_over]

if __name__ == "__main__":
    main(TESTS, AT_A_TIME)
