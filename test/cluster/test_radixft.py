#!/usr/bin/env python3
"""errmgr/radixft on the virtual cluster: the job outlives dead ranks and dead hosts.

Each fault is made by the kernel (SIGKILL, SIGSTOP, links taken down) after every
rank has said that it is through MPI_Init. Then every survivor must learn of
the same deaths in the same epochs, compute the right sum, leave MPI_Finalize;
mpirun must end by itself with the documented code and say who died; and no
process may be left on any host.
"""

import contextlib
import os
import re
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
from fttap import check, comment, main  # noqa: E402

RANKS = 8
DEADLINE = 120
SWEEP_SECONDS = 30
STACKS_SECONDS = 60  # how much longer a job is left that is past its deadline, to see where it stands
# What a daemon sends for a change beyond its children in the tree, as test/sim/membership/bound.cc has
# it, and for a dead rank: its report and its acknowledgement.
VIEW_CONSTANT = 6
DEATH_CONSTANT = 2
DEFAULT = ["--mca", "errmgr", "radixft"]
# What is not about silence must not depend on how busy this machine is.
RADIXFT = [*DEFAULT, "--mca", "errmgr_radixft_suspect_floor", "4000",
           "--mca", "errmgr_radixft_probe", "2000"]
LOCALISED = ["--mca", "errmgr_radixft_localised_view", "1"]
REPAIRED = ["--mca", "errmgr_radixft_repair", "1"]


def survivors():
    """Path of the test program."""
    path = os.path.join(ftcluster.build_dir(), "test", "mpi", "survivors", "survivors")
    check(os.access(path, os.X_OK), f"{path} is missing: run make check, or set FT_BUILD")
    return path


def processes(cluster, pattern):
    """(host, pid) of the processes on the hosts whose command matches. A child that has yet to become its program is none."""
    found = {pid: (host, command) for host, pid, command in cluster.processes() if re.search(pattern, command)}
    return [(host, pid) for pid, (host, command) in found.items() if found.get(parent_of(pid)) != (host, command)]


