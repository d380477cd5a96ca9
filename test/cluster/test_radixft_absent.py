#!/usr/bin/env python3
"""errmgr/radixft: MPI_Comm_spawn that adds a host which does not exist or cannot be reached fails in time, and the job goes on."""

import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

from ftcluster import SIDE_BY_SIDE  # noqa: E402
from fttap import check, main  # noqa: E402
from test_radixft import RADIXFT, processes  # noqa: E402
from test_radixft_join import RANKS, SPAWN_FAILED, all_refused, job, launch_wait  # noqa: E402

NO_DAEMON = "{}: its daemon could not be started"


def refused(it, command, why):
    """Rank 0's spawn fails, and mpirun says why; how long that took."""
    since = time.monotonic()
    it.command(command)
    it.hears("refused " + SPAWN_FAILED, f"the spawn did not fail ({why})")
    took = time.monotonic() - since
    it.says(why)
    return took


def joins(it, command=b"a"):
    it.command(command)
    it.hears("joined", "a host that is there cannot be added any more")


def leaves(it):
    """The daemon of n3, for which nobody waits any longer, ends by itself."""
    while [host for host, _ in processes(it.cluster, "^orted") if host == "n3"]:
        check(time.monotonic() < it.end and not it.run.ended(), "the daemon that called too late stays")


def does_not_exist():
    """A host that does not exist: the spawn fails, again and again, and between them hosts that exist can be added"""
    with job(again="n9") as it:
        for _ in range(2):
            refused(it, b"b", NO_DAEMON.format("n9"))
            joins(it)
        it.finishes()


def one_of_two():
    """Of two hosts one does not exist: the spawn fails, and the other one can be added later"""
    with job(again="n3,n9") as it:
        for _ in range(2):
            refused(it, b"b", NO_DAEMON.format("n9"))
            leaves(it)
        joins(it)
        it.finishes()


def is_down():
    """A host that is down: the spawn fails in all who call it, and when the host is up again it can be added"""
    with job(again="n2") as it:
        it.cluster.tool("kill", "n3")
        for _ in range(2):
            it.command(b"l")
            all_refused(it)
        it.says(NO_DAEMON.format("n3"))
        joins(it, b"b")
        it.cluster.tool("boot", "n3")
        joins(it)
        it.finishes()


def is_down_again():
    """A host that was a member, died and is still down: the spawn fails in all who call it, and it comes back when it is up"""
    with job() as it:
        it.command(b"w")
        it.hears("joined", "the host did not join")
        it.cluster.tool("kill", "n3")
        for _ in range(RANKS):
            it.hears("lost", "a rank did not learn that the added one died")
        for _ in range(2):
            it.command(b"l")
            all_refused(it)
        it.cluster.tool("boot", "n3")
        joins(it)
        it.finishes()


def does_not_answer():
    """A host that is cut off: the spawn fails in time, its daemon leaves when it is back, and it can be added then"""
    wait = launch_wait()  # nobody launches beside this
    with job(*RADIXFT, "--mca", "errmgr_radixft_launch_wait", str(wait)) as it:
        it.cluster.tool("cut", "n3", "m", "--how", "drop")
        took = refused(it, b"a", f"n3: its daemon has not called within {wait} ms")
        check(took < 3 * wait / 1000, f"the spawn failed after {took:.1f} s only")
        it.cluster.ask("heal", host="n3", rail="m")
        leaves(it)
        joins(it)
        it.finishes()


TESTS = [does_not_exist, one_of_two, is_down, is_down_again]

if __name__ == "__main__":
    if named := [test for test in (*TESTS, does_not_answer) if test.__name__ in sys.argv[1:]]:
        main(named)
    # The launch must be over in a short time too.
    main(TESTS, SIDE_BY_SIDE, alone=[does_not_answer])
