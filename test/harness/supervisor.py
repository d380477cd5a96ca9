"""Runs a test so that nothing of it can outlive it.

Each test has a supervisor process of its own that the kernel makes the parent of every orphan among the
test's descendants (PR_SET_CHILD_SUBREAPER). So whatever a test starts, in whatever session or process
group, can be found and ended by its process id, and the wall-clock deadline holds for all of it.
"""

import ctypes
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import segments

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

GRACE_AFTER_END = 3.0   # for daemons that end a moment after what started them
GRACE_AFTER_TERM = 5.0  # for a trap that takes down what the test put up
MOST_LOG_BYTES = 32 << 20
TAIL_LINES = 60
MOST_STACKS = 6
MOST_FRAMES = 14
STACK_SECONDS = 20.0

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option, argument):
    if _libc.prctl(option, ctypes.c_ulong(argument), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def descendants(root):
    """Process ids below `root`, zombies left out, with state and command line."""
    parents, states = {}, {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as stat:
                fields = stat.read().rpartition(")")[2].split()
        except OSError:
            continue
        states[int(entry)], parents[int(entry)] = fields[0], int(fields[1])
    found = []
    for pid in parents:
        ancestor, hops = parents[pid], 0
        while ancestor > 1 and ancestor != root and hops < 1000:
            ancestor, hops = parents.get(ancestor, 0), hops + 1
        if ancestor == root and states[pid] not in "ZX":
            found.append(pid)
    return found


def describe(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as source:
            command = source.read().replace(b"\0", b" ").decode(errors="replace").strip()
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as source:
            state = source.read().rpartition(")")[2].split()[0]
        with open(f"/proc/{pid}/wchan", encoding="utf-8") as source:
            waits = source.read().strip("0") or "-"
    except OSError:
        return f"{pid} (gone)"
    return f"{pid} {state} {waits} {command[:200]}"


def stacks(pids, build):
    """Where the programs of this build among pids stand: lines of backtrace, from gdb, if there is one."""
    shown = 0
    for pid in pids:
        try:
            own = os.readlink(f"/proc/{pid}/exe").startswith(build)
        except OSError:
            continue
        if not own or shown == MOST_STACKS:
            continue
        shown += 1
        try:
            done = subprocess.run(["gdb", "-q", "-batch", "-p", str(pid), "-ex", f"thread apply all bt {MOST_FRAMES}"],
                                  stdin=subprocess.DEVNULL, capture_output=True, timeout=STACK_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as failed:
            yield f"{pid} no backtrace: {failed}"
            continue
        for line in done.stdout.decode(errors="replace").splitlines():
            if line.startswith(("#", "Thread ")):
                yield f"{pid} {line[:160]}"


def reap():
    """Takes the exit statuses of all children that have ended."""
    statuses = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return statuses
        if pid == 0:
            return statuses
        statuses[pid] = status


def wait_for_no_descendants(seconds):
    """Waits until none is left; SIGCHLD is blocked here, so it can be waited for."""
    end = time.monotonic() + seconds
    while True:
        # In this order: one that ends in between is a zombie to the first and taken by the second.
        left = descendants(os.getpid())
        reap()
        remaining = end - time.monotonic()
        if not left or remaining <= 0:
            return left
        # Descendants that are not children send no SIGCHLD: look again a little later.
        signal.sigtimedwait([signal.SIGCHLD], min(0.1, remaining))


def end_all():
    """Ends every descendant: politely, then not. What ranks would leave in /dev/shm goes with them."""
    left_behind = set()
    for number, seconds in [(signal.SIGTERM, GRACE_AFTER_TERM)] + [(signal.SIGKILL, 0.2)] * 50:
        left = descendants(os.getpid())
        left_behind |= segments.of(left)
        if not left:
            break
        for pid in left:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
        wait_for_no_descendants(seconds)
    segments.remove(left_behind)


class Ended(BaseException):
    """The supervisor was told to end, because the runner was."""


class Output:
    """Both outputs of the test, merged into the log by whole lines; TAP is read from the first only."""

    def __init__(self, log):
        self.log = log
        self.bytes = 0
        self.partial = {"out": b"", "err": b""}
        self.tap = []
        self.tells_why = False
        self.tail = []

    def feed(self, name, data):
        *lines, self.partial[name] = (self.partial[name] + data).split(b"\n")
        for line in lines:
            self.line(name, line)

    def line(self, name, line):
        self.bytes += len(line) + 1
        if self.bytes > MOST_LOG_BYTES:
            return
        self.log.write(line + b"\n")
        self.log.flush()
        text = line.decode(errors="replace")
        if name == "out" and self.is_tap(text):
            self.tap.append(text)
        self.tail = (self.tail + [text])[-TAIL_LINES:]

    def is_tap(self, text):
        """Whether the line tells a result, or why a case has failed: up to an empty comment, before what the next one says."""
        if text.startswith(("ok", "not ok", "1..", "Bail out!")):
            self.tells_why = text.startswith("not ok")
            return True
        self.tells_why = self.tells_why and text != "#"
        return self.tells_why and text.startswith("#")

    def close(self):
        for name, rest in self.partial.items():
            if rest:
                self.line(name, rest)

    def note(self, text):
        self.line("err", f"[test/run] {text}".encode())


def supervise(test, env):
    """Runs one test to its end; returns what the report needs. Runs in a process of its own."""
    os.makedirs(os.path.dirname(test.log), exist_ok=True)
    temporary = tempfile.mkdtemp(prefix="ompi-ft.")
    begin = time.monotonic()
    outcome = {"status": 0, "problem": "", "tap": [], "tail": [], "seconds": 0.0}
    try:
        with open(test.log, "wb") as log:
            output = Output(log)
            try:
                child = subprocess.Popen(
                    test.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, cwd=test.build, env={**env, "TMPDIR": temporary},
                    start_new_session=True,
                    preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, []))
            except OSError as error:
                outcome["problem"] = (f"cannot be started: {test.command[0]}: {error.strerror} "
                                      "(is it built? make check TESTS= builds all test programs)")
            else:
                watch(test, child, output, outcome, begin)
            output.close()
            outcome["tap"], outcome["tail"] = output.tap, output.tail
    finally:
        end_all()
        shutil.rmtree(temporary, ignore_errors=True)
    outcome["seconds"] = time.monotonic() - begin
    return outcome


def watch(test, child, output, outcome, begin):
    pidfd = os.pidfd_open(child.pid)
    selector = selectors.DefaultSelector()
    for pipe, name in ((child.stdout, "out"), (child.stderr, "err")):
        os.set_blocking(pipe.fileno(), False)
        selector.register(pipe, selectors.EVENT_READ, name)
    selector.register(pidfd, selectors.EVENT_READ, "end")

    def drain(seconds):
        """Moves output along; True once the test itself has ended."""
        ended = False
        for key, _ in selector.select(seconds):
            if key.data == "end":
                ended = True
                continue
            data = os.read(key.fd, 1 << 16)
            if data:
                output.feed(key.data, data)
            else:
                selector.unregister(key.fileobj)
        return ended

    while True:
        remaining = begin + test.deadline - time.monotonic()
        if remaining <= 0:
            outcome["problem"] = f"was still running at its deadline of {test.deadline:g} s"
            output.note(f"deadline of {test.deadline:g} s: ending these (pid, state, waits in, command)")
            stuck = descendants(os.getpid())
            for line in stacks(stuck, test.build):
                output.note(line)
            for pid in stuck:
                output.note(describe(pid))
            end_all()
            break
        if drain(remaining):
            break
    # What it wrote just before its end is still in the pipes.
    selector.unregister(pidfd)
    os.close(pidfd)
    while selector.get_map() and selector.select(0):
        drain(0)
    if not outcome["problem"]:
        _, outcome["status"] = os.waitpid(child.pid, 0)
        left = wait_for_no_descendants(GRACE_AFTER_END)
        if left:
            outcome["problem"] = f"left {len(left)} processes behind: " + "; ".join(map(describe, left))
            end_all()
    while selector.get_map() and selector.select(0):
        drain(0)


class Pool:
    """The supervisors that are at work."""

    def __init__(self, env):
        self.env = env
        self.jobs = {}  # read end of the pipe -> (test, pid, bytes so far)

    def running(self):
        return [test for test, _, _ in self.jobs.values()]

    def admits(self, test, most):
        """Timing-sensitive tests run alone."""
        if not self.jobs:
            return True
        return test.parallel and all(t.parallel for t in self.running()) and len(self.jobs) < most

    def start(self, test):
        test.started = time.monotonic()
        reading, writing = os.pipe()
        sys.stdout.flush()
        runner = os.getpid()
        pid = os.fork()
        if pid == 0:
            self.in_supervisor(test, reading, writing, runner)
        os.close(writing)
        self.jobs[reading] = (test, pid, b"")

    def in_supervisor(self, test, reading, writing, runner):
        code = 1
        try:
            os.close(reading)
            os.setsid()  # Ctrl-C is for the runner, which then ends us
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, self.told_to_end)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
            prctl(PR_SET_CHILD_SUBREAPER, 1)
            prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != runner:
                os._exit(1)
            outcome = supervise(test, self.env)
            with os.fdopen(writing, "w", encoding="utf-8") as pipe:
                json.dump(outcome, pipe)
            code = 0
        except Ended:
            pass
        except BaseException:  # pylint: disable=broad-except
            import traceback
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    @staticmethod
    def told_to_end(_signal, _frame):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Ended

    def wait(self, seconds):
        """The tests that ended within `seconds`, with their outcomes."""
        done = []
        with selectors.DefaultSelector() as selector:
            for fd in self.jobs:
                selector.register(fd, selectors.EVENT_READ)
            ready = [key.fd for key, _ in selector.select(seconds)]
        for fd in ready:
            test, pid, data = self.jobs[fd]
            piece = os.read(fd, 1 << 16)
            if piece:
                self.jobs[fd] = (test, pid, data + piece)
                continue
            os.close(fd)
            os.waitpid(pid, 0)
            del self.jobs[fd]
            if data:
                outcome = json.loads(data)
            else:
                outcome = {"status": 1, "problem": "its supervisor failed", "tap": [], "tail": [],
                           "seconds": time.monotonic() - test.started}
            done.append((test, outcome))
        return done

    def kill_all(self):
        """Ends every test that is running, and waits until all are gone."""
        for _, pid, _ in self.jobs.values():
            os.kill(pid, signal.SIGTERM)
        for _, pid, _ in self.jobs.values():
            os.waitpid(pid, 0)

