#!/usr/bin/env python3
"""Each fault of the virtual cluster does what its name says, where it says."""

import os
import sys
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

import ftcluster  # noqa: E402
from fttap import check, main  # noqa: E402

PEER = [sys.executable, os.path.join(HERE, "peer.py")]
NUMBER = 20


class Pair:
    """A cluster of two hosts, or more, in which n1 serves on every network."""

    def __init__(self, hosts=2):
        self.cluster = ftcluster.Cluster(hosts=hosts)

    def __enter__(self):
        self.cluster.__enter__()
        self.addresses = {}
        for line in self.cluster.tool("run", "n1", "ip", "-o", "-4", "address").splitlines():
            fields = line.split()
            self.addresses[fields[1]] = fields[3].split("/")[0]
        self.servers = {}
        for rail in ("0", "1"):
            server = self.cluster.start("run", "n1", *PEER, "serve", self.address(rail),
                                        deadline=120)
            self.servers[rail] = server
        self.ports = {rail: self._ports(server) for rail, server in self.servers.items()}
        return self

    def __exit__(self, *what):
        for server in self.servers.values():
            server.stop()
        self.cluster.__exit__(*what)

    def address(self, rail):
        return self.addresses[f"rail{rail}"]

    def _ports(self, server):
        words = self.expect(server, "ports").split()
        return int(words[1]), int(words[2])

    @staticmethod
    def expect(run, word, seconds=20):
        """Wait until the run has said a line that begins with the word."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for line in run.out.splitlines(keepends=True):
                if line.startswith(word) and line.endswith("\n"):
                    return line.strip()
            check(not run.ended(), f"ended without {word!r}: {run.out} {run.err}")
        raise AssertionError(f"{word!r} was not said in {seconds} s: {run.out}")

    def echoed(self, rail, wanted, host="n0"):
        """How many of NUMBER datagrams from the host to n1 are echoed; those that are wanted may be late."""
        out = self.cluster.tool("run", host, *PEER, "datagrams", self.address(rail),
                                self.ports[rail][0], NUMBER, wanted)
        return int(out)

    def all_pass(self, rail, host="n0"):
        """Whether all datagrams from the host to n1 are echoed."""
        return self.echoed(rail, NUMBER, host) == NUMBER

    def none_passes(self, rail, host="n0"):
        """Whether none is."""
        return self.echoed(rail, 0, host) == 0

    def await_dropped(self, direction, number):
        """Wait until so many packets were dropped at n1's first rail in this direction: an echo may be late."""
        deadline = time.monotonic() + 20
        while self.cluster.counters()["n1"]["0"][direction]["drop"] < number and time.monotonic() < deadline:
            pass

    def send(self, rail, number):
        """Send bytes by TCP to n1 and back: (bytes back, wrong ones)."""
        out = self.cluster.tool("run", "n0", *PEER, "bytes", self.address(rail),
                                self.ports[rail][1], number)
        return tuple(int(w) for w in out.split())

    def hold(self, rail):
        """A TCP connection from n0 to n1 that waits for its end."""
        run = self.cluster.start("run", "n0", *PEER, "hold", self.address(rail),
                                 self.ports[rail][1], deadline=120)
        self.expect(run, "up")
        return run


def drop_is_silent_and_per_rail():
    """a drop cuts one rail without a word; heal ends it"""
    with Pair() as pair:
        held = pair.hold("0")
        check(pair.all_pass("0"), "datagrams are lost without a fault")
        pair.cluster.tool("cut", "n1", "0", "--how", "drop")
        check(pair.none_passes("0"), "datagrams pass a cut rail")
        check(pair.all_pass("1"), "the other rail is cut too")
        check(pair.cluster.struck("drop", "n1", "0") > 0, "the counter did not move")
        check(pair.cluster.struck("drop", "n1", "1") == 0, "counted on the other rail")
        check(not held.ended(), f"the cut was heard: {held.out}")
        pair.cluster.tool("heal", "n1", "0")
        check(pair.all_pass("0"), "datagrams are lost after heal")
        held.stop()


def drop_in_one_direction():
    """a drop of one direction counts in that direction alone"""
    with Pair() as pair:
        for direction, other in (("in", "out"), ("out", "in")):
            # Both ends know each other's hardware address from here on.
            check(pair.all_pass("0"), "datagrams are lost without a fault")
            before = pair.cluster.counters()["n1"]["0"]
            pair.cluster.tool("cut", "n1", "0", "--direction", direction)
            check(pair.none_passes("0"), f"echoes pass a cut {direction}")
            pair.await_dropped(direction, before[direction]["drop"] + NUMBER)
            after = pair.cluster.counters()["n1"]["0"]
            check(after[direction]["drop"] >= before[direction]["drop"] + NUMBER,
                  f"{direction}: {before} {after}")
            check(after[other]["drop"] == before[other]["drop"], f"{other}: {before} {after}")
            pair.cluster.tool("heal", "n1", "0")


def drop_between_two_hosts():
    """a drop of what goes between two hosts leaves a third alone"""
    with Pair(hosts=3) as pair:
        for direction in ("in", "out"):
            check(pair.all_pass("0") and pair.all_pass("0", "n2"), "datagrams are lost without a fault")
            before = pair.cluster.counters()["n1"]["0"]
            pair.cluster.tool("cut", "n1", "0", "--direction", direction, "--peer", "n0")
            check(pair.none_passes("0"), f"echoes pass a cut {direction}")
            check(pair.all_pass("0", "n2"), f"the third host is cut {direction} too")
            pair.await_dropped(direction, before[direction]["drop"] + NUMBER)
            struck = {d: count["drop"] - before[d]["drop"] for d, count in pair.cluster.counters()["n1"]["0"].items()}
            check(struck == {direction: NUMBER, "in" if direction == "out" else "out": 0}, f"{direction}: {struck}")
            pair.cluster.tool("cut", "n1", "0", "--direction", direction, "--peer", "n2")
            check(pair.none_passes("0") and pair.none_passes("0", "n2"), "one cut ends the other")
            pair.cluster.tool("heal", "n1", "0")


