#!/usr/bin/env python3
"""Open MPI's btl/ofi as one more path of pml/dr, with faults, and with a peer that is killed. Prints TAP.

usage: ofi.py [all]
With `all`: over every provider, where no other path is left, and where a peer has no address, which takes seconds.
"""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
sys.dont_write_bytecode = True

import ftmpi  # noqa: E402
import fttap  # noqa: E402
import test_paths  # noqa: E402

KILLED = os.path.join(ftmpi.BUILD, "test", "mpi", "semantics", "killed_peer")
WORK = [ftmpi.HASHRING, "--rounds", 10, "--max", 200000]
DEADLINE = 60
TOLD = "libfabric reported an error to btl/ofi"
LEFT_OUT = "pml/dr on .*: btl/ofi cannot add process"
FAULTS = os.path.join(ftmpi.BUILD, "test", "unit", "dgram", ".libs", "ofi_faults.so")

ALL = "all" in sys.argv[1:]

# By itself btl/ofi uses none of libfabric's providers that need no hardware.
TWO_SIDED = {"btl_ofi_mode": 1}
PROVIDERS = ("shm", "sockets", "udp;ofi_rxd") if ALL else ("shm",)

ftmpi.NETWORKS.update({
    "ofi": ("ofi", TWO_SIDED, 1),
    "ofi+others": ("vader,tcp,ofi", {**TWO_SIDED, "btl_tcp_if_include": "lo", "pml_dr_stripe_memory": 1}, 3),
    "ofi as it comes": ("vader,tcp,ofi", {"btl_tcp_if_include": "lo", "pml_dr_stripe_memory": 1}, 2),
})


def sent(network, parameters, program=()):
    """A run whose data is right, and how many fragments the paths of each BTL carried."""
    result, paths = test_paths.run(network, parameters, [*program, *WORK])
    result.must(result.right, "the data was not right")
    result.must(TOLD not in result.output, "libfabric reported an error")
    carried = {}
    for path in paths:
        carried[path.btl] = carried.get(path.btl, 0) + path.sent
    fttap.comment(f"{result.seconds:.1f} s, {carried}")
    return result, carried


def as_it_comes():
    """named beside others as it comes, btl/ofi cannot send, and is no path"""
    _, carried = sent("ofi as it comes", {})
    fttap.check(sorted(carried) == ["tcp", "vader"] and all(carried.values()), str(carried))


def one_of_three():
    """with btl_ofi_mode 1 it carries beside vader and tcp, while fragments are lost and spoilt"""
    for provider in PROVIDERS:
        result, carried = sent("ofi+others", {"btl_ofi_provider_include": provider, "btl_fault_drop": 1,
                                              "btl_fault_corrupt": 1})
        result.must(sorted(carried) == ["ofi", "tcp", "vader"] and all(carried.values()), f"not all carry: {carried}")
        result.must(result.dr["retransmitted"] > 0 and result.dr["corrupt_payload"] > 0, "the faults did not strike")


def dies():
    """when it dies beside vader and tcp they carry on"""
    result, _ = sent("ofi+others", {"btl_ofi_provider_include": "shm", "btl_fault_kill_btl": "ofi",
                                    "btl_fault_kill_after": 20, "btl_fault_ranks": 0})
    result.must(result.faults["killed"] > 0, "the path did not die")


def not_added(faults, told):
    """btl/ofi of rank 1 is not what it should be, and would have processes exit in MPI_Init; who says that of whom."""
    result, carried = sent("ofi+others", {"btl_ofi_provider_include": "shm"},
                           ["-x", f"LD_PRELOAD={FAULTS}", "-x", f"FT_OFI_FAULTS={faults},rank=1"])
    result.must(len(re.findall(LEFT_OUT, result.output)) == told, "no message, or several")
    return result, carried


def address_is_refused():
    """libfabric refuses an address: that path is not there, and the others carry"""
    result, carried = not_added("addresses=0", 1)
    result.must(re.search(r"ofi_faults\[rank 1\].* refused=[1-9]", result.output), "libfabric was the real one")
    result.must(not re.search(r"pml/dr\[rank 1 -> \S+ ofi", result.output), "rank 1 has that path")
    result.must(carried["vader"] > 0 and carried["tcp"] > 0, f"not all carry: {carried}")


def sends_are_refused():
    """libfabric takes nothing more from a rank: it is asked at most a thousand times a second, and the others carry"""
    result, carried = sent("ofi+others", {"btl_ofi_provider_include": "shm"},
                           ["-x", f"LD_PRELOAD={FAULTS}", "-x", "FT_OFI_FAULTS=post_error=11,after=20,rank=1"])
    result.must(carried["vader"] > 0 and carried["tcp"] > 0, f"not all carry: {carried}")
    refused = int(re.search(r"ofi_faults\[rank 1\].* failed=(\d+)", result.output).group(1))
    fttap.comment(f"{refused} times")
    result.must(refused > 0, "nothing was refused")
    result.must(refused < 1000 * result.seconds, f"refused {refused} times")


def peer_has_no_address():
    """a peer's node has no provider: nobody has that path to it, and the others carry"""
    _, carried = not_added("nothing=1", 1)
    fttap.check(sorted(carried) == ["tcp", "vader"] and all(carried.values()), str(carried))


def peer_is_killed():
    """a peer is killed, libfabric reports errors, btl/ofi would exit: the others hear of it and go on"""
    for network in ("ofi", "ofi+others") if ALL else ("ofi+others",):
        command = ftmpi.command_for(network, "dr", {"errmgr": "radixft", "btl_ofi_provider_include": "sockets"},
                                    [KILLED], ranks=3)
        result = ftmpi.run(command, DEADLINE, show_stacks=True)
        result.must(not result.late, "a stall")
        result.must(TOLD in result.output, "libfabric reported no error: nothing was tried")
        for rank in (0, 2):
            result.must(f"rank {rank}: error class 75, went on" in result.output, f"rank {rank} did not go on")
        result.must(result.code == 0, "it failed")


if __name__ == "__main__":
    ftmpi.become_subreaper()
    fttap.main([as_it_comes, one_of_three, dies, address_is_refused, sends_are_refused,
                *([peer_has_no_address] if ALL else []), peer_is_killed])
