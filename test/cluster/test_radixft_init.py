#!/usr/bin/env python3
"""errmgr/radixft while the first job begins: a rank, a daemon, a host or mpirun is lost in the launch or in MPI_Init.

A rank dies or stands at a point of MPI_Init that cannot be hit from outside
(test/mpi/survivors/dies_at.hpp), which it tells; then the fault is made. As long
as not all ranks are through the barrier of MPI_Init the job must end within
seconds, say why, and leave nothing; behind it, it must run to its end.
"""

import contextlib
import os
import re
import signal
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
from fttap import check, comment, main  # noqa: E402
from test_radixft import DEFAULT, RADIXFT, appended, processes, rank_of  # noqa: E402

DEADLINE = 60
SECONDS = 10  # from the fault to the end
HOSTS = 4
VICTIM = 2  # the rank that dies or stands; it runs on n2, also when it is the second of n1 to n3
POINTS = {"commit": 8, "modex": 9, "in_modex": 10, "barrier": 11, "in_barrier": 12, "wired": 13}  # dies_at.hpp
KILLED, STANDS, WAITS = 0, 2, 3
WHY = "died before all ranks were through MPI_Init"


class Start:
    """mpirun of a program that is to begin, one rank on each of some hosts."""

    def __init__(self, cluster, point, how, hosts=range(HOSTS), mca=tuple(RADIXFT), ranks=HOSTS, victim=None,
                 slots=1, numbered=True, verbose=1):
        self.cluster = cluster
        self.ranks = ranks if len(hosts) == 1 else min(len(hosts) * slots, ranks)
        self.victim = victim if victim is not None else list(hosts).index(VICTIM) if VICTIM in hosts else 0
        with open(os.path.join(cluster.state, "hostfile"), "w", encoding="utf-8") as file:
            file.writelines(f"n{h} slots={ranks if len(hosts) == 1 else slots}\n" for h in hosts)
        self.marks = cluster.marks()
        self.folder = os.path.dirname(self.marks.path)
        program = os.path.join(ftcluster.build_dir(), "test", "mpi", "survivors", "starts")
        check(os.access(program, os.X_OK), f"{program} is missing: run make check, or set FT_BUILD")
        self.run = cluster.mpirun(
            *mca, "--mca", "errmgr_base_verbose", str(verbose), "--mca", "errmgr_radixft_output_dir", self.folder,
            *(["-np", str(self.ranks)] if numbered else []), program, self.marks.path, str(self.victim), str(POINTS.get(point, point)),
            str(how), deadline=DEADLINE, env=ftcluster.component_env())
        self.end = time.monotonic() + DEADLINE
        self.struck = 0.0

    def hears(self, text, why):
        """Waits for a mark."""
        check(self.marks.wait(lambda t: t.startswith(text), self.end, self.run), why)
        self.struck = time.monotonic()

    def kill(self, pattern, host, number=signal.SIGKILL):
        """A signal for the one process of that host whose command matches."""
        found = [pid for where, pid in processes(self.cluster, pattern) if where == host]
        check(len(found) == 1, f"{host} runs {found} of {pattern}")
        os.kill(found[0], number)
        self.struck = time.monotonic()

    def kill_in_the_launch(self, pattern, host):
        """SIGKILL for what has just been started there, until there is none. A daemon that leaves its remote shell forks: it
        may end, and its child begin, behind the back of whoever lists processes, who then sees neither."""
        found, unseen = [], 0
        while unseen < 2:
            check(time.monotonic() < self.end and not self.run.ended(), f"{host} runs none of {pattern}")
            pids = [pid for where, pid in processes(self.cluster, pattern) if where == host]
            found += pids
            unseen = 0 if pids or not found else unseen + 1
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.struck = time.monotonic()

    def release(self):
        """The rank that waits goes on, or dies of it where it is not to go on."""
        found = [pid for _, pid in processes(self.cluster, "^/.*starts") if rank_of(pid) == self.victim]
        check(len(found) == 1, f"there are {found} of the rank")
        os.kill(found[0], signal.SIGUSR1)
        self.struck = time.monotonic()

    def await_stand_in(self):
        """mpirun is dead, and a daemon has taken its place."""
        while "stands in for it" not in appended(self.folder, ".err"):
            check(time.monotonic() < self.end, "nobody stands in for mpirun")

    def nothing_left(self):
        """No process of the job on any host, some seconds after the fault at the latest."""
        left = self.cluster.await_none(r"orted|starts|mpirun -|mpirun\b.*errmgr", self.struck + SECONDS)
        check(not left, f"processes are left: {left}")
        comment(f"all had ended {time.monotonic() - self.struck:.1f} s after the fault")

    def ends(self, rank, why=WHY):
        """The job ends, with the reason."""
        self.run.wait()
        check(self.run.code not in (0, ftcluster.PAST_DEADLINE), f"mpirun's exit code is {self.run.code}")
        self.nothing_left()
        said = " ".join(self.run.err.split())
        check(re.search(rf"rank {rank} on host n\d {why}", said) if rank is not None else why in said,
              "mpirun does not say why")
        check("through" not in "".join(text for _, text in self.marks.events), "a rank came through MPI_Init")

    def goes_on(self, ranks):
        """The job runs to its end."""
        check(self.run.wait() == 0, f"mpirun's exit code is {self.run.code}")
        self.nothing_left()
        check(len(re.findall(r"^done \d", self.run.out, re.M)) == ranks, "a rank did not finish")


