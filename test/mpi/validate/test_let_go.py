#!/usr/bin/env python3
"""Communicators that join two sides, of which one lets go: because its call failed, or after a revocation. Prints TAP."""

import os
import re
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "lib"))

import ftmpi  # noqa: E402
import ftspawn  # noqa: E402
from fttap import main  # noqa: E402

FOLDER = os.path.join(ftmpi.BUILD, "test", "mpi", "validate")
DEADLINE = 60
ROUNDS = 4  # of joined_again
OWN = ftmpi.mca({"pml": "dr", "btl": "tcp,self", "btl_tcp_if_include": "lo", "errmgr": "radixft"})


def spawned_ones_recover():
    """A spawned process dies, its parents' MPI_Comm_spawn fails; the other new ones recover without these"""
    with tempfile.TemporaryDirectory() as folder:
        fifo = os.path.join(folder, "dead")
        os.mkfifo(fifo)
        command = [ftmpi.MPIRUN, "--oversubscribe", "-np", "2", *OWN, "-x", "FT_AFTER_SPAWN=" + fifo,
                   os.path.join(FOLDER, "let_go"), fifo]
        result = ftspawn.run(command, DEADLINE)
    result.must(not result.late, "a hang")
    recovered = re.findall(r"^child \d recovered$", result.output, re.M)
    right = re.findall(r"^rank \d+ right$", result.output, re.M)
    result.must(result.code == 0 and len(recovered) == 2 and len(right) == 2,
                f"{len(recovered)} children recovered, {len(right)} parents were right")


def joined_again():
    """Two halves of a job that let a revoked intercommunicator go join again, and again"""
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(ROUNDS):
            os.mkfifo(os.path.join(folder, f"freed{turn}"))
        program = [os.path.join(FOLDER, "joined_again"), os.path.join(folder, "freed")]
        result = ftmpi.run([ftmpi.MPIRUN, "--oversubscribe", "-np", "4", *OWN, *program], DEADLINE)
    right = re.findall(r"^rank \d+ right$", result.output, re.M)
    result.must(result.code == 0 and len(right) == 4, f"{len(right)} were right")


if __name__ == "__main__":
    ftmpi.become_subreaper()
    main([spawned_ones_recover, joined_again])
