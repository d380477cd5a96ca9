#!/usr/bin/env python3
"""What reaches a communicator that has recognised failures, whose collectives run elsewhere.

Persistent collectives, made before or after, end with the error class of a
failed rank at every rank. Open MPI's own MPI_Intercomm_create goes on there, and
MPI_Finalize gets past what is left of them.
"""

import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "lib"))

import ftmpi  # noqa: E402
import ftspawn  # noqa: E402
from fttap import main  # noqa: E402

PROGRAM = os.path.join(ftmpi.BUILD, "test", "mpi", "validate", "left_behind")
DEADLINE = 60


def survivors(which, ranks, wanted, run, btl, *around):
    """One job, of which one process dies."""
    own = {"pml": "dr", "btl": btl, "errmgr": "radixft", "btl_tcp_if_include": "lo"}
    command = [ftmpi.MPIRUN, "--oversubscribe", "-np", str(ranks), *ftmpi.mca(own), *around, PROGRAM, which]
    result = run(command, DEADLINE)
    right = sorted(re.findall(r"^rank (\d+) right$", result.output, re.M))
    result.must(not result.late, f"{which}: a hang")
    result.must(result.code == 0, f"{which}: exit code {result.code}")
    result.must(right == wanted, f"{which}: right were {right}")
    result.must("dpm_disconnect_init" not in result.output, f"{which}: MPI_Finalize met the dead")


def one_job(*what):
    """Runs it."""
    return ftmpi.run(*what, show_stacks=True)


def persistent():
    """Persistent collectives, also of neighbours, end with the error; others go on"""
    survivors("intra", 4, ["0", "1", "3"], one_job, "vader,self")


def persistent_inter():
    """Persistent collectives of an intercommunicator, and what waits on the own group's communicator"""
    survivors("inter", 5, ["0", "2", "3", "4"], one_job, "vader,self")


def bridge():
    """Processes of two jobs are joined over a communicator with a recognised failure"""
    survivors("bridge", 3, ["0", "1", "3"], ftspawn.run, "tcp,self")


def replaced():
    """A program that has replaced dead processes three times over gets through MPI_Finalize with its heap whole"""
    survivors("replaced", 1, ["0"] * 4 + ["2"] * 3, ftspawn.run, "tcp,self",
              "env", "LD_PRELOAD=libc_malloc_debug.so.0", "MALLOC_CHECK_=3")


def freed():
    """Receives that were let go get their messages after the communicator is freed, also over one that libmpi_ft has made"""
    survivors("freed", 1, ["0", "0"], ftspawn.run, "tcp,self")


ftmpi.become_subreaper()
main([persistent, persistent_inter, bridge, replaced, freed])
