#!/usr/bin/env python3
"""errmgr/radixft: hosts that are added to a running job, die, come back; and newcomers that fail while they join."""

import contextlib
import os
import re
import select
import signal
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
from fttap import check, comment, main  # noqa: E402
from test_radixft import DEFAULT, RADIXFT, processes  # noqa: E402

DEADLINE = 90
RANKS = 3
ONE_HOST_WAIT = 5  # seconds
SPAWN_FAILED = "50"  # MPI_ERR_SPAWN
EVERYTHING = r"orted|joins|mpirun -|mpirun\b.*errmgr"  # of a job


class Job:
    """mpirun of the program that spawns, on all hosts but the last."""

    def __init__(self, cluster, *mca, again="n2,n3", slots=4, ranks=RANKS):
        mca = mca or RADIXFT
        self.cluster = cluster
        self.ranks = ranks
        with open(os.path.join(cluster.state, "hostfile"), "w", encoding="utf-8") as hosts:
            hosts.writelines(f"n{h} slots={slots}\n" for h in range(ranks))
        self.marks = cluster.marks()
        folder = os.path.dirname(self.marks.path)
        go = os.path.join(folder, "go")
        os.mkfifo(go)
        self.go = os.open(go, os.O_RDWR)
        self.logs = os.path.join(cluster.folder, "logs")
        os.makedirs(self.logs, exist_ok=True)
        program = os.path.join(ftcluster.build_dir(), "test", "mpi", "survivors", "joins")
        self.run = cluster.mpirun(
            *mca, "--mca", "errmgr_radixft_log_dir", self.logs, "--mca", "errmgr_base_verbose", "1",
            "--mca", "errmgr_radixft_output_dir", folder, "--map-by", "node", "-np", str(ranks), program,
            "n3", self.marks.path, go, again, deadline=DEADLINE, env=ftcluster.component_env())
        self.end = time.monotonic() + DEADLINE

    def command(self, letter):
        """For rank 0; see joins.cc."""
        os.write(self.go, letter)

    def hears(self, text, why):
        """Waits for a mark of the ranks."""
        event = self.marks.wait(lambda t: t.startswith(text) or t.startswith("refused"), self.end, self.run)
        check(event and event[1].startswith(text), f"{why}: {event}")
        return event[1]

    def ready(self):
        """All ranks have begun."""
        for _ in range(self.ranks):
            self.hears("ready", "a rank did not begin")

    def says(self, text):
        """Waits until mpirun's story says it."""
        with select_on(self.run) as ended:
            while text not in self.run.err:
                check(time.monotonic() < self.end and not ended(), f"mpirun does not say: {text}")

    def pid_of(self, pattern, host):
        """The one process on a host whose command matches."""
        found = [pid for where, pid in processes(self.cluster, pattern) if where == host]
        check(len(found) == 1, f"{host} runs {found} of {pattern}")
        return found[0]

    def finishes(self, ranks=RANKS):
        """The old job ends by itself and well, and nothing is left."""
        self.command(b"q")
        check(self.run.wait() == 0, f"mpirun's exit code is {self.run.code}")
        check(len(re.findall(r"^done \d", self.run.out, re.M)) == ranks, "a rank did not finish")
        check(not self.cluster.await_none(EVERYTHING, self.end), "processes are left")


@contextlib.contextmanager
def select_on(run):
    """Whether a run has ended, looked at for some milliseconds: a file tells nobody that it grew."""
    poll = select.poll()
    poll.register(run, select.POLLIN)
    yield lambda: bool(poll.poll(5))


@contextlib.contextmanager
def job(*mca, **how):
    """A job whose ranks have begun, on a cluster of its own."""
    with ftcluster.Cluster() as cluster, job_on(cluster, *mca, **how) as it:
        yield it


@contextlib.contextmanager
def job_on(cluster, *mca, **how):
    """The same on this cluster."""
    it = Job(cluster, *mca, **how)
    try:
        it.ready()
        yield it
    except AssertionError:
        it.run.stop()
        it.run.tell(80)
        tell_logs(it.logs)
        raise
    finally:
        it.run.stop()
        it.marks.close()
        os.close(it.go)


ONE_LAUNCH = threading.Lock()  # of jobs with a short errmgr_radixft_launch_wait, beside each other
_waits = []


