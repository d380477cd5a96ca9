#!/usr/bin/env python3
"""Collectives of a communicator that loses ranks by SIGKILL.

Refused with the error class of a failed rank at every survivor while the
failure is not recognised; after MPI_Comm_validate_all equal to what a
communicator of the survivors gives, block by block, for every blocking and
non-blocking collective and in place; and no hang when a rank dies at the entry
of a collective, nor success without what it is the success of.
"""

import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "lib"))

import ftmpi  # noqa: E402
from fttap import main  # noqa: E402

PROGRAMS = os.path.join(ftmpi.BUILD, "test", "mpi", "validate")
DEADLINE = 90


def walk(ranks, what, which, survivors, *more, btl="vader,self", program="collectives"):
    """Runs the program; each survivor must have found everything right."""
    own = {"pml": "dr", "btl": btl}
    if which != "none":
        own["errmgr"] = "radixft"
    command = [ftmpi.MPIRUN, "--oversubscribe", "-np", str(ranks), *ftmpi.mca(own),
               os.path.join(PROGRAMS, program), what, which, *more]
    result = ftmpi.run(command, DEADLINE, show_stacks=True)
    right = {int(rank) for rank in re.findall(r"^rank (\d+) right$", result.output, re.M)}
    result.must(not result.late, f"{what} {which}: a hang")
    result.must(result.code == 0, f"{what} {which}: exit code {result.code}")
    result.must(right == set(survivors), f"{what} {which}: right were {sorted(right)}")


def unharmed():
    """Nobody fails: the same results"""
    walk(3, "recognised", "none", {0, 1, 2})


def root():
    """Rank 0 is dead and recognised: every collective, in each form"""
    walk(4, "recognised", "0", {1, 2, 3})


def inner():
    """Rank 2 of 5 is dead and recognised"""
    walk(5, "recognised", "2", {0, 1, 3, 4})


def leaf():
    """The last rank is dead and recognised"""
    walk(4, "recognised", "3", {0, 1, 2})


def large():
    """Blocks that are at places beyond the numbers of an int"""
    walk(3, "large", "0", {1, 2})


def kinds():
    """Each rank has its own datatype for the same block"""
    walk(6, "kinds", "5", {0, 1, 2, 3, 4})


def refused():
    """While the failure is not recognised every collective ends with the error everywhere"""
    walk(4, "refused", "1", {0, 2, 3})


def at_entry():
    """Ranks die one after the other at the entry of collectives, roots too"""
    walk(6, "entry", "0", {0, 5})
    walk(6, "entry", "1", {0, 5}, "root")
    walk(6, "entry", "6", {0, 5}, "root")
    walk(6, "entry", "10", {0, 5})
    walk(6, "entry", "13", {0, 5})


def trusted():
    """Who is told of success by an MPI_Allgatherv in which a rank died has all blocks"""
    for first in range(7):
        walk(8, "trusted", str(first), {3, 4})
    walk(3, "trusted", "0", {1, 2})
    walk(16, "trusted", "0", {7, 8})


def interrupted():
    """The same of every collective whose communicator is revoked in the middle, also among survivors"""
    for ranks in (3, 4, 5):
        walk(ranks, "interrupted", "", set(range(ranks)))
    walk(5, "interrupted", "1", {0, 2, 3, 4})


def ulfm():
    """The ULFM calls, and dup and split before, between and after a failure"""
    for ranks in (4, 6):
        walk(ranks, "", "", set(range(ranks)) - {2}, program="ulfm")


WITH_DEATHS = [ulfm, root, inner, leaf, large, kinds, refused, at_entry, trusted, interrupted]


def over_tcp():
    """Ranks die at the entry of collectives while TCP connections are being made"""
    for first in ("0", "5", "11"):
        walk(6, "entry", first, {0, 5}, "root", btl="tcp,self")


if __name__ == "__main__":
    if sys.argv[1:] == ["tcp"]:
        main([over_tcp])
    main([unharmed, *WITH_DEATHS])
