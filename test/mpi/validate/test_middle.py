#!/usr/bin/env python3
"""Ranks die inside every collective that mpi.h has, blocking and non-blocking, neighbourhoods too.

usage: test_middle.py WHEN... | inter WHEN... | algorithms | makers [many] | spawns

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
import ftspawn  # noqa: E402
from fttap import check, comment, main  # noqa: E402

PROGRAM = os.path.join(ftmpi.BUILD, "test", "mpi", "validate", "middle")
INTER = os.path.join(ftmpi.BUILD, "test", "mpi", "validate", "inter_middle")
MAKERS = os.path.join(ftmpi.BUILD, "test", "mpi", "validate", "makers")
DEADLINE = 90
RANKS = 8
DEATHS = 5  # three are left
# Of each program, blocking and non-blocking.
COLLECTIVES = {PROGRAM: 2 * 22, INTER: 2 * 15}


def one_run(program, role, when, first, parameters=None):
    """One job. Gives in what its ranks died."""
    own = {"pml": "dr", "btl": "vader,self", "errmgr": "radixft", **(parameters or {})}
    command = [ftmpi.MPIRUN, "--oversubscribe", "-np", str(RANKS), *ftmpi.mca(own), program, role,
               when, str(first)]
    result = ftmpi.run(command, DEADLINE, show_stacks=True)
    struck = dict(re.findall(r"^(?:rank|process) (\w+) dies in (\w+), ", result.output, re.M))
    right = {rank for rank in re.findall(r"^rank (\d+) right$", result.output, re.M)}
    where = f"{role} {when} {first}"
    result.must(not result.late, f"{where}: a hang")
    result.must(result.code == 0, f"{where}: exit code {result.code}")
    result.must("did not strike" not in result.output and "wrong:" not in result.output,
                f"{where}: somebody was wrong")
    result.must(len(struck) == DEATHS and len(right) == RANKS - DEATHS
                and not (program == PROGRAM and right & set(struck)),
                f"{where}: dead {struck}, right {sorted(right)}")
    return list(struck.values())


def walk(program, role, when, parameters=None, how=""):
    """The test of one role and one moment."""
    def all_collectives():
        struck = set()
        for first in range(0, COLLECTIVES[program], DEATHS):
            struck |= set(one_run(program, role, when, first, parameters))
        comment(f"{len(struck)} collectives: {' '.join(sorted(struck))}")
        check(len(struck) == COLLECTIVES[program], "a collective was left out")

    all_collectives.__doc__ = f"The {role} dies, {when}{how}"
    return all_collectives


# Which of coll/tuned's algorithms, where it has several: as many choices as a walk has to be made.
NUMBERS = {
    "linear": {"barrier": 1, "bcast": 1, "reduce": 1, "allreduce": 1, "gather": 1, "scatter": 1, "allgather": 1,
               "allgatherv": 1, "alltoall": 1, "alltoallv": 1, "reduce_scatter": 1, "reduce_scatter_block": 1,
               "scan": 1, "exscan": 1},
    "chains, pairs": {"barrier": 2, "bcast": 2, "reduce": 2, "allreduce": 3, "gather": 2, "scatter": 2, "allgather": 2,
                      "allgatherv": 2, "alltoall": 2, "alltoallv": 2, "reduce_scatter": 2, "reduce_scatter_block": 2,
                      "scan": 2, "exscan": 2},
    "pipelines, rings": {"barrier": 3, "bcast": 3, "reduce": 3, "allreduce": 4, "gather": 3, "scatter": 3,
                         "allgather": 4, "allgatherv": 3, "alltoall": 3, "reduce_scatter": 3,
                         "reduce_scatter_block": 3},
    "binary trees": {"barrier": 4, "bcast": 5, "reduce": 4, "allreduce": 5, "allgather": 3, "alltoall": 4,
                     "reduce_scatter": 4, "reduce_scatter_block": 4},
    "other trees": {"barrier": 6, "bcast": 8, "reduce": 7, "allreduce": 6, "allgather": 5, "allgatherv": 4},
}


def algorithms():
    """The walk with other algorithms than coll/tuned would choose, and without coll/tuned."""
    cases = [walk(PROGRAM, "inner", "middle", {"coll": "^tuned"}, ", without coll/tuned")]
    for how, numbers in NUMBERS.items():
        chosen = {f"coll_tuned_{name}_algorithm": str(number) for name, number in numbers.items()}
        cases.append(walk(PROGRAM, "inner", "middle", {"coll_tuned_use_dynamic_rules": "1", **chosen}, f", {how}"))
    return cases


CASES = 56  # fourteen calls, each at four moments


def make(first, *name):
    """One job, in which five calls lose a rank each. Gives how many communicators there were all the same."""
    own = {"pml": "dr", "btl": "vader,self", "errmgr": "radixft"}
    command = [ftmpi.MPIRUN, "--oversubscribe", "-np", str(RANKS), *ftmpi.mca(own), MAKERS, str(first), *name]
    result = ftmpi.run(command, DEADLINE, show_stacks=True)
    where = " ".join([f"case {first}", *name])
    struck = re.findall(r"^rank \d+ dies in case ", result.output, re.M)
    right = re.findall(r"^rank \d+ right$", result.output, re.M)
    result.must(not result.late, f"{where}: a hang")
    result.must(result.code == 0 and len(struck) == DEATHS and len(right) == RANKS - DEATHS,
                f"{where}: {len(struck)} died, {len(right)} were right")
    return int(re.search(r"^rank \d+ got (\d+) communicators$", result.output, re.M)[1])


def makers():
    """While a rank dies in it, what makes a communicator succeeds at all that live or at none"""
    for first in range(0, CASES, DEATHS):
        comment(f"of {DEATHS} communicators {make(first)} were made")


NAMES = ("dup", "split", "create", "dup_with_info", "split_type", "merge", "cart_create", "cart_sub", "graph_create",
         "dist_graph_create_adjacent", "idup", "dist_graph_create", "create_group", "intercomm_create")
MOMENTS = 2 * 16  # of the lowest rank and of the highest


def maker(name):
    """The same for one call, at many moments."""
    def at_many_moments():
        got = sum(make(first, name) for first in range(0, MOMENTS, DEATHS))
        comment(f"{got} communicators were made, {len(range(0, MOMENTS, DEATHS)) * DEATHS} ranks died")

    at_many_moments.__doc__ = f"Ranks die in {name}"
    return at_many_moments


SPAWNS = os.path.join(ftmpi.BUILD, "test", "mpi", "validate", "spawns")


def spawns():
    """A rank dies before MPI_Comm_spawn joins the jobs, or after: all that live have the communicator, or nobody"""
    ftmpi.become_subreaper()
    for victim in (0, 1):
        for part in (0, 1):
            own = {"pml": "dr", "btl": "tcp,self", "btl_tcp_if_include": "lo", "errmgr": "radixft"}
            command = [ftmpi.MPIRUN, "--oversubscribe", "-np", "3", *ftmpi.mca(own), SPAWNS, str(victim),
                       str(part), "1"]
            result = ftspawn.run(command, DEADLINE)
            right = re.findall(r"^rank \d+ right$", result.output, re.M)
            result.must(not result.late, f"victim {victim}, part {part}: a hang")
            result.must(result.code == 0 and len(right) == 2, f"victim {victim}, part {part}: {len(right)} were right")


if __name__ == "__main__":
    if sys.argv[1:] == ["makers"]:
        main([makers])
    if sys.argv[1:] == ["makers", "many"]:
        main([maker(name) for name in NAMES])
    if sys.argv[1:] == ["spawns"]:
        main([spawns])
    if sys.argv[1:] == ["algorithms"]:
        main(algorithms())
    inter = sys.argv[1:2] == ["inter"]
    main([walk(INTER if inter else PROGRAM, role, when)
          for when in sys.argv[2 if inter else 1:] for role in ("root", "inner", "leaf")])
