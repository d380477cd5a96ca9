#!/usr/bin/env python3
"""The last acknowledgement is the one that is lost, at MPI_Finalize and at MPI_Comm_disconnect.

Rank 1 loses its acknowledgements by btl/fault, half of them by a seed, so that
some runs lose exactly the last one: the sender must ask again and be answered,
long before its bound runs out.  When all are lost, the bound must hold.
"""

import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
sys.dont_write_bytecode = True

import ftmpi  # noqa: E402
import ftspawn  # noqa: E402
import fttap  # noqa: E402

PROGRAM = os.path.join(os.environ["FT_BUILD"], "test", "mpi", "semantics", "last_ack")
# Far above DEADLINE_SECONDS: whoever is not answered and waits for his bound is too late.
LONG_DRAIN_MS = 300000
DEADLINE_SECONDS = 60
MOST_SEEDS = 20
MOST_RUNS = 20


def part(how, drop, seed, drain_ms):
    """Run it; returns everything that it printed."""
    command = [os.environ.get("FT_MPIRUN", "mpirun"), "--oversubscribe", "-n", "2",
               "--mca", "pml", "dr", "--mca", "btl", "fault,tcp,self", "--mca", "pml_dr_stats", "1",
               "--mca", "pml_dr_drain_ms", str(drain_ms), "--mca", "btl_fault_drop", str(drop),
               "--mca", "btl_fault_what", "acks", "--mca", "btl_fault_direction", "send",
               "--mca", "btl_fault_ranks", "1", "--mca", "btl_fault_seed", str(seed),
               "--mca", "btl_fault_count", "1", PROGRAM, how]
    if how == "freed":  # alone, it spawns two
        command[command.index("-n") + 1] = "1"
        result = ftspawn.run(command, DEADLINE_SECONDS)
        code, text = result.code, result.output
    else:
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             timeout=DEADLINE_SECONDS, check=False)
        code, text = run.returncode, run.stdout
    fttap.check(code == 0, f"{how}, seed {seed}: exit {code}\n{text}")
    return text


def number(pattern, text):
    found = re.search(pattern, text)
    fttap.check(found is not None, f"no {pattern} in\n{text}")
    return int(found.group(1))


def one_is_lost(how):
    for seed in range(1, MOST_SEEDS + 1):
        text = part(how, 50, seed, LONG_DRAIN_MS)
        if how != "finalize":
            fttap.check(number(r"unacknowledged: (\d+)", text) == 0, text)
        lost = number(r"btl/fault\[rank 1\]:.* dropped=(\d+)", text)
        # What is lost may be a question of rank 1's own, or told by a message that goes that way
        # anyway: then another seed has to do. Who never asks waits for LONG_DRAIN_MS.
        asked = (number(r"pml/dr\[rank 1\]:.* duplicates=(\d+)", text)
                 + number(r"pml/dr\[rank 0\]:.* questions=(\d+)", text))
        if lost > 0 and asked > 0:
            return
    fttap.check(False, f"in none of {MOST_SEEDS} runs an acknowledgement was lost and asked for")


def finalize_one():
    """at MPI_Finalize a lost acknowledgement is asked for again, and given"""
    one_is_lost("finalize")


def disconnect_one():
    """at MPI_Comm_disconnect a lost acknowledgement is asked for again, and given"""
    one_is_lost("disconnect")


def freed_one():
    """MPI_Comm_disconnect waits for a send that was freed while active, whatever acknowledgements of it are lost"""
    one_is_lost("freed")


def all_are_lost(how):
    for seed in range(1, MOST_SEEDS + 1):
        text = part(how, 100, seed, 700)
        if number(r"btl/fault\[rank 1\]:.* dropped=(\d+)", text) > 1:
            return
    fttap.check(False, f"in {MOST_SEEDS} runs every acknowledgement rode on a message")


def finalize_all():
    """when all are lost MPI_Finalize ends within its bound"""
    all_are_lost("finalize")


def disconnect_all():
    """when all are lost MPI_Comm_disconnect ends within its bound"""
    all_are_lost("disconnect")


def flushed():
    """what is received and not yet acknowledged when MPI_Finalize begins is acknowledged there, not when it is due"""
    command = [os.environ.get("FT_MPIRUN", "mpirun"), "--oversubscribe", "-n", "2", "--mca", "pml", "dr", "--mca", "btl", "tcp,self",
               "--mca", "pml_dr_stats", "1", "--mca", "pml_dr_ack_delay_us", "1000000",
               # Nobody asks, and the sender is gone before the acknowledgement is due. Rank 1 has received by then, in one run
               # at least.
               "--mca", "pml_dr_rto_initial_us", "5000000", "--mca", "pml_dr_rto_max_ms", "10000",
               "--mca", "pml_dr_drain_ms", "500", PROGRAM, "finalize"]
    for _ in range(MOST_RUNS):
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEADLINE_SECONDS,
                             check=False)
        fttap.check(run.returncode == 0, f"exit {run.returncode}\n{run.stdout}")
        sender, receiver = lines = [re.search(rf"pml/dr\[rank {rank}\]: .*", run.stdout) for rank in (0, 1)]
        fttap.check(None not in lines, f"no statistics in\n{run.stdout}")
        if (number(r" sent=(\d+)", sender[0]) == number(r" acked=(\d+)", sender[0]) == 1
                and all(number(rf" \(?{word}=(\d+)", line[0]) == 0 for line in lines
                        for word in ("retransmitted", "questions", "duplicates"))):
            return
    fttap.check(False, f"in none of {MOST_RUNS} runs, the last being\n{run.stdout}")


ftmpi.become_subreaper()
fttap.main([flushed, finalize_one, disconnect_one, freed_one, finalize_all, disconnect_all])
