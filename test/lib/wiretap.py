#!/usr/bin/env python3
"""Records the UDP datagrams that an interface sees, and sends them again later.

wiretap.py record INTERFACE FILE  until SIGTERM; prints "ready" when it listens
wiretap.py replay FILE ADDRESS PORT...  every one of them to each port; prints how many
Wants the right to open packet sockets: root, or the root of a virtual host.
"""

import signal
import socket
import struct
import sys

ALL_PROTOCOLS = 0x0003
IPV4 = 0x0800
UDP = 17
ENOUGH = 20000


def payload_of(frame):
    """The bytes of a UDP datagram in an Ethernet frame, or nothing."""
    if len(frame) < 42 or struct.unpack_from("!H", frame, 12)[0] != IPV4 or frame[23] != UDP:
        return b""
    header = 14 + 4 * (frame[14] & 15)
    return frame[header + 8:header + struct.unpack_from("!H", frame, header + 4)[0]]


def record(interface, name):
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
    tap.bind((interface, 0))
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    tap.settimeout(0.1)
    print("ready", flush=True)
    with open(name, "wb") as file:
        count = 0
        while not stopped:
            try:
                payload = payload_of(tap.recv(65536))
            except TimeoutError:
                continue
            if payload and count < ENOUGH:
                count += 1
                file.write(struct.pack("!I", len(payload)) + payload)
    print("recorded", count, flush=True)


def replay(name, address, ports):
    with open(name, "rb") as file:
        data = file.read()
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    at = count = 0
    while at < len(data):
        length = struct.unpack_from("!I", data, at)[0]
        for port in ports:
            sender.sendto(data[at + 4:at + 4 + length], (address, port))
            count += 1
        at += 4 + length
    print("replayed", count, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "record":
        record(*sys.argv[2:4])
    else:
        replay(sys.argv[2], sys.argv[3], [int(port) for port in sys.argv[4:]])
