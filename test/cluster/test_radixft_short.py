#!/usr/bin/env python3
"""errmgr_radixft_start_without: jobs that begin without hosts or ranks that are lost in the launch or in MPI_Init.

A host is down, cut off without a word, or loses its daemon while others are
waited for. With the parameter the job must be mapped to the hosts that are
left, with as many ranks as find room there, and say at its start and its end
who was missing; without it, or when more is missing than it allows, it must end
with a message. Ranks that die in MPI_Init are dead from the start: MPI_COMM_WORLD
keeps its size, and the others get through and finish.
"""

import contextlib
import ctypes
import os
import re
import signal
import socket
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
from fttap import check, main  # noqa: E402
from test_radixft import RADIXFT, appended, processes  # noqa: E402
from test_radixft_init import HOSTS, KILLED, STANDS, VICTIM, WAITS, start  # noqa: E402
from test_radixft_join import job_on, launch_wait  # noqa: E402

ANYWHERE = 0  # a point of MPI_Init by which no rank comes
CANNOT_START = "errmgr/radixft: the job cannot start, and is ended."


def settings(allowed, *more, wait=20000, crowd=0):
    """The options of mpirun; with crowd 1 hosts may have more ranks than slots."""
    return [*RADIXFT, "--mca", "rmaps_base_oversubscribe", str(crowd), "--mca", "errmgr_radixft_start_without", str(allowed),
            "--mca", "errmgr_radixft_failed_exit_code", "3", "--mca", "errmgr_radixft_launch_wait", str(wait), *more]


def begins(it, ranks, asked=HOSTS, missing=("n2",), code=3):
    """The job ran to its end with so many ranks, and said without whom."""
    check(it.run.wait() == code, f"mpirun's exit code is {it.run.code}, not {code}")
    it.struck = time.monotonic()
    it.nothing_left()
    done = re.findall(r"^done (\d) of (\d)", it.run.out, re.M)
    check(sorted(done) == [(str(rank), str(ranks)) for rank in range(ranks)], f"the ranks are {done}")
    said = " ".join(it.run.err.split())
    check(f"It has {ranks} of the {asked} ranks that it was to have." in said, "mpirun does not say so at the start")
    check(f"the job began without {len(missing)} of its {HOSTS} daemons, with {ranks} of {asked} ranks" in said,
          "the last words do not say so")
    for host in missing:
        check(len(re.findall(rf"daemon (?:\d )?on {host}:? (?:could not|has not|ended)", said)) == 2,
              f"{host} is not named twice")


def ends(it, why):
    """The job ended with this message, and no rank began."""
    it.run.wait()
    it.struck = time.monotonic()
    check(it.run.code not in (0, 3, ftcluster.PAST_DEADLINE), f"mpirun's exit code is {it.run.code}")
    it.nothing_left()
    said = " ".join(it.run.err.split())
    check(CANNOT_START in said and why in said, "mpirun does not say why")
    check(not it.run.out, "a rank ran")


def host_is_down():
    """A host is down: the others get all ranks if they have slots, or fewer; without the parameter the job ends"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        cluster.ask("kill", host="n2", silent=False)
        with start(cluster, ANYWHERE, WAITS, mca=settings(1)) as it:
            begins(it, HOSTS - 1)
        with start(cluster, ANYWHERE, WAITS, mca=settings(1, crowd=1)) as it:
            begins(it, HOSTS, code=0)
        with start(cluster, ANYWHERE, WAITS, mca=settings(1), ranks=2) as it:
            begins(it, 2, asked=2, code=0)
        with start(cluster, ANYWHERE, WAITS, mca=settings(1, "--npernode", "1")) as it:
            begins(it, HOSTS - 1)
        with start(cluster, ANYWHERE, WAITS, mca=settings(0)) as it:
            ends(it, "the daemon on n2 could not be started")


def host_of_a_pattern_is_down():
    """A host is down: of --map-by ppr the ranks count that the pattern gives to hosts, not their slots"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        cluster.ask("kill", host="n2", silent=False)
        for pattern in ("1:socket", "1:SKT", "1:n"):
            with start(cluster, ANYWHERE, WAITS, mca=settings(1, "--map-by", f"ppr:{pattern}"), slots=2) as it:
                begins(it, HOSTS - 1)
        with start(cluster, ANYWHERE, WAITS, mca=settings(1, "--map-by", "ppr:1:socket"), slots=2, numbered=False) as it:
            begins(it, HOSTS - 1)


