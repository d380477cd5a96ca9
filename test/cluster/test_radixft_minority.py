#!/usr/bin/env python3
"""errmgr/radixft where no side of a cut is dead: who goes on, who does not, and what a user is told.

The kernel drops what goes over the runtime's network (nftables), or stops a host's processes; the ranks' own network
stays as it is. mpirun runs on n0 and is daemon 0, so that it is the side that loses in some of these: then there are two
who speak for the job, mpirun, which tells why its ranks end, and the daemon that stands in for it.
"""

import os
import re
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
from fttap import check, main  # noqa: E402
from test_radixft import DEFAULT, appended, processes  # noqa: E402
from test_radixft_cuts import EVICTED, INSTALLED, REFUTED, SUSPENDED, nobody_left_the_view, story  # noqa: E402

HOSTS = 4
RESUMED, ENDED = "> event 5 ", "> event 7 "
FAILED = 1  # mpirun's code when it is of the side that loses


def waits(milliseconds):
    """Parameters: how long a minority waits; and silence is told late enough that a busy machine accuses nobody else."""
    values = {"minority_wait": milliseconds, "suspect_floor": 2000, "probe": 1000}
    return DEFAULT + [word for name, value in values.items() for word in ("--mca", f"errmgr_radixft_{name}", str(value))]


def says(job, topic):
    """mpirun has said this of its own host."""
    return f"host n0 {topic}" in " ".join(job.run.err.split())


NO_MAJORITY = "reaches no majority of the job's hosts, and the network has not healed"
FOUND_GONE = "was out of touch with the others, and finds them gone now"
TAKEN_FOR_DEAD = "was taken for dead by the others"


def others_go_on(job, topic):
    """mpirun has lost: it says so and fails; the others know of its ranks' deaths, and end right."""
    check(job.code() == FAILED, f"mpirun's exit code is {job.run.code}")
    check(says(job, topic), "mpirun does not say why its ranks end")
    unread = re.findall("Bytes that have come to this daemon and that it has not read: ([0-9]+)", job.run.err)
    check(len(unread) == (topic == NO_MAJORITY), f"it tells {unread} of what it has not read")
    check(not re.search(r"^finalized [04]$", job.run.out, re.M), "a rank of the side that lost finished")
    job.nothing_left(job.end)
    err = appended(job.folder, ".err")
    check("daemon 1 on n1 stands in for it" in err, "nobody stands in for mpirun")
    dead = job.judge(job.run.out + appended(job.folder, ".out"), err)
    check(dead == {0, 4} | ({6} if job.deaths == 3 else set()), f"the survivors know of {dead}")


def learns_that_it_is_out(job):
    """While the others run: they wait for one more death, and so are there to tell mpirun."""
    job.until("mpirun does not learn that it is out", (0, EVICTED))
    job.kill_rank(6)
    others_go_on(job, TAKEN_FOR_DEAD)


def mpirun_is_cut_off(job):
    job.cluster.tool("cut", "n0", "m", "--how", "drop")
    job.until("the others do not go on without mpirun", (1, INSTALLED))
    job.until("mpirun does not wait", (0, SUSPENDED))
    others_go_on(job, NO_MAJORITY)


def mpirun_comes_back(job):
    """The network heals while the others run, and mpirun still waits: it learns that it is out."""
    job.cluster.tool("cut", "n0", "m", "--how", "drop")
    job.until("the others do not go on without mpirun", (1, INSTALLED))
    job.until("mpirun does not wait", (0, SUSPENDED))
    job.cluster.ask("heal", host="n0", rail="m")
    learns_that_it_is_out(job)


def have_left(job, out):
    """The others have ended the job and left; only this host has processes of it."""
    while True:
        left = [pid for host, pid in processes(job.cluster, r"orted|survivors") if host != out]
        if not left:
            return
        check(time.monotonic() < job.end, f"the others do not end: {left}")
        ftcluster.await_end(left[0], job.end)


def mpirun_finds_all_gone(job):
    """The network heals when the others have ended and left: mpirun cannot know what they did, and does not go on.

    The connections are reset, too: else the others' kernels keep their last words for it, and may yet deliver them.
    """
    job.cluster.tool("cut", "n0", "m", "--how", "reset")
    job.until("the others do not go on without mpirun", (1, INSTALLED))
    job.until("mpirun does not wait", (0, SUSPENDED))
    job.kill_rank(6)
    have_left(job, "n0")
    check(EVICTED not in job.log(0) and ENDED not in job.log(0), "mpirun has learned it through the cut")
    job.cluster.ask("heal", host="n0", rail="m")
    others_go_on(job, FOUND_GONE)
    check(INSTALLED not in job.log(0), "mpirun has a view of its own")


def daemon_finds_all_gone(job):
    """The same of a daemon, when mpirun has ended and left with the others."""
    job.cluster.tool("cut", "n3", "m", "--how", "reset")
    job.until("daemon 3 does not wait", (3, SUSPENDED))
    job.kill_rank(6)
    dead = job.verdict()
    check(dead == {3, 6, 7}, f"the survivors know of {dead}")
    have_left(job, "n3")
    check(ENDED not in job.log(3), "daemon 3 has not waited")
    job.cluster.ask("heal", host="n3", rail="m")
    job.nothing_left(job.end)
    check(ENDED in job.log(3), "daemon 3 did not end by itself")
    check(INSTALLED not in job.log(3), "daemon 3 has a view of its own")


