#!/usr/bin/env python3
"""vader and tcp as paths of pml/dr side by side: which one carries, and which payloads are checksummed. Prints TAP."""

import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
sys.dont_write_bytecode = True

import ftmpi  # noqa: E402
import fttap  # noqa: E402

DEADLINE = 60
FAST_PATH = os.path.join(ftmpi.BUILD, "test", "mpi", "semantics", "fast_path")
COMPUTING = os.path.join(ftmpi.BUILD, "test", "mpi", "semantics", "computing")
PAIR = os.path.join(ftmpi.BUILD, "test", "mpi", "semantics", "pair")
WORK = ["--rounds", 5, "--max", 100000]
PATH = re.compile(r"^pml/dr\[rank (\d+) -> \S+ (\w+)\[\d+\]\]: state=\w+ sent=(\d+) .* failovers=(\d+) returns=(\d+) ",
                  re.MULTILINE)


class Path:
    """What pml_dr_stats 2 tells of one path."""

    def __init__(self, match):
        self.btl = match[2]
        self.rank, self.sent, self.failovers, self.returns = (int(match[i]) for i in (1, 3, 4, 5))


def run(network, parameters, program):
    """A run that ends well, and its paths."""
    result = ftmpi.run(ftmpi.command_for(network, "dr", {"pml_dr_stats": 2, **parameters}, program), DEADLINE,
                       show_stacks=True)
    result.must(not result.late, "a stall")
    result.must(result.code == 0, "it failed")
    return result, [Path(match) for match in PATH.finditer(result.output)]


def carries_again(failure, silent_ms, stripe):
    """vader dies for so long beside tcp, traffic goes by tcp, and then by vader again; what it printed, and its paths."""
    result, paths = run("vader+tcp", {"btl_fault_kill_after": 2000, "btl_fault_kill_btl": "vader", "pml_dr_stripe_memory": stripe,
                                      # Memory that is silent is borne with for about so long.
                                      "pml_dr_rto_max_ms": 2000 if stripe else 100,
                                      "btl_fault_revive_after_ms": silent_ms, "btl_fault_ranks": 0,
                                      "pml_dr_hold_down_ms": 50, "pml_dr_probe_interval_ms": 20}, [FAST_PATH, failure])
    first = [path for path in paths if path.rank == 0][0]
    result.must("ok 1" in result.output and "not ok" not in result.output, "it does not carry again")
    result.must(result.faults["killed"] > 0, "the path did not die")
    # The program looked at the first path, whichever that is.
    result.must(first.btl == "vader", f"it was {first.btl} that failed")
    result.must(all(path.sent > 0 for path in paths), "a path has carried nothing")
    return result, first


def back_to_the_fast_path():
    """vader dies beside tcp, traffic fails over, and when vader lives again it carries again"""
    for stripe in (0, 1):
        result, first = carries_again("down", 1500, stripe)
        result.must(first.failovers > 0 and first.returns > 0, "the summary tells of no failure, or of no return")


def after_a_short_silence():
    """vader is silent for 0.3 s beside tcp, and carries again"""
    for stripe in (0, 1):
        carries_again("doubted", 300, stripe)


def memory_alone():
    """unless told otherwise tcp carries nothing between processes of a node, nor is connected for a receiver that computes"""
    for program in ([ftmpi.HASHRING, *WORK], [COMPUTING], [COMPUTING, 5]):
        for stripe in (0, 1):
            # A rank that is not run may be silent for longer than is borne with of memory, half of pml_dr_rto_max_ms or more:
            # then tcp is used, and is to be. So that is as long as the run may take.
            patient = {} if stripe else {"pml_dr_rto_max_ms": 2000 * DEADLINE}
            result, paths = run("vader+tcp", {"pml_dr_stripe_memory": stripe, **patient}, program)
            sent = {btl: sum(path.sent for path in paths if path.btl == btl) for btl in ("vader", "tcp")}
            fttap.comment(f"{os.path.basename(program[0])}, pml_dr_stripe_memory {stripe}: {sent}")
            result.must(sent["vader"] > 0, "vader was not used")
            result.must(stripe == 1 or sent["tcp"] == 0, "tcp was used")
            result.must(stripe == 0 or sent["tcp"] > 0 or program[0] == COMPUTING, "tcp was not used")


