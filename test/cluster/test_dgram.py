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
START_WINDOW = 65536  # bytes of a congestion window at first
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


def loses(rate, provider="auto"):
    """That share of packets is lost on both rails of a host."""
    def test():
        with ftcluster.Cluster() as cluster:
            parameters = dict(DGRAM, btl_dgram_provider=provider)
            with ftring.Story(cluster, parameters, DEADLINE, largest=100000) as story:
                story.under_way()
                for rail in ("0", "1"):
                    cluster.tool("lose", "n1", rail, "--rate", rate)
                for rail in ("0", "1"):
                    check(cluster.await_struck("lose", "n1", rail, 20, story.end),
                          f"nothing was lost on rail {rail}")
                story.goes_on(5)
                finish(story)
                check(counted(story, "pml/dr", "retransmitted") > 0, "nothing was sent again")
    test.__doc__ = (f"{float(rate):.0%} of packets lost on every rail of a host, provider {provider}: "
                    "every byte is right")
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


def only_ipv6(cluster, hosts, rails):
    """Takes the rails' addresses of IPv4 away and gives them others."""
    for number, host in enumerate(hosts):
        for rail in rails:
            device = f"rail{rail}"
            cluster.tool("run", host, "--", "ip", "-4", "address", "flush", "dev", device)
            cluster.tool("run", host, "--", "ip", "-6", "address", "add", f"fd00:{rail + 1}::{number + 1}/64", "dev", device,
                         "nodad")


def rails_of_ipv6(provider="auto"):
    """rails that have IPv6 only: from one to the other as one is cut"""
    with ftcluster.Cluster() as cluster:
        only_ipv6(cluster, ("n0", "n1", "n2", "n3"), (0, 1))
        parameters = dict(DGRAM, btl_dgram_if_include="rail0,rail1", btl_dgram_provider=provider)
        with ftring.Story(cluster, parameters, DEADLINE, largest=100000) as story:
            story.under_way()
            cluster.tool("cut", "n1", "0", "--how", "drop")
            check(cluster.await_struck("drop", "n1", "0", 1, story.end), "nothing was cut")
            story.goes_on(5)
            finish(story)


def rails_of_ipv6_by_libfabric():
    """the same by libfabric"""
    rails_of_ipv6("ofi:udp")


def networks_of(cluster):
    """The IP network of each rail."""
    return [re.match(r"[\d.]+/\d+", line.split()[2]).group(0)
            for line in cluster.tool("run", "n0", "--", "ip", "-br", "-4", "address",
                                     "show").splitlines() if line.startswith("rail")]


def cut_in_turn(parameters, kinds, ranks=ftring.RANKS):
    """Of three rails the first is cut, then the second; `parameters` are made of the rails' networks, `kinds` are the
    BTLs that have them."""
    with ftcluster.Cluster(rails=3) as cluster:
        known = dict(DGRAM, pml_dr_verbose=1, pml_dr_stats=2, **parameters(networks_of(cluster)))
        with ftring.Story(cluster, known, 2 * DEADLINE, kinds="bulk,storm", ranks=ranks) as story:
            story.under_way("bulk", rounds=4)
            ftring.cut_in_turn(story, "n1", 1, kinds)
            finish(story)
            return story


def rail_after_rail(provider="auto"):
    """from one datagram rail to the other to TCP, as each is cut"""
    cut_in_turn(lambda rails: {"btl": "dgram,tcp,self", "btl_dgram_provider": provider,
                               "btl_dgram_if_include": ",".join(rails[:2]), "btl_tcp_if_include": rails[2]},
                ["dgram", "dgram", "tcp"])


def one_kind_after_the_other():
    """from datagrams to UCX to TCP, as the rail of each is cut, with shared memory within the hosts"""
    story = cut_in_turn(lambda rails: {
        "btl": "dgram,ucx,tcp,vader,self", "btl_dgram_if_include": rails[0], "btl_ucx_transports": "tcp", "btl_ucx_stats": 1,
        "btl_ucx_if_include": rails[1], "btl_tcp_if_include": rails[2]},
        ["dgram", "ucx", "tcp"], ranks=2 * ftring.RANKS)
    check(counted(story, "btl/ucx", "delivered") > 0, "nothing went by UCX")
    shared = story.given("vader[0]")
    comment(f"{shared / 1048576:.1f} MiB went by shared memory")
    check(shared > 1 << 20, "hardly anything went by shared memory")


