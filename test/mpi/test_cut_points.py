#!/usr/bin/env python3
"""Connections of btl/tcp that break at exactly known bytes, under pml/dr.

A relay in between the ranks passes an exact number of bytes of a fragment and
then resets the connection, or holds it.
"""

import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftmpi  # noqa: E402
import ftrelay  # noqa: E402
from ftrelay import ACK, DATA, ORDERED, PASS, Job  # noqa: E402
from fttap import check, main  # noqa: E402

HEADERS = ftrelay.TCP_HEADER.size + ftrelay.DR_HEADER_BYTES
RELAYED = os.path.join(os.environ["FT_BUILD"], "test", "mpi", "semantics", "relayed")
NOT_SURVIVED_SECONDS = 8

ftrelay.enter_namespace()


class Cuts:
    """A policy: one cut after the other, each in the next fragment of its kind and sender."""

    def __init__(self, cuts):
        self.left = list(cuts)
        self.breaking = None  # the connection that breaks once the bytes before its cut have come

    def __call__(self, fragment):
        # Two cuts that wait in one connection, one in each direction, would be one break.
        if self.breaking is not None and self.breaking.alive:
            return PASS
        if not self.left or self.left[0][:2] != (fragment.source, fragment.kind):
            return PASS
        self.breaking = fragment.connection
        return self.left.pop(0)[2]


def walk(kind, bytes_to_pass):
    """Cuts in fragments of both ranks, behind each of these numbers of bytes."""
    return [(rank, kind, number) for number in bytes_to_pass for rank in (0, 1)]


def hashring():
    return [ftmpi.HASHRING, "--until", "FOLDER/enough", "--seconds", "100", "--kinds", "bulk,storm",
            "--max", "70000"]


def survived(cuts):
    policy = Cuts(cuts)
    number = len(policy.left)
    with ftrelay.Relay(policy) as relay, Job(relay, hashring()) as job:
        job.until(lambda: not policy.left, f"the last of {number} cuts")
        job.touch("enough")
        job.finish(" 0 wrong")
        check(relay.cuts == number, f"{relay.cuts} cuts of {number}")


def not_survived(cuts, mechanism):
    """The job crashes, or nothing moves any more, before the last cut is survived."""
    policy = Cuts(cuts)
    with ftrelay.Relay(policy) as relay, Job(relay, hashring(), pml_dr_test_disable=mechanism) as job:
        left = len(policy.left) + 1
        while policy.left and len(policy.left) < left and not job.run.ended():
            left = len(policy.left)
            relay.run(lambda before=left: len(policy.left) < before,
                      time.monotonic() + NOT_SURVIVED_SECONDS, job.run)
        check(policy.left, f"without {mechanism} every cut is survived")


def ordered_fragments():
    """connections that break behind any byte of the headers of short messages lose nothing"""
    survived(walk(ORDERED, range(0, HEADERS + 30)))


def data_fragments():
    """connections that break within the headers or the payload of long messages lose nothing"""
    survived(walk(DATA, [*range(0, HEADERS + 20, 2), 4000, 32768, 69999]))


def handshakes():
    """connections that break within btl/tcp's handshake are made anew, and the job says so once"""
    cuts = list(range(1, ftrelay.HANDSHAKE_BYTES, 3))

    def greet(connection):
        if cuts:
            connection.break_answer(cuts.pop())
        return PASS

    policy = Cuts(walk(ORDERED, [HEADERS + 40] * len(cuts)))
    with ftrelay.Relay(policy, greet) as relay, Job(relay, hashring()) as job:
        job.until(lambda: not policy.left and not cuts, "the last broken handshake")
        job.touch("enough")
        job.finish(" 0 wrong")
        told = job.run.err.count("a TCP connection failed while it was made")
        check(1 <= told <= 2, f"told {told} times by two processes")


def acknowledgements():
    """connections that break within acknowledgements lose nothing"""
    survived(walk(ACK, range(0, HEADERS + 6, 3)))


def between_calls():
    """a connection that broke between two calls of MPI: what is sent then arrives though its program calls MPI no more"""
    for parameters in ({}, {"pml_dr_progress": "thread"}):
        with ftrelay.Relay() as relay, Job(relay, [RELAYED, "computes", "FOLDER"], **parameters) as job:
            job.until(lambda: job.exists("ready"), "the first messages")
            for connection in list(relay.connections):
                connection.break_now()
            job.touch("cut")
            job.until(lambda: job.exists("received"), "the message")
            job.finish("relayed: right")


def without_forgetting():
    """connections that break within fragments are not survived when halves of them are kept"""
    # What follows a half may still be refused as corrupt, or the end has taken the reset for the
    # write's: one cut in some twenty is fatal.
    not_survived(walk(DATA, [4000, 16384, 32768, 50000] * 75), "leftovers")


def without_turns():
    """connections that break within fragments are not survived when the event loop goes on meanwhile"""
    not_survived(walk(ORDERED, range(1, HEADERS + 30)) * 3, "turns")


if __name__ == "__main__":
    ftmpi.become_subreaper()
    # How soon it fails without turns depends on when the ranks run.
    main([without_turns] if sys.argv[1:] == ["turns"] else
         [ordered_fragments, data_fragments, acknowledgements, handshakes, between_calls,
          without_forgetting])
