#!/usr/bin/env python3
"""A connection of btl/tcp that breaks between its handshake and its acceptance, under pml/dr.

btl/tcp leaves an endpoint in a state then in which it refuses to send.  The
rank that accepts runs one turn of progress at a time: in the turn in which it
has read the handshake it is stopped, and the relay resets the connection.
"""

import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftmpi  # noqa: E402
import ftrelay  # noqa: E402
from ftrelay import HOLD, ORDERED, PASS, Job  # noqa: E402
from fttap import check, main  # noqa: E402

PROGRAM = [os.path.join(os.environ["FT_BUILD"], "test", "mpi", "semantics", "relayed"), "stepped", "FOLDER"]
MOST_TURNS = 1000
TURNS_TO_ACCEPT = 32  # of which Open MPI looks at the sockets in every eighth at least

ftrelay.enter_namespace()


class Policy:
    """Breaks the connection with the next message of rank 1, lets it connect once more, and then no more."""

    def __init__(self):
        self.armed = False
        self.again = None
        self.held = []

    def __call__(self, fragment):
        if self.armed and fragment.source == 1 and fragment.kind == ORDERED:
            self.armed = False
            return 0
        return PASS

    def greet(self, connection):
        if self.held is None or connection.relay.cuts == 0:
            return PASS
        if connection.out.rank == 0:
            held, self.held = self.held, None
            for one in held:
                if one.alive:
                    one.out.release()
            return PASS
        if self.again is None:
            self.again = connection
            return PASS
        self.held.append(connection)
        return HOLD


def unread(ports):
    """Bytes that the process with the first of these ports has not read, None when that has no such connection."""
    local, remote = (":%04X" % port for port in ports)
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in table.read().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(local) and fields[2].endswith(remote) and fields[3] == "01":
                return int(fields[4].split(":")[1], 16)
    return None


class Steps:
    """Rank 0's turns of progress."""

    def __init__(self, job):
        self.steps = os.open(job.file("steps"), os.O_WRONLY)
        self.taken = os.open(job.file("taken"), os.O_RDONLY)

    def take(self):
        os.write(self.steps, b"s")
        check(os.read(self.taken, 1) == b"t", "rank 0 ended")

    def end(self):
        os.write(self.steps, b"e")
        os.close(self.steps)
        os.close(self.taken)


def accepted_when_it_is_broken():
    """a rank whose accepted connection was broken already connects itself when it has to send"""
    policy = Policy()
    with ftrelay.Relay(policy, policy.greet) as relay, Job(relay, PROGRAM) as job:
        job.until(lambda: job.exists("stepping"), "a rank that waits for its turns")
        steps = Steps(job)
        policy.armed = True
        job.touch("send")
        job.until(lambda: relay.cuts == 1, "the first cut")
        job.until(lambda: policy.again is not None and not policy.again.out.passing, "another connection")
        again = policy.again
        again.settle(again.far)
        ports = again.far.getpeername()[1], again.far.getsockname()[1]
        check(unread(ports) == ftrelay.HANDSHAKE_BYTES, "the handshake is not there")
        for _ in range(MOST_TURNS):
            steps.take()
            if unread(ports) == 0:
                break
        else:
            check(False, f"the handshake was not read in {MOST_TURNS} turns")
        again.break_now()
        check(unread(ports) is None, "the connection is still there")
        for _ in range(TURNS_TO_ACCEPT):
            steps.take()
        steps.end()
        job.finish("relayed: right")
        check(policy.held is None, "rank 0 never connected itself")


if __name__ == "__main__":
    ftmpi.become_subreaper()
    main([accepted_when_it_is_broken])
