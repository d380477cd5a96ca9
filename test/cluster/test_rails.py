#!/usr/bin/env python3
"""Two rails between two hosts, under pml/dr: of unlike rates, and of the same.

The kernel gives each rail its rate (a token bucket at the switch's port).  What
each path was given is counted by the program through MPI_T, batch by batch, so
nothing is told by the time that anything takes: a wait ends with the batch in
which the load has moved, and soon is what the rails carry meanwhile.
"""

import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
from fttap import check, comment, main  # noqa: E402

DR = {"pml": "dr", "btl": "tcp,self", "pml_dr_stats": 2}
DEADLINE = 80
RECONNECT_MS = 500
FAST, SLOW = 400, 100  # Mbit/s
ALIKE = 1000
BATCH = 2  # MiB
LOOKED_AT = 8 << 20  # bytes that tell the share of now
RECEIVER = "n1"
SOON = 60  # MiB: what the two rails carry in a second, which is how soon dr is to follow a change


class Batch:
    """What rank 0 told after a batch."""

    def __init__(self, event):
        self.time, text = event
        words = text.split()
        unit = words.index("MB/s")
        self.bytes = [float(word) for word in words[words.index("bytes") + 1:unit]]
        self.rates = [float(word) for word in words[unit + 1:]]


class Stream:
    """One run of `rails`, steady or in bursts."""

    def __init__(self, cluster, shape, **parameters):
        self.marks = cluster.marks()
        self.enough = self.marks.path + ".enough"
        self.end = time.monotonic() + DEADLINE
        options = [word for name, value in {**DR, **parameters}.items() for word in ("--mca", name, value)]
        self.run = cluster.mpirun("-np", 2, "--map-by", "node", *options, ftcluster.program("rails"),
                                  self.marks.path, self.enough, shape, deadline=DEADLINE,
                                  env=ftcluster.component_env())

    def batch(self):
        event = self.marks.wait(lambda text: text.startswith("batch "), self.end, self.run)
        if event is None:
            self.fail("no more batches came")
        return Batch(event)

    def share(self, batches):
        """The part of the bytes of so many batches from now on that rail 0 was given."""
        first = self.batch()
        for _ in range(batches):
            last = self.batch()
        given = [b - a for a, b in zip(first.bytes, last.bytes)]
        share = given[0] / sum(given)
        rate = batches * BATCH * 8.388608 / (last.time - first.time)
        comment(f"rail 0 has {share:.3f} of {batches} batches, {rate:.0f} Mbit/s in all; believed "
                + ", ".join(f"{8 * one:.0f}" for one in last.rates[:2]) + " Mbit/s")
        return share

    def until(self, wanted, what):
        """Wait until the share of the last batches is as wanted; MiB that were sent until then."""
        began = time.monotonic()
        seen = [self.batch()]
        before = sum(seen[0].bytes)
        while True:
            seen.append(self.batch())
            while len(seen) > 2 and sum(seen[-1].bytes) - sum(seen[1].bytes) >= LOOKED_AT:
                del seen[0]
            given = [b - a for a, b in zip(seen[0].bytes, seen[-1].bytes)]
            # What was under way before it began counts for nothing.
            if seen[0].time >= began and sum(given) >= LOOKED_AT and wanted(given[0] / sum(given)):
                break
        comment(f"{what} after {seen[-1].time - began:.2f} s: of {sum(given) / 1048576:.0f} MiB in the last "
                f"{seen[-1].time - seen[0].time:.2f} s rail 0 has {given[0] / sum(given):.3f}")
        return (sum(seen[-1].bytes) - before) / 1048576

    def fail(self, why):
        self.run.stop()
        self.run.tell(60)
        raise AssertionError(why)

    def finish(self):
        with open(self.enough, "w", encoding="ascii"):
            pass
        while self.marks.wait(lambda _: True, self.end, self.run) is not None:
            pass
        code = self.run.wait()
        if code != 0 or "rails: 0 wrong" not in self.run.out:
            self.fail(f"exit code {code}")
        for line in self.run.err.splitlines():
            if "state=" in line and "rank 0" in line:
                comment(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.run.stop()
        self.marks.close()


def in_proportion_and_back():
    """load goes over two unlike rails in proportion to their rates, and follows when these change"""
    with ftcluster.Cluster(hosts=2, mbit=(FAST, SLOW)) as cluster, Stream(cluster, "steady") as stream:
        # In proportion it were 0.8; half and half is what no measurement would give.
        stream.until(lambda share: 0.7 < share < 0.9, "in proportion")
        shares = sorted(stream.share(24) for _ in range(5))
        check(0.65 < shares[2] < 0.95, f"rail 0 has {shares[2]} of the bytes, 0.8 were in proportion")
        for rates, wanted, what in (((SLOW, FAST), lambda share: share < 0.35, "changed places"),
                                    ((FAST, SLOW), lambda share: share > 0.65, "changed places again")):
            for rail, mbit in enumerate(rates):
                cluster.tool("rate", RECEIVER, str(rail), mbit)
            took = stream.until(wanted, what)
            check(took <= SOON, f"{what}: the load followed after {took:.0f} MiB, {SOON} are allowed")
        stream.finish()


def half(share):
    return 0.35 < share < 0.65


def bursts_over_rails_that_are_alike():
    """a program that sends bursts gets both of two rails, also after one was cut and has come back"""
    with ftcluster.Cluster(hosts=2, mbit=(ALIKE, ALIKE)) as cluster, Stream(cluster, "bursts") as stream:
        stream.until(half, "half and half")
        for rail, how in ((0, "drop"), (1, "reset"), (1, "drop"), (0, "reset")):
            shares = sorted(stream.share(24) for _ in range(5))
            check(half(shares[2]), f"rail 0 has {shares[2]} of the bytes of bursts over two rails of {ALIKE} Mbit/s")
            cluster.tool("cut", RECEIVER, rail, "--how", how)
            gone = (lambda share: share < 0.02) if rail == 0 else (lambda share: share > 0.98)
            stream.until(gone, f"rail {rail} cut ({how})")
            cluster.tool("heal", RECEIVER, rail)
            stream.until(half, "half and half again")
        stream.finish()


def refused_for_long():
    """a rail that refuses connections for longer than pml_dr_reconnect_ms, beside one that is up, comes back"""
    with ftcluster.Cluster(hosts=2, mbit=(ALIKE, ALIKE)) as cluster, \
            Stream(cluster, "steady", pml_dr_reconnect_ms=RECONNECT_MS) as stream:
        stream.until(half, "half and half")
        cluster.tool("cut", RECEIVER, 0, "--how", "reset")
        stream.until(lambda share: share < 0.02, "rail 0 cut (reset)")
        # Batches go over the other one for the time for which it stays so.
        healed = time.monotonic() + 4 * RECONNECT_MS / 1000
        while time.monotonic() < healed:
            stream.batch()
        cluster.tool("heal", RECEIVER, 0)
        stream.until(half, "half and half again")
        stream.finish()


if __name__ == "__main__":
    main([in_proportion_and_back, bursts_over_rails_that_are_alike, refused_for_long])
