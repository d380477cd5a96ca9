#!/usr/bin/env python3
"""errmgr/radixft where the daemons' channel may use two networks, and one of them loses everything without a word.

The kernel drops what goes over the first network (nftables), over which all connections of the channel are made, of one
host or of all; the second one works. Nobody may leave the view, and nothing of what the daemons and the runtime say be lost.
With the defaults a silent daemon is evicted after six or seven tenths of a second, within which it must be on the second
network: one case holds it to that, the others, which run side by side, have more time. A machine that is busy with other
things evicts daemons by itself: if one was evicted on such a machine, that case tells nothing, and begins anew.
"""

import os
import re
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
from fttap import Skip, check, comment, main  # noqa: E402
from vcluster import client  # noqa: E402
from test_radixft import DEADLINE, DEFAULT, RANKS  # noqa: E402
from test_radixft_cuts import INSTALLED, Logged, cut_out, nobody_left_the_view  # noqa: E402
from test_radixft_join import job_on, select_on  # noqa: E402

HOSTS = 4
FIRST, SECOND = "m", "0"
VIEW = "installed view"  # in a daemon's story; the first one is not told


def patient(probe):
    """Beside other cases, and a suite that loads the machine: several times what the way to the second network takes."""
    return [*DEFAULT, "--mca", "errmgr_radixft_suspect_floor", "2000", "--mca", "errmgr_radixft_probe", str(probe)]


PATIENT = patient(1000)


def story(text, deaths, act, mca=tuple(PATIENT)):
    """A test: act(job) when all ranks are through MPI_Init; nothing may be left at the end."""
    def test():
        with ftcluster.Cluster(HOSTS) as cluster:
            plan = client.Cluster(cluster.state).plan
            networks = ",".join(map(plan.subnet, (FIRST, SECOND)))
            mca_here = [*mca, "--leave-session-attached", "--mca", "oob_tcp_if_include", networks]
            with Logged(cluster, deaths, mca_here, ("--nap",)) as job:
                job.address = plan.address
                job.ready()
                act(job)
                job.nothing_left()
    test.__doc__ = text
    return test


def drop(job, hosts, network):
    """Everything at once, as far as that goes: not a command each."""
    for host in hosts:
        job.cluster.ask("cut", host=host, rail=network, how="drop", direction="both", peer=None)


def await_moves(job, pairs, network, all_stay=False):
    """Of each of these pairs of daemons one has said that it goes on over the network.

    The stories of all daemons are on mpirun's standard error, which tells nobody that it grew.
    """
    left = set(pairs)
    with select_on(job.run) as ended:
        while left:
            for here, there, where in re.findall(r"\[daemon (\d)\] \S+ daemon (\d) is silent at \S+ goes on at (\S+)", job.run.err):
                if where == job.address(f"n{there}", network):
                    left.discard(tuple(sorted((int(here), int(there)))))
            check(time.monotonic() < job.end and not ended(), f"these connections are left: {left}")
            check(not all_stay or VIEW not in job.run.err, f"somebody was evicted while these connections are left: {left}")


def pairs_of(hosts):
    """All pairs of daemons of which one is on these hosts."""
    return {(a, b) for a in range(HOSTS) for b in range(a + 1, HOSTS) if {f"n{a}", f"n{b}"} & set(hosts)}


def falls_silent(*hosts):
    def act(job):
        drop(job, hosts, FIRST)
        await_moves(job, pairs_of(hosts), SECOND, all_stay=True)
        for host in hosts:
            check(job.cluster.struck("drop", host, FIRST) > 0, f"the cut struck nothing at {host}")
        nobody_left_the_view(job)
    return act


def there_and_back(job):
    """The first network comes back, and then the second one falls silent: the channel is on the first again."""
    drop(job, ["n0"], FIRST)
    await_moves(job, pairs_of(["n0"]), SECOND)
    job.cluster.ask("heal", host="n0", rail=FIRST)
    # A connection that was being opened over the first one may be there already: not every pair has to move.
    drop(job, ["n0"], SECOND)
    nobody_left_the_view(job)


def while_ranks_end(job):
    """What the runtime says in the tenths of a second before anybody has noticed is not lost: else mpirun would wait."""
    job.kill_rank(6)
    with select_on(job.run) as ended:
        while "every daemon knows" not in job.run.err:
            check(time.monotonic() < job.end and not ended(), "not every daemon knows of the dead rank")
    drop(job, ["n1", "n2"], FIRST)
    check(job.verdict() == {6}, "somebody else was declared dead")