def launch_wait():
    """For errmgr_radixft_launch_wait, in ms: short, and several times what a launch takes while the machine is as busy as it is.
    The caller holds ONE_LAUNCH, and does so until its own job has begun."""
    if not _waits:
        with ftcluster.Cluster() as cluster:
            began = time.monotonic()
            with job_on(cluster, *PATIENT) as it:
                took = time.monotonic() - began
                it.finishes()
        _waits.append(min(max(3000, int(4000 * took)), 20000))
        comment(f"a launch took {took:.1f} s: errmgr_radixft_launch_wait is {_waits[0]}")
    return _waits[0]


def tell_logs(folder):
    """What each daemon's engine heard and said last."""
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="ascii", errors="replace") as text:
            lines = text.read().splitlines()[-200:]
        comment("\n".join([f"the end of {name}:", *(line[:110] for line in lines)]))


def add_and_lose(it):
    it.command(b"w")
    it.hears("joined", "the host did not join")
    lose(it)


def lose(it):
    it.cluster.tool("kill", "n3")
    for _ in range(RANKS):
        it.hears("lost", "a rank did not learn that the added one died")
    it.cluster.tool("boot", "n3")


def opened_its_own(cluster):
    """The newcomer's daemon has opened its connections to the members' itself: where both may, the runtime's loop can spin on
    a closed socket."""
    def sockets(host, *which):
        rows = cluster.tool("run", host, "--", "ss", "-Htnp", *which).splitlines()
        return [[address.rpartition(":") for address in row.split()[3:5]] for row in rows if '"orted"' in row]
    addresses = {local[0] for local, _ in sockets("n3")}
    for host in ("n1", "n2"):
        listens_at = {local[2] for local, _ in sockets(host, "-l")}
        ports = [local[2] for local, remote in sockets(host) if remote[0] in addresses]
        check(ports and listens_at >= set(ports), f"{host} has connections from {ports} to n3, and listens at {listens_at}")


def add_lose_and_add_again():
    """A host joins the view before its first rank starts, by connections of its own; lost, it comes back as who it was"""
    with job() as it:
        it.command(b"w")
        it.hears("joined", "the host did not join")
        opened_its_own(it.cluster)
        lose(it)
        it.command(b"l")
        it.hears("joined", "the host did not come back")
        it.finishes()
        judge(it.run.err)
        replay = os.path.join(ftcluster.build_dir(), "test", "unit", "radixft", "replay")
        again = ftcluster.command([replay, *(os.path.join(it.logs, name) for name in os.listdir(it.logs))])
        check(again.code == 0 and len(os.listdir(it.logs)) == RANKS + 1,
              f"a log did not give itself again: {again.out}")


def judge(story):
    """Both times the daemon was a member, with the same id, before a rank ran there."""
    said = [what + of for what, of in re.findall(
        r"\[daemon 0\] [\d.]+ (?:(daemon \d+ on n3 is (?:to join|a member now))|installed view \d+: (\d+) daemons)",
        story)]
    comes = ["daemon 3 on n3 is to join", "4", "daemon 3 on n3 is a member now"]
    check(said == [*comes, "3", *comes], f"mpirun tells {said}")


# Nobody is doubted because a daemon is held for a while.
def patient(*names):
    return [*DEFAULT] + [word for name in names for word in ("--mca", f"errmgr_radixft_{name}", "30000")]


PATIENT = patient("suspect_floor", "suspect_ceiling", "probe")


@contextlib.contextmanager
def view_held_up(it, command=b"a"):
    """Daemon 1, which passes the proposal on to the newcomer and whose vote every view needs, stands still."""
    voter = it.pid_of("^orted", "n1")
    os.kill(voter, signal.SIGSTOP)
    try:
        it.command(command)
        it.says("daemon 3 on n3 is to join")
        yield
    finally:
        os.kill(voter, signal.SIGCONT)


def dies_before_it_asks():
    """A newcomer whose daemon dies at once: the spawn fails in all who called it, the host can be added later"""
    with job(*PATIENT) as it:
        with view_held_up(it, b"l"):
            os.kill(it.pid_of("^orted", "n3"), signal.SIGKILL)
        all_refused(it)
        it.command(b"a")
        it.hears("joined", "the host cannot be added any more")
        it.finishes()


def all_refused(it):
    for _ in range(RANKS):
        it.hears("refused " + SPAWN_FAILED, "the spawn did not fail")


