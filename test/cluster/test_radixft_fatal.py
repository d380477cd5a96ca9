#!/usr/bin/env python3
"""errmgr/radixft and pml/dr with the error handler that every program begins with, MPI_ERRORS_ARE_FATAL."""

import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
from fttap import check, main  # noqa: E402
from test_radixft import Job, RADIXFT, one_rank, processes, rank_of, story  # noqa: E402

RANK_FAIL_STOP = 75  # MPI_ERR_RANK_FAIL_STOP of mpi_ft.h
MCA = [*RADIXFT, "--mca", "pml", "dr"]


def fatal_to_who_talks():
    """A survivor that waits for the dead ends the job, with the class of the error as exit code"""
    with ftcluster.Cluster() as cluster:
        with Job(cluster, "--talk-to", "2", deaths=1, mca=MCA) as job:
            job.ready()
            ranks = {rank_of(pid): pid for _, pid in processes(cluster, "^/.*survivors")}
            os.kill(ranks[2], 9)
            code = job.code()
            check(code == RANK_FAIL_STOP, f"mpirun's exit code is {code}")
            check("finalized" not in job.run.out, "a rank went on")
            said = " ".join(job.run.err.split())
            check(re.search(r"An error occurred in MPI_Recv.*MPI_ERR_RANK_FAIL_STOP.*MPI_ERRORS_ARE_FATAL", said),
                  "the program does not say what happened")
            # Who has called MPI_Abort may be counted or not: its end comes by two ways.
            check(re.search("radixft: [12] of 8 ranks died, and the job was ended.*rank 2 on n2: ended by signal 9", said),
                  "mpirun's last words are missing")
            job.nothing_left()


if __name__ == "__main__":
    main([fatal_to_who_talks, story("Survivors that never talk to the dead run on", 1, one_rank, mca=MCA)],
         ftcluster.SIDE_BY_SIDE)
