#!/usr/bin/env python3
"""MPI_Comm_validate_all and the collectives behind it on several hosts, of which one is lost.

Eight ranks work in collectives on four hosts when the kernel takes a whole host
with its ranks and its daemon: its processes are killed, and one rank elsewhere,
or first all its links go down, so that nothing tells of it but silence. All that
live must hold one set, and every collective must give then what it gives on a
communicator of the survivors. Or all live, and two hosts do not reach each other.
"""

import os
import re
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
from fttap import check, main  # noqa: E402
from test_radixft import processes, rank_of  # noqa: E402

HOSTS = 4
RANKS = 8
DEADLINE = 100
# How long silence is bearable must not depend on how busy this machine is.
MCA = ["--mca", "errmgr", "radixft", "--mca", "pml", "dr", "--mca", "btl", "tcp,self",
       "--mca", "errmgr_radixft_suspect_floor", "4000", "--mca", "errmgr_radixft_probe", "2000",
       "--mca", "orte_base_help_aggregate", "0"]


def program(name):
    """Path of one of test/mpi/validate's programs."""
    path = os.path.join(ftcluster.build_dir(), "test", "mpi", "validate", name)
    check(os.access(path, os.X_OK), f"{path} is missing: run make check, or set FT_BUILD")
    return path


def ranks_of(*hosts):
    """Ranks are dealt out to the hosts in turn."""
    return {rank for rank in range(RANKS) for host in hosts if rank % HOSTS == int(host[1:])}


def start(cluster, *words, mca=(), ranks=RANKS):
    return cluster.mpirun(*MCA, *mca, "--map-by", "node", "-np", str(ranks), *words, deadline=DEADLINE,
                          env=ftcluster.component_env())


def overwritten():
    """coll/han, which finds that it is of no use, gives its places to coll/validate again, and a rank is lost"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        # Seven on four hosts: coll/han wants as many on each.
        run = start(cluster, program("table"), "overwritten", mca=["--mca", "coll_han_priority", "90"], ranks=RANKS - 1)
        must_be_right(run, r"^rank (\d+) right$", {str(rank) for rank in range(RANKS - 1) if rank != 1})


def must_be_right(run, pattern, alive):
    """It ended by itself, and everybody who lives was right."""
    run.wait()
    right = set(re.findall(pattern, run.out, re.M))
    if run.code != 0 or right != alive:
        run.tell(80)
    check(run.code == 0 and right == alive, f"exit code {run.code}, right were {sorted(right)}")


def lose(text, dead, fault):
    """A test: collectives run, the fault strikes, one set everywhere, and all of them right."""
    def test():
        with ftcluster.Cluster(hosts=HOSTS) as cluster:
            marks = cluster.marks()
            run = start(cluster, program("collectives"), "killed", marks.path, str(len(dead)))
            all_ready(run, marks, RANKS)
            fault(cluster)
            alive = {str(rank) for rank in set(range(RANKS)) - dead}
            must_be_right(run, r"^rank (\d+) right$", alive)
            check(set_of(run) == dead, "that is not who was lost")
            marks.close()
    test.__doc__ = text
    return test


def one_rank(cluster):
    ranks = {rank_of(pid): pid for _, pid in processes(cluster, "^/.*collectives")}
    os.kill(ranks[5], 9)


def silent_host(cluster):
    cluster.tool("kill", "n3", "--silent")


def rank_and_host(cluster):
    one_rank(cluster)
    cluster.tool("kill", "n2")


def all_ready(run, marks, ranks):
    """All ranks of the program are through MPI_Init."""
    end = time.monotonic() + DEADLINE
    for _ in range(ranks):
        check(marks.wait(lambda t: t.startswith("ready"), end, run), "a rank is not ready")


def set_of(run):
    """The one set that all printed."""
    sets = set(re.findall(r"^rank \d+ set (\S+)$", run.out, re.M))
    if len(sets) != 1:
        run.tell(80)
    check(len(sets) == 1, f"the sets are {sets}")
    return {int(rank) for rank in sets.pop().split(",")}


def apart():
    """The ranks of two hosts do not reach each other, all others reach both: who is given up for it learns it and ends"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        marks = cluster.marks()
        run = start(cluster, program("collectives"), "killed", marks.path, "1", ranks=HOSTS,
                    mca=["--mca", "pml_dr_give_up_ms", "4000"])
        all_ready(run, marks, HOSTS)
        for rail in ("0", "1"):
            cluster.tool("cut", "n2", rail, "--peer", "n3")
        run.wait()
        given_up = set_of(run)
        check(given_up and given_up <= {2, 3}, f"{given_up} were given up")
        must_be_right(run, r"^rank (\d+) right$", {str(rank) for rank in set(range(HOSTS)) - given_up})
        for rank in given_up:
            check(re.search(rf"^Rank {rank} on n{rank} lives, but others have agreed that it has failed", run.err, re.M),
                  f"rank {rank} did not say why it ended")


def intercommunicator():
    """An intercommunicator whose groups are spread over all hosts, processes of both die"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        run = start(cluster, program("inter"), "create", "4", "a1,b0,b2")
        must_be_right(run, r"^process (\w\d+) right$", {"a0", "a2", "a3", "b1", "b3"})


main([lose("A rank and the host of others are lost at once", {5} | ranks_of("n2"), rank_and_host),
      lose("A host is lost without a word", ranks_of("n3"), silent_host),
      apart, overwritten, intercommunicator])