def parent_of(pid):
    """Its process id; None when the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return None


def appended(folder, extension):
    """What the stand-in for mpirun wrote."""
    texts = []
    for name in sorted(os.listdir(folder)):
        if name.startswith("radixft-") and name.endswith(extension):
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                texts.append(file.read())
    return "".join(texts)


class Job:
    """mpirun of the test program, from start to verdict."""

    def __init__(self, cluster, *options, deaths=0, mca=RADIXFT, ranks=RANKS, verbose="1", output=None,
                 lasts=0, strangers=False, env=None):
        self.cluster = cluster
        self.deaths, self.ranks, self.strangers = deaths, ranks, strangers
        self.marks = cluster.marks()
        self.folder = os.path.dirname(self.marks.path)
        self.run = cluster.mpirun(
            *mca, "--mca", "errmgr_base_verbose", verbose, "--mca", "errmgr_radixft_output_dir",
            output or self.folder, "--map-by", "node", "-np", str(ranks), survivors(), "--deaths",
            str(deaths), "--marks", self.marks.path, *options,
            deadline=DEADLINE + lasts + STACKS_SECONDS, env=ftcluster.component_env(env))
        self.end = time.monotonic() + DEADLINE + lasts

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            self.tell_stacks()
        self.run.stop()
        self.marks.close()
        if kind is not None:
            self.run.tell()
            for extension in (".out", ".err"):
                comment(appended(self.folder, extension))

    def tell_stacks(self):
        """Where the processes are that should have ended, for the cause."""
        import ftmpi  # pylint: disable=import-outside-toplevel
        left = processes(self.cluster, r"^orted|^/.*survivors|^mpirun")
        comment(f"there are {left}")
        comment(ftmpi.stacks([pid for host, pid in left if host == "n0"][:2] + [pid for _, pid in left][-2:]))

    def ready(self):
        """All ranks are through MPI_Init and the barrier behind it, and need nothing of each other."""
        self.begun("ready", self.ranks)

    def begun(self, word, count):
        """So many ranks have said this word."""
        said = set()
        while len(said) < count:
            event = self.marks.wait(lambda t: t.startswith(word), self.end, self.run)
            check(event, f"only {len(said)} of {count} ranks were {word} in time")
            said.add(event[1])

    def kill(self, pattern, host, count=1):
        """SIGKILL for processes on a host; returns their number, which must be count."""
        victims = [pid for where, pid in processes(self.cluster, pattern) if where == host]
        check(len(victims) >= count, f"{host} runs only {len(victims)} of {pattern}")
        for pid in victims[:count]:
            os.kill(pid, 9)
        return count

    def kill_at_once(self, *victims):
        """SIGKILL for (pattern, host, count) of processes, which are found before the first one dies."""
        found = []
        for pattern, host, count in victims:
            pids = [pid for where, pid in processes(self.cluster, pattern) if where == host]
            check(len(pids) >= count, f"{host} runs only {len(pids)} of {pattern}")
            found += pids[:count]
        for pid in found:
            os.kill(pid, 9)

    def code(self):
        """mpirun's exit code. One that is past the deadline is still there, with all of its job, for tell_stacks()."""
        check(ftcluster.wait_readable([self.run], self.end), "mpirun does not end in time")
        return self.run.wait()

    def verdict(self, code=0):
        """The run ended by itself, with the right code, and every survivor finished right."""
        check(self.code() == code, f"mpirun's exit code is {self.run.code}, not {code}")
        return self.judge(self.run.out, self.run.err)

    def verdict_without_mpirun(self):
        """As verdict(), of a run whose mpirun was killed: the daemons end, and files tell the rest."""
        check(self.code() == 137, f"the killed mpirun's exit code is {self.run.code}")
        self.nothing_left(self.end)
        check(re.search(r"should mpirun die, the job runs on and its output is appended to "
                        + re.escape(self.folder), self.run.err), "the place was not announced")
        return self.judge(self.run.out + appended(self.folder, ".out"),
                          appended(self.folder, ".err"), announced=False)

    def judge(self, out, last_words, announced=True):
        """All survivors know the same, reckoned right, and finished; who died. Whoever tells of it has `announced` all."""
        known = re.findall(r"survivor (\d+) knows(.*)", out)
        check(len(known) == self.ranks - self.deaths,
              f"{len(known)} survivors reported, not {self.ranks - self.deaths}")
        check(len(re.findall(r"^finalized", out, re.M)) == len(known), "a survivor did not finish")
        views = {" ".join(sorted(text.split())) for _, text in known}
        check(len(views) == 1, f"the survivors know different things: {sorted(views)}")
        dead = {int(word.split("@")[0]) for word in views.pop().split()}
        check(len(dead) == self.deaths, f"the survivors know of {len(dead)} deaths: {dead}")
        check(self.strangers or "malformed or forged" not in last_words, "a daemon dropped as forged what none forged")
        check(not dead & {int(rank) for rank, _ in known}, "a rank that lives was called dead")
        if self.deaths:
            check(f"radixft: {self.deaths} of {self.ranks} ranks died, the others ran on" in last_words,
                  "mpirun's last words are missing")
            for rank in dead:
                told = re.search(rf"^  rank {rank} on n\d: .*$", last_words, re.M)
                check(told, f"mpirun's last words do not tell of rank {rank}")
                check(re.search(r"; noticed \d+\.\d+ s after the start", told[0]), f"not when it was noticed: {told[0]}")
            # A job may end before the last answer of a daemon is there.
            check(not announced or "every daemon knows" not in last_words
                  or re.search(r", known to every daemon \d+\.\d+ ms after", last_words), "not when every daemon knew")
        return dead

    def nothing_left(self, end=None):
        """No process of the job on any host."""
        left = self.cluster.await_none(r"orted|survivors|mpirun -|mpirun\b.*errmgr", end or time.monotonic() + SWEEP_SECONDS)
        check(not left, f"processes are left: {left}")


def story(text, deaths, fault, heal=None, mca=tuple(RADIXFT), says="begins"):
    """A test: run, fault, verdict; `says` is in the story that mpirun tells."""
    def test():
        with ftcluster.Cluster() as cluster:
            with Job(cluster, deaths=deaths, mca=mca) as job:
                job.ready()
                fault(job)
                job.verdict()
                check(says in job.run.err, f"mpirun's story does not say: {says}")
                if heal:
                    heal(job)
                job.nothing_left()
    test.__doc__ = text
    return test


def one_rank(job):
    job.kill("^/.*survivors", "n2")


