#!/usr/bin/env python3
"""errmgr/radixft under random kills: test_radixft_kills.py RUNS [FIRST SEED]

Each run is a job of 8 ranks on 4 hosts in which ranks, daemons and mpirun are
killed, some at once and some one after the other, while the ranks compute or
while all but one are in MPI_Finalize. The seed in a run's name decides
everything but the scheduling. Every survivor must finish with the right
result and the same view, everything must end by itself, and nobody who lives
may be called dead.
"""

import os
import random
import re
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
from fttap import check, main  # noqa: E402
from test_radixft import Job, RANKS, appended, processes, rank_of  # noqa: E402

HOSTS = 4
SLOWEST = 0.05  # seconds between two kills


class Plan:
    """Who is killed, when; what must come of it."""

    def __init__(self, seed):
        rng = random.Random(seed)
        self.finalize = rng.random() < 0.4
        self.kills = []
        self.dead = set()
        hosts = rng.sample(range(HOSTS), 2)
        for host in hosts[:rng.choice([0, 0, 1, 1, 2])]:
            self.kills.append(("daemon", host))
            self.dead |= set(range(host, RANKS, HOSTS))
        live = [r for r in range(RANKS) if r not in self.dead]
        ranks = rng.sample(live, rng.randint(0 if self.kills else 1, 2))
        self.kills += [("rank", r) for r in ranks]
        rng.shuffle(self.kills)
        self.pauses = [rng.choice([0, rng.random() * SLOWEST]) for _ in self.kills]
        self.dead |= set(ranks)
        self.held = rng.choice(sorted(self.dead)) if self.finalize else None
        self.mpirun_dies = ("daemon", 0) in self.kills

    def __str__(self):
        names = {"daemon": lambda n: f"daemon {n}" if n else "mpirun", "rank": lambda n: f"rank {n}"}
        return ("in MPI_Finalize: " if self.finalize else "") + \
            ", ".join(names[kind](n) for kind, n in self.kills)

    def options(self):
        """Of the test program."""
        return ["--hold", str(self.held), "--no-sum"] if self.finalize else []

    def strike(self, job):
        """Kill them all. Ranks are found before the first kill: a kill may end others."""
        found = processes(job.cluster, r"^/.*survivors|^orted|^mpirun")
        pids = {("rank", rank_of(pid)): pid for _, pid in processes(job.cluster, "^/.*survivors")}
        for host, pid in found:
            if ("rank", rank_of(pid)) not in pids or pids["rank", rank_of(pid)] != pid:
                pids["daemon", int(host[1:])] = pid
        for kill, pause in zip(self.kills, self.pauses):
            time.sleep(pause)
            try:
                os.kill(pids[kill], 9)
            except ProcessLookupError:
                pass  # in MPI_Finalize an earlier kill can let everybody go before this one


def judge_finalize(job, plan):
    """All survivors came out of MPI_Finalize, and everything ended by itself.

    An earlier kill can let a later victim finish before it strikes: it is no failure then, but its
    exit code counts.
    """
    check(job.run.wait() in ((0, 137) if len(plan.kills) > 1 else (137 if plan.mpirun_dies else 0,)),
          f"mpirun's exit code is {job.run.code}")
    job.nothing_left(job.end)
    out = job.run.out + appended(job.folder, ".out")
    done = {int(r) for r in re.findall(r"^finalized (\d+)", out, re.M)}
    missing = set(range(RANKS)) - plan.dead - done
    check(not missing, f"{sorted(missing)} did not come out of MPI_Finalize")
    told = {int(r) for r in re.findall(r"^  rank (\d+) on n\d",
                                       job.run.err + appended(job.folder, ".err"), re.M)}
    check(told <= plan.dead, f"{sorted(told - plan.dead)} were called dead and live")


def run(cluster, seed):
    """A test: one job."""
    plan = Plan(seed)

    def test():
        with Job(cluster, *plan.options(), deaths=len(plan.dead)) as job:
            ready = set()
            word = "finalizing" if plan.finalize else "ready"
            while len(ready) < (RANKS - 1 if plan.finalize else 1):
                event = job.marks.wait(lambda t: t.startswith(word), job.end, job.run)
                check(event, f"only {len(ready)} ranks came as far as was wanted")
                ready.add(event[1])
            plan.strike(job)
            if plan.finalize:
                judge_finalize(job, plan)
            else:
                dead = job.verdict_without_mpirun() if plan.mpirun_dies else job.verdict()
                check(dead == plan.dead, f"{sorted(dead)} are called dead")
                job.nothing_left()
    test.__doc__ = f"seed {seed}: {plan}"
    return test


if __name__ == "__main__":
    FIRST = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with ftcluster.Cluster(hosts=HOSTS, ttl=86400) as CLUSTER:
        main([run(CLUSTER, seed) for seed in range(FIRST, FIRST + int(sys.argv[1]))])
