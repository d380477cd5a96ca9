#!/usr/bin/env python3
"""A rail that goes down and up again and again while messages run, under pml/dr.

Every event is awaited: what the ranks print of their paths (pml_dr_verbose), or
rounds of hashring.  What is counted comes from MPI_T at the end of the run.
"""

import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
import ftring  # noqa: E402
from fttap import check, main  # noqa: E402

DEADLINE = 100
RAIL = ("n1", "0")
OTHER = ("n1", "1")
FLAPS = 3
NEVER_MS = 3600000
MANY = 40  # path_retries: seconds until a silent rail is given up
HOLD_MS = 300
RANKS = (0, 1)
DR = {"pml": "dr", "btl": "tcp,self", "pml_dr_verbose": 1, "pml_dr_stats": 2,
      "pml_dr_probe_interval_ms": 40, "pml_dr_rto_max_ms": 300}  # so that a dead rail is found out soon
CHANGE = re.compile(r"pml/dr\[rank (\d+)\] (\d+):(\d+):(\d+\.\d+): peer \S+ path (\S+): (\w+) -> (\w+)")
COUNT = re.compile(r"paths: rank (\d+) to \d+ path (\d+) failovers (\d+) returns (\d+)")


class Change:
    """What a rank printed about one of its paths."""

    def __init__(self, match):
        rank, hours, minutes, seconds, self.path, self.before, self.after = match.groups()
        self.rank = int(rank)
        self.time = int(hours) * 3600 + int(minutes) * 60 + float(seconds)

    @property
    def taken_out(self):
        return self.after in ("down", "gone") and self.before in ("up", "suspect")

    @property
    def taken_back(self):
        return self.after == "up" and self.before in ("down", "probing")


class Flapping:
    """hashring on two hosts with two rails, the first of which flaps."""

    def __init__(self, cluster, hold_down_ms, **more):
        self.cluster = cluster
        settings = dict(DR, pml_dr_hold_down_ms=hold_down_ms, **more)
        self.story = ftring.Story(cluster, settings, DEADLINE, kinds="bulk,storm", ranks=len(RANKS),
                                  paths=True)
        self.path = {}  # each rank's name of the path over the rail that flaps

    def __enter__(self):
        self.story.under_way(rounds=4)
        return self

    def __exit__(self, *_):
        self.story.close()

    def all_changes(self):
        """What became of all paths, in order."""
        return [Change(m) for m in CHANGE.finditer(self.story.run.err)]

    def changes(self, rank):
        """What became of the rank's path over the rail that flaps, in order."""
        return [c for c in self.all_changes() if c.rank == rank and c.path == self.path.get(rank, c.path)]

    def await_changes(self, seen, wanted):
        """Wait until each rank has printed, behind what was seen, a change for which wanted() holds."""
        while not all(any(wanted(c) for c in self.changes(rank)[seen[rank]:]) for rank in RANKS):
            if not self.story.rounds(1):
                self.story.run.stop()
                self.story.run.tell(60)
                raise AssertionError("the paths did not change as they should")

    def count(self):
        return {rank: len(self.changes(rank)) for rank in RANKS}

    def cut(self, how, wanted):
        """Take the rail away, wait until both ranks have noticed, and that messages go on."""
        seen = self.count()
        self.cluster.tool("cut", *RAIL, "--how", how)
        self.await_changes(seen, wanted)
        for rank in RANKS:
            out = [c for c in self.changes(rank) if wanted(c)]
            self.path.setdefault(rank, out[0].path)
        self.story.goes_on(3)

    def heal(self, wanted):
        seen = self.count()
        self.cluster.tool("heal", *RAIL)
        self.await_changes(seen, wanted)
        self.story.goes_on(3)

    def finish(self):
        """End the run, which must be right; {rank: (failovers, returns)} of the path, by MPI_T."""
        self.story.finish_right()
        number = {rank: int(re.search(r"\d+", self.path[rank]).group()) for rank in RANKS}
        told = {(int(m[1]), int(m[2])): (int(m[3]), int(m[4]))
                for m in COUNT.finditer(self.story.run.out)}
        return {rank: told.get((rank, number[rank]), (0, 0)) for rank in RANKS}