def segments(job, host):
    return [name for name in job.cluster.tool("run", host, "ls", "/dev/shm").split()
            if name.startswith("vader_segment")]


def one_rank_with_memory(job):
    check(len(segments(job, "n2")) == RANKS / 4, "the ranks have no files in shared memory")
    job.kill("^/.*survivors", "n2")


def no_memory_left(job):
    job.nothing_left()
    check(not segments(job, "n2"), f"shared memory is left: {segments(job, 'n2')}")


def ranks_of_two_hosts(job):
    job.kill("^/.*survivors", "n1", 2)
    job.kill("^/.*survivors", "n3", 1)


def ranks_of_mpiruns_host(job):
    job.kill("^/.*survivors", "n0", 2)


def daemon(job):
    job.kill("^orted", "n2")


def two_daemons(job):
    job.kill("^orted", "n2")
    job.kill("^orted", "n3")


def ranks_and_a_daemon(job):
    """One of the ranks is the daemon's own; another one's death is told while the view changes."""
    job.kill_at_once(("^/.*survivors", "n2", 1), ("^/.*survivors", "n3", 1), ("^orted", "n2", 1))


def host(job):
    job.cluster.tool("kill", "n1")


def silence(job, op, host, **how):
    """A host falls silent; tells how long it was until the root had the view without it.

    Printed and not asserted: the machine may be busy with other things.
    """
    began = time.time()
    job.cluster.ask(op, host=host, **how)
    job.code()
    told = [re.search(rf"\[daemon 0\] ([\d.]+) {what}", job.run.err) for what in ("believes daemon", "installed view")]
    check(all(told), "mpirun does not tell of the view")
    comment("with the defaults, the root believed the host dead {:.0f} ms after the fault, and had the view without "
            "it after {:.0f} ms".format(*(1e3 * (float(m[1]) - began) for m in told)))


def silent_host(job):
    silence(job, "kill", "n3", silent=True)


def frozen_host(job):
    silence(job, "freeze", "n2")


def cut_off(job):
    job.cluster.tool("cut", "n3", "m", "--how", "drop")


def thaw(job):
    """The frozen host finds out by itself that it is out."""
    job.cluster.tool("thaw", "n2")


def failure_during_finalize():
    """A rank dies while all others are in MPI_Finalize: they come out"""
    with ftcluster.Cluster() as cluster:
        with Job(cluster, "--hold", "3", "--no-sum", deaths=1) as job:
            job.begun("finalizing", RANKS - 1)
            check(not job.run.ended(), "mpirun has ended before the fault")
            ranks = {rank_of(pid): pid for _, pid in processes(cluster, "^/.*survivors")}
            os.kill(ranks[3], 9)
            dead = job.verdict_in_finalize()
            check(dead == {3}, f"mpirun tells of {dead}")
            job.nothing_left()