def dies_while_the_view_changes():
    """A newcomer that dies after it has asked and before the view with it: the spawn fails, the job runs on"""
    with job(*PATIENT) as it:
        with view_held_up(it):
            log = next(os.path.join(it.logs, name) for name in os.listdir(it.logs) if name.endswith("-0.log"))
            with select_on(it.run) as ended:
                while not proposes_newcomer(log):
                    check(time.monotonic() < it.end and not ended(), "mpirun proposes no view with the newcomer")
            os.kill(it.pid_of("^orted", "n3"), signal.SIGKILL)
        it.hears("refused " + SPAWN_FAILED, "the spawn did not fail")
        it.finishes()
        check("is a member now" not in it.run.err, "the dead newcomer became a member")


def proposes_newcomer(log):
    """Whether the engine's log has a proposal (NEW_NODE_JOIN: 13, ALIVE_NODE_JOIN: 14) of mpirun's."""
    with open(log, encoding="ascii") as text:
        return re.search(r"^> message 010[de]", text.read(), re.M)


# The tests' own setting is the other one.
BY_SLOTS = ["--mca", "rmaps_base_oversubscribe", "0"]


def too_few_slots(slots, complaint, then):
    """All spawn two ranks on a host with so many slots, twice, in vain; then what does find room is spawned."""
    with job(*RADIXFT, *BY_SLOTS, again="n2", slots=slots) as it:
        for _ in range(2):
            it.command(b"x")
            all_refused(it)
        it.says(complaint)
        it.command(then)
        it.hears("joined", "what finds room cannot be spawned any more")
        it.finishes()


def no_slots():
    """A spawn for which there are no slots fails in all who called it, and one where there are some does not"""
    too_few_slots(1, "All nodes which are allocated for this job are already filled", b"a")


def slots_for_some():
    """A spawn for whose ranks there are too few slots fails in all who called it, and takes none of them"""
    too_few_slots(2, "There are not enough slots available", b"y")


def spawned_before_the_last_has_ended():
    """Called again while ranks of a failed spawn are still there, MPI_Comm_spawn waits for their slots"""
    with job(*PATIENT, "--mca", "pml", "dr") as it:
        it.command(b"V")
        # Before, they still ask the new ranks' daemon for addresses.
        for _ in range(RANKS + 1):
            check(it.marks.wait(lambda t: t in ("stands", "there"), it.end, it.run), "a rank did not get there")
        daemon = it.pid_of("^orted", "n3")
        os.kill(daemon, signal.SIGSTOP)
        try:
            os.kill(it.pid_of("^/.*joins n3", "n2"), signal.SIGKILL)
            for _ in range(RANKS - 1):
                check(it.marks.wait(lambda t: t.startswith(("refused", "went on")), it.end, it.run),
                      "a rank does not return from MPI_Comm_spawn")
            it.command(b"a")
            it.says("a spawn waits until the ranks of a failed one have ended")
            check(len([host for host, _ in processes(it.cluster, "^/.*joins die") if host == "n3"]) == 2,
                  "the ranks of the failed spawn are gone already")
        finally:
            os.kill(daemon, signal.SIGCONT)
        it.hears("joined", "the spawn failed")
        it.finishes(RANKS - 1)


def dies_before_mpi_init():
    """A new rank, then its whole host, is lost before MPI_Init: MPI_Comm_spawn fails in all who called it, in seconds"""
    with job() as it:
        def held():
            it.command(b"h")
            for _ in range(2):
                it.hears("held", "the new ranks were not started")
            return [pid for host, pid in processes(it.cluster, "^/.*joins hold") if host == "n3"]
        os.kill(held()[0], signal.SIGKILL)
        all_refused(it)
        check(not it.cluster.await_none("^/.*joins hold", it.end), "the other new rank is still there")
        check(len(held()) == 2, "there are not two new ranks")
        it.cluster.tool("kill", "n3")
        all_refused(it)
        it.cluster.tool("boot", "n3")
        it.command(b"l")
        it.hears("joined", "the host cannot be added any more")
        it.finishes()
        check(re.search(r"MPI_Comm_spawn fails, because rank [01] of the new ones, on host\sn3", it.run.err),
              "mpirun does not tell why")


