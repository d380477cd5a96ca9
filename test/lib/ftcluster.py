"""Virtual clusters for tests: up, faults, mpirun within a deadline, down."""

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref

from fttap import Skip, check, comment

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.join(TOP, "contrib", "cluster"))

from vcluster import client  # noqa: E402

TOOL = os.path.join(TOP, "contrib", "cluster", "cluster")
COMMAND_DEADLINE = 60.0
NOT_PERMITTED = 77
PAST_DEADLINE = 124
# Tests at a time, each with a cluster of its own, on two cores: while one waits for a timeout or a process, another
# computes. Not for tests that assert how long something takes, or that what is quick stays below a limit of theirs.
SIDE_BY_SIDE = 3


def build_dir():
    """The build folder: $FT_BUILD, or where contrib/build builds."""
    return os.environ.get("FT_BUILD") or os.path.join(TOP, "build", "release")


def program(name):
    """Path of a test program of test/mpi/programs."""
    path = os.path.join(build_dir(), "test", "mpi", "programs", name)
    check(os.access(path, os.X_OK), f"{path} is missing: run make check, or set FT_BUILD")
    return path


def wait_readable(fds, deadline):
    """The ready ones of fds, or [] past the deadline (time.monotonic())."""
    return select.select(fds, [], [], max(0.0, deadline - time.monotonic()))[0]


def contents(source):
    """A file's text so far; the place where the command writes stays as it is."""
    size = os.fstat(source.fileno()).st_size
    return os.pread(source.fileno(), size, 0).decode(errors="replace")


class Run:
    """A running command with its own process group and collected output."""

    def __init__(self, argv, deadline, env=None):
        self.deadline = time.monotonic() + deadline
        self._out = tempfile.TemporaryFile()
        self._err = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=self._out, stderr=self._err,
            env=env, start_new_session=True)
        self._pidfd = os.pidfd_open(self._process.pid)
        weakref.finalize(self, os.close, self._pidfd)  # a soak has thousands of these, and select() takes 1024
        self.code = None

    @property
    def pid(self):
        return self._process.pid

    def ended(self):
        """Whether the command has ended by now."""
        return bool(wait_readable([self._pidfd], 0))

    def fileno(self):
        """Readable when the command has ended."""
        return self._pidfd

    def wait(self):
        """The exit code; past the deadline the group is killed and it is 124."""
        if self.code is not None:
            return self.code
        if wait_readable([self._pidfd], self.deadline):
            self.code = self._process.wait()
        else:
            self.stop()
            self.code = PAST_DEADLINE
        return self.code

    def stop(self):
        """End the command's process group: SIGTERM, after 5 s SIGKILL."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.returncode is None and not self.ended():
                os.killpg(self._process.pid, number)
                wait_readable([self._pidfd], time.monotonic() + 5)
        code = self._process.wait()
        if self.code is None:
            self.code = code

    @property
    def out(self):
        return contents(self._out)

    @property
    def err(self):
        return contents(self._err)

    def tell(self, lines=25):
        """Print the end of what the command said, as diagnosis."""
        comment(f"exit code {self.code}")
        for name, text in (("out", self.out), ("err", self.err)):
            for line in text.splitlines()[-lines:]:
                comment(f"{name}: {line}")


def command(argv, deadline=COMMAND_DEADLINE, env=None):
    """Run to the end; returns the Run."""
    run = Run(argv, deadline, env)
    run.wait()
    return run


def await_end(pid, deadline):
    """Wait until a process has ended, also one that is no child, or for the deadline."""
    with contextlib.suppress(ProcessLookupError):
        pidfd = os.pidfd_open(pid)
        try:
            wait_readable([pidfd], deadline)
        finally:
            os.close(pidfd)


class Marks:
    """The events a test program writes to its --marks FIFO."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "marks")
        os.mkfifo(self.path)
        self._fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        # Without a writer of our own the FIFO would be at its end now and then.
        self._keep = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
        self._data = b""
        self.events = []

    def wait(self, wanted, deadline, run=None):
        """The first event from now on for which wanted(text) is true: (time, text).

        None past the deadline, or when the run ended before.
        """
        while True:
            *lines, self._data = self._data.split(b"\n")
            found = None
            for n, line in enumerate(lines):
                stamp, text = line.decode().split(" ", 1)
                self.events.append((float(stamp), text))
                if wanted(text):
                    found = self.events[-1]
                    self._data = b"\n".join(lines[n + 1:] + [self._data])
                    break
            if found:
                return found
            watched = [self._fd] + ([run] if run else [])
            ready = wait_readable(watched, deadline)
            if self._fd in ready:
                self._data += os.read(self._fd, 65536)
            elif not ready or run in ready:
                return None

    def rounds(self, number, deadline, run=None, kind=""):
        """Wait for the begin of that many rounds (of a kind) from now on."""
        event = None
        for _ in range(number):
            event = self.wait(lambda t: t.startswith("round ") and t.endswith(kind),
                              deadline, run)
            if event is None:
                return None
        return event

    def close(self):
        os.close(self._fd)
        os.close(self._keep)


