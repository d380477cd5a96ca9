#!/usr/bin/env python3
"""A flood of short messages that nobody takes yet: the receiver's memory stays bounded."""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
sys.dont_write_bytecode = True

import fttap  # noqa: E402

FLOOD = os.path.join(os.environ["FT_BUILD"], "test", "mpi", "semantics", "flood")
RANKS = 4
# 3 senders, 24 MB together. What is bounded is the payload: the envelopes of messages that wait at
# their senders take some 4 MB, by whatever name they wait.
MESSAGES, BYTES, MOST_MEBIBYTES = "4000", "2000", "10"


def flood(btls, *settings):
    """\\return (exit code, everything printed)"""
    command = [os.environ.get("FT_MPIRUN", "mpirun"), "--oversubscribe", "-n", str(RANKS),
               "--mca", "pml", "dr", "--mca", "btl", btls + ",self", *settings,
               FLOOD, MESSAGES, BYTES, MOST_MEBIBYTES]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=60, check=False)
    return done.returncode, done.stdout


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


fttap.main([per_peer, per_process, always_asked, unbounded_grows])
