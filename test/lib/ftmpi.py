"""Runs an MPI program under mpirun on this machine with chosen networks and faults, and reads what
the components counted."""

import contextlib
import ctypes
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from fttap import Skip, check, comment

TOP = os.environ["FT_TOP"]
sys.path.insert(0, os.path.join(TOP, "test", "harness"))

import ftlines  # noqa: E402
import segments  # noqa: E402

BUILD = os.environ["FT_BUILD"]
MPIRUN = os.environ.get("FT_MPIRUN", "mpirun")
HASHRING = os.path.join(BUILD, "test/mpi/programs/hashring")

PR_SET_CHILD_SUBREAPER = 36

# Two interfaces of one machine, in a network namespace that ends with its last process: an address
# at one end of a veth pair reaches itself, and btl/tcp makes a module for each interface.
TWO_INTERFACES = """
set -e
ip link set lo up
for i in 0 1; do
    ip link add ft$i type veth peer name ftpeer$i
    ip address add 10.77.$i.1/24 dev ft$i
    ip link set ft$i up
    ip link set ftpeer$i up
done
exec "$@"
"""

# name -> (BTLs, parameters, paths between two ranks)
NETWORKS = {
    "vader": ("vader", {}, 1),
    "tcp": ("tcp", {"btl_tcp_if_include": "lo"}, 1),
    "tcp2": ("tcp", {"btl_tcp_if_include": "ft0,ft1"}, 2),
    "vader+tcp": ("vader,tcp", {"btl_tcp_if_include": "lo", "pml_dr_stripe_memory": 1}, 2),
    "dgram": ("dgram", {"btl_dgram_if_include": "lo"}, 1),
    "ofi+tcp": ("dgram,tcp", {"btl_dgram_if_include": "lo", "btl_dgram_provider": "ofi:udp", "btl_tcp_if_include": "lo"}, 2),
    "dgram+tcp": ("dgram,tcp", {"btl_dgram_if_include": "lo", "btl_tcp_if_include": "lo"}, 2),
    "ucx": ("ucx", {"btl_ucx_if_include": "lo"}, 2),
    "ucx_tcp": ("ucx", {"btl_ucx_if_include": "lo", "btl_ucx_transports": "tcp"}, 1),
    "ucx_ep": ("ucx", {"btl_ucx_if_include": "lo", "btl_ucx_transports": "tcp", "btl_ucx_connect": "ep"}, 1),
    "ucx_posix": ("ucx", {"btl_ucx_transports": "posix"}, 1),
    "ucx_sysv": ("ucx", {"btl_ucx_transports": "sysv"}, 1),
}


