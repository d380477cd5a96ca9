#!/usr/bin/env python3
"""errmgr/radixft: who does not have the job's key is not believed, whatever he sends over the runtime's own channel; and
the end of a job that nobody survives."""

import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
from fttap import check, comment, main  # noqa: E402
from test_radixft import Job, one_rank  # noqa: E402

HOSTS = 3
TO_EACH = 9 * (HOSTS - 1)  # what the forger sends to each daemon
FORGER = os.path.join(os.path.dirname(os.path.realpath(__file__)), "forger.py")


def lies_are_counted():
    """Forged evictions, farewells and orders to leave, and nonsense, change nothing, and are counted"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        with Job(cluster, deaths=1, ranks=6, verbose="2") as job:
            job.ready()
            uris = {uri for _, _, command in cluster.processes() if command.startswith("orted")
                    for uri in re.findall(r"\d+\.0;tcp://[^\"\s]+", command)}
            check(len(uris) == 1, f"the daemons' command lines tell of mpirun at {uris}")
            told = int(cluster.tool("run", "n1", sys.executable, FORGER, uris.pop(), HOSTS))
            check(told == TO_EACH * HOSTS, f"{told} messages were sent")
            one_rank(job)
            job.verdict()
            job.nothing_left()
            stories = re.findall(r"^.*\[daemon \d\].*(?:believes|installed|evicted|farewell).*$", job.run.err, re.M)
            check(not stories, f"somebody was believed: {stories}")
            counts = re.findall(r"\[daemon 0\] .*leaves; (\d+) messages dropped", job.run.err)
            comment(f"mpirun dropped {counts}")
            check(len(counts) == 1 and int(counts[0]) >= TO_EACH, f"mpirun counted {counts} of {TO_EACH}")


def nobody_survives():
    """When no rank survives, mpirun ends with the code of the first that died, and says so"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        with Job(cluster, deaths=3, ranks=3) as job:
            job.ready()
            job.kill_at_once(*(("^/.*survivors", f"n{host}", 1) for host in range(HOSTS)))
            code = job.run.wait()
            check(code == 128 + 9, f"mpirun's exit code is {code}")
            check("radixft: 3 of 3 ranks died" in " ".join(job.run.err.split()), "mpirun's last words are missing")
            job.nothing_left()


main([lies_are_counted, nobody_survives])