def more_is_down():
    """More ranks would be missing than may be: the job ends; and a job of mpirun's host alone, and of nobody"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        for host in ("n1", "n2", "n3"):
            cluster.ask("kill", host=host, silent=False)
        with start(cluster, ANYWHERE, WAITS, mca=settings(2)) as it:
            ends(it, "3 of its 4 ranks would be missing, and errmgr_radixft_start_without allows 2")
        with start(cluster, ANYWHERE, WAITS, mca=settings(3)) as it:
            begins(it, 1, missing=("n1", "n2", "n3"))
        with start(cluster, ANYWHERE, WAITS, mca=settings(9), hosts=[1, 2, 3]) as it:
            ends(it, "no host is left on which it could run")


def host_is_silent():
    """A host that does not answer is given up after launch_wait; one that then calls too late is told to leave"""
    wait = launch_wait()  # nobody launches beside this
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        cluster.tool("cut", "n3", "m", "--how", "drop")
        with start(cluster, ANYWHERE, WAITS, mca=settings(0, wait=wait)) as it:
            ends(it, f"no sign of readiness within {wait} ms")
        with start(cluster, "modex", WAITS, mca=settings(1, wait=wait)) as it:
            it.hears("stands", "the rank did not get there")
            cluster.ask("heal", host="n3", rail="m")
            while left := [found for found in processes(cluster, "^orted") if found[0] == "n3"]:
                check(time.monotonic() < it.end and not it.run.ended(), f"it stays: {left}")
            it.release()
            begins(it, HOSTS - 1, missing=("n3",))


def daemon_dies_early():
    """A daemon dies as soon as it is there, while another host is waited for: the job begins without both"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        cluster.tool("cut", "n3", "m", "--how", "drop")
        with start(cluster, ANYWHERE, WAITS, mca=settings(2, wait=6000)) as it:
            while len({where for where, _ in processes(cluster, "^orted")}) < HOSTS - 1:
                check(time.monotonic() < it.end and not it.run.ended(), "the daemons were not started")
            it.kill_in_the_launch("^orted", "n2")
            begins(it, HOSTS - 2, missing=("n2", "n3"))


class Ports(contextlib.ExitStack):
    """Those at which a process listens, held by this one too: they take connections when that one is dead."""

    def __init__(self, pid):
        super().__init__()
        libc = ctypes.CDLL(None, use_errno=True)
        self.sockets = []
        pidfd = os.pidfd_open(pid)
        self.callback(os.close, pidfd)
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                if os.readlink(f"/proc/{pid}/fd/{number}").startswith("socket:"):
                    fd = libc.pidfd_getfd(pidfd, int(number), 0)
                    check(fd >= 0, f"pidfd_getfd: {os.strerror(ctypes.get_errno())}")
                    with socket.socket(fileno=fd) as one:
                        if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                            self.sockets.append(self.enter_context(one.dup()))

    def knocked(self, deadline):
        """Whether somebody connects, before the deadline."""
        return bool(ftcluster.wait_readable(self.sockets, deadline))


def daemon_dies_by_degrees():
    """The port of a daemon that has called outlasts its connections: nothing is mapped before it is known to be dead"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        for closes in (True, False):
            cluster.tool("cut", "n3", "m", "--how", "drop")
            with start(cluster, ANYWHERE, WAITS, mca=settings(1, wait=20000 if closes else 5000), verbose=2) as it:
                says(it, "daemon 2 has called")
                victim = next(pid for host, pid in processes(cluster, "^orted") if host == "n2")
                with Ports(victim) as ports:
                    os.kill(victim, signal.SIGKILL)
                    check(ports.knocked(it.end), "mpirun does not knock")
                    cluster.ask("heal", host="n3", rail="m")
                    says(it, "daemon 3 has called")
                    if not closes:
                        says(it, "goes on without daemon 2")
                begins(it, HOSTS - 1)
                check(("ended before the job" if closes else "has not come back within 5000 ms") in it.run.err, "it says another reason")


def says(it, text):
    """Waits until mpirun has said it."""
    while text not in it.run.err:
        check(time.monotonic() < it.end and not it.run.ended(), f"mpirun does not say: {text}")


def goes_on_failing():
    """A job that began without a host outlives a rank, a daemon and mpirun"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        cluster.ask("kill", host="n1", silent=False)
        with start(cluster, "wired", KILLED, mca=settings(1)) as it:
            it.hears("dies", "the rank did not get there")
            check(it.run.wait() == 3, f"mpirun's exit code is {it.run.code}")
            it.nothing_left()
            check(sorted(re.findall(r"^done (\d of 3)", it.run.out, re.M)) == ["0 of 3", "1 of 3"], "a rank is missing")
            check("radixft: 1 of 3 ranks died, the others ran on" in it.run.err, "the last words are missing")
        for host, pattern in (("n2", "^orted"), ("n0", "^mpirun")):
            # Rank 1 of the three is on n2; without it or mpirun the two others go on.
            with start(cluster, "wired", STANDS, mca=settings(1), victim=1 if host == "n2" else 0) as it:
                it.hears("stands", "the rank did not get there")
                it.kill(pattern, host)
                it.nothing_left()
                done = re.findall(r"^done (\d of 3)", it.run.out + appended(it.folder, ".out"), re.M)
                check(len(done) == 2, f"{done} only")
                said = it.run.err + appended(it.folder, ".err")
                check("radixft: 1 of 3 ranks died, the others ran on" in said, "the last words are missing")
                check(re.search(r"daemon 1 on n1: (could not|was not there)", said), "they do not name the missing host")


