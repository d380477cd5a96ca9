#!/usr/bin/env python3
"""Collectives after validation where the survivors' arguments are a special case.

What MPI's functions see of a call are the arguments of all ranks; what the
stock algorithms are given then are the survivors'.
"""

import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "lib"))

import ftmpi  # noqa: E402
from fttap import main  # noqa: E402

PROGRAM = os.path.join(ftmpi.BUILD, "test", "mpi", "validate", "corners")
DEADLINE = 40


def corners(ranks, what, dead, survivors, **parameters):
    """Each survivor must have found everything right."""
    own = {"pml": "dr", "btl": "vader,self", "errmgr": "radixft", **parameters}
    command = [ftmpi.MPIRUN, "--oversubscribe", "-np", str(ranks), *ftmpi.mca(own), PROGRAM, what,
               dead]
    result = ftmpi.run(command, DEADLINE, show_stacks=True)
    right = {int(rank) for rank in re.findall(r"^rank (\d+) right$", result.output, re.M)}
    result.must(not result.late, f"{what} {dead}: a hang")
    result.must(result.code == 0, f"{what} {dead}: exit code {result.code}")
    result.must(right == set(survivors), f"{what} {dead}: right were {sorted(right)}")


def counts():
    """Only failed ranks have elements of a reduce_scatter"""
    corners(5, "counts", "0", {1, 2, 3, 4})
    corners(4, "counts", "1,2", {0, 3})


def alone():
    """One rank is left: its alltoallw reads and writes where it says"""
    corners(3, "alone", "1,2", {0})
    corners(3, "alone", "0,1", {2})


def windows():
    """Blocks to send that overlap, and such that stand between each other"""
    corners(4, "windows", "1", {0, 2, 3})


def roots():
    """A non-blocking collective whose root is dead, and then another, on an intercommunicator"""
    corners(5, "roots", "1", {0, 2, 3, 4})


def adopts():
    """Others become the survivors while a gather ends: its blocks are still of those before"""
    corners(4, "adopts", "3", {0, 2}, coll_tuned_use_dynamic_rules=1, coll_tuned_gather_algorithm=1)


if __name__ == "__main__":
    main([counts, alone, windows, roots, adopts])