def evicted_comes_back():
    """A daemon that stands still is evicted; when it runs again it is told, ends its rank, and its host can join again"""
    with job(*DEFAULT, "--mca", "errmgr_radixft_suspect_floor", "1500", "--mca", "errmgr_radixft_probe", "1000") as it:
        it.command(b"w")
        it.hears("joined", "the host did not join")
        daemon = it.pid_of("^orted", "n3")
        os.kill(daemon, signal.SIGSTOP)
        for _ in range(RANKS):
            it.hears("lost", "a rank did not learn that the added one is out")
        check(len(ranks := [host for host, _ in processes(it.cluster, "^/.*joins") if host == "n3"]) == 1,
              f"a daemon that stands still has {len(ranks)} ranks")
        os.kill(daemon, signal.SIGCONT)
        while [host for host, _ in processes(it.cluster, "^orted|^/.*joins") if host == "n3"]:
            check(time.monotonic() < it.end, "the evicted daemon or its rank is still there")
        it.command(b"l")
        it.hears("joined", "the host did not come back")
        it.finishes()
        judge(it.run.err)
        check("believes daemon 3 dead (it is silent)" in it.run.err, "the daemon was not evicted for its silence")
        check(re.search(r"host n3 was taken for dead by the others", it.run.err), "the evicted one was not told")


def replaced_on_its_host():
    """A rank that was alone on its host dies, its daemon lives: another one is spawned there, twice; who ended well did not die"""
    with job(again="n2") as it:
        os.kill(it.pid_of("^/.*joins n3", "n2"), signal.SIGKILL)
        it.says("every daemon knows")
        for _ in range(2):
            it.command(b"b")
            it.hears("joined", "nothing can be spawned on its host")
            check(not it.cluster.await_none("^/.*joins leave", it.end), "what was spawned does not end")
        os.kill(it.pid_of("^orted", "n2"), signal.SIGKILL)
        it.says("installed view 1: 2 daemons")
        it.finishes(RANKS - 1)
        # Of the second one mpirun may not have been told yet.
        check("of child job 2" not in it.run.err, "a rank that ended well is said to have died with its daemon")


def first_host_comes_back():
    """A host of the job itself, lost with its rank, comes back with a spawn as who it was, twice"""
    with job(again="n2") as it:
        it.command(b"k")
        it.cluster.tool("kill", "n2")
        it.hears("knows", "rank 0 did not learn that rank 2 died")
        it.cluster.tool("boot", "n2")
        it.command(b"b")
        it.hears("joined", "the host did not come back")
        os.kill(it.pid_of("^orted", "n2"), signal.SIGKILL)
        it.says("installed view 3: 2 daemons")
        it.command(b"b")
        it.hears("joined", "the host did not come back again")
        it.finishes(RANKS - 1)
        check(it.run.err.count("daemon 2 on n2 is a member now") == 2, "the host was not who it was")
        check(re.search(r"^  rank 2 on n2", it.run.err, re.M), "mpirun's last words do not tell of rank 2")


def from_one_host():
    """A job of one host spawns on another one when it has run for longer than a launch may take"""
    with job(*RADIXFT, "--mca", "errmgr_radixft_launch_wait", str(ONE_HOST_WAIT * 1000), ranks=1) as it:
        with select_on(it.run) as ended:
            while time.monotonic() < it.end - DEADLINE + ONE_HOST_WAIT + 1:
                check(not ended(), "the job of one host has ended")
        it.command(b"a")
        it.hears("joined", "the host did not join")
        it.finishes(1)


def newcomer_stands_in():
    """mpirun dies when the lowest daemon that is left is one that joined later: the ranks get through MPI_Finalize"""
    with job(*RADIXFT, "--mca", "pml", "dr", again="n1") as it:
        it.command(b"c")
        it.cluster.tool("kill", "n1")
        it.hears("knows", "rank 0 did not learn that rank 1 died")
        it.cluster.tool("boot", "n1")
        it.command(b"b")
        it.hears("joined", "the host did not come back")
        os.kill(it.pid_of("^mpirun", "n0"), signal.SIGKILL)
        left = it.cluster.await_none(EVERYTHING, it.end)
        check(not left, f"processes are left: {left}")


