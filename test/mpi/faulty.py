#!/usr/bin/env python3
"""A program of semantics/ under pml/dr while btl/fault strikes. Prints TAP.

usage: faulty.py PROGRAM BTLS RANKS parameter=value...
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
sys.dont_write_bytecode = True

import ftmpi  # noqa: E402
import fttap  # noqa: E402
import ftthreads  # noqa: E402

DEADLINE = 50


def faulty():
    """every case of the program passes, and every fault struck and was answered"""
    program, btls, ranks, *words = sys.argv[1:]
    parameters = dict(word.split("=", 1) for word in words)
    command = [ftmpi.MPIRUN, "--oversubscribe", "-np", ranks,
               *ftmpi.mca({"pml": "dr", "btl": f"fault,{btls},self", "pml_dr_stats": 1, "btl_fault_count": 1, **parameters}),
               os.path.join(ftmpi.BUILD, "test", "mpi", "semantics", program)]
    result = ftmpi.run(command, DEADLINE, show_stacks=True)
    result.must(not result.late, "a stall")
    result.must(result.code == 0 and "not ok" not in result.output and "\nok 1 " in result.output, "it failed")
    ftthreads.faults_struck(result, parameters)
    fttap.comment(ftthreads.told(result))


if __name__ == "__main__":
    ftmpi.become_subreaper()
    fttap.main([faulty])
