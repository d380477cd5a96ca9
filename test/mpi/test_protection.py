#!/usr/bin/env python3
"""pml_dr_protection: what each level of a BTL acknowledges and sums, alone and beside another. Prints TAP."""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
sys.dont_write_bytecode = True

import ftmpi  # noqa: E402
import fttap  # noqa: E402

DEADLINE = 60
WORK = [ftmpi.HASHRING, "--rounds", 6, "--max", 300000]
PATH = re.compile(r"^pml/dr\[rank \d+ -> \S+ (\w+)\[\d+\]\]: state=\w+ sent=(\d+) ", re.MULTILINE)
# Who is not heard of in the middle of a long message is asked for a sign of life, and that is acknowledged.
PATIENT = {"pml_dr_stats": 2, "pml_dr_probe_interval_ms": 60000}


def run(network, parameters, program=None, ranks=2):
    """A run that ends in time, and what was sent over each BTL."""
    result = ftmpi.run(ftmpi.command_for(network, "dr", {**PATIENT, **parameters}, program or WORK, ranks), DEADLINE,
                       show_stacks=True)
    result.must(not result.late, "a stall")
    sent = {}
    for btl, count in PATH.findall(result.output):
        sent[btl] = sent.get(btl, 0) + int(count)
    return result, sent


def levels():
    """over vader alone: none has neither acknowledgements nor sums, ack no sums, ack+crc both, as without the parameter"""
    for levels_given, acks, sums in (("vader:none", False, False), ("vader:ack", True, False), ("vader:ack+crc", True, True),
                                     ("", True, True), ("self:none,tcp:ack,vader:none", False, False)):
        parameters = {"pml_dr_protection": levels_given} if levels_given else {}
        for ranks in (2, 3):
            result, sent = run("vader", parameters, ranks=ranks)
            result.must(result.right, "the data was not right")
            acked = result.dr["acks_sent"] + result.dr["piggybacked"]
            fttap.comment(f"{levels_given or 'default'}: {ranks} ranks, {sent}, acks_sent={result.dr['acks_sent']} "
                          f"piggybacked={result.dr['piggybacked']} checksummed={result.dr['checksummed']}")
            result.must(sent["vader"] > 0, "vader was not used")
            result.must((acked > 0) == acks, f"{acked} acknowledgements")
            result.must((result.dr["checksummed"] > 0) == sums, f"{result.dr['checksummed']} sums")
            if not acks:
                result.must(result.dr["acked"] == result.dr["sent"], "not all was done with")
                result.must(result.dr["retransmitted"] == result.dr["questions"] == 0, "something was sent again or asked for")


def stronger_than_checksum():
    """a BTL that is named has its level, whatever pml_dr_checksum says, and others have what that says"""
    for checksum, protection, sums in (("full,vader:none", "vader:ack+crc", True), ("full", "vader:ack", False),
                                       ("full,vader:none", "tcp:ack+crc", False)):
        result, _ = run("vader", {"pml_dr_checksum": checksum, "pml_dr_protection": protection})
        result.must(result.right and result.dr["acks_sent"] + result.dr["piggybacked"] > 0, "not right, or not acknowledged")
        result.must((result.dr["checksummed"] > 0) == sums, f"{result.dr['checksummed']} sums")


def beside_tcp():
    """vader at none beside tcp at ack: both carry, and all arrives once and in order"""
    result, sent = run("vader+tcp", {"pml_dr_protection": "vader:none,tcp:ack"})
    result.must(result.right, "the data was not right")
    result.must(sent["vader"] > 0, "vader was not used")
    result.must(result.dr["checksummed"] == 0, "something was summed")
    # What tcp loses is sent again, though vader's goes without acknowledgement.
    result, sent = run("vader+tcp", {"pml_dr_protection": "vader:none", "btl_fault_only": "tcp", "btl_fault_drop": 10})
    result.must(result.right, "the data was not right when tcp lost some of it")
    fttap.comment(f"{sent}, dropped={result.faults['dropped']}, retransmitted={result.dr['retransmitted']}")
    result.must(result.faults["dropped"] > 0 and result.dr["retransmitted"] > 0, "nothing was lost, or sent again")


def two_opinions():
    """one rank acknowledges and the other does not: it is only slower"""
    for first in ("vader:none", "vader:ack"):
        second = "vader:ack" if first == "vader:none" else "vader:none"
        command = ftmpi.command_for("vader", "dr", PATIENT, [], ranks=1)
        program = [str(word) for word in WORK]
        command += ["-x", f"OMPI_MCA_pml_dr_protection={first}", *program,
                    ":", "-np", "1", "-x", f"OMPI_MCA_pml_dr_protection={second}", *program]
        result = ftmpi.run(command, DEADLINE, show_stacks=True)
        result.must(result.right, f"the data was not right with {first} and {second}")
        result.must(result.dr["acks_sent"] + result.dr["piggybacked"] > 0, "who waits for acknowledgements got none")
        fttap.comment(f"{first} and {second}: {result.dr['questions']} questions, {result.dr['retransmitted']} again")


def two_levels_of_checksums():
    """one rank sums nothing and the other believes no header without a sum: who asks for them gets them"""
    for network in ("vader", "tcp"):
        for first, second in (("none", "full"), ("full", "none"), ("none", "none")):
            command = ftmpi.command_for(network, "dr", PATIENT, [], ranks=1)
            program = [str(word) for word in WORK]
            command += ["-x", f"OMPI_MCA_pml_dr_checksum={first}", *program,
                        ":", "-np", "1", "-x", f"OMPI_MCA_pml_dr_checksum={second}", *program]
            result = ftmpi.run(command, DEADLINE, show_stacks=True)
            result.must(result.right, f"the data was not right over {network} with {first} and {second}")
            result.must(result.dr["corrupt_header"] == 0, f"headers were refused over {network} with {first} and {second}")


def who_breaks_is_told_of():
    """vader breaks beside tcp: at ack tcp has it all, at none what is lost is told, and nobody waits for it"""
    broken = {"btl_fault_kill_btl": "vader", "btl_fault_kill_error": 60, "btl_fault_ranks": 0}
    result, _ = run("vader+tcp", {"pml_dr_protection": "vader:ack", **broken})
    result.must(result.right and result.faults["killed"] > 0, "at ack it did not go on over tcp")
    result, _ = run("vader+tcp", {"pml_dr_protection": "vader:none", **broken})
    result.must(result.faults.get("killed", 1) > 0, "the path did not die")
    told = re.search(r"broke that has no acknowledgements \(pml_dr_protection\), and up to (\d+) message",
                     re.sub(r"\s+", " ", result.output))
    result.must(result.code != 0 and told, "no error, or no message that says why")
    fttap.comment(f"up to {told[1]} messages")


if __name__ == "__main__":
    ftmpi.become_subreaper()
    fttap.main([levels, stronger_than_checksum, beside_tcp, two_opinions, two_levels_of_checksums, who_breaks_is_told_of])