# Each rank prints its lines over a second and a half: the pauses only make it last that long.
LINES = 300
PRINTS = f"i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); echo $OMPI_COMM_WORLD_RANK.$i; sleep 0.005; done"


def while_ranks_print():
    """A network falls silent while ranks print: every byte comes out, and none twice"""
    with ftcluster.Cluster(HOSTS) as cluster:
        plan = client.Cluster(cluster.state).plan
        run = cluster.mpirun(*PATIENT, "--mca", "oob_tcp_if_include", ",".join(map(plan.subnet, (FIRST, SECOND))),
                             "--mca", "errmgr_radixft_output_dir", cluster.folder, "--map-by", "node", "-np", str(RANKS),
                             "sh", "-c", PRINTS, deadline=DEADLINE, env=ftcluster.component_env())
        end = time.monotonic() + DEADLINE
        with select_on(run) as ended:
            while run.out.count("\n") < RANKS * LINES / 10:
                check(time.monotonic() < end and not ended(), "the ranks do not print")
        cluster.ask("cut", host="n0", rail=FIRST, how="drop", direction="both", peer=None)
        check(run.wait() == 0, f"mpirun's exit code is {run.code}")
        check(cluster.struck("drop", "n0", FIRST) > 0, "the cut struck nothing")
        # Lines of different ranks may be in each other, so what counts is which bytes there are.
        expected = "".join(f"{rank}.{line}\n" for rank in range(RANKS) for line in range(1, LINES + 1))
        check(sorted(run.out) == sorted(expected), f"{len(run.out)} bytes came out of {len(expected)}")


def dies(job, host, others, moved):
    """It loses the first network, and its daemon is killed before anybody can have noticed that, or when all have."""
    drop(job, [host], FIRST)
    if moved:
        await_moves(job, {tuple(sorted((int(host[1:]), other))) for other in others}, SECOND)
    job.kill("^mpirun" if host == "n0" else "^orted", host)


def daemon_and_mpirun_die(daemon_moved, mpirun_moved):
    def act(job):
        dies(job, "n1", (0, 2, 3), daemon_moved)
        with select_on(job.run) as ended:
            while len(re.findall(r"\[daemon [023]\] \S+ installed view 1", job.run.err)) < HOSTS - 1:
                check(time.monotonic() < job.end and not ended(), "there is no view without daemon 1")
        dies(job, "n0", (2, 3), mpirun_moved)
        dead = job.verdict_without_mpirun()
        check(dead == {0, 1, 4, 5}, f"the survivors know of {dead}")
    return act


def both_networks(job):
    """With no other network the host goes as ever."""
    drop(job, ["n3"], FIRST)
    drop(job, ["n3"], SECOND)
    views = cut_out(job, 3)
    check(not views[3], "the evicted one has a view of its own")


def the_same_address_everywhere():
    """Each host has a network for itself, with the same address: that it refuses there itself proves no other's death"""
    with ftcluster.Cluster(HOSTS) as cluster:
        plan = client.Cluster(cluster.state).plan
        for host in range(HOSTS):
            for words in ("link add own0 type bridge", "address add 172.31.255.1/24 dev own0", "link set own0 up"):
                cluster.tool("run", f"n{host}", "--", "ip", *words.split())
        networks = f"{plan.subnet(FIRST)},172.31.255.0/24"
        # What heals the network is two processes away, which a loaded machine may take a second for.
        with Logged(cluster, 1, [*patient(10000), "--mca", "oob_tcp_if_include", networks], ("--nap",)) as job:
            job.ready()
            drop(job, ["n1"], FIRST)
            # Its connection to mpirun ends at mpirun's end: that knocks, and hears nothing.
            ended = cluster.tool("run", "n0", "--", "ss", "-HKtn", "dst", plan.address("n1", FIRST))
            check("ESTAB" in ended, f"no connection was ended: {ended}")
            job.until("mpirun does not doubt daemon 1", (0, " suspicion "), (0, INSTALLED))
            check(INSTALLED not in job.log(0), "a refusal by oneself ended another one")
            cluster.ask("heal", host="n1", rail=FIRST)
            nobody_left_the_view(job)
            job.nothing_left()