@contextlib.contextmanager
def start(cluster, *arguments, **settings):
    """A job that is to begin."""
    it = Start(cluster, *arguments, **settings)
    try:
        yield it
    except AssertionError:
        it.run.stop()
        it.run.tell(60)
        comment(appended(it.folder, ".err"))
        raise
    finally:
        it.run.stop()
        it.marks.close()


def rank_dies():
    """A rank dies at each point of MPI_Init"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        for point in ("commit", "in_modex", "barrier", "in_barrier", "wired"):
            with start(cluster, point, KILLED) as it:
                it.hears("dies", f"at {point} the rank did not get there")
                # Who has come to the barrier may have been the last one: then MPI_Init is over.
                if point == "wired" or (point == "in_barrier" and it.run.wait() == 0):
                    it.goes_on(HOSTS - 1)
                else:
                    it.ends(VICTIM)


def rank_that_never_came():
    """All ranks run under one daemon that is not mpirun's, and one dies before MPI_Init, also after mpirun"""
    with ftcluster.Cluster(hosts=2) as cluster:
        for alone in (False, True):
            with start(cluster, "never", KILLED, hosts=[1], ranks=3) as it:
                it.hears("stands", "the rank did not get there")
                if alone:
                    it.kill("^mpirun", "n0")
                    it.await_stand_in()
                it.release()
                if alone:
                    it.nothing_left()
                    said = appended(it.folder, ".err")
                    check(f"the job was ended: rank 0 on host n1 {WHY}." in said, "the stand-in does not say why")
                else:
                    it.ends(0)


def daemon_dies():
    """A daemon dies while one of its ranks is at a point of MPI_Init, or not there yet"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        for point in ("before", "barrier", "wired"):
            with start(cluster, point, STANDS) as it:
                it.hears("stands", f"at {point} the rank did not get there")
                it.kill("^orted", "n2")
                if point == "wired":
                    it.goes_on(HOSTS - 1)
                else:
                    it.ends(VICTIM)


def daemon_without_ranks_dies():
    """A daemon that has no ranks dies while the job is in MPI_Init: it begins without"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        with start(cluster, "modex", WAITS, ranks=HOSTS - 1) as it:
            it.hears("stands", "the rank did not get there")
            it.kill("^orted", "n3")
            while "installed view" not in it.run.err:
                check(time.monotonic() < it.end and not it.run.ended(), "mpirun installs no view without it")
            it.release()
            it.goes_on(HOSTS - 1)


def host_dies():
    """A host is lost, silently and loudly, while its rank is in MPI_Init"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        for point, silent in (("modex", True), ("barrier", False)):
            with start(cluster, point, STANDS, mca=DEFAULT) as it:
                it.hears("stands", f"at {point} the rank did not get there")
                cluster.ask("kill", host="n2", silent=silent)
                it.ends(VICTIM)
            cluster.tool("boot", "n2")


def mpirun_dies():
    """mpirun dies with a rank of its own while another one is in MPI_Init: the job ends, the stand-in says why"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        for point in ("modex", "wired"):
            with start(cluster, point, WAITS if point == "wired" else STANDS) as it:
                it.hears("stands", f"at {point} the rank did not get there")
                it.kill("^mpirun", "n0")
                if point == "wired":
                    it.release()
                it.nothing_left()
                said = appended(it.folder, ".err")
                if point == "wired":
                    done = re.findall(r"^done \d", it.run.out + appended(it.folder, ".out"), re.M)
                    check(len(done) == HOSTS - 1, f"{done} only")
                    check("radixft: 1 of 4 ranks died, the others ran on" in said, "the last words are missing")
                else:
                    check(f"the job was ended: rank 0 on host n0 {WHY}." in said, "the stand-in does not say why")


def mpirun_alone_dies():
    """mpirun, which has no rank of its own, dies while the ranks are in MPI_Init: they get through, and finish"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        with start(cluster, "modex", WAITS, hosts=range(1, HOSTS)) as it:
            it.hears("stands", "the rank did not get there")
            it.kill("^mpirun", "n0")
            it.await_stand_in()
            it.release()
            it.nothing_left()
            done = re.findall(r"^done \d", appended(it.folder, ".out"), re.M)
            check(len(done) == HOSTS - 1, f"{done} only")


def lost_in_the_launch():
    """A daemon, then mpirun, dies while the launch waits for a host that does not answer: all end"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        cluster.tool("cut", "n3", "m", "--how", "drop")
        for who, host in (("^orted", "n2"), ("^mpirun", "n0")):
            with start(cluster, "modex", STANDS,
                       mca=[*RADIXFT, "--mca", "errmgr_radixft_launch_wait", "3000"]) as it:
                while len({where for where, _ in processes(cluster, "^orted")}) < HOSTS - 1:
                    check(time.monotonic() < it.end and not it.run.ended(), "the daemons were not started")
                it.kill_in_the_launch(who, host)
                if host == "n2":
                    it.ends(None, "errmgr/radixft: the job cannot start, and is ended.")
                else:
                    it.nothing_left()


if __name__ == "__main__":
    main([rank_dies, rank_that_never_came, daemon_dies, daemon_without_ranks_dies, host_dies, mpirun_dies, mpirun_alone_dies],
         ftcluster.SIDE_BY_SIDE, alone=[lost_in_the_launch])
