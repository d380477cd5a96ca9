#!/usr/bin/env python3
"""MPI_THREAD_MULTIPLE under pml/dr while btl/fault strikes. Prints TAP.

usage: threads.py NETWORK parameter=value...
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
sys.dont_write_bytecode = True

import ftmpi  # noqa: E402
import fttap  # noqa: E402
import ftthreads  # noqa: E402

PROGRAM = os.path.join(ftmpi.BUILD, "test", "mpi", "semantics", "threads")
PART = 10  # enough for each fault to strike
DEADLINE = 50


def threads():
    """several threads of each rank send, receive, probe and cancel while faults strike"""
    network, *words = sys.argv[1:]
    parameters = dict(word.split("=", 1) for word in words)
    result = ftthreads.run(network, parameters, PROGRAM, PART, DEADLINE)
    ftthreads.must_be_well(result, parameters)
    fttap.comment(ftthreads.told(result))


if __name__ == "__main__":
    ftmpi.become_subreaper()
    fttap.main([threads])
