#!/usr/bin/env python3
"""Random kills before, during and after validation, again and again.

usage: test_kills.py KILLS [SEED]

Runs the program `kills` with eight ranks and one seed after the other until at least KILLS ranks
have been killed. In each run all must agree, call by call: the sets that the survivors, and those
that died later, returned with are compared. No run may hang.
"""

import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "lib"))

import ftmpi  # noqa: E402
from fttap import check, comment, main  # noqa: E402

PROGRAM = os.path.join(ftmpi.BUILD, "test", "mpi", "validate", "kills")
RANKS = 8
DEADLINE = 60
# Not vader alone: who is killed between the two writes with which it hands a fragment over leaves its receiver deaf.
BTLS = ("vader,tcp,self", "tcp,self")
ALGORITHMS = ("auto", "fast", "tree", "chain", "paper")


def one_run(seed):
    """One job. Gives the number of ranks killed and of calls compared."""
    own = {"pml": "dr", "btl": BTLS[seed % len(BTLS)], "errmgr": "radixft"}
    algorithm = ALGORITHMS[seed % len(ALGORITHMS)]
    if algorithm == "chain":
        own["coll_validate_fan_out"] = 1
    own["coll_validate_algorithm"] = algorithm.replace("chain", "tree")
    least = 1 + seed % 3
    command = [ftmpi.MPIRUN, "--oversubscribe", "-np", str(RANKS), *ftmpi.mca(own), PROGRAM,
               str(seed), str(least)]
    result = ftmpi.run(command, DEADLINE, show_stacks=True)
    right = set(re.findall(r"^rank (\d+) right$", result.output, re.M))
    sets = {}
    for number, rank, text in re.findall(r"^call (\d+) rank (\d+) set (\S+)$", result.output, re.M):
        sets.setdefault(int(number), {})[rank] = text
    result.must(not result.late, f"seed {seed}: a hang")
    result.must(result.code == 0, f"seed {seed}: exit code {result.code}")
    result.must(len(right) == least, f"seed {seed}: right were {sorted(right)}")
    for number, by_rank in sorted(sets.items()):
        result.must(len(set(by_rank.values())) == 1, f"seed {seed}: call {number}: {by_rank}")
        result.must(right <= set(by_rank), f"seed {seed}: call {number} returned at {by_rank}")
    return RANKS - least, len(sets)


def kills(wanted, seed):
    """The test itself."""
    def random_kills():
        killed, calls, runs = 0, 0, 0
        while killed < wanted:
            more, compared = one_run(seed + runs)
            killed, calls, runs = killed + more, calls + compared, runs + 1
        comment(f"{killed} ranks killed in {runs} jobs, the sets of {calls} calls compared")
        check(calls > killed / 2, "hardly any call was seen")

    random_kills.__doc__ = f"{wanted} kills before, during and after validation: all sets agree"
    return random_kills


if __name__ == "__main__":
    main([kills(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)])
