#!/usr/bin/env python3
"""A fragment waits in btl/tcp when its message is complete and its buffer is given back, under pml/dr.

A relay stops reading in the middle of the fragment; another copy of it is
acknowledged meanwhile.  Written from the user's memory the rest would be an
error of writev (EFAULT), which closes a healthy connection.

And a send whose request was freed while active is sent again, since all answers
are kept back, after its buffer is gone: the program knows by other means that
the message has come.

And where payloads are not summed, a send that ended for its peer's silence is
not sent from a buffer that holds something else by now, when the peer goes on.
"""

import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftmpi  # noqa: E402
import ftrelay  # noqa: E402
from ftrelay import DATA, HOLD, PASS, Job  # noqa: E402
from fttap import check, main  # noqa: E402

RELAYED = os.path.join(os.environ["FT_BUILD"], "test", "mpi", "semantics", "relayed")
PROGRAM = [RELAYED, "freed", "FOLDER"]
BUFFER = 65536
# One fragment of 1 MiB, of which the buffers on the way take no more than a part.
LARGE = {"pml_dr_fragment_bytes": 1048576, "btl_tcp_max_send_size": 1100000, "btl_tcp_sndbuf": BUFFER,
         "btl_tcp_rcvbuf": BUFFER}

ftrelay.enter_namespace()


class Again:
    """Keeps all answers back until the fragment is sent again, and stops in the middle of that copy."""

    def __init__(self):
        self.answers = None
        self.copy = None
        self.armed = False

    def __call__(self, fragment):
        connection = fragment.connection
        own = connection.out if connection.out.rank == fragment.source else connection.back
        if fragment.source == 0 and fragment.kind == DATA:
            if fragment.again and self.copy is None:
                self.copy = own
                return HOLD
            self.armed = True
        elif fragment.source == 1 and self.armed and self.answers is None:
            self.answers = own
            return HOLD
        return PASS

    def waits(self):
        return self.copy is not None and self.answers is not None

    def acknowledge(self):
        self.answers.release()


class Elsewhere:
    """Stops in the middle of the first copy; the next one goes another way."""

    def __init__(self):
        self.copy = None

    def __call__(self, fragment):
        if fragment.source == 0 and fragment.kind == DATA and self.copy is None:
            connection = fragment.connection
            self.copy = connection.out if connection.out.rank == 0 else connection.back
            return HOLD
        return PASS

    def waits(self):
        return self.copy is not None

    def acknowledge(self):
        pass


class Unanswered:
    """Keeps all answers back from the first data on; counts the data that is sent again once `gone` says so."""

    def __init__(self):
        self.answers = None
        self.armed = False
        self.again = 0
        self.gone = None

    def __call__(self, fragment):
        if fragment.source == 0 and fragment.kind == DATA:
            self.armed = True
            self.again += fragment.again and self.gone()
        elif fragment.source == 1 and self.armed and self.answers is None:
            connection = fragment.connection
            self.answers = connection.out if connection.out.rank == 1 else connection.back
            return HOLD
        return PASS


def freed_while_active(**parameters):
    """Twice some of it is sent again from where there is no memory any more."""
    policy = Unanswered()
    with ftrelay.Relay(policy) as relay, \
            Job(relay, [RELAYED, "let_go", "FOLDER"], pml_dr_rto_max_ms=100, **parameters) as job:
        policy.gone = lambda: job.exists("freed")
        job.until(lambda: policy.again > 1 and policy.answers is not None, "data that is sent again")
        expected = len(relay.connections)
        policy.answers.release()
        job.finish("relayed: right")
        check(len(relay.connections) == expected and "writev" not in job.run.err, "a connection was lost")


def sent_again_from_nowhere():
    """a send that was freed while active is sent again when its buffer is gone"""
    freed_while_active()


def sent_again_from_nowhere_without_sums():
    """the same where payloads are not summed, and threads"""
    freed_while_active(pml_dr_checksum="header", pml_dr_progress="thread")


class InTheMiddle:
    """Stops in the middle of the first data, and says so."""

    def __init__(self):
        self.data = None
        self.job = None

    def __call__(self, fragment):
        if fragment.source == 0 and fragment.kind == DATA and self.data is None:
            connection = fragment.connection
            self.data = connection.out if connection.out.rank == 0 else connection.back
            self.job.touch("held")
            return HOLD
        return PASS


def given_up_in_the_middle(**parameters):
    """a send that has ended for a peer's silence is read no more from a buffer that is written anew"""
    policy = InTheMiddle()
    with ftrelay.Relay(policy, buffer=BUFFER) as relay, \
            Job(relay, [RELAYED, "given_up", "FOLDER"], pml_dr_checksum="header", pml_dr_give_up_ms=4000,
                pml_dr_rto_max_ms=500, **dict(LARGE, **parameters)) as job:
        policy.job = job
        job.until(lambda: job.exists("freed"), "the end of MPI_Send")
        if policy.data.connection.alive:
            policy.data.release()
        job.finish("relayed: right")


def given_up_with_threads():
    """the same with threads"""
    given_up_in_the_middle(pml_dr_progress="thread")


def freed_while_it_waits(policy, **parameters):
    """Returns whether the connection was lost by it. Every byte must be right in any case."""
    with ftrelay.Relay(policy, buffer=BUFFER) as relay, \
            Job(relay, PROGRAM, **dict(LARGE, **parameters)) as job:
        job.until(policy.waits, "a copy that waits")
        # The second path may be connected only when the fragment goes there.
        expected = max(len(relay.connections), parameters.get("btl_tcp_links", 1))
        policy.acknowledge()
        job.until(lambda: job.exists("freed"), "the end of MPI_Send")
        policy.copy.release()
        job.until(lambda: not policy.copy.connection.alive or not policy.copy.passing, "the rest of the copy")
        lost = not policy.copy.connection.alive
        job.touch("goes_on")
        job.finish("relayed: right")
        return lost or len(relay.connections) > expected or "writev" in job.run.err


def sent_again():
    """a copy that was sent again may wait when its buffer is given back"""
    check(not freed_while_it_waits(Again()), "the connection was lost")


def sent_elsewhere():
    """a copy on a path that stands still may wait when its buffer is given back"""
    check(not freed_while_it_waits(Elsewhere(), btl_tcp_links=2), "the connection was lost")


def sent_again_from_there():
    """a copy that is sent again from the user's memory costs a healthy connection"""
    # Unless the connection has taken all of it by then.
    check(any(freed_while_it_waits(Again(), pml_dr_test_disable="copies") for _ in range(4)),
          "no connection was lost")


def sent_elsewhere_from_there():
    """a copy on a path that stands still costs a healthy connection when it is in the user's memory"""
    check(freed_while_it_waits(Elsewhere(), btl_tcp_links=2, pml_dr_test_disable="copies"),
          "no connection was lost")


if __name__ == "__main__":
    ftmpi.become_subreaper()
    main([sent_again, sent_elsewhere, sent_again_from_there, sent_elsewhere_from_there, sent_again_from_nowhere,
          sent_again_from_nowhere_without_sums, given_up_in_the_middle, given_up_with_threads])
