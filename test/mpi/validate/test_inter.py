#!/usr/bin/env python3
"""Intercommunicators whose processes die by SIGKILL, in either group or in both.

Made by MPI_Intercomm_create and by MPI_Comm_spawn. Every collective ends with
the error before validation, and afterwards gives what it gives on an
intercommunicator of the survivors; ranks and counts are those of the other
group; duplicates, parts and the end work too.
"""

import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "lib"))

import ftmpi  # noqa: E402
import ftspawn  # noqa: E402
from fttap import main  # noqa: E402

PROGRAM = os.path.join(ftmpi.BUILD, "test", "mpi", "validate", "inter")
DEADLINE = 60


def inter(how, first, second, dead, btl):
    """One job; first and second are the sizes of the groups."""
    own = {"pml": "dr", "btl": btl, "errmgr": "radixft", "btl_tcp_if_include": "lo"}
    ranks = first + second if how == "create" else first
    command = [ftmpi.MPIRUN, "--oversubscribe", "-np", str(ranks), *ftmpi.mca(own), PROGRAM, how,
               str(second), ",".join(sorted(dead))]
    run = ftspawn.run if how == "spawn" else lambda *what: ftmpi.run(*what, show_stacks=True)
    result = run(command, DEADLINE)
    all_of_them = {f"a{rank}" for rank in range(first)} | {f"b{rank}" for rank in range(second)}
    right = set(re.findall(r"^process (\w\d+) right$", result.output, re.M))
    result.must(not result.late, f"{how} {dead}: a hang")
    result.must(result.code == 0, f"{how} {dead}: exit code {result.code}")
    result.must(right == all_of_them - dead, f"{how} {dead}: right were {sorted(right)}")


def nobody():
    """Nobody dies"""
    inter("create", 3, 3, set(), "vader,self")


def one_group():
    """The first, an inner or the last process of one group dies"""
    for dead in ("a0", "b0", "a1", "b2"):
        inter("create", 3, 3, {dead}, "vader,self")


def both_groups():
    """Processes of both groups die, and groups are not of one size"""
    inter("create", 4, 3, {"a0", "a3", "b0", "b1"}, "vader,self")


def whole_group():
    """All of one group die: the rest validates, and collectives have nobody to work with"""
    inter("create", 3, 3, {"a0", "a1", "a2"}, "vader,self")


def over_tcp():
    """Over TCP"""
    inter("create", 3, 3, {"a2", "b0"}, "tcp,self")


def spawned():
    """With spawned processes: a parent dies, a child dies, one of each dies"""
    for dead in ({"a0"}, {"b1"}, {"a1", "b0"}):
        inter("spawn", 3, 2, dead, "tcp,self")


ftmpi.become_subreaper()
main([nobody, one_group, both_groups, whole_group, over_tcp, spawned])
