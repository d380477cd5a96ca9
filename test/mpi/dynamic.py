#!/usr/bin/env python3
"""Spawn, connect, accept and disconnect under pml/dr.

usage: dynamic.py BTLS RANKS [spawns] [parameter=value...]
With `spawns`: spawn of two commands, by all ranks at once, and many times in turn.
"""

import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import ftmpi  # noqa: E402
import ftspawn  # noqa: E402
import fttap  # noqa: E402
import ftthreads  # noqa: E402

PROGRAM = os.path.join(ftmpi.BUILD, "test", "mpi", "semantics", "dynamic")
SECONDS = 40


def dynamic():
    """processes and communicators that come and go"""
    btls, ranks, *rest = sys.argv[1:]
    which = [word for word in rest if "=" not in word]
    parameters = dict(word.split("=", 1) for word in rest if "=" in word)
    command = [ftmpi.MPIRUN, "--oversubscribe", "-np", ranks,
               *ftmpi.mca({"pml": "dr", "btl": f"{btls},self", "pml_dr_stats": 1, "btl_fault_count": 1, **parameters}),
               PROGRAM, *which]
    result = ftspawn.run(command, SECONDS)
    result.must(result.code == 0 and not result.late and "not ok" not in result.output,
                "it failed, or hung in MPI")
    ftthreads.faults_struck(result, parameters)
    fttap.check(result.output.count("ok ") >= (3 if which else 6), result.output)


ftmpi.become_subreaper()
fttap.main([dynamic])