def down(change):
    return change.taken_out and change.after == "down"


def taken_out(change):
    return change.taken_out


def down_again(change):
    return change.before == "probing" and change.after == "down"


def probing(change):
    return change.after == "probing"


def back(change):
    return change.taken_back


def held_down():
    """a rail that flaps is probed and not used before its hold-down is over, and nothing is lost"""
    with ftcluster.Cluster(hosts=2) as cluster, Flapping(cluster, NEVER_MS) as run:
        run.cut("drop", down)
        for _ in range(FLAPS):
            run.heal(probing)
            run.cut("drop", down_again)
        counts = run.finish()
        for rank in RANKS:
            check(not any(c.taken_back for c in run.changes(rank)), f"rank {rank} took it back")
            check(counts[rank] == (1, 0), f"rank {rank}: failovers and returns {counts[rank]}")


def comes_back(how, taken, flaps):
    """Let it flap; each time it must come back, and not before its time, which doubles."""
    with ftcluster.Cluster(hosts=2) as cluster, Flapping(cluster, HOLD_MS) as run:
        for _ in range(flaps):
            run.cut(how, taken)
            run.heal(back)
        counts = run.finish()
        for rank in RANKS:
            changes = run.changes(rank)
            outs = [c for c in changes if c.taken_out]
            backs = [c for c in changes if c.taken_back]
            check(counts[rank] == (len(outs), len(backs)),
                  f"rank {rank}: failovers and returns {counts[rank]}, printed {len(outs)}, {len(backs)}")
            check(len(backs) >= flaps, f"rank {rank} took it back {len(backs)} times")
            for flap, change in enumerate(outs[:len(backs)]):
                held = (backs[flap].time - change.time) % 86400
                least = HOLD_MS / 1000 * 2 ** min(flap, 6)
                # The state changes a little before it is printed, so half of the time is asked for:
                # no less than all of the time of the flap before.
                check(held >= least / 2, f"rank {rank} took it back after {held} s of {least} s")


def comes_back_after_silence():
    """a rail that is cut silently again and again comes back each time, after a hold-down that doubles"""
    comes_back("drop", down, FLAPS)


def comes_back_after_resets():
    """a rail whose connections are reset again and again comes back each time, after a hold-down that doubles"""
    comes_back("reset", taken_out, 2)


def carries_as_a_last_resort():
    """a rail in its hold-down carries at once what the other one does not any more, and stays held down"""
    with ftcluster.Cluster(hosts=2) as cluster, \
            Flapping(cluster, NEVER_MS, pml_dr_path_retries=MANY) as run:
        run.cut("drop", down)
        run.heal(probing)
        cluster.tool("cut", *OTHER, "--how", "drop")
        run.story.goes_on(3)
        doubted = [c for c in run.all_changes() if c.after == "suspect" and c.path not in run.path.values()]
        check(doubted, "nobody noticed that the other rail was cut")
        for rank in RANKS:
            check(not any(c.taken_back for c in run.changes(rank)),
                  f"rank {rank} went on only when it had taken back the rail")
        cluster.tool("heal", *OTHER)
        run.finish()


def used_at_once():
    """without hold-down a rail that flaps is used again each time"""
    with ftcluster.Cluster(hosts=2) as cluster, Flapping(cluster, 0) as run:
        run.cut("drop", down)
        for _ in range(2):
            run.heal(back)
            run.cut("drop", down)
        counts = run.finish()
        for rank in RANKS:
            check(counts[rank][0] >= 3 and counts[rank][1] >= 2,
                  f"rank {rank}: failovers and returns {counts[rank]}")


if __name__ == "__main__":
    main([held_down, comes_back_after_silence, comes_back_after_resets, carries_as_a_last_resort,
          used_at_once])
