#!/usr/bin/env python3
"""A rank that is stopped (SIGSTOP) before anybody has met it, and goes on seconds later. Prints TAP."""

import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
sys.dont_write_bytecode = True

import ftmpi  # noqa: E402
import fttap  # noqa: E402

PROGRAM = os.path.join(ftmpi.BUILD, "test", "mpi", "semantics", "stopped")
RANKS = 3
# Longer than any timeout that there is, the one of pml_dr_rto_max_ms.
STOPPED_SECONDS = 3
DEADLINE = 60


def met_while_stopped(network, parameters, again):
    """All of it arrives once, and whoever was silent is none the worse for it; `again`: the counters that tell that it was
    tried meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        fifo = os.path.join(folder, "fifo")
        os.mkfifo(fifo)
        result = ftmpi.run(ftmpi.command_for(network, "dr", {"pml_dr_verbose": 1, **parameters},
                                             [PROGRAM, fifo, STOPPED_SECONDS], RANKS), DEADLINE, show_stacks=True)
    result.must(not result.late, "a stall")
    result.must(result.code == 0 and "not ok" not in result.output and "ok 1 " in result.output, "it failed")
    for word in ("unreachable", "no path", "dead"):
        result.must(word not in result.output, f"somebody was given up: {word}")
    result.must(any(result.dr[counter] > 0 for counter in again), f"nothing was tried again: {again} are 0")
    result.must(result.dr["paths_down"] == 0, "a path was taken out")
    fttap.comment(f"{network}: {result.seconds:.1f} s, retransmitted={result.dr['retransmitted']} "
                  f"questions={result.dr['questions']} duplicates={result.dr['duplicates']}")
    return result


def tcp():
    """over tcp: its connection waits to be accepted"""
    met_while_stopped("tcp", {}, ["retransmitted", "questions"])


def vader():
    """over vader: it has not looked into its queue"""
    met_while_stopped("vader", {}, ["retransmitted", "questions"])


def dgram():
    """over dgram: its socket's buffer is all that there is"""
    met_while_stopped("dgram", {}, ["retransmitted", "questions"])


def both():
    """over vader and tcp side by side"""
    met_while_stopped("vader+tcp", {}, ["retransmitted", "questions"])


if __name__ == "__main__":
    ftmpi.become_subreaper()
    TESTS = [tcp, vader, dgram, both]
    fttap.main(TESTS, len(TESTS))
