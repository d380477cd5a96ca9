#!/usr/bin/env python3
"""btl/dgram over the loopback interface: what it carries, what it refuses, what it drops. TAP."""

import os
import random
import re
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
sys.dont_write_bytecode = True

import ftbtl  # noqa: E402
import ftmanual  # noqa: E402
import ftmpi  # noqa: E402
import fttap  # noqa: E402

LOOPBACK = {"btl_dgram_if_include": "lo", "btl_dgram_stats": 1}
BTL = ftbtl.Btl("dgram", LOOPBACK)
LIMIT = 1472  # bytes that a packet of Ethernet carries for UDP over IPv4
WRONG = {"btl_dgram_if_include": "nonsense/99"}


def carries(text, **parameters):
    """Every byte is right, and none of our own datagrams was dropped."""
    return BTL.carries(text, ("malformed", "strangers"), **parameters)


def shows_congestion(result):
    """The line of each path says what its congestion window is, and what goes with it."""
    lines = re.findall(r"^pml/dr\[rank \d+ -> \S+ dgram\[0\]\]: .* bytes=(\d+) .* rtt_us=([\d.]+) .*"
                       r" congestion_window=(\d+) pace_MBs=(\d+) lost_bytes=(\d+) congestion_events=(\d+)$", result.output, re.M)
    result.must(len(lines) == 2, "no line for each path with a congestion window")
    for line in lines:
        sent, trip, window, pace, lost, _ = map(float, line)
        result.must(8192 <= window <= 2 * 1024 * 1024, f"a window of {window:.0f} bytes")
        # Two windows a round trip; or 64 of the last one, if that is shorter still: none takes less than 5 us.
        least, most = 2 * window / trip, 2 * window / min(trip, 64 * 5)
        result.must(0.99 * least - 1 <= pace <= 1.01 * most + 1, f"pace {pace:.0f} MB/s, {window:.0f} bytes in {trip:.0f} us")
        result.must(lost <= sent, f"{lost:.0f} of {sent:.0f} bytes lost")


def gathers():
    """a bulk transfer fills its datagrams and gives many to the kernel in one call, each by itself with batch 1"""
    for batch in (None, 1):
        parameters = {**LOOPBACK, "btl_dgram_max_datagram": LIMIT, "pml_dr_stats": 2,
                      **({"btl_dgram_batch": batch} if batch else {})}
        result = BTL.run(parameters, program=[ftmpi.HASHRING, "--rounds", 10, "--kinds", "bulk", "--max", 300000])
        result.must(result.right, "the data was not right")
        # Of one fragment each; the probes of the size and dr's acknowledgements are datagrams, too.
        result.must(result.dgram["parts"] == 0, "fragments went in parts")
        each = result.dr["bytes_sent"] / result.dr["sent"]
        result.must(0.9 * LIMIT < each < LIMIT, f"{each:.0f} bytes in a fragment, {LIMIT} in the largest datagram")
        at_once = result.dgram["datagrams_out"] / result.dgram["calls_out"]
        fttap.comment(f"batch {batch or 'by default'}: {each:.0f} bytes in a fragment, {at_once:.1f} datagrams in a call")
        shows_congestion(result)
        if batch == 1:
            # A call for which the network has no room, or an error, sends none.
            result.must(at_once <= 1, f"{at_once:.1f} datagrams in a call")
        else:
            result.must(at_once > 4, f"{at_once:.1f} datagrams in a call")


def controlled_by(word):
    """With a congestion control that is not the default one."""
    def case():
        result = BTL.run({**BTL.loopback, "pml_dr_congestion": word, "pml_dr_stats": 2}, ranks=3)
        result.must(result.right, "the data was not right")
        result.must(result.dgram["delivered"] > 1000, "it did not go by btl/dgram")
        controls = re.findall(r"^pml/dr\[rank \d+ -> \S+ dgram\[0\]\]: .* congestion=(\w+) ", result.output, re.M)
        result.must(len(controls) >= 6 and set(controls) == {word}, f"controlled by {controls}")
    case.__doc__ = f"congestion control {word}: every byte is right"
    return case


