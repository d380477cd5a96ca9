"""Both outputs of a process as one text, by whole lines.

Through one pipe, what is printed piece by piece (as btl/tcp does when a peer dies) gets mixed with the lines of
the other output; a test then misses a line that was printed."""

import os
import selectors
import subprocess
import time

PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}  # for Popen, which must not be told text=True


class Lines:
    """What a process prints that was started with PIPES."""

    def __init__(self, process):
        self.process = process
        self.whole = b""
        self.begun = {process.stdout.fileno(): b"", process.stderr.fileno(): b""}
        self.selector = selectors.DefaultSelector()
        for pipe in self.begun:
            self.selector.register(pipe, selectors.EVENT_READ)

    def until_the_end(self, timeout):
        """All that it printed, when both outputs are closed and it has ended; before that subprocess.TimeoutExpired, after
        which this may be called again. Timeout in seconds."""
        end = time.monotonic() + timeout
        while self.selector.get_map():
            ready = self.selector.select(max(0, end - time.monotonic()))
            for key, _ in ready:
                self.take(key.fd)
            if not ready or (time.monotonic() > end and self.selector.get_map()):
                raise subprocess.TimeoutExpired(self.process.args, timeout)
        self.selector.close()
        self.process.wait(max(0, end - time.monotonic()))
        return self.whole.decode(errors="replace").replace("\r\n", "\n")

    def take(self, pipe):
        """What can be read there now."""
        data = os.read(pipe, 65536)
        if not data:
            self.selector.unregister(pipe)
        lines, newline, rest = (self.begun[pipe] + data).rpartition(b"\n")
        self.whole += lines + newline
        self.begun[pipe] = rest
        if not data and rest:  # the end of an output that has not ended its line
            self.whole += rest + b"\n"