class Cluster:
    """A cluster for the length of a with statement; mbit is one rate for all rails, or a tuple of one for each."""

    def __init__(self, hosts=4, rails=2, ttl=600, mbit=None):
        self.folder = tempfile.mkdtemp(prefix="ftc-")
        self.state = os.path.join(self.folder, "state")
        self._options = ["-n", str(hosts), "--rails", str(rails), "--ttl", str(ttl),
                         "--owner", str(os.getpid())]
        self._options += ["--mbit", ",".join(map(str, mbit)) if isinstance(mbit, tuple) else str(mbit)] \
            if mbit else []
        self._marks = 0

    def __enter__(self):
        up = command([TOOL, "up", "--state", self.state, *self._options])
        if up.code != 0:
            shutil.rmtree(self.folder, ignore_errors=True)
            if up.code == NOT_PERMITTED:
                raise Skip(up.err.strip())
            raise AssertionError(f"cluster up: exit code {up.code}: {up.err}")
        return self

    def __exit__(self, *_):
        down = command([TOOL, "down", "--state", self.state])
        shutil.rmtree(self.folder, ignore_errors=True)
        check(down.code == 0, f"cluster down: exit code {down.code}: {down.err}")

    def tool(self, *arguments, deadline=COMMAND_DEADLINE):
        """Run a subcommand that must succeed; returns its standard output."""
        run = command([TOOL, arguments[0], "--state", self.state, *map(str, arguments[1:])],
                      deadline)
        check(run.code == 0, f"cluster {' '.join(map(str, arguments))}: exit code "
              f"{run.code}: {run.err}")
        return run.out

    def ask(self, op, **arguments):
        """Have the supervisor do something, without the start of a command: a fault at a known moment."""
        return client.Cluster(self.state).ask(op, **arguments)

    def processes(self):
        """(host, process id, command line) of all processes on the hosts."""
        return client.Cluster(self.state).processes()

    def await_none(self, pattern, deadline):
        """Wait until no command on the hosts matches: []; past the deadline the (host, process id) of those that do."""
        while True:
            left = [(host, pid) for host, pid, command in self.processes() if re.search(pattern, command)]
            if not left or time.monotonic() > deadline:
                return left
            # Not only for its end: a process can become another one with exec.
            await_end(left[0][1], min(deadline, time.monotonic() + 0.1))

    def start(self, *arguments, deadline=COMMAND_DEADLINE, env=None):
        """Start a subcommand; returns the Run."""
        return Run([TOOL, arguments[0], "--state", self.state, *map(str, arguments[1:])],
                   deadline, env)

    def mpirun(self, *arguments, deadline, env=None):
        """Start mpirun on n0. At the deadline everything on all hosts is ended."""
        # The tool ends it in good order; our own deadline is behind that.
        return self.start("mpirun", "--deadline", deadline, "--", *arguments,
                          deadline=deadline + 30, env=env)

    def marks(self):
        self._marks += 1
        folder = os.path.join(self.folder, f"marks{self._marks}")
        os.mkdir(folder)
        return Marks(folder)

    def counters(self):
        return self.ask("counters")

    def struck(self, kind, host, rail):
        """Packets that this fault struck there so far, both directions."""
        port = self.counters()[host][str(rail)]
        return port["out"][kind] + port["in"][kind]

    def carried(self, host, rail):
        """Bytes that came to a host over a rail, and those that it sent over it: (came, sent), by its kernel."""
        table = self.tool("run", host, "--", "cat", "/proc/net/dev")
        words = re.search(rf"^\s*rail{rail}:(.*)$", table, re.MULTILINE).group(1).split()
        return int(words[0]), int(words[8])

    def await_struck(self, kind, host, rail, number, deadline):
        """Wait until a fault struck number packets; False past the deadline.

        The kernel tells nobody that a counter moved, so this asks again and
        again, for as long as the deadline (time.monotonic()) allows.
        """
        while self.struck(kind, host, rail) < number:
            if time.monotonic() > deadline:
                return False
        return True


def component_env(extra=None):
    """Environment in which mpirun finds this project's components.

    $FT_PREFIX is where they are installed; without it, the user's own folder.
    """
    env = dict(os.environ)
    prefix = env.get("FT_PREFIX")
    if prefix and "OMPI_MCA_mca_base_component_path" not in env:
        env["OMPI_MCA_mca_base_component_path"] = f"SYS_DEFAULT:{prefix}/lib/openmpi"
    env.update(extra or {})
    return env


sys.dont_write_bytecode = True