def rank_of(pid):
    """The rank of a process, from its environment; none of one that has ended since it was listed."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/environ", "rb") as source:
        found = re.search(rb"(?:^|\0)OMPI_COMM_WORLD_RANK=(\d+)", source.read())
        return int(found[1]) if found else None
    return None


def verdict_in_finalize(job):
    """As verdict(); the ranks were in MPI_Finalize and need not have heard of the death."""
    check(job.code() == 0, f"mpirun's exit code is {job.run.code}")
    done = re.findall(r"^finalized (\d+)", job.run.out, re.M)
    check(len(done) == job.ranks - job.deaths, f"{len(done)} ranks came out of MPI_Finalize")
    return {int(r) for r in re.findall(r"^  rank (\d+) on n\d", job.run.err, re.M)}


Job.verdict_in_finalize = verdict_in_finalize


def requests_fail():
    """pml/dr fails what waits for a dead rank at once, with the class of a dead rank"""
    with ftcluster.Cluster() as cluster:
        with Job(cluster, "--wait-for", "2", deaths=1,
                 mca=[*RADIXFT, "--mca", "pml", "dr"]) as job:
            job.ready()
            ranks = {rank_of(pid): pid for _, pid in processes(cluster, "^/.*survivors")}
            os.kill(ranks[2], 9)
            dead = job.verdict()
            check(dead == {2}, f"the survivors know of {dead}")
            classes = re.findall(r"^classes (\d+): (\d+) (\d+)$", job.run.out, re.M)
            check(len(classes) == RANKS - 1, f"{len(classes)} ranks came back")
            check({c for _, *both in classes for c in both} == {"75"}, f"the classes are {classes}")
            check(re.findall(r"^wildcard (\d+): (\d+)$", job.run.out, re.M) == [("3", "75")],
                  "a receive from any source of whom only the dead is left did not end as it should")
            anybody = re.findall(r"^anybody \d+: (\d+) early (\d)$", job.run.out, re.M)
            check(anybody == [("0", "0")] * (RANKS - 1),
                  f"receives from any source of the living ended like this: {anybody}")
            check("unexpectedly disconnected" not in job.run.err, "btl/tcp foretells hangs and crashes")
            job.nothing_left()


def no_failure():
    """A job without failures runs as ever, and mpirun says nothing"""
    with ftcluster.Cluster() as cluster:
        with Job(cluster) as job:
            job.verdict()
            check("ranks died" not in job.run.err, "mpirun tells of deaths")
            job.nothing_left()


def no_tree_of_shells():
    """mpirun starts all daemons itself, also for a user who wants them to start each other, and on hosts that are named"""
    with ftcluster.Cluster(hosts=3) as cluster:
        with Job(cluster, ranks=2, mca=[*RADIXFT, "--mca", "plm_rsh_no_tree_spawn", "0", "--host", "n1,n2"]) as job:
            job.verdict()
            job.nothing_left()


def check_variables(out, ranks, deaths):
    """Every survivor reads the same epoch and counts, and times of the last death."""
    told = re.findall(r"^pvars \d+: (.*)$", out, re.M)
    check(len(told) == ranks - deaths, f"{len(told)} ranks read their variables")
    for line in told:
        values = {name: float(value) for name, value in (word.split("=") for word in line.split())}
        check(set(values) == {"epoch", "dead", "live", "hung", "dropped", "forged", "stabilization_time", "detection_time"},
              f"the variables are {line}")
        check(values["forged"] == 0 and values["dead"] == deaths and values["live"] == ranks - deaths and values["epoch"] >= 1
              and values["detection_time"] > 0, f"a rank reads {line}")
    comment(told[0])


def bounded_and_repeatable():
    """No daemon sends more than arity plus a constant of messages for a change, and its log gives itself again"""
    replay = os.path.join(ftcluster.build_dir(), "test", "unit", "radixft", "replay")
    with ftcluster.Cluster() as cluster:
        logs = os.path.join(cluster.folder, "logs")
        os.mkdir(logs)
        with Job(cluster, "--pvars", deaths=3,
                 mca=[*RADIXFT, "--mca", "errmgr_radixft_log_dir", logs]) as job:
            job.ready()
            job.kill("^/.*survivors", "n3")
            job.kill("^orted", "n2")
            job.verdict()
            job.nothing_left()
            check_variables(job.run.out, RANKS, 3)
        names = [os.path.join(logs, n) for n in sorted(os.listdir(logs)) if not n.endswith("-2.log")]
        check(len(names) == 3, f"the logs are {os.listdir(logs)}")
        done = ftcluster.command([replay, *names])
        comment(done.out)
        check(done.code == 0, "a log did not give itself again")
        counts = [{name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", line)}
                  for line in done.out.splitlines() if line.startswith("  arity=")]
        check(len(counts) == 3, "the counts are missing")
        for c in counts:
            # On a busy machine answers come late and are asked for again: that, and what others
            # answer to it, is no part of the bound.
            sent = c["sent"] - sum(other["again"] for other in counts)
            told = c["told"] - sum(other["told_again"] for other in counts)
            check(c["views"] == 1 and c["deaths"] == 3, "a daemon knows of other changes")
            check(sent <= c["arity"] + VIEW_CONSTANT, f"a daemon sent {sent} messages for one change")
            check(told <= (1 + c["deaths"]) * (c["arity"] + DEATH_CONSTANT),
                  f"a daemon told of deaths in {told} messages")


def abort_ends_all():
    """MPI_Abort still ends the whole job with its code"""
    with ftcluster.Cluster() as cluster:
        with Job(cluster, "--abort", "5", deaths=1) as job:
            code = job.code()
            check(code == 42, f"mpirun's exit code is {code}")
            check("finalized" not in job.run.out, "a rank went on")
            job.nothing_left()


def exit_code_is_kept():
    """What a rank returns after MPI_Finalize is no failure and becomes mpirun's exit code"""
    with ftcluster.Cluster() as cluster:
        with Job(cluster, "--exit-code", "6:7") as job:
            code = job.code()
            check(code == 7, f"mpirun's exit code is {code}")
            check(len(re.findall(r"^finalized", job.run.out, re.M)) == RANKS, "a rank is missing")
            check("ranks died" not in job.run.err, "mpirun tells of deaths")
            job.nothing_left()


