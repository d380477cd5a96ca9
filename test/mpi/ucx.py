#!/usr/bin/env python3
"""btl/ucx on one machine: what it carries, what it refuses, what it leaves alone. TAP."""

import os
import re
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
sys.dont_write_bytecode = True

import ftbtl  # noqa: E402
import ftmanual  # noqa: E402
import ftmpi  # noqa: E402
import fttap  # noqa: E402

LOOPBACK = {"btl_ucx_if_include": "lo", "btl_ucx_stats": 1, "btl_ucx_verbose": 1}
BTL = ftbtl.Btl("ucx", LOOPBACK)
ONE_TO_ONE = {**LOOPBACK, "btl_ucx_transports": "tcp", "btl_ucx_connect": "ep"}
WRONG = {"btl_ucx_transports": "nonsense"}
ILLEGAL_INSTRUCTION = 1 << 3  # in a mask of signals


def carries(text, **parameters):
    """Every byte is right, and the end of the job is no failure."""
    return BTL.carries(text, ("malformed", "strangers", "no_receiver", "broken"), **parameters)


def one_to_one(pml):
    """Endpoints that are connected one to one carry what others do, and nothing else was used."""
    def case():
        for ranks, parameters in ((4, {}), (2, {"btl_ucx_fragment": 2000})):
            result = BTL.run({**ONE_TO_ONE, **parameters}, pml=pml, ranks=ranks)
            counted = ftmpi.sums(result.output, "btl/ucx")
            result.must(result.right, "the data was not right")
            result.must(counted["wired"] >= ranks, f"{counted['wired']} were connected one to one")
            result.must(counted["delivered"] > 1000, "it did not go by btl/ucx")
            for counter in ("malformed", "strangers", "no_receiver", "broken"):
                result.must(counted[counter] == 0, f"{counter} is not 0")
    case.__doc__ = f"TCP with endpoints connected one to one, under {pml}: every byte is right"
    return case


def first_answer(pml):
    """What is sent to a peer for the first time while its message is delivered waits for the end of that."""
    def case():
        program = os.path.join(ftmpi.BUILD, "test", "mpi", "programs", "one_way")
        for connect in ("iface", "ep"):
            result = BTL.run({**LOOPBACK, "btl_ucx_transports": "tcp", "btl_ucx_connect": connect, "btl_ucx_fragment": 4096},
                             pml=pml, program=[program])
            result.must(result.code == 0, f"connect {connect}: the data was not right")
    case.__doc__ = f"a first answer from within a delivery, under {pml}"
    return case


def different_buffers():
    """processes of one host with buffers of different sizes do not write into each other's, and are told"""
    program = os.path.join(ftmpi.BUILD, "test", "mpi", "programs", "one_way")
    result = BTL.run({**LOOPBACK, "btl_ucx_transports": "posix"}, btl="ucx,vader,self", ranks=1,
                     program=[program, ":", "-n", "1", "-x", "OMPI_MCA_btl_ucx_fragment=1024", program])
    flat = " ".join(result.output.split())
    result.must(result.code == 0, "the data was not right")
    result.must(re.search(r"Here: \d+ bytes There: \d+ bytes", flat), "nobody was told")


def nobody_is_wired_unasked():
    """TCP connects to interfaces unless the user asks for something else"""
    for connect in ("auto", "iface"):
        result = BTL.run({**ONE_TO_ONE, "btl_ucx_connect": connect})
        counted = ftmpi.sums(result.output, "btl/ucx")
        result.must(result.right and counted["delivered"] > 1000 and counted["wired"] == 0,
                    f"{connect}: {counted}")


def host_without_such_a_network():
    """a network that this host does not have is refused with what there is"""
    result = BTL.run({"btl_ucx_transports": "tcp", "btl_ucx_if_include": "203.0.113.0/24"})
    flat = " ".join(result.output.split())
    result.must(result.code != 0 and "Devices asked for: 203.0.113.0/24" in flat
                and re.search(r"UCX has on this host: .*tcp \(.*lo", flat), "no message says so")