def rail_after_rail_of_libfabric():
    """from one rail of libfabric's datagrams to the other to TCP, as each is cut"""
    rail_after_rail("ofi:udp")


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


def narrower(text, mtu, **kinds):
    """A network that carries less than it says: the switch's port swallows the rest, and nobody is told."""
    def test():
        with ftcluster.Cluster(hosts=2, rails=1) as cluster:
            parameters = dict(DGRAM, btl_dgram_size_interval_ms=200)
            with ftring.Story(cluster, parameters, DEADLINE, **kinds) as story:
                story.under_way("bulk", rounds=4)
                cluster.tool("run", "n1", "--", "ip", "link", "set", "rail0", "mtu", mtu)
                story.goes_on()
                finish(story)
                check(counted(story, "btl/dgram", "parts") > 0, "nothing was sent in parts")
                check(counted(story, "btl/dgram", "narrowed") > 0, "the size was not found out")
    test.__doc__ = text
    return test


def overrun(cluster, host):
    """How many datagrams a host has dropped since a socket's receive buffer was full."""
    names, values = [line.split() for line in cluster.tool("run", host, "--", "cat", "/proc/net/snmp").splitlines()
                     if line.startswith("Udp:")]
    return int(values[names.index("RcvbufErrors")])


def windows(story):
    """What pml_dr_stats 2 tells of the congestion control of each path by datagrams, as dicts."""
    lines = re.findall(r"^pml/dr\[rank \d+ -> \S+ dgram\[\d+\]\]: (.* congestion_events=\d+)$", story.run.err, re.MULTILINE)
    return [{name: int(n) for name, n in re.findall(r"(\w+)=(\d+)\b", line)} for line in lines]


