"""Messages between a cluster's processes: one JSON object per line."""

import json
import socket

MAX_LINE = 4 << 20


class Closed(Exception):
    """The other side went away."""


class Line:
    """A connected Unix stream socket that carries JSON lines."""

    def __init__(self, sock):
        self.sock = sock
        self._buffer = b""
        self.fds = []

    def fileno(self):
        return self.sock.fileno()

    def send(self, message, fds=()):
        data = json.dumps(message).encode() + b"\n"
        if fds:
            sent = socket.send_fds(self.sock, [data], list(fds))
            data = data[sent:]
        self.sock.sendall(data)

    def feed(self):
        """Read once; return the complete messages. Raises Closed at the end."""
        data, fds, _, _ = socket.recv_fds(self.sock, 65536, 8)
        self.fds += fds
        if not data:
            raise Closed()
        self._buffer += data
        if len(self._buffer) > MAX_LINE:
            raise Closed("line too long")
        *lines, self._buffer = self._buffer.split(b"\n")
        return [json.loads(line) for line in lines if line]

    def receive(self, timeout):
        """The next message; raises Closed or TimeoutError (seconds)."""
        self.sock.settimeout(timeout)
        try:
            while True:
                messages = self.feed()
                if messages:
                    return messages[0]
        except ConnectionError as lost:
            raise Closed(str(lost)) from lost
        finally:
            self.sock.settimeout(None)

    def close(self):
        self.sock.close()


def connect(path):
    """Connect to a listening socket by its path, whatever its length."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        sock.connect(path)
    except OSError:
        sock.close()
        raise
    return Line(sock)


def listen(path):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    sock.bind(path)
    sock.listen(64)
    return sock
