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


def run(cluster, *options):
    job = cluster.mpirun("-np", HOSTS, "--map-by", "node", "--mca", "pml", "dr", *options, ftcluster.program("hashring"),
                         "--rounds", "3", deadline=DEADLINE, env=ftcluster.component_env())
    job.wait()
    return job


def tell_unless(holds, job, complaint):
    if not holds:
        job.tell()
    check(holds, f"{complaint}; exit code {job.code}")


def at_mpirun_alone():
    """A file on mpirun's host alone: the job is one of radixft's on all hosts, with the values that stand there"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        parameter_file(cluster, "n0", "errmgr = radixft", "errmgr_radixft_stats = 1", "errmgr_base_verbose = 2")
        job = run(cluster)
        tell_unless(job.code == 0 and " 0 wrong" in job.out, job, "the job does not run")
        tell_unless("should mpirun die, the job runs on" in job.err, job, "mpirun is not radixft's")


def elsewhere_alone():
    """A file on another host alone: its daemon says so and leaves, and the job ends"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        parameter_file(cluster, "n2", "errmgr = radixft")
        job = run(cluster, "--mca", "errmgr_radixft_launch_wait", 3000)
        text = " ".join(job.err.split())
        tell_unless(job.code not in (0, ftcluster.PAST_DEADLINE) and "mpirun does not use errmgr radixft" in text and
                    "Host: n2" in text, job, "nobody says why the job does not begin")


if __name__ == "__main__":
    main([at_mpirun_alone, elsewhere_alone], ftcluster.SIDE_BY_SIDE)
