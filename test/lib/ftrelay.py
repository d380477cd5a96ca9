"""A relay for the TCP connections of btl/tcp, which cuts and holds them at exact bytes.

It stands between the ranks of a job on the loopback interface of a network
namespace of its own: the kernel redirects every connection to one of the ports
of btl/tcp to it, and it connects onward to where the connection was to go.
What happens to a fragment is decided by a policy, a function that is asked at
the beginning of each, before any byte of it has passed.
"""

import array
import fcntl
import os
import selectors
import socket
import struct
import subprocess
import sys
import tempfile
import time

import ftcluster
import ftmpi
from fttap import Skip

PORTS = "20000-20099"
PARAMETERS = {"btl": "tcp,self", "btl_tcp_if_include": "lo", "btl_tcp_port_min_v4": 20000,
              "btl_tcp_port_range_v4": 100}
DR = dict(PARAMETERS, pml="dr", pml_dr_stats=1)
DEADLINE = 60
INSIDE = "FT_INSIDE_RELAY_NAMESPACE"
RELAY_PORT = 7000
MARK = 7
SO_ORIGINAL_DST = 80
SIOCOUTQ = 0x5411
RULES = f"""
table ip relay {{
  chain output {{
    type nat hook output priority -100;
    tcp dport {PORTS} meta mark != {MARK} redirect to :{RELAY_PORT}
  }}
}}
"""

HANDSHAKE_BYTES = 24  # name of the process and a word of 16 bytes
TCP_HEADER = struct.Struct("=BBHI")  # tag, type, count, size: what btl/tcp puts before a fragment
DR_HEADER_BYTES = 52
ORDERED, DATA, ACK, PROBE, PROBE_REPLY = range(1, 6)
RETRANSMISSION = 2

PASS, HOLD = "pass", "hold"


WHY_NOT = []