def refuses_unknown_control():
    """pml_dr_congestion vegas is refused with the words that there are"""
    result = BTL.run({**LOOPBACK, "pml_dr_congestion": "vegas"})
    result.must(result.code != 0, "the job went on as if nothing were wrong")
    flat = " ".join(result.output.split())
    for word in ("The parameter pml_dr_congestion holds a word that the PML \"dr\" does not know", "given: vegas",
                 "allowed: hybrid, cubic, delay"):
        result.must(word in flat, f"no message says \"{word}\"")


def refuses_ob1():
    """under a PML that does not retransmit it refuses, and says why"""
    words = ["the PML of this job is ob1, which does not send lost fragments again",
             "Use \"--mca pml dr\""]
    BTL.refused(LOOPBACK, words, pml="ob1")
    result = BTL.run(LOOPBACK, pml="ob1", btl="dgram,vader,self")
    result.must(result.right and words[0] in " ".join(result.output.split()),
                "with another BTL the job must run over that one")


def host_without_such_a_network():
    """an interface that this host does not have is refused with those that it has"""
    result = BTL.run({"btl_dgram_if_include": "203.0.113.0/24"})
    flat = " ".join(result.output.split())
    result.must(result.code != 0 and "Asked for (if_include): 203.0.113.0/24" in flat
                and "lo (127.0.0.1)" in flat, "no message says so")


def different_providers():
    """processes with different providers say that no datagrams lead from one to the other"""
    def half(provider):
        return ["-np", "1", "-x", f"OMPI_MCA_btl_dgram_provider={provider}", ftmpi.HASHRING,
                "--rounds", "3"]

    names = ftmpi.mca({"pml": "dr", "btl": "dgram,self", **LOOPBACK})
    result = ftmpi.run([ftmpi.MPIRUN, "--oversubscribe", *names, *half("udp"), ":",
                        *half("ofi:udp")], ftbtl.DEADLINE)
    flat = " ".join(result.output.split())
    result.must(result.code != 0 and not result.late, "the job went on, or hung")
    named = re.findall(r"Provider: (\S+) Process: \S+ on \S+ Provider: (\S+)", flat)
    result.must(sorted(named[0] if named else ()) == ["ofi:udp", "udp"], "no message names both providers")


def provider_missing_where_rank_0_is_not():
    """a provider that one process alone does not have is told by that one, with its host"""
    names = ftmpi.mca({"pml": "dr", "btl": "dgram,self", **LOOPBACK})
    result = ftmpi.run([ftmpi.MPIRUN, "--oversubscribe", *names, "-np", "1", ftmpi.HASHRING, "--rounds", "3", ":", "-np", "1",
                        "-x", "OMPI_MCA_btl_dgram_provider=ofi:pigeons", "-x", "FI_PROVIDER=udp", ftmpi.HASHRING, "--rounds", "3"],
                       ftbtl.DEADLINE)
    flat = " ".join(result.output.split())
    result.must(result.code != 0 and not result.late, "the job went on, or hung")
    result.must(len(re.findall(r"Host: \S+ Parameter: btl_dgram_provider Value: ofi:pigeons", flat)) == 1, "no message, or several")
    result.must('(FI_PROVIDER is "udp" in the environment, which hides providers of libfabric)' in flat, "no word of FI_PROVIDER")


def sockets_of(pids):
    """The UDP ports at 127.0.0.1 that are bound and not connected, of these processes."""
    inodes = set()
    for pid in pids:
        try:
            for entry in os.scandir(f"/proc/{pid}/fd"):
                match = re.match(r"socket:\[(\d+)\]", os.readlink(entry.path))
                if match:
                    inodes.add(match.group(1))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    ports = []
    with open("/proc/net/udp", encoding="ascii") as table:
        for line in table.readlines()[1:]:
            fields = line.split()
            local, remote = fields[1].split(":"), fields[2].split(":")
            if fields[9] in inodes and local[0] == "0100007F" and remote[1] == "0000":
                ports.append(int(local[1], 16))
    return ports


