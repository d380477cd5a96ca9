#!/usr/bin/env python3
"""What a user gets wrong, or the network does: one clear message, a non-zero exit, in time. TAP."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
sys.dont_write_bytecode = True

import ftmpi  # noqa: E402
import fttap  # noqa: E402

DEADLINE = 30
WORK = ["--rounds", 3, "--max", 10000]


def refused(words, parameters, pml="ob1", network="tcp", program=None):
    """The job ends with a message that holds all the words."""
    command = ftmpi.command_for(network, pml, parameters, program or [ftmpi.HASHRING, *WORK])
    result = ftmpi.run(command, DEADLINE, show_stacks=True)
    result.must(not result.late, "the job hung")
    result.must(result.code != 0, "the job went on as if nothing were wrong")
    flat = " ".join(result.output.split())
    for word in words:
        result.must(word in flat, f"no message says \"{word}\"")
    result.must("Signal:" not in flat and "terminate called" not in flat, "the job crashed")
    return flat


def once(text, message):
    """A message that all ranks could give comes once."""
    fttap.check(text.count(message) == 1, f"\"{message}\" came {text.count(message)} times")


def fault_case(name, value, wanted, extra=None):
    """btl/fault refuses a value."""
    def case():
        text = refused(["btl/fault was asked to inject faults, but one of its parameters",
                        f"Parameter: btl_fault_{name}", f"Value: {value}", wanted],
                       {f"btl_fault_{name}": value, **(extra or {})})
        once(text, "btl/fault was asked")
    case.__doc__ = f"btl_fault_{name} {value} is refused"
    return case


def dr_case(parameters, words):
    """dr refuses a value."""
    def case():
        refused(words, parameters, pml="dr")
    case.__doc__ = " ".join(f"{name} {value}" for name, value in parameters.items()) + " is refused"
    return case


def unknown_btl():
    """An unknown BTL in btl_fault_only is refused"""
    text = refused(["faults into a BTL that this job does not have", "btl_fault_only",
                    "BTL named there: infiniband", "BTLs of this job:", "tcp"],
                   {"btl_fault_only": "infiniband", "btl_fault_drop": 1})
    once(text, "btl/fault was asked")


def btl_of_no_use():
    """A BTL in btl_fault_only that exists but is not used is refused"""
    refused(["BTL named there: vader"], {"btl_fault_only": "vader", "btl_fault_drop": 1})


def no_such_path():
    """A path in btl_fault_kill_btl that is not there is refused"""
    refused(["btl/fault was asked to let a path die", "Path asked for: tcp:1",
             "Paths that are subject to it: tcp:0"],
            {"btl_fault_kill_btl": "tcp:1", "btl_fault_kill_after": 5})


def mixed_pmls():
    """Ranks with different PMLs are told so"""
    parameters = {"btl": "tcp,self", "btl_tcp_if_include": "lo"}
    program = [str(word) for word in [ftmpi.HASHRING, *WORK]]
    common = [ftmpi.MPIRUN, "--oversubscribe", *ftmpi.mca(parameters)]
    one = ["-np", "1", "env", "OMPI_MCA_pml=dr", *program]
    other = ["-np", "1", "env", "OMPI_MCA_pml=ob1", *program]
    for first, second in ((one, other), (other, one)):
        result = ftmpi.run([*common, *first, ":", *second], DEADLINE, show_stacks=True)
        result.must(not result.late, "the job hung")
        result.must(result.code != 0, "the job went on with two PMLs")
        # Rank 1 compares itself with rank 0 and is the one that speaks: dr, or stock ob1.
        told = ("Not all processes of this job use the same PML" if second is one
                else "selected pml ob1, but peer")
        result.must(told in result.output, "no message speaks of the PMLs")


def no_path():
    """A peer that no BTL reaches: a message and an error"""
    command = [ftmpi.MPIRUN, "--oversubscribe", "-np", "2",
               *ftmpi.mca({"pml": "dr", "btl": "self"}),
               *[str(word) for word in [ftmpi.HASHRING, *WORK]]]
    result = ftmpi.run(command, DEADLINE, show_stacks=True)
    result.must(not result.late, "the job hung")
    result.must(result.code != 0, "the job went on without a path")
    result.must("none of the BTLs in use leads" in " ".join(result.output.split()),
                "no message says that there is no path")


def no_such_btl():
    """A BTL that there is none of is refused in Open MPI's own words"""
    command = [ftmpi.MPIRUN, "--oversubscribe", "-np", "2",
               *ftmpi.mca({"pml": "dr", "btl": "infiniband,self"}),
               *[str(word) for word in [ftmpi.HASHRING, *WORK]]]
    for _ in range(20):
        result = ftmpi.run(command, DEADLINE, show_stacks=True)
        result.must(not result.late, "the job hung")
        result.must(result.code != 0, "the job went on without the BTL")
        flat = " ".join(result.output.split())
        if "infiniband" in flat or "orte/util/show_help.c at line" not in flat:
            break  # else mpirun could not read what the ranks sent it: opal/mca/show_help.hpp
    result.must("infiniband" in flat, "no message names the BTL")
    result.must("Signal:" not in flat, "the job crashed")