def while_a_host_joins():
    """A member's first network falls silent while a host joins, which is in no tree yet: it joins"""
    with ftcluster.Cluster(HOSTS) as cluster:
        plan = client.Cluster(cluster.state).plan
        with job_on(cluster, *PATIENT, "--mca", "oob_tcp_if_include", ",".join(map(plan.subnet, (FIRST, SECOND)))) as it:
            it.command(b"l")
            it.says("daemon 3 on n3 is to join")
            cluster.ask("cut", host="n1", rail=FIRST, how="drop", direction="both", peer=None)
            it.hears("joined", "the host did not join")
            it.finishes()
            check(cluster.struck("drop", "n1", FIRST) > 0, "the cut struck nothing")


# The longest ones first: the others fit in beside them.
TESTS = [
    story("Both networks of a host fall silent: it is evicted", 2, both_networks),
    story("A daemon is killed when it has gone on over the second network, mpirun when its first has just fallen silent", 4,
          daemon_and_mpirun_die(True, False)),
    story("A switch falls silent: all daemons go on over the other one", 1, falls_silent("n0", "n1", "n2", "n3")),
    story("mpirun's first network falls silent, comes back, and then the other one does", 1, there_and_back),
    story("A network falls silent while the ranks end: all of it arrives, and the job ends", 1, while_ranks_end),
    story("A daemon is killed when its first network has just fallen silent, mpirun when it has gone on over the second", 4,
          daemon_and_mpirun_die(False, True)),
    the_same_address_everywhere,
    while_a_host_joins,
    while_ranks_print]

STORIES = 3
LOOKED_BACK = 1.0  # seconds before an eviction that count
BUSY = 0.6  # of them, in which somebody waited for a core; a tenth to a third is usual


def waited():
    """Seconds in which somebody on this machine has waited for a core in all, as the kernel counts it (PSI; 0 where it does not)."""
    try:
        with open("/proc/pressure/cpu", encoding="ascii") as text:
            return int(re.search(r"^some .*total=(\d+)", text.read())[1]) / 1e6
    except OSError:
        return 0.0


def stolen():
    """Seconds of each core that another virtual machine had instead of this one, which no pressure tells of."""
    with open("/proc/stat", encoding="ascii") as text:
        cores = [line.split() for line in text if re.match(r"cpu\d", line)]
    return [int(core[8]) / os.sysconf("SC_CLK_TCK") for core in cores]


class Watch(threading.Thread):
    """Notes how long others have had this machine's cores."""

    def __init__(self):
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.noted = []  # (time, waited, stolen of each core)

    def run(self):
        while not self.over.wait(0.05):
            self.noted.append((time.time(), waited(), stolen()))

    def busy(self, until):
        """The share of the time before this moment in which somebody waited, this thread for one, or a core was away."""
        noted = [note for note in self.noted if until - LOOKED_BACK < note[0] <= until]
        if len(noted) < 2:
            return 1.0
        pauses = sum(after[0] - before[0] for before, after in zip(noted, noted[1:]) if after[0] - before[0] > 0.2)
        first, last = noted[0], noted[-1]
        away = max(after - before for before, after in zip(first[2], last[2]))
        return max((last[1] - first[1]) / (last[0] - first[0]), away / LOOKED_BACK, pauses / LOOKED_BACK)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()


class HeldUp(Exception):
    """A daemon was evicted on a machine that was busy with other things."""


def in_time(job):
    with Watch() as watch:
        try:
            falls_silent("n1")(job)
        except AssertionError as error:
            evicted = re.search(rf"\[daemon \d\] ([\d.]+) {VIEW}", job.run.err)
            if evicted and (busy := watch.busy(float(evicted[1]))) > BUSY:
                raise HeldUp(f"somebody waited for a core in {100 * busy:.0f} % of the second before an eviction") from error
            raise


def in_time_by_default():
    """An inner daemon's first network falls silent: it is on the second one before it is evicted"""
    for _ in range(STORIES):
        try:
            story("", 1, in_time, DEFAULT)()
            return
        except HeldUp as why:
            comment(why)
    raise Skip(f"this machine is too busy for the defaults, {STORIES} times")


# Nothing runs beside this one.
ALONE = [in_time_by_default]

if __name__ == "__main__":
    main(TESTS, ftcluster.SIDE_BY_SIDE, alone=ALONE)
