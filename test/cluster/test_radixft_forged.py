#!/usr/bin/env python3
"""errmgr/radixft: who does not have the job's key is not believed, whatever he sends over the runtime's own channel; the
end of a job that nobody survives; what ranks read of a change; and output that cannot go where it was to.

That it is the tag that stops the forged messages, and nothing else about them, cannot be shown here: the key is nowhere
to be had from outside. test/unit/membership/test_messages.cc opens the same bytes with the right tag, and they evict."""

import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
from fttap import check, comment, main  # noqa: E402
from test_radixft import Job, one_rank, processes  # noqa: E402

HOSTS = 3
# What the forger sends to each daemon: with a wrong tag, and what is no message. Of the launch's messages, which begin
# with a number that is always the same, the long one without it is none either.
FORGED = 5 * (HOSTS - 1)
MALFORMED = 7 * (HOSTS - 1)
TO_EACH = FORGED + MALFORMED
FORGER = os.path.join(os.path.dirname(os.path.realpath(__file__)), "forger.py")


def lies_are_counted():
    """Forged evictions, farewells and orders to leave, and nonsense, change nothing, and are counted"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        with Job(cluster, "--pvars", deaths=1, ranks=6, verbose="2", strangers=True) as job:
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
            told = re.findall(r"\[daemon 0\] .*leaves; \d+ messages dropped: (.*)", job.run.err)
            comment(f"mpirun dropped {told}")
            check(len(told) == 1 and told[0].startswith(f"{MALFORMED} malformed, {FORGED} forged"), f"mpirun counted {told}")
            words = " ".join(job.run.err.split())
            check(f"of the messages that came to daemon 0, {TO_EACH} were malformed or forged" in words,
                  "mpirun's last words do not speak of them")
            told = [dict(re.findall(r"(\w+)=([\d.e+-]+)", line)) for line in re.findall(r"^pvars \d+: (.*)$", job.run.out, re.M)]
            check(len(told) == 5, f"{len(told)} ranks read their variables")
            # Of each daemon there is one, and where a daemon of the job sent what counts as forged there would be more.
            check(all(float(values["forged"]) == TO_EACH and float(values["dropped"]) >= TO_EACH for values in told),
                  f"the ranks read {told}")


def key_is_kept():
    """The key of the launch is on no daemon's command line and in no rank's environment"""
    with ftcluster.Cluster(hosts=2) as cluster:
        with Job(cluster, deaths=1, ranks=4) as job:
            job.ready()
            daemons = [command for _, _, command in cluster.processes() if command.startswith("orted")]
            check(daemons and all(re.search(r"radixft_launch_key x{32}", c) for c in daemons),
                  f"a daemon shows its key: {daemons}")
            for _, pid in processes(cluster, "^/.*survivors"):
                with open(f"/proc/{pid}/environ", "rb") as source:
                    check(b"launch_key" not in source.read(), "a rank has the key")
            job.kill("^/.*survivors", "n1")
            job.verdict()
            job.nothing_left()


def nobody_survives():
    """When no rank survives, mpirun ends with the code of the first that died, and says so"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        with Job(cluster, deaths=3, ranks=3) as job:
            job.ready()
            job.kill_at_once(*(("^/.*survivors", f"n{host}", 1) for host in range(HOSTS)))
            code = job.code()
            check(code == 128 + 9, f"mpirun's exit code is {code}")
            check("radixft: 3 of 3 ranks died" in " ".join(job.run.err.split()), "mpirun's last words are missing")
            job.nothing_left()


def times_of_a_change():
    """When a daemon has died, every survivor reads in which epoch, and how long the agreement and the news took"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        with Job(cluster, "--pvars", deaths=2, ranks=6) as job:
            job.ready()
            job.kill("^orted", "n2")
            job.verdict()
            job.nothing_left()
            took = re.search(r"all votes in after ([\d.]+) ms", job.run.err)
            check(took, "mpirun does not tell how long the agreement took")
            told = [dict(re.findall(r"(\w+)=([\d.e+-]+)", line)) for line in re.findall(r"^pvars \d+: (.*)$", job.run.out, re.M)]
            check(len(told) == 4, f"{len(told)} ranks read their variables")
            for values in told:
                stabilized, noticed = float(values["stabilization_time"]), float(values["detection_time"])
                check(values["epoch"] == "1" and abs(stabilized - 1e3 * float(took[1])) <= 10 and noticed > 0,
                      f"a rank reads {values}, and mpirun tells of {took[1]} ms")


def output_elsewhere():
    """A host that cannot write where the output is to go says so at the start, and writes what it takes over elsewhere"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        folder = os.path.join(cluster.folder, "shared", "output")
        os.makedirs(folder)
        cluster.tool("run", "n1", "mount", "-t", "tmpfs", "none", os.path.dirname(folder))
        with Job(cluster, deaths=2, ranks=6, output=folder) as job:
            job.ready()
            job.kill("^mpirun", "n0")
            check(job.code() == 137, f"the killed mpirun's exit code is {job.run.code}")
            job.nothing_left(job.end)
            said = re.search(r"host n1 cannot write.*?Instead: (/\S+)\.out", job.run.err, re.S)
            check(said, "nobody says that n1 cannot write there")
            check("host n2 cannot" not in job.run.err, "n2 can")
            check(not os.listdir(folder), f"{os.listdir(folder)} was written where n1 cannot")
            words = cluster.tool("run", "n1", "cat", said[1] + ".out", said[1] + ".err")
            cluster.tool("run", "n1", "rm", said[1] + ".out", said[1] + ".err")
            job.judge(job.run.out + words, words)


main([lies_are_counted, output_elsewhere, times_of_a_change, nobody_survives, key_is_kept], ftcluster.SIDE_BY_SIDE)