def link_down_takes_carrier():
    """link-down takes the carrier away and heal gives it back"""
    with Pair() as pair:
        def state():
            return pair.cluster.tool("run", "n1", "ip", "-o", "link", "show", "rail0")
        check("LOWER_UP" in state(), state())
        pair.cluster.tool("cut", "n1", "0", "--how", "link-down")
        check("LOWER_UP" not in state() and "NO-CARRIER" in state(), state())
        check(pair.none_passes("0"), "datagrams pass without a carrier")
        pair.cluster.tool("heal", "n1", "0")
        check("LOWER_UP" in state(), state())
        check(pair.all_pass("0"), "datagrams are lost after heal")


def reset_is_loud():
    """a reset ends the rail's TCP connections on both ends, then nothing passes"""
    with Pair() as pair:
        held, other = pair.hold("0"), pair.hold("1")
        out = pair.cluster.tool("cut", "n1", "0", "--how", "reset")
        check(out.startswith("1 "), f"one connection was there: {out}")
        check("lost" in pair.expect(held, "lost"), held.out)
        pair.expect(pair.servers["0"], "lost")
        check(not other.ended(), "the other rail's connection ended too")
        check(pair.none_passes("0"), "datagrams pass after the reset")
        other.stop()


def reset_once_leaves_the_rail():
    """reset-once ends the connections and the rail works on"""
    with Pair() as pair:
        held = pair.hold("0")
        pair.cluster.tool("cut", "n1", "0", "--how", "reset-once")
        pair.expect(held, "lost")
        check(pair.all_pass("0"), "datagrams are lost after reset-once")
        check(pair.send("0", 100000) == (100000, 0), "no new connection")


def loss_is_repaired_by_tcp():
    """lost packets are counted, and TCP delivers all the same"""
    with Pair() as pair:
        pair.cluster.tool("lose", "n1", "0", "--rate", "0.05")
        check(pair.send("0", 4 << 20) == (4 << 20, 0), "TCP did not deliver")
        check(pair.cluster.struck("lose", "n1", "0") > 0, "nothing was lost")


def corruption_is_silent():
    """corruption passes TCP unnoticed: each packet struck is one wrong byte"""
    with Pair() as pair:
        check(pair.send("0", 4 << 20) == (4 << 20, 0), "wrong bytes without a fault")
        pair.cluster.tool("corrupt", "n1", "0", "--rate", "0.2")
        got, wrong = pair.send("0", 4 << 20)
        struck = pair.cluster.struck("corrupt", "n1", "0")
        check(got == 4 << 20, f"{got} bytes came back")
        # A byte is hit on its way to n1, on its way back, or both: then it is right again.
        check(0 < wrong <= struck, f"{wrong} wrong bytes, {struck} packets struck")
        pair.cluster.tool("heal", "n1", "0")
        check(pair.send("0", 4 << 20) == (4 << 20, 0), "wrong bytes after heal")


def kill_is_loud():
    """a killed host's connections end for its peers at once"""
    with Pair() as pair:
        held = pair.hold("0")
        pair.cluster.tool("kill", "n1")
        check(held.wait() == 0 and ("ended" in held.out or "lost" in held.out), held.out)


def silent_kill_is_silent():
    """a silently killed host says nothing: not its sockets, not its console"""
    with Pair() as pair:
        held = pair.hold("0")
        pair.cluster.tool("kill", "n1", "--silent")
        # 1.5 s is the length of this observation, not a wait for an event.
        heard = ftcluster.wait_readable([held, *pair.servers.values()], time.monotonic() + 1.5)
        for run in heard:
            run.wait()
            run.tell()
        check(not heard, "somebody heard of the silent death")
        held.stop()


def frozen_host_keeps_connections():
    """a frozen host answers nobody, keeps its connections, and thaws"""
    with Pair() as pair:
        held = pair.hold("0")
        pair.cluster.tool("freeze", "n1")
        check(pair.none_passes("0"), "a frozen host answers")
        check(not held.ended(), "the connection ended")
        pair.cluster.tool("thaw", "n1")
        check(pair.all_pass("0"), "a thawed host does not answer")
        held.stop()


def bad_requests_are_refused():
    """bad hosts, rails and rates are refused with a sentence"""
    with Pair() as pair:
        for words in (("cut", "n7", "0"), ("cut", "n1", "5"), ("lose", "n1", "0", "--rate", "2"),
                      ("corrupt", "n1", "0", "--rate", "0"),
                      ("cut", "n1", "0", "--how", "link-down", "--direction", "in"),
                      ("cut", "n1", "0", "--how", "reset", "--peer", "n0"),
                      ("cut", "n1", "0", "--peer", "n1"), ("cut", "n1", "0", "--peer", "n7")):
            run = pair.cluster.start(*words)
            check(run.wait() == 1 and run.err.startswith("cluster: "), f"{words}: {run.err}")
        check(pair.all_pass("0"), "a refused request did something")


if __name__ == "__main__":
    main([drop_is_silent_and_per_rail, drop_in_one_direction, drop_between_two_hosts,
          link_down_takes_carrier, reset_is_loud, reset_once_leaves_the_rail, loss_is_repaired_by_tcp,
          corruption_is_silent, kill_is_loud, silent_kill_is_silent,
          frozen_host_keeps_connections, bad_requests_are_refused])