def two_come_back():
    """Two lost hosts, one of which the job began with, come back with one spawn, each under its old id"""
    with job() as it:
        add_and_lose(it)
        it.command(b"k")
        os.kill(it.pid_of("^orted", "n2"), signal.SIGKILL)
        it.hears("knows", "rank 0 did not learn that rank 2 died")
        it.command(b"b")
        it.hears("joined", "the hosts did not come back")
        it.finishes(RANKS - 1)
        for who in ("daemon 2 on n2", "daemon 3 on n3"):
            check(it.run.err.count(f"{who} is a member now") == (1 if "2" in who else 2), f"{who} did not come back")


def returned(it, point, count, *until):
    """What so many callers of MPI_Comm_spawn say when it returns."""
    heard = [it.marks.wait(lambda t: t.startswith(("refused", "went on")), *until) for _ in range(count)]
    check(all(heard), f"{point}: a rank does not return from MPI_Comm_spawn")
    return [event[1] for event in heard]


def dies_in_mpi_init(letters):
    """Points in joins.cc; rank 0 alone comes by the first one, so there is no B."""
    def test():
        with job(*RADIXFT, "--mca", "pml", "dr") as it:
            for letter in letters:
                it.command(letter.encode())
                it.hears("dies", f"at {letter} the new rank did not get there")
                returned(it, f"at {letter}", RANKS, it.end, it.run)
                check(not it.cluster.await_none("^/.*joins die", it.end), f"at {letter} the other new rank is still there")
            it.finishes()
            check("radixft: the new ranks of MPI_Comm_spawn are lost" in it.run.err, "mpirun does not say why")

    test.__doc__ = f"A new rank is lost after it has published its addresses: everybody's MPI_Comm_spawn returns, and nothing is left ({letters})"
    return test


def aborts_in_mpi_init():
    """MPI_Abort in the MPI_Init of a new rank concerns its spawn alone: that returns everywhere, the job runs on"""
    with job(*RADIXFT, "--mca", "pml", "dr") as it:
        it.command(b"U")
        it.hears("dies", "the new rank did not get there")
        returned(it, "in MPI_Init", RANKS, it.end, it.run)
        check(not it.cluster.await_none("^/.*joins die", it.end), "the other new rank is still there")
        it.finishes()
        check(re.search(r"rank 1 of\s+them, on host n3, died[^(]*\(exit code 1\)", it.run.err), "mpirun does not say why")


def host_dies_in_mpi_init(letters):
    """Points in joins.cc; rank 0 alone comes by the first one, so there is no L."""
    def test():
        with job(*RADIXFT, "--mca", "pml", "dr") as it:
            for letter in letters:
                it.command(letter.encode())
                it.hears("stands", f"at {letter} the new rank did not get there")
                check(len(processes(it.cluster, "^/.*joins die")) == 2, f"at {letter} there are not two new ranks")
                it.cluster.tool("kill", "n3")
                returned(it, f"at {letter}", RANKS, it.end, it.run)
                it.cluster.tool("boot", "n3")
            it.command(b"l")
            it.hears("joined", "the host cannot be added any more")
            it.finishes()

    test.__doc__ = f"The new ranks' host is lost behind the modex: everybody's MPI_Comm_spawn returns, and the host comes back ({letters})"
    return test


def joins_during_recovery():
    """A host is added while the view changes because a daemon died: both happen, all know"""
    with job() as it:
        daemon = it.pid_of("^orted", "n2")
        it.command(b"a")
        it.says("daemon 3 on n3 is to join")
        os.kill(daemon, signal.SIGKILL)
        it.hears("joined", "the host did not join")
        it.finishes(RANKS - 1)
        check(re.search(r"^  rank 2 on n2", it.run.err, re.M), "mpirun's last words do not tell of rank 2")


def without_mpirun():
    """mpirun dies while a rank waits in MPI_Comm_accept: it meets one that connects later, names go on, spawns fail"""
    without_mpirun_from(b"m")


def without_mpirun_before_it_asks():
    """mpirun dies between the two steps of MPI_Comm_accept, telling who accepts and asking who connects: both meet"""
    without_mpirun_from(b"n")


def without_mpirun_from(command):
    with job(*RADIXFT, "--mca", "pml", "dr") as it:
        it.command(command)
        it.hears("accepts", "rank 1 does not accept")
        os.kill(it.pid_of("^mpirun", "n0"), signal.SIGKILL)
        heard = [it.marks.wait(lambda t: t.startswith(("met", "refused")), it.end) for _ in range(6)]
        check(all(heard), f"after mpirun's death the ranks say only {[event[1] for event in heard if event]}")
        said = sorted(event[1] for event in heard)
        check(said[:4] == ["met"] * 4, f"the ranks say {said}")
        check(all(re.fullmatch(r"refused [1-9]\d*", text) for text in said[4:]), f"the ranks say {said}")
        check(not it.cluster.await_none(EVERYTHING, it.end), "processes are left")


