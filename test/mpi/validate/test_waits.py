#!/usr/bin/env python3
"""Waiting for several requests of which some fail: every call returns, and tells every error.

With each level of threads, with pml/dr's own thread, and over ob1, where nobody
dies but a message is too long.
"""

import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "lib"))

import ftmpi  # noqa: E402
from fttap import main  # noqa: E402

PROGRAM = os.path.join(ftmpi.BUILD, "test", "mpi", "validate", "waits")
TABLE = PROGRAM.replace("waits", "table")
RANKS = 3
DEADLINE = 60
DEADLY = {"pml": "dr", "btl": "vader,self", "errmgr": "radixft"}


def waits(parameters, *arguments, dead=()):
    """All but the dead ranks must say that they are right."""
    command = [ftmpi.MPIRUN, "--oversubscribe", "-np", str(RANKS), *ftmpi.mca(parameters), PROGRAM, *arguments]
    result = ftmpi.run(command, DEADLINE, show_stacks=True)
    right = {int(rank) for rank in re.findall(r"^rank (\d+) right$", result.output, re.M)}
    result.must(not result.late, f"{arguments}: a hang")
    result.must(result.code == 0 and right == set(range(RANKS)) - set(dead), f"{arguments}: right: {right}")


def single():
    """One thread"""
    waits(DEADLY, "0", dead={1})


def funneled():
    """Threads are on, one calls MPI"""
    waits(DEADLY, "1", dead={1})


def multiple():
    """Several threads wait at once"""
    waits(DEADLY, "3", dead={1})


def helped():
    """One thread, and that of pml/dr"""
    waits({**DEADLY, "pml_dr_progress": "thread"}, "0", dead={1})


def over_ob1():
    """Over ob1 a message that is too long"""
    waits({"pml": "ob1", "btl": "vader,self"}, "1", "truncated")


def half_way():
    """A collective that has an error and is open does not keep an error from its own communicator's handler"""
    command = [ftmpi.MPIRUN, "--oversubscribe", "-np", "2", *ftmpi.mca(DEADLY), TABLE, "half_way"]
    result = ftmpi.run(command, DEADLINE, show_stacks=True)
    result.must(not result.late, "a hang")
    result.must(result.code == 0 and result.output.count(" right") == 2, "somebody was wrong")


main([single, funneled, multiple, helped, over_ob1, half_way])