def foreign(rng):
    """Datagrams that are not this job's: noise, near misses, and what an earlier job may have sent."""
    key = rng.randrange(2 ** 64)
    well_formed = struct.pack("<BBHQ", 0xd1, 0x4e, 212, key) + rng.randbytes(200)
    part = struct.pack("<BBHQIIII", 0xd2, 0x4e, 228, key, 7, 1, 400, 0) + rng.randbytes(200)
    probe = struct.pack("<BBHQIIII", 0xd3, 0, 28, key, 7, 1, 0, 0)
    noise = rng.randbytes(rng.randrange(1, 3000))
    cut = well_formed[:rng.randrange(1, 12)]
    longer = well_formed + b"\0"
    joined = well_formed * 3 + well_formed[:50]
    version = b"\xe1" + well_formed[1:]
    return [well_formed, part, probe, noise, cut, longer, joined, version, b""]


def takes_the_faster_provider():
    """without an adapter that is driven from user space the default are the kernel's sockets"""
    result = BTL.run(LOOPBACK)
    result.must(result.right, "the data was not right")
    taken = set(re.findall(r"^btl/dgram\[rank \d+\]: module=\d+ provider=(\S+)", result.output, re.M))
    adapters = any(os.path.isdir(folder) and os.listdir(folder) for folder in ("/sys/class/infiniband", "/sys/class/hfi1"))
    result.must(len(taken) == 1 and (adapters or taken == {"udp"}) and "ofi:udp" not in taken, f"providers: {taken}")


def of_sockets(ports):
    """The bytes that wait in the fullest of these sockets, and how many datagrams found one of them full."""
    with open("/proc/net/udp", encoding="ascii") as table:
        rows = [line.split() for line in table.readlines()[1:]]
    rows = [row for row in rows if int(row[1].split(":")[1], 16) in ports and row[2].endswith(":0000")]
    return max((int(row[4].split(":")[1], 16) for row in rows), default=0), sum(int(row[12]) for row in rows)