def failed_exit_code():
    """errmgr_radixft_failed_exit_code is mpirun's code when ranks died and the others did well"""
    with ftcluster.Cluster() as cluster:
        with Job(cluster, deaths=1, mca=[*RADIXFT, "--mca", "errmgr_radixft_failed_exit_code",
                                         "17"]) as job:
            job.ready()
            one_rank(job)
            job.verdict(code=17)
            job.nothing_left()


def death_before_init():
    """A rank that dies before MPI_Init ends the job with a clear message, at once"""
    with ftcluster.Cluster() as cluster:
        began = time.monotonic()
        with Job(cluster, "--die-before-init", "6") as job:
            code = job.code()
            check(code != 0, f"mpirun's exit code is {code}")
            check(re.search(r"rank 6 on host n2 died before all ranks were through\s+MPI_Init",
                            job.run.err), "the message is missing")
            comment(f"ended after {time.monotonic() - began:.1f} s")
            job.nothing_left()


def bad_parameter():
    """Parameters that make no sense are named before anything starts"""
    with ftcluster.Cluster(hosts=2) as cluster:
        for name, value, complaint in (("arity", "3", "power of two"),
                                       ("suspect_floor", "50", "must exceed"),
                                       ("probe", "0", "must be 1 to"), ("heartbeat", "2s", "no whole number"),
                                       ("start_without", "-1", "must be 0 to 1000000"),
                                       ("repair", "1", "choose one")):
            with Job(cluster, ranks=2,
                     mca=[*DEFAULT, "--mca", f"errmgr_radixft_{name}", value, *LOCALISED]) as job:
                code = job.code()
                check(code != 0, f"{name}: exit code {code}")
                check(complaint in job.run.err, f"{name}: the message is missing")
                check("ready" not in job.run.out, "the job ran")
                job.nothing_left()


def missing_on_a_host():
    """A host on which radixft is not installed is named, and the job ends"""
    with ftcluster.Cluster(hosts=3) as cluster:
        path = ftcluster.component_env()["OMPI_MCA_mca_base_component_path"].split(":")[1]
        cluster.tool("run", "n2", "mount", "-t", "tmpfs", "none", path)
        with Job(cluster, ranks=3,
                 mca=[*RADIXFT, "--mca", "errmgr_radixft_launch_wait", "5000"]) as job:
            code = job.code()
            check(code != 0, f"mpirun's exit code is {code}")
            said = " ".join(job.run.err.split())
            check("(errmgr_radixft_launch_wait) from: n2." in said and "installed there too" in said,
                  "the message is missing")
            check("ready" not in job.run.out, "the job ran")
            job.nothing_left()


def host_cut_off_at_launch():
    """A host that mpirun cannot be reached from is named, the job ends, and so does what was started there, cut off"""
    with ftcluster.Cluster(hosts=3) as cluster:
        cluster.tool("cut", "n2", "m", "--how", "drop")
        with Job(cluster, ranks=3,
                 mca=[*RADIXFT, "--mca", "errmgr_radixft_launch_wait", "5000"]) as job:
            code = job.code()
            check(code != 0, f"mpirun's exit code is {code}")
            check("(errmgr_radixft_launch_wait) from: n2." in " ".join(job.run.err.split()),
                  "the message is missing")
            job.nothing_left()


def stock_does_not_survive():
    """The same fault ends the job under the stock error manager: it is a fault"""
    with ftcluster.Cluster() as cluster:
        with Job(cluster, deaths=1, mca=[]) as job:
            job.ready()
            one_rank(job)
            check(job.code() == 137, f"mpirun's exit code is {job.run.code}")
            check("finalized" not in job.run.out, "a rank went on")


def mpirun_story(text, deaths, fault):
    """A test: run, fault that takes mpirun too, verdict."""
    def test():
        with ftcluster.Cluster() as cluster:
            with Job(cluster, deaths=deaths) as job:
                job.ready()
                fault(job)
                job.verdict_without_mpirun()
    test.__doc__ = text
    return test


