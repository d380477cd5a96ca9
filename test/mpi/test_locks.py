#!/usr/bin/env python3
"""Which levels of threads make pml/dr take locks. Prints TAP."""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
sys.dont_write_bytecode = True

import ftmpi  # noqa: E402
import fttap  # noqa: E402

PROGRAM = os.path.join(ftmpi.BUILD, "test", "mpi", "programs", "level")
DEADLINE = 30


def threads_of(level, parameters):
    """What every rank says of a job of two whose program asked for that level."""
    result = ftmpi.run(ftmpi.command_for("tcp", "dr", {"pml_dr_verbose": 2, **parameters}, [PROGRAM, level], 2), DEADLINE)
    result.must(result.code == 0, f"{level}: it failed")
    said = re.findall(r"pml/dr\[rank \d\] threads: (several, with locks|one at a time, without locks)\n", result.output)
    result.must(len(said) == 2 and len(set(said)) == 1, f"{level}: {said}")
    return said[0].startswith("several")


def by_level():
    """locks are taken where several threads may call at a time, and only there"""
    for level, expected in (("single", False), ("funneled", False), ("serialized", False), ("multiple", True)):
        fttap.check(threads_of(level, {}) == expected, level)


def by_other_threads():
    """locks are taken beside the helper, and beside btl/tcp's own thread"""
    for parameters in ({"pml_dr_progress": "thread"}, {"btl_tcp_progress_thread": 1}):
        for level in ("single", "funneled", "serialized"):
            fttap.check(threads_of(level, parameters), f"{level}, {parameters}")


if __name__ == "__main__":
    ftmpi.become_subreaper()
    fttap.main([by_level, by_other_threads])
