#!/usr/bin/env python3
"""errmgr/radixft: hosts that are added to a running job, die, come back; and newcomers that fail while they join."""

import contextlib
import os
import re
import select
import signal
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
from fttap import check, main  # noqa: E402
from test_radixft import DEFAULT, RADIXFT, processes  # noqa: E402

DEADLINE = 90
RANKS = 3
SPAWN_FAILED = "50"  # MPI_ERR_SPAWN


class Job:
    """mpirun of the program that spawns, on all hosts but the last."""

    def __init__(self, cluster, *mca, again="n2,n3"):
        mca = mca or RADIXFT
        self.cluster = cluster
        with open(os.path.join(cluster.state, "hostfile"), "w", encoding="utf-8") as hosts:
            hosts.writelines(f"n{h} slots=4\n" for h in range(RANKS))
        self.marks = cluster.marks()
        folder = os.path.dirname(self.marks.path)
        go = os.path.join(folder, "go")
        os.mkfifo(go)
        self.go = os.open(go, os.O_RDWR)
        self.logs = os.path.join(cluster.folder, "logs")
        os.mkdir(self.logs)
        program = os.path.join(ftcluster.build_dir(), "test", "mpi", "survivors", "joins")
        self.run = cluster.mpirun(
            *mca, "--mca", "errmgr_radixft_log_dir", self.logs, "--mca", "errmgr_base_verbose", "1",
            "--mca", "errmgr_radixft_output_dir", folder, "--map-by", "node", "-np", str(RANKS), program,
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
        for _ in range(RANKS):
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
        while processes(self.cluster, r"orted|joins|mpirun -|mpirun\b.*errmgr"):
            check(time.monotonic() < self.end, "processes are left")


@contextlib.contextmanager
def select_on(run):
    """Whether a run has ended, looked at for some milliseconds: a file tells nobody that it grew."""
    poll = select.poll()
    poll.register(run, select.POLLIN)
    yield lambda: bool(poll.poll(5))


@contextlib.contextmanager
def job(*mca, again="n2,n3"):
    """A job whose ranks have begun, on a cluster of its own."""
    with ftcluster.Cluster() as cluster:
        it = Job(cluster, *mca, again=again)
        try:
            it.ready()
            yield it
        except AssertionError:
            it.run.stop()
            it.run.tell(80)
            raise
        finally:
            it.run.stop()
            it.marks.close()
            os.close(it.go)


def add_and_lose(it):
    it.command(b"w")
    it.hears("joined", "the host did not join")
    it.cluster.tool("kill", "n3")
    for _ in range(RANKS):
        it.hears("lost", "a rank did not learn that the added one died")
    it.cluster.tool("boot", "n3")


def add_lose_and_add_again():
    """A host joins the view before its first rank starts; lost, it comes back as who it was"""
    with job() as it:
        add_and_lose(it)
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
PATIENT = [*DEFAULT] + [word for name in ("suspect_floor", "suspect_ceiling", "probe")
           for word in ("--mca", f"errmgr_radixft_{name}", "30000")]


@contextlib.contextmanager
def view_held_up(it):
    """Daemon 1, which passes the proposal on to the newcomer and whose vote every view needs, stands still."""
    voter = it.pid_of("^orted", "n1")
    os.kill(voter, signal.SIGSTOP)
    try:
        it.command(b"a")
        it.says("daemon 3 on n3 is to join")
        yield
    finally:
        os.kill(voter, signal.SIGCONT)


def dies_before_it_asks():
    """A newcomer whose daemon dies at once: the spawn fails, the job runs on, the host can be added later"""
    with job(*PATIENT) as it:
        with view_held_up(it):
            os.kill(it.pid_of("^orted", "n3"), signal.SIGKILL)
        it.hears("refused " + SPAWN_FAILED, "the spawn did not fail")
        it.command(b"a")
        it.hears("joined", "the host cannot be added any more")
        it.finishes()


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


def silent_while_it_joins():
    """A newcomer that falls silent while it joins: the spawn fails in time, the job runs on, it leaves when it is back"""
    with job(*PATIENT, "--mca", "errmgr_radixft_launch_wait", "3000") as it:
        with view_held_up(it):
            it.cluster.tool("cut", "n3", "m", "--how", "drop")
        it.hears("refused " + SPAWN_FAILED, "the spawn did not fail")
        it.cluster.tool("heal", "n3", "m")
        it.finishes()


def dies_before_mpi_init():
    """A new rank, then its whole host, is lost before MPI_Init: MPI_Comm_spawn fails in all who called it, in seconds"""
    with job() as it:
        def held():
            it.command(b"h")
            for _ in range(2):
                it.hears("held", "the new ranks were not started")
            return [pid for host, pid in processes(it.cluster, "^/.*joins hold") if host == "n3"]
        os.kill(held()[0], signal.SIGKILL)
        for _ in range(RANKS):
            it.hears("refused " + SPAWN_FAILED, "the spawn did not fail")
        while processes(it.cluster, "^/.*joins hold"):
            check(time.monotonic() < it.end, "the other new rank is still there")
        check(len(held()) == 2, "there are not two new ranks")
        it.cluster.tool("kill", "n3")
        for _ in range(RANKS):
            it.hears("refused " + SPAWN_FAILED, "the spawn did not fail")
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


def dies_in_mpi_init():
    """A new rank is lost after it has published its addresses: everybody's MPI_Comm_spawn returns, and nothing is left"""
    with job(*RADIXFT, "--mca", "pml", "dr") as it:
        for letter in "ACDEFGHIJ":  # joins.cc; rank 0 alone comes by the first point, so there is no B
            it.command(letter.encode())
            it.hears("dies", f"at {letter} the new rank did not get there")
            for _ in range(RANKS):
                event = it.marks.wait(lambda t: t.startswith(("refused", "went on")), it.end, it.run)
                check(event, f"at {letter} a rank does not return from MPI_Comm_spawn")
            while processes(it.cluster, "^/.*joins die"):
                check(time.monotonic() < it.end, f"at {letter} the other new rank is still there")
        it.finishes()
        check("radixft: the new ranks of MPI_Comm_spawn are lost" in it.run.err, "mpirun does not say why")


def aborts_in_mpi_init():
    """MPI_Abort in the MPI_Init of a new rank concerns its spawn alone: that returns everywhere, the job runs on"""
    with job(*RADIXFT, "--mca", "pml", "dr") as it:
        it.command(b"U")
        it.hears("dies", "the new rank did not get there")
        for _ in range(RANKS):
            event = it.marks.wait(lambda t: t.startswith(("refused", "went on")), it.end, it.run)
            check(event, "a rank does not return from MPI_Comm_spawn")
        while processes(it.cluster, "^/.*joins die"):
            check(time.monotonic() < it.end, "the other new rank is still there")
        it.finishes()
        check(re.search(r"rank 1 of\s+them, on host n3, died[^(]*\(exit code 1\)", it.run.err), "mpirun does not say why")


def host_dies_in_mpi_init():
    """The new ranks' host is lost behind the modex: everybody's MPI_Comm_spawn returns, and the host comes back"""
    with job(*RADIXFT, "--mca", "pml", "dr") as it:
        for letter in "KMNOPQRST":  # joins.cc; rank 0 alone comes by the first point, so there is no L
            it.command(letter.encode())
            it.hears("stands", f"at {letter} the new rank did not get there")
            check(len(processes(it.cluster, "^/.*joins die")) == 2, f"at {letter} there are not two new ranks")
            it.cluster.tool("kill", "n3")
            for _ in range(RANKS):
                event = it.marks.wait(lambda t: t.startswith(("refused", "went on")), it.end, it.run)
                check(event, f"at {letter} a rank does not return from MPI_Comm_spawn")
            it.cluster.tool("boot", "n3")
        it.command(b"l")
        it.hears("joined", "the host cannot be added any more")
        it.finishes()


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


if __name__ == "__main__":
    main([add_lose_and_add_again, dies_before_it_asks, dies_while_the_view_changes, silent_while_it_joins,
          dies_before_mpi_init, dies_in_mpi_init, aborts_in_mpi_init, host_dies_in_mpi_init, evicted_comes_back,
          first_host_comes_back, two_come_back, joins_during_recovery])
