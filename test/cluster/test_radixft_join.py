#!/usr/bin/env python3
"""errmgr/radixft: a host is added to a running job, dies, and comes back under its old id."""

import os
import re
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
from fttap import check, main  # noqa: E402
from test_radixft import RADIXFT, processes  # noqa: E402

DEADLINE = 90
RANKS = 3


def add_lose_and_add_again():
    """A host joins the view before its first rank starts; lost, it comes back as who it was"""
    program = os.path.join(ftcluster.build_dir(), "test", "mpi", "survivors", "joins")
    with ftcluster.Cluster() as cluster:
        with open(os.path.join(cluster.state, "hostfile"), "w", encoding="utf-8") as hosts:
            hosts.writelines(f"n{h} slots=4\n" for h in range(RANKS))
        marks = cluster.marks()
        go = os.path.join(os.path.dirname(marks.path), "go")
        logs = os.path.join(cluster.folder, "logs")
        os.mkdir(logs)
        run = cluster.mpirun(
            *RADIXFT, "--mca", "errmgr_radixft_log_dir", logs, "--mca", "errmgr_base_verbose", "1",
            "--mca", "errmgr_radixft_output_dir",
            os.path.dirname(marks.path), "--map-by", "node", "-np", str(RANKS), program, "n3",
            marks.path, go, deadline=DEADLINE, env=ftcluster.component_env())
        end = time.monotonic() + DEADLINE
        try:
            begin(go, 1)
            check(marks.wait(lambda t: t == "joined 1", end, run), "the host did not join")
            cluster.tool("kill", "n3")
            for _ in range(RANKS):
                check(marks.wait(lambda t: t.startswith("lost "), end, run),
                      "a rank did not learn that the added one died")
            cluster.tool("boot", "n3")
            begin(go, 2)
            check(marks.wait(lambda t: t == "joined 2", end, run), "the host did not come back")
            check(run.wait() == 0, f"mpirun's exit code is {run.code}")
            check(len(re.findall(r"^done \d", run.out, re.M)) == RANKS, "a rank did not finish")
            judge(run.err)
            replay = os.path.join(ftcluster.build_dir(), "test", "unit", "radixft", "replay")
            again = ftcluster.command([replay, *(os.path.join(logs, name) for name in os.listdir(logs))])
            check(again.code == 0 and len(os.listdir(logs)) == RANKS + 1,
                  f"a log did not give itself again: {again.out}")
            while processes(cluster, r"orted|joins|mpirun -|mpirun\b.*errmgr"):
                check(time.monotonic() < end, "processes are left")
        except AssertionError:
            run.stop()
            run.tell(60)
            raise
        finally:
            run.stop()
            marks.close()


def begin(go, number):
    """Lets the ranks begin a round."""
    with open(f"{go}.{number}", "w", encoding="utf-8"):
        pass


def judge(story):
    """Both times the daemon was a member, with the same id, before a rank ran there."""
    said = [what + of for what, of in re.findall(
        r"\[daemon 0\] [\d.]+ (?:(daemon \d+ on n3 is (?:to join|a member now))|installed view \d+: (\d+) daemons)",
        story)]
    comes = ["daemon 3 on n3 is to join", "4", "daemon 3 on n3 is a member now"]
    check(said == [*comes, "3", *comes], f"mpirun tells {said}")


main([add_lose_and_add_again])
