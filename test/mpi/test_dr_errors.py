#!/usr/bin/env python3
"""Bad input and bad luck of pml/dr: one clear message and an MPI error, never a hang."""

import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
sys.dont_write_bytecode = True

import ftmanual  # noqa: E402
import fttap  # noqa: E402

BUILD = os.environ["FT_BUILD"]
PROGRAMS = os.path.join(BUILD, "test", "mpi", "semantics")
MATCHING = os.path.join(PROGRAMS, "matching")
BROKEN_PIPE = os.path.join(PROGRAMS, "broken_pipe")
REFUSED = os.path.join(PROGRAMS, "refused")
LOST_PEER = os.path.join(PROGRAMS, "lost_peer")
LOST_HALFWAY = os.path.join(PROGRAMS, "lost_halfway")
PAIR = os.path.join(PROGRAMS, "pair")
HALF_TAKEN = os.path.join(PROGRAMS, "half_taken")
UNMATCHED = os.path.join(PROGRAMS, "unmatched")
LEAVES = os.path.join(BUILD, "test", "mpi", "programs", "leaves")
# These tests wait for so long anyway. It is more than a rank that lives goes without a core.
GIVE_UP_MS = "4000"


def mpirun(*arguments):
    """Run it; \\return (exit code, everything printed)."""
    command = [os.environ.get("FT_MPIRUN", "mpirun"), "--oversubscribe", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=60, check=False)
    return done.returncode, done.stdout


def dr(*arguments):
    """The matching program on two ranks with these parameters."""
    return mpirun("-n", "2", "--mca", "pml", "dr", "--mca", "btl", "vader,self", *arguments,
                  MATCHING)


def refused(result, *wanted):
    """The job ended with an error and said each of the wanted things."""
    code, text = result
    fttap.check(code != 0, f"exit code 0:\n{text}")
    for words in wanted:
        fttap.check(re.search(words, re.sub(r"\s+", " ", text)), f"no '{words}' in:\n{text}")
    fttap.check("Backtrace" not in text and "signal" not in text.lower(), text)


def out_of_range():
    """a number out of range"""
    refused(dr("--mca", "pml_dr_fragment_bytes", "17"), "pml_dr_fragment_bytes is out of range",
            "given: 17", "256 to 16777216")
    refused(dr("--mca", "pml_dr_path_retries", "-3"), "pml_dr_path_retries is out of range",
            "given: -3")


def unknown_words():
    """words that are not known"""
    refused(dr("--mca", "pml_dr_checksum", "some"), "pml_dr_checksum", "given: some")
    refused(dr("--mca", "pml_dr_checksum", "full,vader:half"), "given: vader:half")
    refused(dr("--mca", "pml_dr_test_disable", "gravity"), "pml_dr_test_disable", "gravity")
    for word in ("vader:some", "none", ":none", "vader:"):
        refused(dr("--mca", "pml_dr_protection", f"tcp:ack,{word}"), "pml_dr_protection", f"given: {word}", "NAME:none")


def unacknowledged_across_nodes():
    """a BTL that leaves the node and is to go without acknowledgements"""
    for btl in ("tcp", "dgram", "ucx"):
        refused(dr("--mca", "pml_dr_protection", f"vader:none,{btl}:none"), f"{btl}:none", "stays within one node",
                "may be lost, and nobody would ever know")


def datagrams_without_dr():
    """datagrams under a PML that does not retransmit lead nowhere, and a process that has them says so, whichever it is"""
    halves = (["-n", "1", "env", f"OMPI_MCA_btl={btls}", MATCHING] for btls in ("tcp,self", "dgram,tcp,self"))
    code, text = mpirun("--mca", "pml", "ob1", "--mca", "btl_dgram_if_include", "lo", *next(halves), ":", *next(halves))
    fttap.check(code == 0, f"exit code {code}\n{text}")
    fttap.check(" ".join(text.split()).count("the PML of this job is ob1, which does not send lost fragments again") == 1, text)


def contradictions():
    """numbers that contradict each other"""
    refused(dr("--mca", "pml_dr_rto_min_us", "900000", "--mca", "pml_dr_rto_max_ms", "10"),
            "contradict", "rto_max")
    refused(dr("--mca", "pml_dr_window_bytes", "8192"), "contradict", "window_bytes")