def enter_namespace():
    """Run this test again in a network namespace with the redirection; returns inside of it.

    Where that is not permitted each job is skipped with the reason.
    """
    if INSIDE not in os.environ:
        unshare = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-Urn"]
        if subprocess.run(unshare + ["true"], capture_output=True, check=False).returncode != 0:
            WHY_NOT.append("network namespaces are not permitted here")
            return
        os.environ[INSIDE] = "1"
        os.execvp(unshare[0], unshare + [sys.executable, os.path.realpath(sys.argv[0]), *sys.argv[1:]])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    done = subprocess.run(["nft", "-f", "-"], input=RULES, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        WHY_NOT.append(f"the kernel does not redirect connections: {done.stderr.strip()}")


def reset(sock):
    """Close it with a reset."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


class Fragment:
    """The beginning of a fragment of pml/dr, as btl/tcp sends it."""

    def __init__(self, connection, source, data):
        self.connection = connection
        self.source = source  # rank
        self.bytes = TCP_HEADER.size + TCP_HEADER.unpack_from(data)[3]
        self.kind = data[TCP_HEADER.size]
        self.flags = data[TCP_HEADER.size + 1]

    @property
    def again(self):
        return bool(self.flags & RETRANSMISSION)


class Stream:
    """One direction of a connection."""

    def __init__(self, connection, source, sink):
        self.connection = connection
        self.source = source
        self.sink = sink
        self.rank = None  # of who sends; known with its handshake
        self.waiting = b""  # read, and not decided on
        self.passing = 0  # bytes that may pass
        self.cut_behind = None  # so many bytes from here
        self.held = False
        self.ended = False

    def take(self, data):
        self.waiting += data
        self.go_on()

    def go_on(self):
        while not self.held and self.connection.alive:
            if self.passing:
                now, self.waiting = self.waiting[:self.passing], self.waiting[self.passing:]
                self.passing -= len(now)
                if now:
                    self.connection.send(self, now)
                if self.passing:
                    return
                if self.cut_behind is not None:
                    self.connection.break_now()
                    return
                continue
            if self.rank is None:
                if len(self.waiting) < HANDSHAKE_BYTES:
                    return
                self.rank = struct.unpack_from("=II", self.waiting)[1]
                self.passing = HANDSHAKE_BYTES
                if self is self.connection.out:
                    self.held = self.connection.relay.greet(self.connection) == HOLD
                continue
            if len(self.waiting) < TCP_HEADER.size + 2:
                return
            fragment = Fragment(self.connection, self.rank, self.waiting)
            verdict = self.connection.relay.policy(fragment)
            if not self.connection.alive:
                return
            if verdict == HOLD:
                self.held = True
            elif verdict == PASS:
                self.passing = fragment.bytes
            else:  # a number of bytes, and then the end
                self.passing = min(verdict, fragment.bytes)
                self.cut_behind = self.passing
                if not self.passing:
                    self.connection.break_now()

    def release(self):
        """Go on after a HOLD: with the handshake or the fragment that was asked about."""
        self.held = False
        if not self.passing:
            self.passing = TCP_HEADER.size + TCP_HEADER.unpack_from(self.waiting)[3]
        self.connection.relay.listen_to(self)
        self.go_on()


class Connection:
    """One connection of btl/tcp, in two halves."""

    def __init__(self, relay, number, near, far):
        self.relay = relay
        self.number = number
        self.alive = True
        self.near = near  # to who connected
        self.far = far  # to who accepted
        self.out = Stream(self, near, far)
        self.back = Stream(self, far, near)

    @property
    def streams(self):
        return (self.out, self.back)

    def send(self, stream, data):
        try:
            stream.sink.setblocking(True)
            stream.sink.settimeout(20)
            stream.sink.sendall(data)
        except OSError:
            self.lost()

    def settle(self, sock):
        """Wait until the kernel at the other end has all that was sent."""
        left = array.array("i", [1])
        end = time.monotonic() + 20
        while left[0] and time.monotonic() < end:
            fcntl.ioctl(sock.fileno(), SIOCOUTQ, left)

    def await_read(self, sock):
        """Wait until the process at the other end has read all that was sent.

        Else whether it meets those bytes or the reset first depends on what it is just doing: who
        writes then never sees them.
        """
        try:
            here, there = (":%04X" % name[1] for name in (sock.getsockname(), sock.getpeername()))
        except OSError:  # that process is no more
            return
        end = time.monotonic() + 20
        while time.monotonic() < end:
            with open("/proc/net/tcp", encoding="ascii") as table:
                rows = [line.split() for line in table][1:]
            unread = [row[4].split(":")[1] for row in rows if row[1].endswith(there) and row[2].endswith(here)]
            if all(int(count, 16) == 0 for count in unread):
                return

    def break_now(self):
        """Let what was sent arrive and be read, and then reset both halves."""
        for sock in (self.near, self.far):
            if sock.fileno() >= 0:
                self.settle(sock)
                self.await_read(sock)
        self.relay.cuts += 1
        self.lost()

    def break_answer(self, count):
        """From the greeting on: pass so many bytes of the handshake's answer, at least one, and break."""
        self.back.passing = self.back.cut_behind = count

    def break_half(self, sock):
        """Reset one of the halves."""
        self.relay.forget(sock)
        reset(sock)

    def lost(self):
        if self.alive:
            self.alive = False
            for sock in (self.near, self.far):
                self.relay.forget(sock)
                if sock.fileno() >= 0:
                    reset(sock)


class Relay:
    """Single-threaded: it works while run() does."""

    def __init__(self, policy=lambda fragment: PASS, greet=lambda connection: PASS, buffer=None):
        self.policy = policy
        self.greet = greet  # asked at the handshake of who connected
        self.connections = []
        self.cuts = 0
        self._selector = selectors.DefaultSelector()
        self._listening = socket.create_server(("127.0.0.1", RELAY_PORT), backlog=64)
        if buffer:
            self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self._selector.register(self._listening, selectors.EVENT_READ, self._accept)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for connection in self.connections:
            connection.lost()
        self._selector.close()
        self._listening.close()

    def _accept(self):
        near, _ = self._listening.accept()
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        there = near.getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16)
        port, address = struct.unpack_from("!2xH4s", there)
        far = socket.socket()
        far.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, MARK)
        far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        far.bind(("127.0.0.1", 0))
        try:
            far.connect((socket.inet_ntoa(address), port))
        except OSError:
            far.close()
            reset(near)
            return
        connection = Connection(self, len(self.connections), near, far)
        self.connections.append(connection)
        for stream in connection.streams:
            self.listen_to(stream)

    def listen_to(self, stream):
        if stream.source.fileno() >= 0 and stream.source not in self._selector.get_map():
            self._selector.register(stream.source, selectors.EVENT_READ, lambda: self._read(stream))

    def forget(self, sock):
        if sock.fileno() >= 0 and sock in self._selector.get_map():
            self._selector.unregister(sock)

    def _read(self, stream):
        try:
            data = stream.source.recv(65536, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            stream.connection.lost()
            return
        stream.take(data)
        if stream.held:
            self.forget(stream.source)

    def run(self, until, deadline, run=None):
        """Relay until until() is true, the run has ended or the deadline (time.monotonic()) is over.

        Returns until().
        """
        if run is not None:
            self._selector.register(run, selectors.EVENT_READ, None)
        try:
            while not until():
                left = deadline - time.monotonic()
                ready = self._selector.select(max(0.0, min(left, 1.0)))
                if left <= 0 or any(key.data is None for key, _ in ready):
                    break
                for key, _ in ready:
                    if key.fileobj.fileno() >= 0:
                        key.data()
        finally:
            if run is not None:
                self._selector.unregister(run)
        return until()


class Job:
    """Two ranks behind a relay, until the end of a with statement."""

    def __init__(self, relay, program, **parameters):
        if WHY_NOT:
            raise Skip(WHY_NOT[0])
        self.relay = relay
        self.folder = tempfile.TemporaryDirectory(prefix="ftr-")
        self.end = time.monotonic() + DEADLINE
        words = [word.replace("FOLDER", self.folder.name) for word in program]
        command = [ftmpi.MPIRUN, "--oversubscribe", "-np", "2", *ftmpi.mca(dict(DR, **parameters)), *words]
        self.run = ftcluster.Run(command, DEADLINE + 30)

    def until(self, happened, what):
        """Relay until it has happened."""
        if not self.relay.run(happened, self.end, self.run):
            late = not self.run.ended()
            where = ftmpi.stacks(p for p in ftmpi.descendants(self.run.pid) if ftmpi.is_rank(p)) \
                if late else ""
            self.run.stop()
            self.run.tell(40)
            raise AssertionError(f"{what} never happened\n{where}")

    def file(self, name):
        return os.path.join(self.folder.name, name)

    def touch(self, name):
        with open(self.file(name), "w", encoding="ascii"):
            pass

    def exists(self, name):
        return os.path.exists(self.file(name))

    def finish(self, said):
        """Relay until the end, which must be a good one."""
        self.relay.run(self.run.ended, self.end, self.run)
        code = self.run.wait() if self.run.ended() else None
        if code != 0 or said not in self.run.out:
            self.run.stop()
            self.run.tell(40)
            raise AssertionError(f"exit code {code}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.run.stop()
        self.folder.cleanup()
        ftmpi.sweep()
