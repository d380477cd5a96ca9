#!/usr/bin/env python3
"""errmgr/radixft with its defaults on a machine that is much too small for the job: nobody is taken for dead.

usage: test_radixft_load.py [SECONDS]
"""

import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
from fttap import check, comment, main  # noqa: E402
from test_radixft import DEFAULT, Job  # noqa: E402

# A log's lines for Event::Kind::believed and refuted of whom there is no proof: when the job is over, its daemons leave
# one by one, and the ports that they close are proof.
ACCUSED = re.compile(r"> event [23] \d+ \d+ \d+ \d+ 0 ")


def accusations(logs):
    """What the daemons' logs say of daemons that were believed dead for their silence, and of such that were heard again."""
    names = sorted(os.listdir(logs))
    check(len(names) == 4, f"the logs are {names}")
    found = []
    for name in names:
        with open(os.path.join(logs, name), encoding="utf-8") as log:
            found += [f"{name}: {line.strip()}" for line in log if ACCUSED.match(line)]
    return found


def nobody_is_accused():
    """On a machine that is sixteen times too small nobody is taken for dead, with the defaults"""
    ranks = 16 * (os.cpu_count() or 1)
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    with ftcluster.Cluster(ttl=600 + seconds) as cluster:  # it ends itself when its time is over
        logs = os.path.join(cluster.folder, "logs")
        os.mkdir(logs)
        with Job(cluster, "--busy", str(seconds), mca=[*DEFAULT, "--mca", "errmgr_radixft_log_dir", logs], ranks=ranks,
                 lasts=seconds) as job:
            job.verdict()
            stories = re.findall(r"^.*\[daemon 0\].*(?:believes|lives after all|installed).*$", job.run.err, re.M)
            comment("\n".join(stories) or f"{ranks} ranks computed, and no daemon was doubted")
            check("ranks died" not in job.run.err, "mpirun tells of deaths")
            job.nothing_left()
        accused = accusations(logs)
        check(not accused, f"a daemon that lived was believed dead: {accused}")


if __name__ == "__main__":
    main([nobody_is_accused])