def full_buffers():
    """buffers of a few packets run over: windows shrink, and that is no more than slow"""
    parameters = dict(DGRAM, pml_dr_stats=2, btl_dgram_receive_buffer=4096, btl_dgram_send_buffer=4096)
    with ftcluster.Cluster() as cluster:
        with ftring.Story(cluster, parameters, DEADLINE, largest=100000) as story:
            story.under_way(rounds=10)
            finish(story)
            full = counted(story, "btl/dgram", "full")
            dropped = sum(overrun(cluster, f"n{host}") for host in range(4))
            sent, again = (counted(story, "pml/dr", name) for name in ("sent", "retransmitted"))
            events = [path["congestion_events"] for path in windows(story)]
            left = sorted(path["congestion_window"] for path in windows(story))
            comment(f"the network took no more {full} times; {dropped} dropped on arrival, {again} of {sent} sent again; "
                    f"windows shrank {sum(events)} times, to {left}")
            check("-> [[INVALID" not in story.run.err, "a peer has no name any more")
            check(dropped > 0 and again > 0, "no buffer ran over")
            check(sum(events) > len(events), "windows hardly ever shrank")
            # Half of them are at 8 to 10 KiB then, and at more than the 64 KiB of their start if none shrinks.
            check(left[len(left) // 2] <= START_WINDOW // 2, "windows did not shrink to what such buffers hold")
            # It is 0.23 to 0.34: also the smallest windows of six paths to a process are more than its buffers hold.
            check(again < sent / 2, "most of it was sent again")


def stopped_host():
    """a host that stands still for seconds and goes on loses nothing"""
    with ftcluster.Cluster() as cluster:
        with ftring.Story(cluster, DGRAM, DEADLINE, kinds="bulk,storm") as story:
            story.under_way("bulk", rounds=4)
            story.stands_still("n1", STOPPED_SECONDS)
            finish(story)


def told_apart(cluster, settings):
    """A job that cannot run, of a process on each of two hosts, told different things; what it said, in one line."""
    words = ["--mca", "pml", "dr", "--mca", "btl", "dgram,self"]
    for host, setting in settings.items():
        words += [":"] if host != next(iter(settings)) else []
        words += ["-np", "1", "--host", host, *setting, ftcluster.program("hashring"), "--rounds", "3"]
    run = cluster.mpirun(*words, deadline=30, env=ftcluster.component_env())
    code = run.wait()
    text = " ".join((run.out + run.err).split())
    if code in (0, ftcluster.PAST_DEADLINE) or "none of the BTLs in use leads" not in text:
        run.tell()
        raise AssertionError(f"exit code {code}, or no message says that there is no path")
    return text


def different_networks():
    """hosts that were told different networks say that no path leads to each other"""
    with ftcluster.Cluster(hosts=2) as cluster:
        told_apart(cluster, {"n0": ["-x", "OMPI_MCA_btl_dgram_if_include=lo"], "n1": []})


def different_providers():
    """hosts that were told different providers say so, each with the name of the other"""
    with ftcluster.Cluster(hosts=2) as cluster:
        text = told_apart(cluster, {"n0": ["-x", "OMPI_MCA_btl_dgram_provider=udp"],
                                    "n1": ["-x", "OMPI_MCA_btl_dgram_provider=ofi:udp"]})
        said = set(re.findall(r"Host: (\S+) Provider: (\S+) Process: \S+ on (\S+) Provider: (\S+)", text))
        comment(str(said))
        # Both notice, but the one that is first ends the job.
        either = {("n0", "udp", "n1", "ofi:udp"), ("n1", "ofi:udp", "n0", "udp")}
        check(said and said <= either, f"no message names the hosts and their providers: {said}")


def address_of(cluster, host, rail):
    return re.search(r"([\d.]+)/", cluster.tool("run", host, "--", "ip", "-br", "-4", "address", "show", f"rail{rail}")).group(1)


def route_back(text, kind, at_first):
    """No route leads from n1 to others over one rail, before a job starts or in its course; when it is there again the rail is
    used, for the other one is cut."""
    def test():
        with ftcluster.Cluster() as cluster:
            routes = [(kind, address_of(cluster, host, 0)) for host in ("n0", "n2", "n3")]

            def change(what):
                for route in routes:
                    cluster.tool("run", "n1", "--", "ip", "route", what, *route)

            if at_first:
                change("add")
            with ftring.Story(cluster, dict(DGRAM, btl_dgram_if_include="rail0,rail1"), DEADLINE, kinds="bulk,storm") as story:
                story.under_way("bulk")
                if not at_first:
                    change("add")
                    story.goes_on(4)
                change("del")
                story.goes_on(4)
                cluster.tool("cut", "n1", "1", "--how", "drop")
                check(cluster.await_struck("drop", "n1", "1", 1, story.end), "nothing was cut")
                story.goes_on(4)
                finish(story)
                check(counted(story, "btl/dgram", "refused") > 0, "the kernel took all that was sent")
                said = " ".join(story.run.err.split())
                check("lost its way" not in said, "a path was given up for good")
                check(("cannot open its way" in said) == at_first, "it was not said that there was no way, or said without need")
    test.__doc__ = text
    return test


def no_route():
    """hosts whose networks no route joins say so, and the job ends"""
    with ftcluster.Cluster(hosts=2) as cluster:
        networks = {}
        for host, rail in (("n0", "0"), ("n1", "1")):
            address = cluster.tool("run", host, "--", "ip", "-br", "-4", "address", "show", "rail" + rail)
            networks[host] = re.search(r"[\d.]+/\d+", address).group(0)
            cluster.tool("run", host, "--", "ip", "link", "set", "rail" + ("1" if rail == "0" else "0"), "down")
        words = ["--mca", "pml", "dr", "--mca", "btl", "dgram,self", "--mca", "pml_dr_give_up_ms", "3000",
                 "--mca", "pml_dr_rto_max_ms", "500", "--mca", "pml_dr_drain_ms", "1000"]
        for host in ("n0", "n1"):
            words += [":"] if host == "n1" else []
            words += ["-np", "1", "--host", host, "-x", f"OMPI_MCA_btl_dgram_if_include={networks[host]}",
                      ftcluster.program("hashring"), "--rounds", "3"]
        run = cluster.mpirun(*words, deadline=45, env=ftcluster.component_env())
        code = run.wait()
        text = " ".join((run.out + run.err).split())
        if code in (0, ftcluster.PAST_DEADLINE) or "Network is unreachable" not in text:
            run.tell()
            raise AssertionError(f"exit code {code}, or no message says that the network is not reachable")


def networks_of_their_own():
    """a network that each host has for itself, with the same address everywhere, is no way between them"""
    with ftcluster.Cluster(hosts=2, rails=1) as cluster:
        for host in ("n0", "n1"):
            for words in (("link", "add", "name", "own0", "type", "bridge"), ("link", "set", "own0", "up"),
                          ("address", "add", "172.17.0.1/16", "dev", "own0")):
                cluster.tool("run", host, "--", "ip", *words)
        parameters = dict(DGRAM, btl_dgram_if_include="own0,rail0", pml_dr_stats=2)
        with ftring.Story(cluster, parameters, DEADLINE) as story:
            story.under_way(rounds=5)
            finish(story)
            lines = re.findall(r"^pml/dr\[rank (\d+) -> \[\[\w+,\d+\],(\d+)\] (dgram\[\d+\])\]:", story.run.err, re.MULTILINE)
            for rank in range(ftring.RANKS):
                for peer in set(range(ftring.RANKS)) - {rank}:
                    ways = {way for one, other, way in lines if (int(one), int(other)) == (rank, peer)}
                    wanted = 2 if rank % 2 == peer % 2 else 1  # ranks go to the hosts in turn
                    check(len(ways) == wanted, f"from rank {rank} to {peer} there are {sorted(ways)}, not {wanted}")


def ports_of(cluster, host, address):
    """The UDP ports that are bound to that address of a host and not connected."""
    wanted = "".join(f"{int(part):02X}" for part in reversed(address.split(".")))
    ports = []
    for line in cluster.tool("run", host, "--", "cat", "/proc/net/udp").splitlines()[1:]:
        local, remote = line.split()[1:3]
        if local.split(":")[0] == wanted and remote.split(":")[1] == "0000":
            ports.append(int(local.split(":")[1], 16))
    return ports


def replayed(provider="udp"):
    """the datagrams of an earlier job, sent again to the ports of a later one, are dropped and counted"""
    # Whole datagrams on the wire, so that what is recorded is what was sent.
    parameters = dict(DGRAM, btl_dgram_offload=0, btl_dgram_provider=provider)
    tool = [os.path.join(os.path.dirname(os.path.realpath(ftcluster.__file__)), "wiretap.py")]
    with ftcluster.Cluster(hosts=2, rails=1) as cluster:
        recording = os.path.join(cluster.folder, "recording")
        address = address_of(cluster, "n1", 0)
        tap = cluster.start("run", "n1", "--", *tool, "record", "rail0", recording)
        try:
            end = time.monotonic() + DEADLINE / 2
            while "ready" not in tap.out and time.monotonic() < end:
                time.sleep(0.02)
            with ftring.Story(cluster, parameters, DEADLINE, largest=100000) as story:
                story.under_way(rounds=5)
                finish(story)
        finally:
            tap.stop()
        check(os.path.getsize(recording) > 100000, "hardly anything was recorded")
        with ftring.Story(cluster, parameters, DEADLINE, largest=100000) as story:
            story.under_way(rounds=2)
            ports = ports_of(cluster, "n1", address)
            check(len(ports) >= ftring.RANKS // 2, f"the ranks' ports were not found: {ports}")
            dropped = -overrun(cluster, "n1")
            said = cluster.tool("run", "n0", "--", *tool, "replay", recording, address, *ports)
            story.goes_on()
            story.finish_right()
            dropped += overrun(cluster, "n1")
            number = int(said.split()[-1])
            check(f" provider={provider} " in story.run.err, "another provider was used")
            strangers = counted(story, "btl/dgram", "strangers")
            comment(f"{number} sent again, {strangers} known for strangers, {dropped} dropped by a full buffer")
            # Some of them are no datagrams of btl/dgram at all, and a burst may overrun a buffer.
            check(strangers > max(100, (number - dropped) // 4), f"{number} were sent again, {strangers} counted")


def replayed_to_libfabric():
    """the same by libfabric's datagrams: those of an earlier job are dropped and counted"""
    replayed("ofi:udp")


TESTS = [loses("0.01"), loses("0.05"), loses("0.3"), loses("0.05", "ofi:udp"), corrupted_on_the_wire,
         rail_after_rail, rail_after_rail_of_libfabric, one_kind_after_the_other, rail_back,
         narrower("a network that swallows packets of the announced size is used with smaller ones", 1300, kinds="bulk,storm"),
         narrower("a network that swallows short messages, too, which go by themselves, is used with smaller packets", 700,
                  kinds="bulk", largest=900),
         full_buffers, stopped_host, rails_of_ipv6, rails_of_ipv6_by_libfabric, different_networks, different_providers,
         networks_of_their_own,
         route_back("a rail that no route leads to when the job starts is used once one does", "unreachable", True),
         route_back("a rail whose packets a route swallows for a time is used again", "blackhole", False), no_route, replayed, replayed_to_libfabric]

if __name__ == "__main__":
    chosen = [t for t in TESTS if len(sys.argv) < 2 or sys.argv[1] in (t.__doc__ or "")]
    main(chosen)