def left_by_memory():
    """a short send that memory has taken ends while its receiver computes, though tcp has a copy and no connection"""
    # The sixth case of the program: silence of memory is borne with for so short a time that tcp is given copies.
    for stripe in (0, 1):
        _, paths = run("vader+tcp", {"pml_dr_stripe_memory": stripe, "pml_dr_rto_max_ms": 100}, [COMPUTING])
        fttap.check(any(path.btl == "tcp" and path.sent > 0 for path in paths), "tcp was given nothing")


def checksum_of_one_btl():
    """pml_dr_checksum full,vader:none: payloads over vader are not summed, those over tcp are"""
    spared = {"pml_dr_checksum": "full,vader:none"}
    program = [ftmpi.HASHRING, *WORK]
    for name, network, parameters in (("vader", "vader", spared), ("tcp", "tcp", spared),
                                      ("both", "vader+tcp", spared), ("default", "vader", {})):
        result, paths = run(network, parameters, program)
        result.must(result.right, "the data was not right")
        sent = {btl: sum(path.sent for path in paths if path.btl == btl) for btl in ("vader", "tcp")}
        summed = result.dr["checksummed"]
        fttap.comment(f"{name}: {summed} checksummed, sent {sent}")
        if name == "vader":
            result.must(sent["vader"] > 0 and summed == 0, "payloads over vader were summed")
        elif name == "both":
            result.must(sent["vader"] > 0, "vader was not used beside tcp")
            result.must(0 < summed <= sent["tcp"], "not those over tcp alone were summed")
        else:
            # All but those without a payload.
            result.must(summed > sum(sent.values()) / 2, "payloads were not summed")


def in_another_namespace():
    """vader, told to use cma, would have both exit where one is in a container: it is no path, and tcp carries"""
    if subprocess.run(["unshare", "-Ur", "true"], capture_output=True, check=False).returncode != 0:
        raise fttap.Skip("user namespaces are not permitted here")
    contained = 'test "$OMPI_COMM_WORLD_RANK" = 0 || exec unshare -Ur "$@"; exec "$@"'
    result, paths = run("vader+tcp", {"btl_vader_single_copy_mechanism": "cma"},
                        ["sh", "-c", contained, "contained", ftmpi.HASHRING, *WORK])
    result.must(result.right, "the data was not right")
    result.must(result.output.count("btl/vader cannot add process") == 2, "no message, or several")
    result.must({path.btl for path in paths} == {"tcp"}, "vader is a path")


def who_yields_loses_no_path():
    """two connect to each other at once, and btl/tcp turns down the one: neither path is taken out for that"""
    library = os.path.join(ftmpi.BUILD, "test", "mpi", "programs", ".libs", "turned_down.so")
    # Turned down twice it waits for a moment before it tries again, and finds itself connected meanwhile.
    for network, times in (("tcp", 1), ("tcp", 2), ("vader+tcp", 1)):
        result, paths = run(network, {}, ["-x", f"LD_PRELOAD={library}", "-x", "FT_TURNED_DOWN=1",
                                          "-x", f"FT_TURNED_DOWN_TIMES={times}", PAIR])
        result.must(result.output.count(" right") == 2, "the data was not right")
        result.must(result.output.count("rank 1 was turned down") == times, "it was not turned down")
        result.must(all(path.sent > 0 and path.failovers == 0 for path in paths), "a path was taken out")


if __name__ == "__main__":
    ftmpi.become_subreaper()
    fttap.main([back_to_the_fast_path, after_a_short_silence, memory_alone, left_by_memory, checksum_of_one_btl, in_another_namespace, who_yields_loses_no_path])
