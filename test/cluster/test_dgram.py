#!/usr/bin/env python3
"""pml/dr over btl/dgram on the virtual cluster: every byte is right whatever the kernel does.

Each fault is made while messages are under way and is shown to have struck.
"""

import os
import re
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
import ftring  # noqa: E402
from fttap import check, comment, main  # noqa: E402

DGRAM = {"pml": "dr", "btl": "dgram,self", "btl_dgram_stats": 1, "pml_dr_stats": 1}
DEADLINE = 90
STOPPED_SECONDS = 5


def counted(story, who, name):
    """The sum over all ranks of what a component counted."""
    lines = re.findall(rf"^{who}\[rank \d+\]: (.*)$", story.run.err, re.MULTILINE)
    return sum(int(n) for line in lines for n in re.findall(rf"\b{name}=(\d+)", line))


def finish(story):
    """The run ends well, and went by datagrams."""
    story.finish_right()
    check(counted(story, "btl/dgram", "delivered") > 0, "nothing went by datagrams")
    check(counted(story, "btl/dgram", "strangers") == 0, "our own datagrams were taken for foreign")


def loses(rate):
    """That share of packets is lost on both rails of a host."""
    def test():
        with ftcluster.Cluster() as cluster:
            with ftring.Story(cluster, DGRAM, DEADLINE, largest=100000) as story:
                story.under_way()
                for rail in ("0", "1"):
                    cluster.tool("lose", "n1", rail, "--rate", rate)
                for rail in ("0", "1"):
                    check(cluster.await_struck("lose", "n1", rail, 20, story.end),
                          f"nothing was lost on rail {rail}")
                story.goes_on(5)
                finish(story)
                check(counted(story, "pml/dr", "retransmitted") > 0, "nothing was sent again")
    test.__doc__ = f"{float(rate):.0%} of packets lost on every rail of a host: every byte is right"
    return test


def corrupted_on_the_wire():
    """bytes that the network rewrites, past UDP's own checksum, are noticed and sent again"""
    with ftcluster.Cluster() as cluster:
        with ftring.Story(cluster, DGRAM, DEADLINE, largest=100000) as story:
            story.under_way()
            for rail in ("0", "1"):
                cluster.tool("corrupt", "n1", rail, "--rate", "0.2")
            for rail in ("0", "1"):
                check(cluster.await_struck("corrupt", "n1", rail, 5, story.end),
                      f"nothing was rewritten on rail {rail}")
            story.goes_on(5)
            finish(story)
            check(counted(story, "pml/dr", "corrupt_payload") > 0, "dr noticed nothing")


def rail_after_rail():
    """from one datagram rail to the other to TCP, as each is cut"""
    parameters = dict(DGRAM, btl="dgram,tcp,self", pml_dr_verbose=1)
    with ftcluster.Cluster(rails=3) as cluster:
        # TCP has the third rail to itself.
        networks = [re.match(r"[\d.]+/\d+", line.split()[2]).group(0)
                    for line in cluster.tool("run", "n0", "--", "ip", "-br", "-4", "address",
                                             "show").splitlines() if line.startswith("rail")]
        parameters["btl_dgram_if_include"] = ",".join(networks[:2])
        parameters["btl_tcp_if_include"] = networks[2]
        with ftring.Story(cluster, parameters, DEADLINE, kinds="bulk,storm") as story:
            story.under_way("bulk", rounds=4)
            for rail in ("0", "1"):
                cluster.tool("cut", "n1", rail, "--how", "drop")
                check(cluster.await_struck("drop", "n1", rail, 1, story.end), "nothing was cut")
                began = time.monotonic()
                story.goes_on()
                comment(f"went on {time.monotonic() - began:.1f} s after the cut of rail {rail}")
            finish(story)


def rail_back():
    """a datagram rail that was cut and healed is used again"""
    with ftcluster.Cluster() as cluster:
        with ftring.Story(cluster, DGRAM, DEADLINE, kinds="bulk,storm") as story:
            story.under_way("bulk", rounds=4)
            cluster.tool("cut", "n1", "0", "--how", "link-down")
            story.goes_on()
            cluster.tool("heal", "n1", "0")
            story.goes_on()
            cluster.tool("cut", "n1", "1", "--how", "drop")
            story.goes_on()
            finish(story)


def narrower_than_announced():
    """a network that swallows packets of the announced size is used with smaller ones"""
    with ftcluster.Cluster(hosts=2, rails=1) as cluster:
        parameters = dict(DGRAM, btl_dgram_size_interval_ms=200)
        with ftring.Story(cluster, parameters, DEADLINE, kinds="bulk,storm") as story:
            story.under_way("bulk", rounds=4)
            # What the switch's port is to carry no longer gets to the host, and nobody is told.
            cluster.tool("run", "n1", "--", "ip", "link", "set", "rail0", "mtu", "1300")
            story.goes_on()
            finish(story)
            check(counted(story, "btl/dgram", "parts") > 0, "nothing was sent in parts")
            check(counted(story, "btl/dgram", "narrowed") > 0, "the size was not found out")


def full_buffers():
    """buffers of a few packets are no more than slow"""
    parameters = dict(DGRAM, btl_dgram_receive_buffer=4096, btl_dgram_send_buffer=4096)
    with ftcluster.Cluster() as cluster:
        with ftring.Story(cluster, parameters, DEADLINE, largest=100000) as story:
            story.under_way(rounds=10)
            finish(story)


def stopped_host():
    """a host that stands still for seconds and goes on loses nothing"""
    with ftcluster.Cluster() as cluster:
        with ftring.Story(cluster, DGRAM, DEADLINE, kinds="bulk,storm") as story:
            story.under_way("bulk", rounds=4)
            cluster.tool("freeze", "n1")
            story.drain()
            check(not story.rounds(10, seconds=STOPPED_SECONDS), "the host did not stand still")
            cluster.tool("thaw", "n1")
            story.goes_on()
            finish(story)


def different_networks():
    """hosts that were told different networks say that no path leads to each other"""
    with ftcluster.Cluster(hosts=2) as cluster:
        program = [ftcluster.program("hashring"), "--rounds", "3"]
        common = ["--mca", "pml", "dr", "--mca", "btl", "dgram,self"]
        run = cluster.mpirun(*common, "-np", "1", "--host", "n0", "-x",
                             "OMPI_MCA_btl_dgram_if_include=lo", *program,
                             ":", "-np", "1", "--host", "n1", *program,
                             deadline=30, env=ftcluster.component_env())
        code = run.wait()
        text = " ".join((run.out + run.err).split())
        if code in (0, ftcluster.PAST_DEADLINE) or "none of the BTLs in use leads" not in text:
            run.tell()
            raise AssertionError(f"exit code {code}, or no message says that there is no path")


TESTS = [loses("0.01"), loses("0.05"), loses("0.3"), corrupted_on_the_wire, rail_after_rail,
         rail_back, narrower_than_announced, full_buffers, stopped_host, different_networks]

if __name__ == "__main__":
    chosen = [t for t in TESTS if len(sys.argv) < 2 or sys.argv[1] in (t.__doc__ or "")]
    main(chosen)