def drops_foreign_datagrams(provider):
    """Datagrams of strangers and of earlier jobs, and nonsense. Of each round three are whole, of another job's key; and where
    the kernel may join those of one sender, four more are at the front of others."""
    rounds, whole = 200, 7 if provider == "udp" else 3
    most_waiting = 32768  # bytes: there is room for a round

    def send(process, end):
        rng = random.Random(7)
        ports = []
        while len(ports) < 2 and time.monotonic() < end and process.poll() is None:
            ports = sockets_of(ftmpi.descendants(process.pid))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(rounds):
                while of_sockets(ports)[0] > most_waiting and time.monotonic() < end and process.poll() is None:
                    pass
                for datagram in foreign(rng):
                    for port in ports:
                        sender.sendto(datagram, ("127.0.0.1", port))
        return ports, of_sockets(ports)[1]

    def case():
        result, (ports, lost) = BTL.during({**BTL.loopback, "btl_dgram_provider": provider}, send, largest=300000)
        result.must(len(ports) >= 2, "the ranks' sockets were not found")
        result.must(result.right, "the data was not right")
        result.must(f" provider={provider} " in result.output, "another provider was used")
        fttap.comment(f"{result.dgram['strangers']} strangers, {result.dgram['malformed']} malformed, {lost} overrun")
        # One that finds no room is four at most; but hardly any of those are foreign.
        sent = rounds * whole * len(ports)
        result.must(result.dgram["strangers"] >= sent - min(4 * lost, sent // 2) and result.dgram["malformed"] > 100,
                    "the datagrams were not counted")
        result.must(result.dr["corrupt_header"] == 0, "foreign datagrams came as far as dr")
    case.__doc__ = f"foreign datagrams and nonsense, provider {provider}: they are dropped and counted"
    return case


FAULTY = os.path.join(ftmpi.BUILD, "test/unit/dgram/.libs/ofi_faults.so")


def by_faulty_libfabric(faults, btl, **parameters):
    """A run over libfabric with faults, and what was made of them: by rank, what was sent and failed."""
    result = BTL.run({**BTL.loopback, "btl_tcp_if_include": "lo", "btl_dgram_provider": "ofi:udp", "pml_dr_verbose": 1, **parameters},
                     btl=btl, program=["-x", f"LD_PRELOAD={FAULTY}", "-x", f"FT_OFI_FAULTS={faults}", ftmpi.HASHRING, *ftbtl.WORK])
    result.must(result.right, "the data was not right")
    made = {}
    for rank, words in re.findall(r"^ofi_faults\[rank (\d+)\]: (.*)$", result.output, re.M):
        made[int(rank)] = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", words)}
    result.must(sorted(made) == [0, 1], "libfabric was the real one")
    return result, made


def breaks(text, faults, reason):
    """A case: libfabric fails in rank 1, which says so and goes on over TCP."""
    def case():
        result, made = by_faulty_libfabric(f"inject=64,after=100,rank=1,{faults}", "dgram,tcp,self")
        result.must(made[1]["failed"] > 0 and made[0]["failed"] == 0, f"it did not fail as it should: {made}")
        flat = " ".join(result.output.split())
        result.must(flat.count("btl/dgram lost its way to a process") == 1, "no message, or several")
        result.must(f"Reason: {reason}" in flat, "the message gives another reason")
        result.must(re.search(r"pml/dr\[rank 1\] \S+ peer \S+ path dgram\[0\]: \w+ -> (down|gone)", flat), "dr did not take the path out")
        result.must(result.dgram["delivered"] > 100, "hardly anything went by datagrams before")
    case.__doc__ = f"{text}: the path is taken out with a clear message, the data goes over TCP, every byte is right"
    return case


VERBS = "verbs=1,inject=64,prefix=40,registers=1,domains=2,heedless=1,single=1"  # what passes for it


def more_demanding_libfabric():
    """by default verbs is used where it is: it has two domains, whatever address it is asked for, and wants space in front of
    messages, memory registered, and one call at a time"""
    result, made = by_faulty_libfabric(VERBS, "dgram,self", btl_dgram_provider="auto", pml_dr_stats=2, pml_dr_progress="thread")
    fttap.comment(f"{made}")
    for rank, counts in made.items():
        result.must(counts["registered"] == 4 and counts["released"] == 4, f"two domains, two pieces of memory each: {made}")
        result.must(counts["unregistered"] == 0 and counts["without_prefix"] == 0, f"it did not get what it asks for: {made}")
        result.must(counts["overlaps"] == 0, f"calls into one domain overlapped: {made}")
        modules = re.findall(rf"^btl/dgram\[rank {rank}\]: module=(\d+) provider=ofi:verbs ", result.output, re.M)
        result.must(sorted(modules) == ["0", "1"], f"modules of rank {rank}: {modules}")
        sent = re.findall(rf"^pml/dr\[rank {rank} -> \S+ dgram\[\d+\]\]: state=\w+ sent=(\d+) ", result.output, re.M)
        result.must(len(sent) == 2 and all(int(number) > 0 for number in sent), f"sent by the paths of rank {rank}: {sent}")


def falls_back_to_sockets():
    """the provider that is used by default cannot register memory: said once, and the kernel's sockets are used"""
    result, made = by_faulty_libfabric(VERBS + ",memory_error=12", "dgram,self", btl_dgram_provider="auto")
    result.must(all(counts["failed"] > 0 for counts in made.values()), f"it did not fail as it should: {made}")
    taken = re.findall(r"^btl/dgram\[rank \d+\]: module=\d+ provider=(\S+)", result.output, re.M)
    result.must(taken == ["udp", "udp"], f"providers: {taken}")
    flat = " ".join(result.output.split())
    said = re.findall(r"Provider: ofi:verbs Reason: domain0: fi_mr_reg: Cannot allocate memory", flat)
    result.must(len(said) == 1, f"it was said {len(said)} times")
    # Who names the provider means that one.
    named = BTL.run({**LOOPBACK, "btl_dgram_provider": "ofi:verbs"}, program=[
        "-x", f"LD_PRELOAD={FAULTY}", "-x", f"FT_OFI_FAULTS={VERBS},memory_error=12", ftmpi.HASHRING, *ftbtl.WORK])
    named.must(named.code != 0 and "sockets (udp) here" not in named.output, "another provider than the one named was used")


def words_for_nothing():
    """names and networks to be used that this host does not have are told once, and the others are used; blanks do not matter"""
    said = r"Parameter: btl_dgram_if_include Not here: (.*?) Up here, with addresses of IP: .*lo \(127\.0\.0\.1\)"
    for include, words in (("lo,eht1", ["eht1"]), ("203.0.113.0/24, lo , eht1", ["203.0.113.0/24, eht1"]), (" lo, 127.0.0.0/8", [])):
        result = BTL.run({**LOOPBACK, "btl_dgram_if_include": include})
        result.must(result.right, f"\"{include}\": the data was not right")
        found = re.findall(said, " ".join(result.output.split()))
        result.must(found == words, f"\"{include}\": told were {found}")


def by_sockets_of_libfabric(text, faults):
    """Little work and few faults: its own thread has to be given a core for every datagram, and each that is lost costs a
    timeout that has grown accordingly."""
    def case():
        result = BTL.run({**BTL.loopback, "btl_dgram_provider": "ofi:sockets", "btl_fault_count": 1, **faults},
                         btl="fault,dgram,self", program=[ftmpi.HASHRING, "--rounds", 3, "--max", 60000])
        fttap.comment(f"{result.seconds:.1f} s, {result.dr['retransmitted']} of {result.dr['sent']} sent again, {result.faults}")
        result.must(result.right, "the data was not right")
        result.must(" provider=ofi:sockets " in result.output, "another provider was used")
        result.must(result.dgram["delivered"] > 100, "it did not go by btl/dgram")
        result.must(not faults or (result.faults["dropped"] > 0 and result.dr["retransmitted"] > 0), "the faults did not strike")
    case.__doc__ = f"libfabric's provider sockets, {text}: every byte is right"
    return case


def full_send_queue_of_libfabric():
    """libfabric injects next to nothing, and takes a few sends at a time that go out later: every byte is right"""
    result, made = by_faulty_libfabric("inject=64,queue=4", "dgram,self")
    fttap.comment(f"{made}")
    for rank in made.values():
        result.must(rank["sends"] > 1000 and rank["no_room"] > 10, f"its queue was not full: {made}")
    result.must(result.dgram["full"] > 10, "a full queue was not noticed")
    result.must("lost its way" not in result.output, "a full queue broke the way")


def eager_limit_above_a_datagram():
    """an eager limit above what a datagram carries is cut to that: every message goes out, also those that just fit"""
    sizes = ["--rounds", 30, "--max", 1500]
    result = BTL.run({**LOOPBACK, "btl_dgram_max_datagram": 1472, "pml_dr_eager_limit": 65536}, program=[ftmpi.HASHRING, *sizes])
    result.must(result.right, "the data was not right")


def idle_peers_cost_no_descriptor():
    """the socket to a peer that nothing is sent to for some seconds is closed, and opened when there is something"""
    program = os.path.join(ftmpi.BUILD, "test", "mpi", "programs", "rests")
    result = BTL.run(BTL.loopback, program=[program], ranks=3)
    result.must(result.code == 0 and result.output.count(" 0 wrong after it rested") == 3, "the data was not right")


def settings_agree_with_the_manual():
    """the manual page describes every parameter with its default, and no other"""
    ftmanual.agree("btl", "dgram", "opal/mca/btl/dgram")


TESTS = [
    carries("as large as loopback carries"),
    carries("datagrams of Ethernet", max_datagram=1472),
    carries("the smallest datagrams", max_datagram=548),
    carries("one call for each", batch=1, max_datagram=1472),
    carries("without offload", offload=0, max_datagram=1472),
    carries("with the smallest buffers", receive_buffer=4096, send_buffer=4096,
            max_datagram=1472),
    carries("libfabric's datagrams", provider="ofi:udp"),
    carries("the first provider of libfabric, small buffers", provider="ofi",
            receive_buffer=65536, max_datagram=600),
    BTL.inert("not in the list of BTLs", WRONG, btl="vader,self"),
    BTL.inert("with a list that only excludes", WRONG, btl="^openib"),
    BTL.inert("with no list of BTLs at all", WRONG, btl=None),
    refuses_ob1,
    BTL.refuses({"btl_dgram_provider": "pigeons"}, "Parameter: btl_dgram_provider Value: pigeons"),
    BTL.refuses({"btl_dgram_provider": "ofi:pigeons"},
            "libfabric has no provider of that name on this host; those with one are"),
    BTL.refuses({"btl_dgram_provider": "ofi:tcp;ofi_rxm"},
            "that provider of libfabric has no datagram endpoint (FI_EP_DGRAM); those with one are"),
    takes_the_faster_provider,
    different_providers,
    provider_missing_where_rank_0_is_not,
    BTL.refuses({"btl_dgram_if_include": "10.1.0.0/33"},
            "Parameter: btl_dgram_if_include Value: 10.1.0.0/33"),
    BTL.refuses({"btl_dgram_if_exclude": "eth0/24"},
            "Parameter: btl_dgram_if_exclude Value: eth0/24"),
    BTL.refuses({"btl_dgram_max_datagram": 70000}, "It must be 0, or 548 to 65507"),
    BTL.refuses({"btl_dgram_max_datagram": 100}, "It must be 0, or 548 to 65507"),
    BTL.refuses({"btl_dgram_batch": 0}, "It must be 1 to 128"),
    BTL.refuses({"btl_dgram_receive_buffer": 1}, "It must be 4096 to 1073741824"),
    # Open MPI takes it for 5 * 2^20, which is in range.
    BTL.refuses({"btl_dgram_receive_buffer": "5ms"}, "Parameter: btl_dgram_receive_buffer Value: 5ms"),
    # Open MPI says so itself and goes on with the default; the component does not.
    BTL.refuses({"btl_dgram_size_interval_ms": -1}, "Parameter: btl_dgram_size_interval_ms Value: -1"),
    host_without_such_a_network,
    words_for_nothing,
    drops_foreign_datagrams("udp"),
    drops_foreign_datagrams("ofi:udp"),
    controlled_by("cubic"),
    controlled_by("delay"),
    refuses_unknown_control,
    gathers,
    eager_limit_above_a_datagram,
    idle_peers_cost_no_descriptor,
    BTL.left_by_exit("datagrams"),
    breaks("a send of libfabric's completes with an error", "send_error=5", "completion of fi_send: Input/output error"),
    breaks("a receive of libfabric's completes with an error", "receive_error=5", "completion of fi_recv: Input/output error"),
    breaks("libfabric's queue of sends fails", "send_queue_error=5", "fi_cq_read of sends: Input/output error"),
    full_send_queue_of_libfabric,
    more_demanding_libfabric,
    falls_back_to_sockets,
    by_sockets_of_libfabric("as it is", {}),
    by_sockets_of_libfabric("fragments lost, spoilt and doubled",
                            {"btl_fault_drop": 1, "btl_fault_corrupt": 1, "btl_fault_duplicate": 1}),
    settings_agree_with_the_manual,
]

if __name__ == "__main__":
    ftmpi.become_subreaper()
    fttap.main(TESTS)
