#!/usr/bin/env python3
"""Several calls under way on one communicator: they are paired and end alike everywhere.

One rank is kept from hearing of a decision that another has heard of, so what
either calls next comes in between. And requests that outlive what they are about.
"""

import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "lib"))

import ftmpi  # noqa: E402
from fttap import main  # noqa: E402

PROGRAM = os.path.join(ftmpi.BUILD, "test", "mpi", "validate", "overlaps")
ASKS = PROGRAM.replace("overlaps", "asks")
RANKS = 6  # the program holds back what the top of a tree with one end tells those below
DEADLINE = 60
PARAMETERS = {"pml": "dr", "btl": "vader,self", "errmgr": "radixft", "coll_validate_algorithm": "tree",
              "coll_validate_fan_out": 31}


def overlaps(what, dead=(), program=PROGRAM, ranks=RANKS, **parameters):
    """All but the dead ranks must say that they are right."""
    command = [ftmpi.MPIRUN, "--oversubscribe", "-np", str(ranks), *ftmpi.mca({**PARAMETERS, **parameters}), program, what]
    result = ftmpi.run(command, DEADLINE, show_stacks=True)
    right = {int(rank) for rank in re.findall(r"^rank (\d+) right$", result.output, re.M)}
    result.must(not result.late, f"{what}: a hang")
    result.must(result.code == 0 and right == set(range(ranks)) - set(dead), f"{what}: right: {right}")


def pairs():
    """A call that tries once more is not taken for the next call, whoever has made that already"""
    overlaps("pairs")


def order():
    """Calls end in the order in which they were begun, whatever is decided first"""
    overlaps("order")


def verdicts():
    """Why a communicator could not be made does not depend on what is recognised a moment later"""
    overlaps("verdicts", dead={2})


def freed():
    """Calls under way on a communicator that has been freed end as if it had not, with its error handler"""
    overlaps("freed", dead={2})


def many():
    """The two hundredth communicator costs what the first one did, and overlapping calls find the same ids then too"""
    overlaps("many")


def several():
    """Calls on several communicators at once do not keep context ids from each other again and again"""
    for ranks in (3, 4):
        overlaps("several", ranks=ranks, coll_validate_algorithm="fast")


def exhausted():
    """When the PML has no more context ids all fail alike"""
    overlaps("exhausted", dead={2})


def replaced():
    """A collective under way among the survivors of one failure ends when a second one is recognised"""
    # Around the ring a suspicion travels with the steps, so one may return that has not been told of the death.
    overlaps("replaced", dead={2, 3}, coll_validate_algorithm="fast")


def handles():
    """A request of the library's own gives its place among Fortran's handles back"""
    overlaps("handles")


def asks(what, dead=()):
    """The other program, whose ranks stand in a row"""
    overlaps(what, dead, ASKS, 4, coll_validate_fan_out=1)


def asks_freed():
    """An agreement is answered for when the communicator is gone, and many others that were made since"""
    asks("freed", dead={1})


def asks_under_way():
    """An agreement is answered for however many others are under way"""
    asks("under_way", dead={1})


def asks_wrapped():
    """Calls are paired when their numbers begin again at 0"""
    asks("wrapped")


def asks_gone():
    """A letter about a communicator that is gone is not kept"""
    asks("gone")


def asks_again():
    """Nor is it taken for the next communicator of the same name"""
    asks("again")


def asks_late():
    """The survivors' communicator that is made behind a revocation is revoked, too"""
    asks("late", dead={1})


def asks_numbers():
    """Of a communicator that is gone, and that nobody can ask about, nothing is kept"""
    asks("numbers")


main([pairs, order, verdicts, freed, many, several, exhausted, replaced, handles,
      asks_freed, asks_under_way, asks_wrapped, asks_gone, asks_again, asks_late, asks_numbers])
