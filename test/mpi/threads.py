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

PROGRAM = os.path.join(ftmpi.BUILD, "test", "mpi", "semantics", "threads")
PART = 10  # of the turns that it makes without faults: enough for each fault to strike
DEADLINE = 50
CASES = 6

# What tells that a fault struck: btl/fault's counter, and dr's of what it did about it.
COUNTERS = {
    "btl_fault_drop": ("dropped", "retransmitted"),
    "btl_fault_duplicate": ("duplicated", "duplicates"),
    "btl_fault_corrupt": ("corrupted", "corrupt_payload"),
    "btl_fault_kill_after": ("killed", "retransmitted"),
}


def threads():
    """several threads of each rank send, receive, probe and cancel while faults strike"""
    network, *words = sys.argv[1:]
    parameters = dict(word.split("=", 1) for word in words)
    result = ftmpi.run(ftmpi.command_for(network, "dr", parameters, [PROGRAM, PART]), DEADLINE, show_stacks=True)
    result.must(not result.late, "a stall")
    result.must(result.code == 0 and "not ok" not in result.output, "it failed")
    result.must(f"ok {CASES} " in result.output, "not every case was run")
    for parameter, (fault, answer) in COUNTERS.items():
        if parameter in parameters:
            result.must(result.faults[fault] > 0, f"the fault did not strike: {fault}=0")
            result.must(result.dr[answer] > 0, f"dr did not count it: {answer}=0")
    struck = ", ".join(f"{fault}={result.faults[fault]}" for fault, _ in COUNTERS.values())
    fttap.comment(f"{result.seconds:.1f} s, {struck}")


if __name__ == "__main__":
    ftmpi.become_subreaper()
    fttap.main([threads])
