#!/usr/bin/env python3
"""errmgr/radixft under random kills: test_radixft_kills.py RUNS [FIRST SEED [CLUSTERS [BUSY]]]

Each run is a job of 6 ranks on 4 hosts in which ranks, daemons and mpirun are
killed, some at once and some one after the other, while the ranks compute,
while they are in collective operations, or while all but one are in
MPI_Finalize. The seed in a run's name decides everything but the scheduling.
Every survivor must finish with the right result and the same view, everything
must end by itself, and nobody who lives may be called dead. Several runs go on
at a time, each on a cluster of its own, beside so many BUSY processes that
compute all the time: who dies then waits for a core, and nobody may wait for
the dead.
"""

import contextlib
import functools
import os
import queue
import random
import re
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
from fttap import check, main  # noqa: E402
from test_radixft import DEFAULT, Job, appended, processes, rank_of  # noqa: E402

HOSTS = 4
RANKS = 6
SLOWEST = 0.05  # seconds between two kills
PHASES = {"compute": "", "collect": "in collectives: ", "finalize": "in MPI_Finalize: "}
# What tells that a phase has begun, and from how many ranks it must come.
BEGINS = {"compute": ("ready", RANKS), "collect": ("collecting", 1), "finalize": ("finalizing", RANKS - 1)}


class Plan:
    """Who is killed, when; what must come of it."""

    def __init__(self, seed):
        rng = random.Random(seed)
        self.phase = rng.choice(list(PHASES))
        self.kills = []
        self.dead = set()
        hosts = rng.sample(range(HOSTS), 2)
        for host in hosts[:rng.choice([0, 0, 1, 1, 2])]:
            self.kills.append(("daemon", host))
            self.dead |= set(range(host, RANKS, HOSTS))
        live = [r for r in range(RANKS) if r not in self.dead]
        most = min(2, len(live) - 1)  # somebody must be left to tell
        ranks = rng.sample(live, rng.randint(0 if self.kills else 1, most))
        self.kills += [("rank", r) for r in ranks]
        rng.shuffle(self.kills)
        self.pauses = [rng.choice([0, rng.random() * SLOWEST]) for _ in self.kills]
        self.dead |= set(ranks)
        self.held = rng.choice(sorted(self.dead)) if self.phase == "finalize" else None
        self.mpirun_dies = ("daemon", 0) in self.kills

    def __str__(self):
        names = {"daemon": lambda n: f"daemon {n}" if n else "mpirun", "rank": lambda n: f"rank {n}"}
        return PHASES[self.phase] + ", ".join(names[kind](n) for kind, n in self.kills)

    def options(self):
        """Of the test program."""
        return {"compute": [], "collect": ["--collectives"],
                "finalize": ["--hold", str(self.held), "--no-sum"]}[self.phase]

    def mca(self):
        """Parameters: collective operations end with an error only under pml/dr."""
        return [*DEFAULT, "--mca", "pml", "dr"] if self.phase == "collect" else DEFAULT

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
    exit code counts. It can let survivors finish whose output mpirun has and does not print any
    more, so they tell by the marks.
    """
    check(job.code() in ((0, 137) if len(plan.kills) > 1 else (137 if plan.mpirun_dies else 0,)),
          f"mpirun's exit code is {job.run.code}")
    job.nothing_left(job.end)
    job.marks.wait(lambda _: False, time.monotonic())
    done = {int(text.split()[1]) for _, text in job.marks.events if text.startswith("finalized ")}
    missing = set(range(RANKS)) - plan.dead - done
    check(not missing, f"{sorted(missing)} did not come out of MPI_Finalize")
    told = {int(r) for r in re.findall(r"^  rank (\d+) on n\d",
                                       job.run.err + appended(job.folder, ".err"), re.M)}
    check(told <= plan.dead, f"{sorted(told - plan.dead)} were called dead and live")


def run(cluster, plan):
    """One job."""
    with Job(cluster, *plan.options(), deaths=len(plan.dead), mca=plan.mca(), ranks=RANKS) as job:
        job.begun(*BEGINS[plan.phase])
        plan.strike(job)
        if plan.phase == "finalize":
            judge_finalize(job, plan)
        else:
            dead = job.verdict_without_mpirun() if plan.mpirun_dies else job.verdict()
            check(dead == plan.dead, f"{sorted(dead)} are called dead")
            job.nothing_left()


@contextlib.contextmanager
def busy(count):
    """So many processes that compute; they end with this one, too."""
    loop = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
    computing = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(count)]
    try:
        yield
    finally:
        for process in computing:
            process.kill()
            process.wait()


def all_runs(seeds, clusters):
    """The tests, of which as many as there are clusters are under way at a time."""
    free = queue.Queue()
    for cluster in clusters:
        free.put(cluster)

    def one(plan):
        cluster = free.get()
        try:
            run(cluster, plan)
        finally:
            free.put(cluster)

    tests = []
    for seed in seeds:
        plan = Plan(seed)
        test = functools.partial(one, plan)
        test.__doc__ = f"seed {seed}: {plan}"
        tests.append(test)
    main(tests, len(clusters))


if __name__ == "__main__":
    FIRST = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    COUNT = int(sys.argv[3]) if len(sys.argv) > 3 else ftcluster.SIDE_BY_SIDE
    BUSY = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(busy(BUSY))
        all_runs(range(FIRST, FIRST + int(sys.argv[1])),
                 [stack.enter_context(ftcluster.Cluster(hosts=HOSTS, ttl=86400)) for _ in range(COUNT)])