# dies_at.hpp: what rank 0 of the new ones comes by, and its number in the command; and rank 1, which waits for rank 0.
STOPS = {"before MPI_Init": 0xC0, "in the modex": 0xCA, "as it connects": 0xD2, "before the context id": 0xC4,
         "before the last word": 0xC5}
SECONDS = 15


def without_mpirun_in_spawn(point, number):
    """mpirun dies while spawned ranks are in MPI_Init."""
    def test():
        with job(*RADIXFT, "--mca", "pml", "dr") as it:
            it.command(bytes([number]))
            it.hears("stands" if number & 15 else "held", f"{point}: the new rank did not get there")
            os.kill(it.pid_of("^mpirun", "n0"), signal.SIGKILL)
            ended = returns_and_ends(it, point, 2)
            comment(f"{point}: {', '.join(ended)}")

    test.__doc__ = (f"mpirun dies while a spawned rank stands {point}: the new ones end within seconds, their spawners get "
                    "an error or lost ranks")
    return test


def without_mpirun_while_a_host_joins(has_asked):
    """mpirun dies while a host is added; a daemon's vote is held up, so that the newcomer does not become a member."""
    def test():
        # On a busy machine the knock at the dead mpirun's port may not be answered in time: then it is probed.
        with job(*patient("suspect_floor", "suspect_ceiling"), "--mca", "pml", "dr") as it:
            voter = it.pid_of("^orted", "n2")
            os.kill(voter, signal.SIGSTOP)
            try:
                it.command(b"\xc0")
                it.says("daemon 3 on n3 is to join")
                with select_on(it.run) as ended:
                    while has_asked and not asks_to_join(it.logs):
                        check(time.monotonic() < it.end and not ended(), "the newcomer does not ask to join")
                os.kill(it.pid_of("^mpirun", "n0"), signal.SIGKILL)
            finally:
                os.kill(voter, signal.SIGCONT)
            ended = returns_and_ends(it, "as n3 joins", 2)
            check(ended == ["refused " + SPAWN_FAILED] * 2, f"the spawn ended like this: {ended}")

    test.__doc__ = (f"mpirun dies while a host {'asks to join' if has_asked else 'is added'} for a spawn: it fails in all who "
                    "called it, the newcomer leaves, the job goes on")
    return test


def asks_to_join(logs):
    """Whether a newcomer's engine has begun, by its log."""
    for name in os.listdir(logs):
        with open(os.path.join(logs, name), encoding="ascii") as text:
            if re.search(r"^\d+ join ", text.read(), re.M):
                return True
    return False


def returns_and_ends(it, point, count):
    """Every caller's MPI_Comm_spawn returns, and everything is gone in seconds; what the callers say."""
    end = time.monotonic() + SECONDS
    said = returned(it, point, count, end)
    left = it.cluster.await_none(EVERYTHING, end)
    check(not left, f"{point}: processes are left: {left}")
    return said


# The longest ones first: the others fit in beside them.
TESTS = [host_dies_in_mpi_init("KMNOP"), host_dies_in_mpi_init("QRST"), dies_in_mpi_init("ACDEF"), dies_in_mpi_init("GHIJ"),
         add_lose_and_add_again, dies_before_it_asks, dies_while_the_view_changes,
         no_slots, slots_for_some, spawned_before_the_last_has_ended,
         dies_before_mpi_init, aborts_in_mpi_init, evicted_comes_back,
         replaced_on_its_host, first_host_comes_back, newcomer_stands_in, from_one_host, two_come_back,
         joins_during_recovery, without_mpirun, without_mpirun_before_it_asks]
ORPHANS = [without_mpirun_in_spawn(*stop) for stop in STOPS.items()] + [without_mpirun_while_a_host_joins(has_asked)
                                                                      for has_asked in (False, True)]

if __name__ == "__main__":
    if sys.argv[1:]:
        main({"orphans": ORPHANS}[sys.argv[1]], ftcluster.SIDE_BY_SIDE)
    main(TESTS, ftcluster.SIDE_BY_SIDE)
