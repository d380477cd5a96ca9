#!/usr/bin/env python3
"""Ranks die inside every collective that mpi.h has, blocking and non-blocking, neighbourhoods too.

usage: test_middle.py WHEN... | makers

The program counts the point-to-point operations of a collective in a run without
a failure; then a rank kills itself before its first one (entry), before the one in
the middle (middle) or behind its return (after). It is the root (the lowest rank),
an inner one or the highest. Nobody may hang, all must learn of it, and after
validation the same collective must give what it gives on a communicator of the
survivors.
"""

import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "lib"))

import ftmpi  # noqa: E402
from fttap import check, comment, main  # noqa: E402

PROGRAM = os.path.join(ftmpi.BUILD, "test", "mpi", "validate", "middle")
MAKERS = os.path.join(ftmpi.BUILD, "test", "mpi", "validate", "makers")
DEADLINE = 90
RANKS = 8
DEATHS = 5  # three are left
COLLECTIVES = 2 * 22


def one_run(role, when, first):
    """One job. Gives in what its ranks died."""
    own = {"pml": "dr", "btl": "vader,self", "errmgr": "radixft"}
    command = [ftmpi.MPIRUN, "--oversubscribe", "-np", str(RANKS), *ftmpi.mca(own), PROGRAM, role,
               when, str(first)]
    result = ftmpi.run(command, DEADLINE, show_stacks=True)
    struck = dict(re.findall(r"^rank (\d+) dies in (\w+), ", result.output, re.M))
    right = {rank for rank in re.findall(r"^rank (\d+) right$", result.output, re.M)}
    where = f"{role} {when} {first}"
    result.must(not result.late, f"{where}: a hang")
    result.must(result.code == 0, f"{where}: exit code {result.code}")
    result.must("did not strike" not in result.output and "wrong:" not in result.output,
                f"{where}: somebody was wrong")
    result.must(len(struck) == DEATHS and len(right) == RANKS - DEATHS
                and not right & set(struck), f"{where}: dead {struck}, right {sorted(right)}")
    return list(struck.values())


def walk(role, when):
    """The test of one role and one moment."""
    def all_collectives():
        struck = set()
        for first in range(0, COLLECTIVES, DEATHS):
            struck |= set(one_run(role, when, first))
        comment(f"{len(struck)} collectives: {' '.join(sorted(struck))}")
        check(len(struck) == COLLECTIVES, "a collective was left out")

    all_collectives.__doc__ = f"The {role} dies, {when}"
    return all_collectives


CASES = 52  # thirteen calls, each at four moments


def makers():
    """While a rank dies in it, what makes a communicator succeeds at all that live or at none"""
    for first in range(0, CASES, DEATHS):
        own = {"pml": "dr", "btl": "vader,self", "errmgr": "radixft"}
        command = [ftmpi.MPIRUN, "--oversubscribe", "-np", str(RANKS), *ftmpi.mca(own), MAKERS,
                   str(first)]
        result = ftmpi.run(command, DEADLINE, show_stacks=True)
        struck = re.findall(r"^rank \d+ dies in case ", result.output, re.M)
        right = re.findall(r"^rank \d+ right$", result.output, re.M)
        result.must(not result.late, f"case {first}: a hang")
        result.must(result.code == 0 and len(struck) == DEATHS and len(right) == RANKS - DEATHS,
                    f"case {first}: {len(struck)} died, {len(right)} were right")
        got = re.findall(r"^rank \d+ got (\d+) communicators$", result.output, re.M)
        comment(f"of {DEATHS} communicators {got[0]} were made")


if __name__ == "__main__":
    if sys.argv[1:] == ["makers"]:
        main([makers])
    main([walk(role, when) for when in sys.argv[1:] for role in ("root", "inner", "leaf")])
