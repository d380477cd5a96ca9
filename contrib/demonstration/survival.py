"""The second act: a rank, a node and mpirun are killed while a solver runs on to its right result."""

import glob
import os
import re
import select
import signal
import subprocess
import time

import stage as stage_module

RANKS = 8
SIZE, ITERATIONS = 768, 4000
DEADLINE = 180
# When what is killed: part of the iterations, what, and who of it.
KILLS = ((0.2, "rank", "n1"), (0.4, "node", "n3"), (0.6, "mpirun", "n0"))


def library(top):
    """Where libmpi_ft was installed or built; None when it is nowhere."""
    path = os.environ.get("OMPI_MCA_mca_base_component_path", "")
    places = [os.path.dirname(folder) for folder in path.split(":") if folder.endswith("/openmpi")]
    places += [os.path.expanduser("~/.local/lib"), "/usr/local/lib"]
    places += sorted(glob.glob(os.path.join(top, "build", "*", "ompi", "mpi_ft", ".libs")))
    return next((p for p in places if os.path.exists(os.path.join(p, "libmpi_ft.so"))), None)


class Survival:
    """One run of contrib/examples/heat.c."""

    def __init__(self, top, place, screen, logs):
        self._top = top
        self._place = place
        self._screen = screen
        self._folder = os.path.join(logs, "heat")
        self._done = 0
        self._kills = list(KILLS)
        self.killed = []
        self.result = None
        self.seconds = 0.0

    def run(self):
        """True when the result was right and everything ended by itself."""
        os.makedirs(self._folder)
        program = self._build()
        arguments = ["-np", str(RANKS), "--mca", "errmgr", "radixft", "--mca", "pml", "dr",
                     "--mca", "errmgr_base_verbose", "1", "--mca", "errmgr_radixft_output_dir",
                     self._folder, program, self._folder, str(SIZE), str(ITERATIONS)]
        env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        process = subprocess.Popen(self._place.mpirun(arguments, DEADLINE), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env,
                                   start_new_session=True)
        try:
            self._follow(process)
        finally:
            stage_module.end(process)
        self.seconds = self._screen.clock()
        return self.result == "right" and not self._kills and not self._left()

    def ending(self):
        if self._kills:
            return f"it ended before {self._kills[0][1]} was killed"
        if self.result is None:
            return "it did not end in time" if self._left() else "it ended without a result"
        return f"the result is {self.result}" + (", but processes are left" if self._left() else "")

    def _build(self):
        where = library(self._top)
        if where is None:
            raise RuntimeError("libmpi_ft is nowhere to be found; run contrib/build")
        program = os.path.join(self._folder, "heat")
        done = subprocess.run(
            ["mpicc", "-O2", "-I", os.path.join(self._top, "ompi", "mpi_ft"), "-o", program,
             os.path.join(self._top, "contrib", "examples", "heat.c"), "-L", where, "-lmpi_ft",
             f"-Wl,-rpath,{where}"], capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise RuntimeError("contrib/examples/heat.c does not compile: " + done.stderr.strip())
        return program

    def _left(self):
        """Process ids of the job on the hosts."""
        return [pid for _, pid, command in self._place.processes()
                if re.match(r"orted|mpirun|" + re.escape(os.path.join(self._folder, "heat")), command)]

    def _follow(self, process):
        """Until mpirun has ended, and when it was killed until the daemons have."""
        pipe = process.stdout.fileno()
        os.set_blocking(pipe, False)
        sources = {"mpirun": b""}
        opened = {}
        end = time.monotonic() + DEADLINE
        closed = False
        with open(os.path.join(self._folder, "output.log"), "w", encoding="utf-8") as log:
            while time.monotonic() < end:
                if not closed and select.select([pipe], [], [], stage_module.TICK)[0]:
                    data = os.read(pipe, 65536)
                    closed = data == b""
                    sources["mpirun"] = self._lines(sources["mpirun"] + data, log)
                elif closed:
                    select.select([], [], [], stage_module.TICK)
                for path in glob.glob(os.path.join(self._folder, "radixft-*.*")):
                    if path not in opened:
                        opened[path] = open(path, "rb")  # pylint: disable=consider-using-with
                        self._screen.event("radixft", f"output goes on in {os.path.basename(path)}")
                    sources[path] = self._lines(sources.get(path, b"") + opened[path].read(), log)
                if closed and not self._left():
                    break
        for file in opened.values():
            file.close()

    def _lines(self, data, log):
        *lines, rest = data.split(b"\n")
        for raw in lines:
            line = raw.decode(errors="replace").rstrip()
            log.write(line + "\n")
            self._watch(line)
        return rest

    def _watch(self, line):
        screen = self._screen
        progress = re.match(r"heat: (\d+) of (\d+) iterations", line)
        if progress:
            self._done = int(progress[1])
            if self._kills and self._done >= self._kills[0][0] * ITERATIONS:
                self._kill(*self._kills.pop(0)[1:])
        elif re.match(r"heat: \d+ ranks go on", line):
            screen.event("heat", line[len("heat: "):], "dr")
        elif re.match(r"heat: (right|WRONG)", line):
            self.result = line[len("heat: "):]
            screen.event("heat", f"all {ITERATIONS} iterations: the result is {self.result}",
                         "good" if self.result == "right" else "bad")
        elif re.search(r"\[daemon \d+\] \S+ (installed|rank \d+ of|all votes)", line):
            screen.event("radixft", re.sub(r"^.*\[(daemon \d+)\] \S+ ", r"\1: ", line))
        elif line.startswith("radixft: mpirun is gone"):
            screen.event("radixft", line[len("radixft: "):], "dr")

    def _kill(self, what, host):
        if what == "node":
            self._place.kill_host(host)
            self._screen.event("kernel", f"host {host} has lost its power", "fault")
        else:
            pattern = "mpirun" if what == "mpirun" else os.path.join(self._folder, "heat")
            victim = next(pid for where, pid, command in self._place.processes()
                          if where == host and command.startswith(pattern))
            os.kill(victim, signal.SIGKILL)
            self._screen.event("kernel", f"SIGKILL for {'a rank' if what == 'rank' else what} on {host}",
                               "fault")
        self.killed.append(what)