def mpirun_is_stopped(job):
    """All of its host is stopped, and runs on when the others have gone on."""
    job.cluster.ask("freeze", host="n0")
    job.until("the others do not go on without mpirun", (1, INSTALLED))
    job.cluster.ask("thaw", host="n0")
    learns_that_it_is_out(job)


def cut_in_halves(job):
    """n0 and n1 from n2 and n3; a host is cut off from one other at a time, so each has one."""
    for host, other in (("n0", "n3"), ("n1", "n2"), ("n2", "n0"), ("n3", "n1")):
        job.cluster.tool("cut", host, "m", "--peer", other)


def even_split(job):
    cut_in_halves(job)
    dead = job.verdict()
    check(dead == {2, 3, 6, 7}, f"the survivors know of {dead}")
    job.nothing_left()
    for daemon in (0, 1):
        check(SUSPENDED not in job.log(daemon), f"daemon {daemon}, of the half with the lowest id, has waited")
    for daemon in (2, 3):
        check(INSTALLED not in job.log(daemon), f"daemon {daemon} has a view of its own")
        check(re.search(rf"^{SUSPENDED}.*^{ENDED}", job.log(daemon), re.M | re.S), f"daemon {daemon} did not wait, and then end")


def ends_at_once(job):
    """A wait of nothing: no time passes between the two."""
    job.cluster.tool("cut", "n3", "m", "--how", "drop")
    dead = job.verdict()
    check(dead == {3, 7}, f"the survivors know of {dead}")
    job.nothing_left()
    found = re.search(rf"^{SUSPENDED}.*?^{ENDED}", job.log(3), re.M | re.S)
    check(found, "daemon 3 was not suspended, or did not end")
    check(not re.search(r"^\d+ ", found[0], re.M), "daemon 3 has waited")


def nobody_reaches_anybody(job):
    for host in range(HOSTS):
        job.cluster.tool("cut", f"n{host}", "m", "--how", "drop")
    for daemon in range(HOSTS):
        job.until(f"daemon {daemon} does not wait", (daemon, SUSPENDED))
    for daemon in range(HOSTS):
        check(INSTALLED not in job.log(daemon), f"daemon {daemon} went on alone")


def back_in_pieces(job):
    """Half of them, which are enough, hear each other again, and then the others are back: nobody is out."""
    nobody_reaches_anybody(job)
    for host in ("n0", "n1"):
        job.cluster.tool("heal", host, "m")
    job.until("mpirun does not hear daemon 1", (0, REFUTED))
    for host in ("n2", "n3"):
        job.cluster.tool("heal", host, "m")
    for daemon in range(HOSTS):
        job.until(f"daemon {daemon} does not go on", (daemon, RESUMED), (daemon, EVICTED), (0, INSTALLED))
    nobody_left_the_view(job)


def all_cut_off(job):
    """Half of them heal, and go on in the end; the others are back too late, and learn it."""
    nobody_reaches_anybody(job)
    for host in ("n0", "n1"):
        job.cluster.tool("heal", host, "m")
    for daemon in (0, 1):
        job.until(f"daemon {daemon} does not go on", (daemon, RESUMED))
        job.until(f"daemon {daemon} has no new view", (daemon, INSTALLED))
    for host in ("n2", "n3"):
        job.cluster.tool("heal", host, "m")
    # Those who went on wait for one more death, and so are there to tell them.
    for daemon in (2, 3):
        job.until(f"daemon {daemon} does not learn that it is out", (daemon, EVICTED))
    job.kill_rank(5)
    dead = job.verdict()
    check(dead == {2, 3, 5, 6, 7}, f"the survivors know of {dead}")
    for daemon in (2, 3):
        check(INSTALLED not in job.log(daemon), f"daemon {daemon} has a view of its own")


LONG = 600000
TESTS = [
    story("mpirun's host is cut off for good: the others go on, its ranks end, and it says why", 2, waits(1000), mpirun_is_cut_off),
    story("mpirun's host is cut off for a while: it waits, and learns that it was evicted", 3, waits(LONG), mpirun_comes_back),
    story("mpirun's host is cut off until the others have ended and left: it ends its ranks, and says why", 3, waits(LONG),
          mpirun_finds_all_gone),
    story("A host is cut off until all others have ended and left: its ranks end", 3, waits(LONG), daemon_finds_all_gone),
    story("mpirun's host is stopped and runs again: it learns that it was evicted", 3, waits(LONG), mpirun_is_stopped),
    story("A network that falls into halves: the one with the lowest id goes on, the other ends its ranks", 4, waits(1000), even_split),
    story("A minority that is not to wait ends its ranks at once", 2, waits(0), ends_at_once),
    story("A network that fails as a whole and heals by halves: all wait, and the first half that is enough goes on", 5,
          waits(LONG), all_cut_off),
    story("A network that fails as a whole and heals in pieces, soon one after the other: all wait, and nobody is out", 1,
          waits(LONG), back_in_pieces),
]

if __name__ == "__main__":
    main(TESTS, ftcluster.SIDE_BY_SIDE)