def mpirun(job):
    job.kill("^mpirun", "n0")


def mpirun_and_its_successor(job):
    job.kill("^mpirun", "n0")
    job.kill("^orted", "n1")


def ranks_a_daemon_and_mpirun(job):
    """Deaths are on their way to mpirun, and from it, when it dies."""
    job.kill_at_once(("^/.*survivors", "n2", 1), ("^/.*survivors", "n3", 1), ("^orted", "n2", 1),
                     ("^mpirun", "n0", 1))


def mpirun_then_a_rank(job):
    job.kill("^mpirun", "n0")
    job.kill("^/.*survivors", "n2")


def mpirun_then_its_successor(job):
    """The second fault strikes when the first is dealt with."""
    job.kill("^mpirun", "n0")
    while "daemon 1 on n1 stands in for it" not in appended(job.folder, ".err"):
        check(time.monotonic() < job.end, "nobody stands in for mpirun")
    job.kill("^orted", "n1")


MPIRUN_TESTS = [
    mpirun_story("mpirun is killed: the job runs to its end", 2, mpirun),
    mpirun_story("mpirun and the daemon next in line are killed at once", 4, mpirun_and_its_successor),
    mpirun_story("mpirun is killed, and then the daemon that stands in for it", 4,
                 mpirun_then_its_successor),
    mpirun_story("mpirun is killed, and then a rank", 3, mpirun_then_a_rank),
    mpirun_story("Ranks, a daemon and mpirun are killed at once: every death has one epoch", 5,
                 ranks_a_daemon_and_mpirun),
]

RANK_TESTS = [
    no_failure,
    no_tree_of_shells,
    story("A rank is killed: the others know and run on, and nothing of it is left", 1, one_rank_with_memory,
          no_memory_left),
    story("Ranks of two hosts are killed, all of one of them", 3, ranks_of_two_hosts),
    story("All ranks of mpirun's own host are killed", 2, ranks_of_mpiruns_host),
    story("Ranks that are told by shared memory alone learn of all deaths", 3, ranks_of_two_hosts,
          mca=[*RADIXFT, "--mca", "errmgr_radixft_tell", "1"]),
    story("Ranks that are told by PMIx alone learn of the death", 1, one_rank,
          mca=[*RADIXFT, "--mca", "errmgr_radixft_tell", "2"]),
    failure_during_finalize,
    requests_fail,
    bounded_and_repeatable,
    abort_ends_all,
    exit_code_is_kept,
    failed_exit_code,
    death_before_init,
    bad_parameter,
    stock_does_not_survive,
]
SHORT_LAUNCHES = [missing_on_a_host, host_cut_off_at_launch]

NODE_TESTS = [
    story("A daemon is killed: its ranks die with it, the others know and run on", 2, daemon),
    story("Two of four daemons are killed at once (localised views)", 4, two_daemons,
          mca=[*RADIXFT, *LOCALISED], says="arity 2, localised views"),
    story("A host loses its power loudly (the tree is repaired, not formed anew)", 2, host,
          mca=[*RADIXFT, *REPAIRED], says="arity 2, repaired tree"),
    story("Ranks and a daemon are killed at once: every death has one epoch", 3, ranks_and_a_daemon),
    story("A host that is cut off ends by itself when the network has not healed in time", 2, cut_off,
          mca=[*DEFAULT, "--mca", "errmgr_radixft_minority_wait", "1000"]),
]
# How long the silence lasted until it was told is printed.
SILENCES = [
    story("A host loses its power silently", 2, silent_host, mca=DEFAULT),
    story("A host is stopped, evicted, and ends by itself when it runs again", 2, frozen_host, heal=thaw, mca=DEFAULT),
]

if __name__ == "__main__":
    WHICH = sys.argv[1] if len(sys.argv) > 1 else "all"
    main({"ranks": RANK_TESTS, "nodes": NODE_TESTS, "mpirun": MPIRUN_TESTS,
          "all": RANK_TESTS + NODE_TESTS + MPIRUN_TESTS}[WHICH], ftcluster.SIDE_BY_SIDE,
         alone={"ranks": SHORT_LAUNCHES, "nodes": SILENCES, "all": SHORT_LAUNCHES + SILENCES}.get(WHICH, []))