def misspelt_btl():
    """A BTL that dr's lists name and there is none of is told of once; one that is only not used is not"""
    for name, value, named in (("checksum", "none,tpc:full", "tpc"), ("protection", "tpc:ack", "tpc"),
                               ("checksum", "full,vader:none", None), ("protection", "vader:none,self:ack", None)):
        command = [ftmpi.MPIRUN, "--oversubscribe", "-np", "2",
                   *ftmpi.mca({"pml": "dr", "btl": "tcp,self", f"pml_dr_{name}": value}),
                   *[str(word) for word in [ftmpi.HASHRING, *WORK]]]
        result = ftmpi.run(command, DEADLINE, show_stacks=True)
        result.must(result.right, "the run is disturbed")
        told = result.output.count("names a BTL that there is none of here")
        result.must(told == (named is not None), f"{name} {value}: it is told {told} times")
        if named:
            result.must(f"The parameter pml_dr_{name} names" in result.output
                        and f"BTL named there:  {named}" in result.output, "what is wrong is not named")


def inert_unless_named():
    """btl/fault does nothing when it is not in the list of BTLs"""
    for btl in ("tcp,self", "^sm"):
        command = [ftmpi.MPIRUN, "--oversubscribe", "-np", "2",
                   *ftmpi.mca({"pml": "ob1", "btl": btl, "btl_fault_drop": 100,
                               "btl_fault_count": 1}),
                   *[str(word) for word in [ftmpi.HASHRING, *WORK]]]
        result = ftmpi.run(command, DEADLINE)
        result.must(result.right, "the run is disturbed")
        result.must("btl/fault" not in result.output, "btl/fault said something")


def silent_unless_asked():
    """btl/fault in the list without a fault says and does nothing"""
    result = ftmpi.run(ftmpi.command_for("vader", "ob1", {"btl_fault_count": 0},
                                         [ftmpi.HASHRING, *WORK]), DEADLINE)
    result.must(result.right and "btl/fault" not in result.output, "it is not inert")


TESTS = [
    fault_case("drop", "100.5", "a percentage of fragments, from 0 to 100"),
    fault_case("drop", "-1", "a percentage of fragments, from 0 to 100"),
    fault_case("corrupt", "much", "a percentage of fragments, from 0 to 100"),
    fault_case("delay_percent", "5", "used together with btl_fault_delay_us"),
    fault_case("delay_us", "1e9", "a whole number of microseconds, from 0 to 60000000"),
    fault_case("kill_after", "-3", "a whole number of fragments"),
    fault_case("kill_error", "5", "a path dies either without a word or with an error",
               {"btl_fault_kill_after": 5}),
    fault_case("what", "most", "one of data, acks, all"),
    fault_case("direction", "sideways", "one of send, receive, both"),
    fault_case("ranks", "5-2", "ranks and ranges of ranks"),
    fault_case("seed", "abc", "a whole number, from 0 to 18446744073709551615"),
    unknown_btl,
    btl_of_no_use,
    no_such_path,
    dr_case({"pml_dr_window_vfrags": 100000},
            ["The parameter pml_dr_window_vfrags is out of range", "allowed: 2 to 1024"]),
    dr_case({"pml_dr_ack_every": "often"},
            ["The parameter pml_dr_ack_every is out of range, or no number", "given: often"]),
    dr_case({"pml_dr_rto_min_us": "5ms"}, ["pml_dr_rto_min_us is out of range, or no number", "given: 5ms"]),
    dr_case({"pml_dr_checksum": "sometimes"}, ["pml_dr_checksum holds a word", "sometimes"]),
    dr_case({"pml_dr_rto_min_us": 1000000, "pml_dr_rto_max_ms": 100}, ["contradict each other"]),
    mixed_pmls,
    no_path,
    no_such_btl,
    misspelt_btl,
    inert_unless_named,
    silent_unless_asked,
]

if __name__ == "__main__":
    ftmpi.become_subreaper()
    fttap.main(TESTS)