def missing_host_joins():
    """A host that was missing when the job began joins with a spawn, under its old id; another one stays away"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        for down in (("n2",), ("n1", "n2")):
            for host in down:
                cluster.ask("kill", host=host, silent=False)
            with job_on(cluster, *settings(1), again="n2") as it:
                cluster.tool("boot", "n2")
                it.command(b"b")
                it.hears("joined", "the host did not join")
                it.finishes()
                check(it.run.err.count("daemon 2 on n2 is a member now") == 1, "the host was not who it was")
            cluster.ask("kill", host="n2", silent=False)
            cluster.tool("boot", "n2")


DR = ["--mca", "pml", "dr"]
DONE_WITHOUT = "The others begin without it, as errmgr_radixft_start_without allows."


def gets_through(it, dead, ranks=HOSTS, message=True):
    """All ranks but the dead one finished, and mpirun said why it was not there."""
    check(it.run.wait() == 3, f"mpirun's exit code is {it.run.code}")
    it.struck = time.monotonic()
    it.nothing_left()
    done = re.findall(r"^done (\d) of (\d)", it.run.out, re.M)
    check(sorted(done) == [(str(r), str(ranks)) for r in range(ranks) if r != dead], f"the ranks are {done}")
    said = " ".join(it.run.err.split())
    check(f"1 of {ranks} ranks died, the others ran on" in said, "the last words are missing")
    if message:
        check(re.search(rf"rank {dead} on host n\d died before all ranks were through MPI_Init", said)
              and DONE_WITHOUT in said, "mpirun does not say that the rank is missing")
        check(re.search(rf"rank {dead} on n\d: .*, before all ranks were through MPI_Init", it.run.err),
              "the last words do not say so")


def rank_is_done_without():
    """A rank dies at each point of MPI_Init, alone or beside others on its host: the others get through"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        for point in ("commit", "in_modex", "barrier", "in_barrier"):
            with start(cluster, point, KILLED, mca=settings(1, *DR)) as it:
                it.hears("dies", f"at {point} the rank did not get there")
                gets_through(it, VICTIM, message=point != "in_barrier")
        # The others compare their PML with what rank 0 tells.
        with start(cluster, "commit", KILLED, mca=settings(1, *DR), victim=0) as it:
            it.hears("dies", "the rank did not get there")
            gets_through(it, 0)
        for point in ("commit", "in_modex", "barrier"):
            for victim in (1, 2):
                with start(cluster, point, KILLED, mca=settings(1, *DR), hosts=[0, 1], slots=2, victim=victim) as it:
                    it.hears("dies", f"at {point} the rank did not get there")
                    # The PMIx server lets its mate go on by itself, perhaps before the death is told.
                    gets_through(it, victim, message=False)


def host_is_done_without():
    """A daemon, or a host, is lost while its rank is in MPI_Init or not there yet: the others get through"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        for point in ("before", "modex", "barrier"):
            with start(cluster, point, STANDS, mca=settings(1, *DR)) as it:
                it.hears("stands", f"at {point} the rank did not get there")
                it.kill("^orted", "n2")
                gets_through(it, VICTIM)
        for point, silent in (("modex", True), ("barrier", False)):
            with start(cluster, point, STANDS, mca=settings(1, *DR)) as it:
                it.hears("stands", f"at {point} the rank did not get there")
                cluster.ask("kill", host="n2", silent=silent)
                gets_through(it, VICTIM)
            cluster.tool("boot", "n2")


def not_without_these():
    """More die in MPI_Init than may be missing, or one that others on its host wait for: the job ends"""
    with ftcluster.Cluster(hosts=HOSTS) as cluster:
        with start(cluster, "never", STANDS, mca=settings(1, *DR), hosts=[0, 1], slots=2, victim=2) as it:
            it.hears("stands", "the rank did not get there")
            it.release()
            it.ends(2)
            check("other ranks on its host wait for it there" in " ".join(it.run.err.split()), "it does not say why")
        cluster.ask("kill", host="n3", silent=False)
        with start(cluster, "in_modex", KILLED, mca=settings(1, *DR)) as it:
            it.hears("dies", "the rank did not get there")
            it.ends(VICTIM)
            check("That makes 2 that are missing, and errmgr_radixft_start_without allows 1." in
                  " ".join(it.run.err.split()), "it does not say why")


if __name__ == "__main__":
    if sys.argv[1:] == ["init"]:
        main([rank_is_done_without, host_is_done_without, not_without_these], ftcluster.SIDE_BY_SIDE)
    else:
        main([host_is_down, host_of_a_pattern_is_down, more_is_down, goes_on_failing, missing_host_joins, daemon_dies_by_degrees],
             ftcluster.SIDE_BY_SIDE, alone=[host_is_silent, daemon_dies_early])