def become_subreaper():
    """What an mpirun that is ended leaves behind becomes our child."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(root):
    """Process ids below root, deepest last."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as stat:
                    fields = stat.read().rsplit(")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(int(fields[1]), []).append(int(entry))
    found, queue = [], [root]
    while queue:
        for child in children.get(queue.pop(), []):
            found.append(child)
            queue.append(child)
    return found


def stacks(pids):
    """Where the processes are, for the cause of a stall."""
    if not shutil.which("gdb"):
        return "no gdb here to show where the processes are"
    text = ""
    for pid in pids:
        try:
            done = subprocess.run(["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "thread apply all bt 14"],
                                  capture_output=True, text=True, timeout=15, check=False)
        except subprocess.TimeoutExpired:
            text += f"process {pid}: gdb had nothing to say within 15 s\n"
            continue
        frames = [line for line in done.stdout.split("\n") if line.startswith(("#", "Thread"))]
        text += f"process {pid}:\n" + "\n".join(frame[:150] for frame in frames) + "\n"
    return text


class Result:
    """What became of a run."""

    def __init__(self, command, code, output, seconds, late, where):
        self.command = command
        self.code = code
        self.output = output
        self.seconds = seconds
        self.late = late  # it had to be ended at its deadline
        self.where = where  # stacks, when it was late and they were asked for
        self.seen = None  # what was looked at when it was late
        self.faults = sums(output, "btl/fault")
        self.dr = sums(output, "pml/dr")
        self.dgram = sums(output, "btl/dgram")
        self.ucx = sums(output, "btl/ucx")

    @property
    def right(self):
        """Everything was exchanged and every byte was right."""
        return self.code == 0 and not self.late and ", 0 wrong" in self.output

    def tell(self):
        """The run as TAP comments."""
        comment(" ".join(self.command))
        comment(f"exit code {self.code}, {self.seconds:.1f} s"
                + (", ended at the deadline" if self.late else ""))
        lines = self.output.rstrip().split("\n")
        comment("\n".join(line[:500] for line in lines[-60:]))
        if self.where:
            comment(self.where)

    def must(self, condition, complaint):
        """Fails the test, with the run told, unless the condition holds."""
        if not condition:
            self.tell()
        check(condition, complaint)


def sums(output, who):
    """The counters that `who` printed for each rank, added up; {} when it printed none."""
    total = {}
    for line in re.findall(rf"{who}\[rank \d+\]: (.*)$", output, re.MULTILINE):
        for name, value in re.findall(r"(\w+)=(\d+)", line):
            total[name] = total.get(name, 0) + int(value)
    return total


def mca(parameters):
    """Parameters as arguments of mpirun."""
    return [word for name, value in parameters.items() for word in ("--mca", name, str(value))]


def command_for(network, pml, parameters, program, ranks=2):
    """The whole command, with the network's own surroundings."""
    btls, own, _ = NETWORKS[network]
    command = [MPIRUN, "--oversubscribe", "-np", str(ranks)]
    command += mca({"btl": f"fault,{btls},self", "pml": pml, "btl_fault_count": 1,
                    "pml_dr_stats": 1, **own, **parameters})
    command += [str(word) for word in program]
    if network == "tcp2":
        unshare = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-Urn"]
        if subprocess.run(unshare + ["true"], capture_output=True, check=False).returncode != 0:
            raise Skip("network namespaces are not permitted here, and two interfaces need one")
        command = unshare + ["bash", "-c", TWO_INTERFACES, "two-interfaces"] + command
    return command


def wait(process, lines, deadline, look, every):
    """What it printed until its end, and None; or None, and what `look` saw when it was late."""
    end = time.monotonic() + deadline
    while True:
        left = end - time.monotonic()
        try:
            return lines.until_the_end(max(0, min(left, every or left))), None
        except subprocess.TimeoutExpired:
            late = time.monotonic() >= end
            seen = look([pid for pid in descendants(process.pid) if is_rank(pid)]) if look else None
            if late or seen:
                return None, seen


@contextlib.contextmanager
def surroundings():
    """The environment of a run. One that has others beside it has a temporary folder of its own: of two mpiruns that begin
    at the same time in one, the second to make Open MPI's session folder there finds that it exists, and gives up."""
    if threading.current_thread() is threading.main_thread():
        yield dict(os.environ)
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        yield {**os.environ, "TMPDIR": folder}


def run(command, deadline, show_stacks=False, look=None, every=None):
    """Runs it to its end or to the deadline, in seconds. Leaves no process behind.

    At the deadline `look`, if given, is called with the process ids of the ranks; what it returns
    is the result's `seen`. With `every` it is called after so many seconds each, and when it sees
    something the run ends as at its deadline.
    """
    late = False
    start = time.monotonic()
    where = ""
    mark = f"{os.getpid()}.{next(_numbers)}"
    with surroundings() as env, \
            subprocess.Popen(command, **ftlines.PIPES, start_new_session=True,
                             env={**env, "FT_RUN": mark}) as process:
        lines = ftlines.Lines(process)
        output, seen = wait(process, lines, deadline, look, every)
        if output is None:
            late = True
            seconds = time.monotonic() - start
            below = descendants(process.pid)
            left_behind = segments.of(below)
            try:
                where = stacks([pid for pid in below if is_rank(pid)]) if show_stacks else ""
            finally:
                process.terminate()  # mpirun ends its ranks
                try:
                    output = lines.until_the_end(10)
                except subprocess.TimeoutExpired:
                    for pid in [process.pid] + below:
                        end(pid)
                    output = lines.until_the_end(10)
                segments.remove(left_behind)
    if not late:
        seconds = time.monotonic() - start
    sweep(of_run=mark)
    result = Result(command, process.returncode, output, seconds, late, where)
    result.seen = seen
    return result


def has_in_environment(pid, words):
    """Whether the process was started with such words among its variables."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as environment:
            return words.encode() in environment.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False


def is_rank(pid):
    """Whether the process is one of the program's, and not mpirun."""
    return has_in_environment(pid, "OMPI_COMM_WORLD_RANK=")


def end(pid):
    """Ends one process."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def sweep(of_run=None):
    """Ends and collects what a run has left behind, or with None what all have: there may be others under way."""
    give_up = time.monotonic() + 10
    ended = set()  # what has ended has no environment any more
    while time.monotonic() < give_up:
        left = [pid for pid in descendants(os.getpid()) if pid not in KEPT and
                (of_run is None or pid in ended or has_in_environment(pid, f"FT_RUN={of_run}\0"))]
        if not left:
            return
        for pid in left:
            end(pid)
        for pid in left:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass
        ended.update(left)


KEPT = set()
_numbers = itertools.count()


class Load:
    """Spinning processes, twice as many as there are processors."""

    def __init__(self, count=None):
        self.count = 2 * (os.cpu_count() or 1) if count is None else count
        self.processes = []

    def __enter__(self):
        for _ in range(self.count):
            process = subprocess.Popen(  # pylint: disable=consider-using-with
                ["sh", "-c", "while :; do :; done"], start_new_session=True)
            KEPT.add(process.pid)
            self.processes.append(process)
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
            KEPT.discard(process.pid)