def transport_missing_where_rank_0_is_not():
    """a transport that one process alone does not have is told by that one, with its host"""
    result = BTL.run(LOOPBACK, ranks=1, program=[ftmpi.HASHRING, "--rounds", 3, ":", "-n", "1", "-x",
                                                 "OMPI_MCA_btl_ucx_transports=pigeons", ftmpi.HASHRING, "--rounds", 3])
    flat = " ".join(result.output.split())
    result.must(result.code != 0, "the job went on as if nothing were wrong")
    result.must(len(re.findall(r"Value: pigeons Not there: pigeons Host: \S+", flat)) == 1, "no message, or several")


def device_with_its_port():
    """the name of a device has a colon, and is no network for that"""
    result = BTL.run({**LOOPBACK, "btl_ucx_transports": "tcp", "btl_ucx_if_include": "lo,mlx5_0:1"})
    flat = " ".join(result.output.split())
    result.must(result.right and "so it is not used" not in flat, "it was refused")
    if not os.path.isdir("/sys/class/infiniband/mlx5_0"):
        result.must(flat.count("Parameter: btl_ucx_if_include Not here: mlx5_0:1 Here: ") == 1, "nobody was told that it is not there")


def words_for_nothing():
    """names and networks to be used that this host does not have are told once, and the others are used; blanks do not matter"""
    for include, words in (("lo,eht1", ["eht1"]), ("203.0.113.0/24, lo , eht1", ["203.0.113.0/24, eht1"]), (" lo, 127.0.0.0/8", [])):
        result = BTL.run({**LOOPBACK, "btl_ucx_transports": "tcp", "btl_ucx_if_include": include})
        result.must(result.right, f"\"{include}\": the data was not right")
        found = re.findall(r"Parameter: btl_ucx_if_include Not here: (.*?) Here: .*lo \(127\.0\.0\.1\)", " ".join(result.output.split()))
        result.must(found == words, f"\"{include}\": told were {found}")


def no_descriptor_left():
    """a process that has no descriptor for a connection says so once, and takes it in when it has some"""
    program = os.path.join(ftmpi.BUILD, "test", "mpi", "programs", "starved")
    with tempfile.TemporaryDirectory() as folder:
        for pml in ("dr", "ob1"):
            # Thousands would do as well, and take long to open.
            command = ["bash", "-c", "ulimit -n 128; exec \"$@\"", "starved", program, os.path.join(folder, pml)]
            result = BTL.run({**LOOPBACK, "btl_ucx_transports": "tcp"}, pml=pml, program=command)
            result.must(result.code == 0 and "got 4711" in result.output, f"{pml}: the message did not come")
            said = result.output.count("for too few of its 128 file descriptors are free")
            result.must(said == 1 and "ulimit -n" in result.output, f"{pml}: it was said {said} times")


def seen_in_ranks(parameters, **options):
    """What each rank has loaded, which signals it catches, and how many threads it has."""
    def look(process, end):
        ranks = []
        while len(ranks) < 2 and time.monotonic() < end and process.poll() is None:
            # The last thing that MPI_Init loads is something of coll's.
            ranks = [pid for pid in filter(ftmpi.is_rank, ftmpi.descendants(process.pid))
                     if "mca_coll_" in text_of(pid, "maps")]
        return [(text_of(pid, "maps"), int(re.search(r"SigCgt:\s*(\w+)", text_of(pid, "status")).group(1), 16),
                 len(os.listdir(f"/proc/{pid}/task"))) for pid in ranks]

    result, seen = BTL.during(parameters, look, **options)
    result.must(result.right, "the data was not right")
    result.must(len(seen) >= 2, "the ranks were not found")
    return seen