def lost_peer():
    """a rank that is cut off is given up, the others go on"""
    for kind in ("kill_error", "kill_after"):
        code, text = mpirun("-n", "3", "--mca", "pml", "dr", "--mca", "btl", "fault,tcp,self",
                            "--mca", "pml_dr_give_up_ms", GIVE_UP_MS,
                            "--mca", "pml_dr_keepalive_ms", "300",
                            "--mca", "btl_fault_ranks", "1", "--mca", f"btl_fault_{kind}", "300",
                            LOST_PEER)
        fttap.check(code == 0 and text.count("survived") == 3, f"{kind}: exit {code}\n{text}")


def lost_halfway():
    """whatever is half done when the last path dies ends, however it is waited for"""
    # Of 3 MB in fragments of 4 KiB no more than half go before the path dies, with a window so small that both directions
    # get their share of these.
    for btl, kind in (("tcp", "kill_error"), ("vader", "kill_after")):
        code, text = mpirun("-n", "6", "--mca", "pml", "dr", "--mca", "btl", f"fault,{btl},self",
                            "--mca", "pml_dr_fragment_bytes", "4096",
                            "--mca", "pml_dr_window_bytes", "65536",
                            # Six ranks on two cores: one that lives may not run for long.
                            "--mca", "pml_dr_give_up_ms", "5000",
                            "--mca", "pml_dr_rto_max_ms", "300",
                            "--mca", "pml_dr_keepalive_ms", "300",
                            "--mca", "btl_fault_ranks", "1", "--mca", f"btl_fault_{kind}", "400",
                            LOST_HALFWAY)
        fttap.check(code == 0 and text.count("survived") == 6, f"{btl}, {kind}: exit {code}\n{text}")


def unmatched():
    """a synchronous send to who falls silent before it receives ends, although all is acknowledged and nobody is asked"""
    _, text = mpirun("-n", "2", "--mca", "pml", "dr", "--mca", "btl", "tcp,self", "--mca", "pml_dr_give_up_ms", GIVE_UP_MS,
                     UNMATCHED)
    fttap.check("unmatched: passed" in text, text)


def refused_connections():
    """connections that a peer refuses do not slow down those to others"""
    with tempfile.TemporaryDirectory() as folder:
        fifo = os.path.join(folder, "fifo")
        os.mkfifo(fifo)
        code, text = mpirun("-n", "3", "--mca", "pml", "dr", "--mca", "btl", "tcp,self",
                            "--mca", "pml_dr_give_up_ms", GIVE_UP_MS, REFUSED, fifo)
    fttap.check(code == 0 and text.count(" right") == 3, f"exit {code}\n{text}")


def broken_pipe():
    """a write to a connection that the other end has reset ends no rank"""
    on_one = ("-n", "1", "--mca", "btl", "self", "--mca", "pml")
    code, text = mpirun(*on_one, "dr", BROKEN_PIPE)
    fttap.check(code == 0 and "default after the write: EPIPE" in text, text)
    fttap.check("after MPI_Finalize: as before MPI_Init" in text, text)
    code, text = mpirun(*on_one, "dr", BROKEN_PIPE, "own")
    fttap.check(code == 0 and "EPIPE, own handler called 2 times" in text, text)
    fttap.check("after MPI_Finalize: as before MPI_Init" in text, text)
    code, text = mpirun(*on_one, "ob1", BROKEN_PIPE)
    fttap.check(code != 0 and "signal 13" in text, f"the signal is no fault at all:\n{text}")


def idle_peer_is_small():
    """a peer that was met costs at most 2 KiB with up to five paths to it, and 0.15 KiB for each more"""
    for links in (1, 2, 4, 5):
        code, text = mpirun("-n", "2", "--mca", "pml", "dr", "--mca", "btl", "vader,tcp,self", "--mca", "btl_tcp_if_include", "lo",
                            "--mca", "btl_tcp_links", str(links), "--mca", "pml_dr_stats", "2",
                            os.path.join(PROGRAMS, "computing"), "0", "1")
        sizes = [int(size) for size in re.findall(r"state_bytes=(\d+)", text)]
        most = 2048 + max(links - 4, 0) * 152
        fttap.comment(f"{1 + links} paths: {sizes} bytes")
        fttap.check(text.count(" tcp[") >= 2 * links, f"not {links} paths over tcp\n{text}")
        fttap.check(code == 0 and len(sizes) == 2 and max(sizes) <= most, f"{sizes}, {most} wanted\n{text}")


