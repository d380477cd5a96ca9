#!/usr/bin/env python3
"""A rank dies in the middle of MPI_Comm_spawn, accept or connect: all that live return, alike, and the job ends.

usage: test_meets.py CALL

CALL is spawn, accept (of those who accept one dies) or connect.  A rank kills
itself inside the call, at points that cannot be hit from outside.
"""

import os
import re
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "lib"))

import ftmpi  # noqa: E402
import ftspawn  # noqa: E402
from fttap import comment, main  # noqa: E402

PROGRAM = os.path.join(ftmpi.BUILD, "test", "mpi", "validate", "meets")
DEADLINE = 60
POINTS = ("none", "published", "connect", "connected", "context_id", "activate", "spawn", "looked_up")  # dies_at.hpp
# Of each call: how many ranks there are, and which of them is the root and which another one.
CALLS = {"spawn": (3, {"root": 0, "another": 1}), "accept": (4, {"root": 0, "another": 1}),
         "connect": (4, {"root": 2, "another": 3})}


def one_run(call, who, point, way):
    """One job in which a rank dies."""
    ranks, victims = CALLS[call]
    own = {"pml": "dr", "btl": "tcp,self", "btl_tcp_if_include": "lo", "errmgr": "radixft"}
    with tempfile.TemporaryDirectory() as folder:
        fifo = os.path.join(folder, "met")
        os.mkfifo(fifo)
        command = [ftmpi.MPIRUN, "--oversubscribe", "-np", str(ranks), *ftmpi.mca(own), PROGRAM,
                   "spawn" if call == "spawn" else "accept", str(victims[who]), str(POINTS.index(point)), way, fifo]
        result = ftspawn.run(command, DEADLINE)
    where = f"{call}, {way}: {who} dies at {point}"
    right = re.findall(r"^rank \d+ right$", result.output, re.M)
    classes = dict(re.findall(r"^rank (\d+) returned, class (\d+)$", result.output, re.M))
    comment(f"{where}: {result.seconds:.1f} s, {' '.join(f'{r}:{c}' for r, c in sorted(classes.items()))}")
    result.must(not result.late, f"{where}: a hang")
    result.must(str(victims[who]) not in classes, f"{where}: it did not die")
    result.must(result.code == 0 and len(right) == ranks - 1, f"{where}: {len(right)} were right")


def case(call, who, way):
    """The test of one call and one victim."""
    def at_every_point():
        points = ("connect", "connected", "context_id", "activate")
        # A side that has met nobody waits for others; only in the way "agreed" these come.
        first = () if who != "root" else ("spawn", "published") if call == "spawn" else ("published", "looked_up")
        first = first if call == "spawn" or way == "agreed" else ()
        for point in (*first, *points):
            one_run(call, who, point, way)

    at_every_point.__doc__ = f"{call}, {way}: the {'root' if who == 'root' else 'rank that is not the root'} dies"
    return at_every_point


if __name__ == "__main__":
    ftmpi.become_subreaper()
    if len(sys.argv) > 2:
        one_run(*sys.argv[1:5])
    else:
        main([case(sys.argv[1], who, way) for way in ("agreed", "stock") for who in ("another", "root")])
