"""One run of HPCC: where, with which parameters, what happens, how it ends."""

import json
import os
import select
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "cluster"))

from vcluster import client  # noqa: E402

import hpcc  # noqa: E402

TICK = 0.25       # seconds between two looks at files and counters
GRACE = 10.0      # seconds that mpirun gets to end in good order


class Place:
    """Where ranks run: the virtual cluster, or this host's loopback interface."""

    def __init__(self, top, state, hosts):
        self._tool = [os.path.join(top, "contrib", "cluster", "cluster")]
        self._folder = state
        self._state = ["--state", state]
        self._hosts = hosts
        self.virtual = False

    def up(self):
        """Bring the cluster up. False, with the reason, where that is not permitted."""
        done = self._ask("up", "-n", str(self._hosts), "--owner", str(os.getpid()))
        if done.returncode == 77:
            return False, done.stderr.strip().removeprefix("cluster: ")
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        self.virtual = True
        return True, done.stdout.strip()

    def down(self):
        if self.virtual:
            self._ask("down")
            self.virtual = False

    def cut(self):
        self._must("cut", "n1", "0", "--how", "drop")

    def heal(self):
        self._must("heal", "n1", "0")

    def processes(self):
        """(host, process id, command line) of all processes on the virtual hosts."""
        return client.Cluster(self._folder).processes()

    def kill_host(self, host):
        client.Cluster(self._folder).ask("kill", host=host, silent=False)

    def dropped(self):
        """Packets that the kernel has dropped at the cut so far."""
        port = json.loads(self._must("counters").stdout)["n1"]["0"]
        return port["in"]["drop"] + port["out"]["drop"]

    def mpirun(self, arguments, deadline):
        """The command that runs mpirun here and ends by itself at the deadline."""
        if self.virtual:
            return [*self._tool, "mpirun", *self._state, "--deadline", str(deadline), "--",
                    "--map-by", "node", *arguments]
        return ["timeout", "--signal=TERM", f"--kill-after={GRACE}", str(deadline), "mpirun",
                "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1",
                "--mca", "btl_tcp_if_include", "lo", "--mca", "btl_tcp_links", "2", *arguments]

    def _ask(self, *words):
        return subprocess.run([*self._tool, words[0], *self._state, *words[1:]],
                              capture_output=True, text=True, timeout=60, check=False)

    def _must(self, *words):
        done = self._ask(*words)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        return done


class Result:
    """How a run ended."""

    def __init__(self):
        self.code = None
        self.seconds = 0.0
        self.timed_out = False
        self.verdict = None
        self.reached = "MPI_Init"
        self.cut_at = None      # seconds, None: not cut by the kernel
        self.dropped = 0        # packets at the cut
        self.lines = []         # everything printed

    def ending(self):
        if self.timed_out:
            return f"hung in {self.reached}, ended after {self.seconds:.0f} s"
        if self.code != 0:
            return f"exit code {self.code} in {self.reached}"
        if not self.verdict.finished:
            return f"ended without a verdict in {self.reached}"
        return f"finished in {self.seconds:.0f} s"


class Stage:
    """Runs HPCC once and tells the screen what happens."""

    def __init__(self, place, screen, folder, ranks, size):
        self._place = place
        self._screen = screen
        self._folder = folder
        self._ranks = ranks
        self._size = size

    def run(self, name, parameters, deadline, tally, cut_in=None, at_rank_0=None):
        """Run HPCC; returns a Result.

        parameters: MCA parameters.  at_rank_0: those that only rank 0 has.  tally: a counts.Tally, which is given every line
        that is printed.  cut_in: the section of HPCC during which the kernel cuts
        the rail.
        """
        folder = os.path.join(self._folder, name)
        os.makedirs(folder)
        hpcc.write_input(folder, self._ranks, self._size)
        output = hpcc.Output(folder)
        arguments = []
        for parameter, value in parameters.items():
            arguments += ["--mca", parameter, str(value)]
        own = [word for parameter, value in (at_rank_0 or {}).items()
               for word in ("-x", f"OMPI_MCA_{parameter}={value}")]
        first = 1 if own else self._ranks
        arguments += ["-np", str(first), "-wdir", folder, *own, "hpcc"]
        if first < self._ranks:
            arguments += [":", "-np", str(self._ranks - first), "-wdir", folder, "hpcc"]
        command = self._place.mpirun(arguments, deadline)
        result = Result()
        env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        with open(os.path.join(folder, "output.log"), "w", encoding="utf-8") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=env,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                       start_new_session=True)
            try:
                self._follow(process, output, result, log, cut_in, tally, deadline)
            finally:
                end(process)
        result.seconds = self._screen.clock()
        result.timed_out = result.code == 124
        result.verdict = hpcc.Verdict(output.text())
        if result.cut_at is not None:
            result.dropped = self._place.dropped()
            self._place.heal()
        return result

    def _follow(self, process, output, result, log, cut_in, tally, deadline):
        pipe = process.stdout.fileno()
        os.set_blocking(pipe, False)
        rest, last = b"", time.monotonic() + deadline + 3 * GRACE
        shown = 0
        while time.monotonic() < last:
            ready = select.select([pipe], [], [], TICK)[0]
            data = os.read(pipe, 65536) if ready else None
            *lines, rest = (rest + (data or b"")).split(b"\n")
            for raw in lines:
                line = raw.decode(errors="replace").rstrip()
                log.write(line + "\n")
                result.lines.append(line)
                told = tally.watch(line)
                if told:
                    self._screen.event(*told)
            for told in tally.news(self._screen.clock()):
                self._screen.event(*told)
            for section in output.new_sections():
                result.reached = section
                if section != "Summary":
                    self._screen.event("HPCC", section)
                if section == cut_in and self._place.virtual:
                    self._place.cut()
                    result.cut_at = self._screen.clock()
                    self._screen.event("kernel", "rail 0 of host n1 is cut, silently: every packet "
                                       "is dropped from now on", "fault")
            if result.cut_at is not None and not shown:
                shown = self._place.dropped()
                if shown:
                    self._screen.event("kernel", f"the cut has struck: {shown} packets dropped",
                                       "fault")
            if data == b"":
                break
        wait_end(process, GRACE)
        result.code = process.returncode


def wait_end(process, seconds):
    """Wait for the end of a process, through its descriptor, for at most seconds."""
    fd = os.pidfd_open(process.pid)
    try:
        if select.select([fd], [], [], seconds)[0]:
            process.wait()
    finally:
        os.close(fd)


def end(process):
    """End a process and its group, whatever state it is in."""
    for number, seconds in ((signal.SIGTERM, GRACE), (signal.SIGKILL, GRACE)):
        if process.returncode is not None:
            return
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        wait_end(process, seconds)
