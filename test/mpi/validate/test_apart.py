#!/usr/bin/env python3
"""Survivors who part ways: some recover, or have revoked the communicator, while others still make one of it."""

import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "lib"))

import ftmpi  # noqa: E402
from fttap import main  # noqa: E402

PROGRAM = os.path.join(ftmpi.BUILD, "test", "mpi", "validate", "apart")
DEADLINE = 30
BTLS = ("vader,self", "tcp,self")
ALGORITHMS = ("fast", "tree", "paper")


def run(what, ranks, dead, **parameters):
    """All but the dead must say that they are right."""
    own = {"pml": "dr", "errmgr": "radixft", "btl": BTLS[0], **parameters}
    command = [ftmpi.MPIRUN, "--oversubscribe", "-np", str(ranks), *ftmpi.mca(own), PROGRAM, what]
    result = ftmpi.run(command, DEADLINE, show_stacks=True)
    right = {int(rank) for rank in re.findall(r"^rank (\d+) right$", result.output, re.M)}
    result.must(not result.late, "a hang")
    result.must(result.code == 0 and right == set(range(ranks)) - set(dead), f"right: {sorted(right)}")


def recovers():
    """One recovers from a death, by each call that does, while others make communicators, by each call that does: they meet"""
    for ranks in (4, 6):
        for algorithm in ALGORITHMS:
            run("recovers", ranks, [ranks - 1], btl=BTLS[ranks // 2 % 2], coll_validate_algorithm=algorithm)
    for algorithm in ALGORITHMS:
        run("recovers", 4, [3], coll_validate_algorithm=algorithm, coll_validate_semantics="loose")


def revokes():
    """Who waits in a call that makes a communicator comes back when another revokes, and never makes, one"""
    for ranks in (2, 5):
        for btl in BTLS:
            run("revokes", ranks, [], btl=btl)


def in_flight():
    """Several calls of one process are under way when another revokes: none waits for ever, and none has another's result"""
    for algorithm in ALGORITHMS:
        run("in_flight", 3, [], coll_validate_algorithm=algorithm)
        run("in_flight", 4, [], btl=BTLS[1], coll_validate_algorithm=algorithm)


def frees():
    """Who knows of the revocation and frees the communicator at once lets those go who wait in a call that makes one of it"""
    for algorithm in ALGORITHMS:
        for ranks in (2, 4):
            run("frees", ranks, [], btl=BTLS[ranks // 2 % 2], coll_validate_algorithm=algorithm)


def never_paired():
    """Who revokes a communicator, and never pairs it, lets those go who wait for that in MPI_Intercomm_create"""
    for algorithm in ALGORITHMS:
        for ranks in (4, 7):
            run("never_paired", ranks, [], btl=BTLS[ranks // 2 % 2], coll_validate_algorithm=algorithm)


def repeated():
    """MPI_Comm_create_group is called again and again until another revokes: all come back"""
    for ranks in (3, 5):
        run("repeated", ranks, [])


def across():
    """What waits on an intercommunicator, also for somebody of its own group, ends when that is revoked"""
    for ranks in (4, 5):
        run("across", ranks, [])


def paired():
    """MPI_Intercomm_create pairs groups of which one has a rank that is recognised as failed"""
    for ranks in (5, 6):
        run("paired", ranks, [ranks - 1])


def acknowledges():
    """MPIX_Comm_ack_failed acknowledges nobody of whom MPIX_Comm_get_failed has not told"""
    run("acknowledges", 5, [1, 3])


def hints():
    """MPI_Comm_dup_with_info hints to the new communicator, whatever the variable held"""
    run("hints", 2, [])


if __name__ == "__main__":
    main([recovers, revokes, in_flight, frees, never_paired, repeated, across, paired, acknowledges, hints])
