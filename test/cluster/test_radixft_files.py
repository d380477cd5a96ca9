#!/usr/bin/env python3
"""errmgr/radixft named in a parameter file instead of on the command line."""

import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
from fttap import check, main  # noqa: E402

HOSTS = 3
SYSTEM_FILE = "/etc/openmpi/openmpi-mca-params.conf"
DEADLINE = 60


def parameter_file(cluster, host, *lines):
    """The system's parameter file has these lines, too, on this host."""
    path = os.path.join(cluster.marks().path + ".conf")
    with open(SYSTEM_FILE, encoding="utf-8") as system, open(path, "w", encoding="utf-8") as file:
        file.write(system.read() + "".join("\n" + line for line in lines) + "\n")
    cluster.tool("run", host, "--", "mount", "--bind", path, SYSTEM_FILE)


def run(cluster, *words):
    job = cluster.mpirun("-np", HOSTS, "--map-by", "node", "--mca", "pml", "dr", *words, deadline=DEADLINE,
                         env=ftcluster.component_env())
    job.wait()
    return job


def exchange():
    return ftcluster.program("hashring"), "--rounds", "3"


def tell_unless(holds, job, complaint):
    if not holds:
        job.tell()
    check(holds, f"{complaint}; exit code {job.code}")


def at_mpirun_alone():
    """A file on mpirun's host alone: the job is one of radixft's on all hosts, with the values that stand there"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        parameter_file(cluster, "n0", "errmgr = radixft", "errmgr_radixft_self_check = 700", "errmgr_radixft_log_dir = /dev/shm")
        job = run(cluster, *exchange())
        tell_unless(job.code == 0 and " 0 wrong" in job.out, job, "the job does not run")
        tell_unless("should mpirun die, the job runs on" in job.err, job, "mpirun is not radixft's")
        for host in range(HOSTS):  # each has a /dev/shm of its own
            check("radixft" in cluster.tool("run", f"n{host}", "--", "ls", "/dev/shm"), f"n{host} has no log")
        job = run(cluster, "sh", "-c", "echo $OMPI_MCA_errmgr $OMPI_MCA_errmgr_radixft_self_check")
        tell_unless(job.out.split("\n").count("radixft 700") == HOSTS, job, "ranks are not told the value")


def elsewhere_alone():
    """A file on another host alone: its daemon says so and leaves, and the job ends"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        parameter_file(cluster, "n2", "errmgr = radixft")
        job = run(cluster, "--mca", "errmgr_radixft_launch_wait", 3000, *exchange())
        text = " ".join(job.err.split())
        tell_unless(job.code not in (0, ftcluster.PAST_DEADLINE) and "mpirun does not use errmgr radixft" in text and
                    "Host: n2" in text, job, "nobody says why the job does not begin")


def elsewhere_alone_without_mpi():
    """Programs that do not use MPI run there all the same"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        parameter_file(cluster, "n2", "errmgr = radixft")
        job = run(cluster, "--mca", "errmgr_radixft_launch_wait", 1000, "sleep", "4")
        tell_unless(job.code == 0 and not job.err, job, "it was ended")


if __name__ == "__main__":
    main([at_mpirun_alone, elsewhere_alone, elsewhere_alone_without_mpi], ftcluster.SIDE_BY_SIDE)
