#!/usr/bin/env python3
"""errmgr/radixft where Slurm's srun starts the daemons: they get the job's key, and one that is lost ends nobody else.

srun is one for virtual clusters (srun.py), under its name in mpirun's PATH.
"""

import contextlib
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
from fttap import check, main  # noqa: E402
from test_radixft import RADIXFT, Job, processes  # noqa: E402

SRUN = os.path.join(os.path.dirname(os.path.realpath(__file__)), "srun.py")
HOSTS = 3
SLOTS = 2
RANKS = HOSTS * SLOTS
FAILED = 17
TELL = ["--mca", "errmgr_radixft_failed_exit_code", str(FAILED)]


class SlurmJob(Job):
    """mpirun in an allocation of all hosts."""

    def __init__(self, cluster, *options, env=None, **settings):
        folder = os.path.join(cluster.folder, "slurm")
        os.mkdir(folder)
        os.symlink(SRUN, os.path.join(folder, "srun"))
        self.said = os.path.join(folder, "said")
        slurm = {"PATH": f"{folder}:{os.environ['PATH']}", "FT_SRUN_RSH": os.path.join(cluster.state, "rsh"),
                 "FT_SRUN_SAID": self.said, "SLURM_JOBID": "4711", "SLURM_NODELIST": f"n[0-{HOSTS - 1}]",
                 "SLURM_TASKS_PER_NODE": f"{SLOTS}(x{HOSTS})"}
        super().__init__(cluster, *options, ranks=RANKS, env={**slurm, **(env or {})}, **settings)

    def calls(self):
        """The arguments of each call of srun."""
        with contextlib.suppress(FileNotFoundError), open(self.said, encoding="utf-8") as file:
            return [line.split() for line in file]
        return []


def keepers(cluster):
    """The ranks in whose environment the key of the launch is."""
    found = []
    for host, pid in processes(cluster, "^/.*survivors"):
        with open(f"/proc/{pid}/environ", "rb") as file:
            if b"launch_key" in file.read():
                found.append((host, pid))
    return found


def daemons_get_the_key():
    """Daemons that srun starts get the job's key, and no rank does; a rank dies, and the others run on"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        with SlurmJob(cluster, deaths=1) as job:
            job.ready()
            check(len(job.calls()) == 1, f"srun was called {len(job.calls())} times")
            check(not keepers(cluster), f"these ranks have the key: {keepers(cluster)}")
            job.kill("^/.*survivors", "n1")
            job.verdict()
            job.nothing_left()


def daemon_dies():
    """A daemon that srun has started is killed: the others run on, and mpirun's code is the one for that"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        with SlurmJob(cluster, deaths=SLOTS + 1, mca=[*RADIXFT, *TELL, "--mca", "plm_slurm_args", "--comment=mine"]) as job:
            job.ready()
            shell = [pid for _, pid in processes(cluster, "rsh n1 exec orted")]
            check(len(shell) == 1, f"srun has {len(shell)} shells on n1")
            job.kill("^orted", "n1")
            ftcluster.await_end(shell[0], job.end)
            job.kill("^/.*survivors", "n2")  # for which the others wait
            job.verdict(code=FAILED)
            job.nothing_left()
            check("--comment=mine" in job.calls()[0], "what the user wants of srun is missing")


def all_daemons_end(env):
    """mpirun's own ranks run on when srun has ended."""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        with SlurmJob(cluster, deaths=RANKS - SLOTS + 1, mca=[*RADIXFT, *TELL], env=env) as job:
            job.ready()
            step = [pid for _, pid in processes(cluster, r"srun --")]
            check(len(step) == 1, f"srun has {len(step)} processes")
            job.kill_at_once(("^orted", "n1", 1), ("^orted", "n2", 1))
            ftcluster.await_end(step[0], job.end)
            job.kill("^/.*survivors", "n0")  # for which the last one waits
            job.verdict(code=FAILED)
            job.nothing_left()


def all_daemons_die():
    """All daemons that srun has started are killed, so that it ends with an error: mpirun's own ranks run on"""
    all_daemons_end({})


def all_daemons_leave():
    """The same where srun returns 0, as when they have left by themselves"""
    all_daemons_end({"FT_SRUN_CODE": "0"})


def srun_fails():
    """srun cannot start the daemons: the job ends, and mpirun says so"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        with SlurmJob(cluster, env={"FT_SRUN_FAILS": "3"}) as job:
            check(job.code() == 1, f"mpirun's exit code is {job.run.code}")
            check("(srun, aprun) returned an error" in " ".join(job.run.err.split()), "mpirun does not say why")
            job.nothing_left()


main([daemons_get_the_key, daemon_dies, all_daemons_die, all_daemons_leave, srun_fails], ftcluster.SIDE_BY_SIDE)