def killed_peer(transport, connect="auto"):
    """A rank dies: the others agree on it, and are not misled by what UCX says first."""
    def case():
        agree = os.path.join(ftmpi.BUILD, "test", "mpi", "validate", "agree")
        for dead, when in (("2", "later"), ("0", "during")):
            result = BTL.run({**LOOPBACK, "btl_ucx_transports": transport, "btl_ucx_connect": connect,
                              "errmgr": "radixft"},
                         program=[agree, dead, when], ranks=4)
            right = set(re.findall(r"^rank (\d+) right$", result.output, re.MULTILINE))
            result.must(result.code == 0 and right == {"0", "1", "2", "3"} - {dead},
                        f"rank {dead} died {when}: right were {sorted(right)}")
    case.__doc__ = f"a killed peer over {transport}, connect {connect}: the survivors agree on who died"
    return case


def text_of(pid, name):
    """A file of /proc, empty when the process is gone."""
    try:
        with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""


def leaves_processes_alone():
    """UCX is loaded where it is named only, and gets neither signals nor a thread of its own"""
    threads = set()
    for options, loaded in (({"btl": "tcp,self"}, False), ({"btl": None}, False), ({}, True)):
        for maps, caught, count in seen_in_ranks(LOOPBACK, **options):
            fttap.check(("libompi_ft_ucx" in maps) == loaded,
                        f"{options}: loaded is {not loaded}")
            if options.get("btl", "") is not None:
                fttap.check(not caught & ILLEGAL_INSTRUCTION, f"{options}: SIGILL is caught")
                threads.add(count)
    fttap.check(len(threads) == 1, f"threads of the ranks: {threads}")


def settings_agree_with_the_manual():
    """the manual page describes every parameter with its default, and no other"""
    ftmanual.agree("btl", "ucx", "opal/mca/btl/ucx")


TESTS = [
    carries("shared memory and TCP"),
    carries("TCP", transports="tcp"),
    carries("TCP, the smallest fragments", transports="tcp", fragment=1024),
    carries("POSIX shared memory", transports="posix"),
    carries("System V shared memory, small fragments", transports="sysv", fragment=2000),
    carries("TCP under ob1", pml="ob1", transports="tcp"),
    carries("shared memory under ob1", pml="ob1", transports="posix"),
    one_to_one("dr"),
    one_to_one("ob1"),
    first_answer("ob1"),
    first_answer("dr"),
    different_buffers,
    no_descriptor_left,
    nobody_is_wired_unasked,
    BTL.inert("not in the list of BTLs", WRONG, btl="vader,self"),
    BTL.inert("with a list that only excludes", WRONG, btl="^openib"),
    leaves_processes_alone,
    BTL.left_by_exit("shared memory and TCP"),
    BTL.left_by_exit("System V shared memory", transports="sysv"),
    BTL.left_by_exit("TCP", transports="tcp"),
    killed_peer("tcp"),
    killed_peer("tcp", connect="ep"),
    killed_peer("posix"),
    BTL.refuses({"btl_ucx_transports": "tcp,pigeons"}, "Not there: pigeons", "There are:"),
    BTL.refuses({"btl_ucx_transports": ""}, "Not there: (nothing)"),
    host_without_such_a_network,
    transport_missing_where_rank_0_is_not,
    device_with_its_port,
    words_for_nothing,
    BTL.refuses({"btl_ucx_if_include": "10.1.0.0/33"}, "Parameter: btl_ucx_if_include Value: 10.1.0.0/33"),
    BTL.refuses({"btl_ucx_fragment": 65536}, "It must be 1024 to 65528"),
    BTL.refuses({"btl_ucx_fragment": 100}, "It must be 1024 to 65528"),
    BTL.refuses({"btl_ucx_connect": "both"}, "It must be auto, iface or ep"),
    BTL.refuses({"btl_ucx_latency": 2000000}, "It must be 0 to 1000000"),
    settings_agree_with_the_manual,
]

if __name__ == "__main__":
    ftmpi.become_subreaper()
    fttap.main(TESTS)
