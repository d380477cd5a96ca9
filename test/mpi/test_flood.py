#!/usr/bin/env python3
"""A flood of short messages that nobody takes yet: the receiver's memory stays bounded, and the sender's."""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
sys.dont_write_bytecode = True

import fttap  # noqa: E402

FLOOD = os.path.join(os.environ["FT_BUILD"], "test", "mpi", "semantics", "flood")
STALLED = os.path.join(os.environ["FT_BUILD"], "test", "mpi", "semantics", "stalled")
RANKS = 4
# 3 senders, 24 MB together. What is bounded is the payload: the envelopes of messages that wait at
# their senders take some 4 MB, by whatever name they wait.
MESSAGES, BYTES, MOST_MEBIBYTES = "4000", "2000", "10"
# One sender, 31 MB, nearly all of which waits in the program's memory; its envelope takes some 700 bytes.
STALLED_MESSAGES, STALLED_BYTES, STALLED_MEBIBYTES = "8000", "3900", "10"
SHARED = os.path.join(os.environ["FT_BUILD"], "test", "mpi", "semantics", "shared_window")
# Three receivers of 8 MB each; a quarter of each one's own window would be under way to each.
SHARED_BYTES, SHARED_WINDOW, SHARED_FRAGMENT = 8 << 20, 1 << 20, 1 << 16
NO_CREDIT_NEEDED = {"pml_dr_eager_window_bytes": 1 << 32, "pml_dr_unexpected_bytes": 1 << 40}


def job(btls, ranks, settings, *program):
    """\\return (exit code, everything printed)"""
    command = [os.environ.get("FT_MPIRUN", "mpirun"), "--oversubscribe", "-n", str(ranks),
               "--mca", "pml", "dr", "--mca", "btl", btls + ",self", *settings, *program]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=60, check=False)
    return done.returncode, done.stdout


def flood(btls, *settings):
    """The flood to one receiver."""
    return job(btls, RANKS, settings, FLOOD, MESSAGES, BYTES, MOST_MEBIBYTES)


def stalled(btls, window, most_in_window=None, **parameters):
    """A sender to a receiver that is stopped, with timeouts that follow each other quickly."""
    parameters = {"pml_dr_rto_max_ms": 50, "pml_dr_window_bytes": window, "pml_dr_fragment_bytes": 4096, **parameters}
    settings = [word for name, value in parameters.items() for word in ("--mca", name, str(value))]
    return job(btls, 2, settings, STALLED, STALLED_MESSAGES, STALLED_BYTES, str(most_in_window or window),
               STALLED_MEBIBYTES)


def shared(btls, window):
    """One sender of long messages to several receivers, all of which are stopped."""
    parameters = {"pml_dr_rto_max_ms": 50, "pml_dr_process_window_bytes": window, "pml_dr_fragment_bytes": SHARED_FRAGMENT}
    settings = [word for name, value in parameters.items() for word in ("--mca", name, str(value))]
    return job(btls, RANKS, settings, SHARED, str(SHARED_BYTES), str(SHARED_WINDOW), str(SHARED_FRAGMENT))


def bounded(result):
    code, text = result
    fttap.check(code == 0, f"exit {code}\n{text}")


def per_peer():
    """pml_dr_eager_window_bytes bounds what one sender sends unasked, whatever is lost"""
    bounded(flood("fault,tcp", "--mca", "pml_dr_eager_window_bytes", "65536",
                  "--mca", "btl_fault_drop", "1"))


def per_process():
    """pml_dr_unexpected_bytes bounds what all of them send"""
    bounded(flood("vader", "--mca", "pml_dr_unexpected_bytes", "262144"))


def always_asked():
    """without any credit every message is asked for, and arrives"""
    bounded(flood("vader", "--mca", "pml_dr_eager_window_bytes", "0"))


def unbounded_grows():
    """without a bound the flood is kept, all of it"""
    code, text = flood("vader", "--mca", "pml_dr_eager_window_bytes", str(1 << 32),
                       "--mca", "pml_dr_unexpected_bytes", str(1 << 40))
    fttap.check(code != 0 and "rank 0 grew" in text, f"exit {code}: nothing was bounded\n{text}")


def window_at_sender():
    """pml_dr_window_bytes bounds what a sender keeps for a receiver that is stopped"""
    for btls in ("vader", "tcp"):
        bounded(stalled(btls, 1 << 18, **NO_CREDIT_NEEDED))


def credit_at_sender():
    """and so does pml_dr_eager_window_bytes"""
    # Of several paths one sends again what the other holds, whose pml_dr_path_depth is full.
    bounded(stalled("vader,tcp", 1 << 30, 1 << 18, pml_dr_eager_window_bytes=1 << 18, pml_dr_stripe_memory=1))


def unbounded_sender_grows():
    """without a bound the sender keeps a copy of everything"""
    code, text = stalled("tcp", 1 << 30, 1 << 18, pml_dr_window_vfrags=1024, **NO_CREDIT_NEEDED)
    fttap.check(code != 0 and "bytes in the window" in text, f"exit {code}: nothing was bounded\n{text}")


def window_of_process():
    """pml_dr_process_window_bytes bounds what is under way to several receivers together"""
    for btls in ("vader", "tcp"):
        bounded(shared(btls, SHARED_WINDOW))


def unbounded_process_grows():
    """without that bound each receiver's own window is filled"""
    code, text = shared("tcp", 1 << 40)
    fttap.check(code != 0 and "bytes under way" in text, f"exit {code}: nothing was bounded\n{text}")


fttap.main([per_peer, per_process, always_asked, unbounded_grows, window_at_sender, credit_at_sender,
            unbounded_sender_grows, window_of_process, unbounded_process_grows])