def peers_at_first_contact():
    """of four ranks two talk to each other: these have one peer each, the others have none"""
    for btls in ("vader,tcp", "tcp"):
        code, text = mpirun("-n", "4", "--mca", "pml", "dr", "--mca", "btl", btls + ",self",
                            "--mca", "pml_dr_stats", "2", PAIR)
        met = re.findall(r"\[rank (\d+) -> \[\[\d+,\d+\],(\d+)\]\]: state_bytes=", text)
        fttap.check(code == 0 and text.count(" right") == 2, f"{btls}: exit {code}\n{text}")
        fttap.check(sorted(met) == [("0", "1"), ("1", "0")], f"{btls}: who met whom: {sorted(met)}\n{text}")


def inert_unless_named():
    """installed and not asked for, it is silent and not used"""
    code, text = mpirun("-n", "2", "--mca", "btl", "vader,self", "--mca", "pml_dr_stats", "2",
                        MATCHING)
    fttap.check(code == 0 and "pml/dr" not in text, text)


def half_taken():
    """a send to who is killed with the message half taken ends with MPI_ERR_RANK_FAIL_STOP, and those after eight arrive"""
    _, text = mpirun("-n", "10", "--mca", "errmgr", "radixft", "--mca", "pml", "dr", "--mca", "btl", "vader,self",
                     HALF_TAKEN)
    fttap.check("half_taken: passed" in text, text)


def left_by_exit():
    """a rank that calls exit() while another thread of it is in MPI ends with its exit code, however long that takes"""
    for btls in ("vader", "tcp"):
        code, text = mpirun("-n", "2", "--mca", "pml", "dr", "--mca", "btl", f"{btls},self", LEAVES, "3", "threads")
        fttap.check(code == 3, f"{btls}: exit {code}\n{text}")


def numbers_arrive():
    """every parameter that is a number, set to one in its range that is not its default, is what comes of it"""
    listing = ftmanual.ompi_info("--param", "pml", "dr", "--level", "9", "--parsable")
    defaults = {name: int(value) for name, value in re.findall(r"^mca:pml:dr:param:pml_dr_(\w+):value:(\d+)$", listing, re.M)}
    # A half more: of two that bound each other, both grow alike. What is small already is set by hand, and so are numbers
    # that are cut to a multiple or by another.
    wanted = {name: value + value // 2 for name, value in defaults.items()}
    wanted.update({"fragment_bytes": 98304, "eager_limit": 5000, "ack_every": 97, "stripe_memory": 1, "keepalive_ms": 700,
                   "stats": 2, "stats_interval_ms": 800, "verbose": 2})
    fttap.check(all(wanted[name] != value for name, value in defaults.items()), f"{wanted} has defaults of {defaults}")

    def loaded(numbers):
        settings = [word for name, value in numbers.items() for word in ("--mca", f"pml_dr_{name}", str(value))]
        code, text = mpirun("-n", "1", "--mca", "pml", "dr", "--mca", "btl", "vader,self", *settings, BROKEN_PIPE)
        fttap.check(code == 0, text)
        return {name: int(value) for name, value in re.findall(r"^pml/dr\[rank 0\] loaded: (\w+)=(\d+)$", text, re.M)}

    found = loaded(wanted)
    of_both = wanted.pop("unexpected_bytes")
    fttap.check(of_both > wanted["eager_window_bytes"], "unexpected_bytes bounds the other one")
    fttap.check(len(defaults) > 20 and found == wanted, f"set: {wanted}, loaded: {found}")
    few = loaded({"verbose": 2, "unexpected_bytes": 5000})
    fttap.check(few["eager_window_bytes"] == 5000, f"unexpected_bytes 5000: {few}")


def settings_agree_with_the_manual():
    """the manual page describes every parameter with its default, and no other"""
    ftmanual.agree("pml", "dr", "ompi/mca/pml/dr")


def variables_agree_with_the_manual():
    """the manual page describes every performance variable, and no other"""
    ftmanual.variables_agree("pml", "dr", "ompi/mca/pml/dr")


fttap.main([out_of_range, unknown_words, unacknowledged_across_nodes, datagrams_without_dr, contradictions, lost_peer,
            lost_halfway, unmatched, refused_connections, broken_pipe, half_taken, left_by_exit, idle_peer_is_small,
            peers_at_first_contact, numbers_arrive, inert_unless_named, settings_agree_with_the_manual,
            variables_agree_with_the_manual])
