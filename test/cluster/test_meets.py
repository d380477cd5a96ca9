#!/usr/bin/env python3
"""A rank dies in the middle of MPI_Comm_accept or connect, and each rank has a host and a daemon of its own.

The rank kills itself inside the call, at points that cannot be hit from outside
(test/mpi/validate/test_meets.py says which, and does the same on one host). All
that live must return, alike, meet again at the same port, and the job must end.
"""

import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
from fttap import check, comment, main  # noqa: E402

HOSTS = 4
DEADLINE = 60
MCA = ["--mca", "errmgr", "radixft", "--mca", "pml", "dr", "--mca", "btl", "tcp,self",
       "--mca", "errmgr_radixft_suspect_floor", "4000", "--mca", "errmgr_radixft_probe", "2000",
       "--mca", "orte_base_help_aggregate", "0"]
RANKS = 4
POINTS = {"published": 1, "connect": 2, "connected": 3, "context_id": 4, "activate": 5,
          "looked_up": 7}  # dies_at.hpp
# Of each call, which rank is the root and which another one.
CALLS = {"accept": {"root": 0, "another": 1}, "connect": {"root": 2, "another": 3}}


def program():
    path = os.path.join(ftcluster.build_dir(), "test", "mpi", "validate", "meets")
    check(os.access(path, os.X_OK), f"{path} is missing: run make check, or set FT_BUILD")
    return path


def one_run(cluster, call, who, point):
    """One job in which a rank dies."""
    victim = str(CALLS[call][who])
    run = cluster.mpirun(*MCA, "--map-by", "node", "-np", str(RANKS), program(), "accept", victim,
                         str(POINTS[point]), "agreed", deadline=DEADLINE, env=ftcluster.component_env())
    run.wait()
    right = re.findall(r"^rank \d+ right$", run.out, re.M)
    returned = set(re.findall(r"^rank (\d+) returned", run.out, re.M))
    good = run.code == 0 and len(right) == RANKS - 1 and victim not in returned
    if not good:
        run.tell(60)
    check(good, f"{call}, {who} dies at {point}: exit code {run.code}, {len(right)} were right, {returned} returned")


def case(call, who):
    """The test of one call and one victim."""
    def at_every_point():
        points = ("connect", "connected", "context_id", "activate")
        if who == "root":
            points = ("published", "looked_up", *points)
        with ftcluster.Cluster(hosts=HOSTS) as cluster:
            for point in points:
                one_run(cluster, call, who, point)
        comment(f"it died at {', '.join(points)}")

    at_every_point.__doc__ = f"{call}: the {'root' if who == 'root' else 'rank that is not the root'} dies"
    return at_every_point


if __name__ == "__main__":
    main([case(call, who) for call in CALLS for who in ("another", "root")])
