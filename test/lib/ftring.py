"""Running hashring on a virtual cluster while a fault strikes at a known moment."""

import re
import time

import ftcluster
from fttap import check, comment

RANKS = 4
OUT_OF_USE = ("down", "probing", "gone")
CARRIED = 2 << 20  # bytes that no probes add up to, and a few of the largest messages do


class NotUnderWay(AssertionError):
    """The run stood still or ended before there was anything to strike."""


class Story:
    """One run of hashring over all hosts, and what became of it.

    The run goes on until finish() asks for its end, so that a fault strikes,
    and is survived, in the middle: never by chance after the last message.
    """

    def __init__(self, cluster, parameters, deadline, kinds="", largest=None, seed=1,
                 ranks=RANKS, paths=False):
        self.cluster = cluster
        self.marks = cluster.marks()
        self._enough = self.marks.path + ".enough"
        self.end = time.monotonic() + deadline
        arguments = ["-np", ranks, "--map-by", "node"]
        for name, value in parameters.items():
            arguments += ["--mca", name, value]
        arguments += [ftcluster.program("hashring"), "--marks", self.marks.path, "--until",
                      self._enough, "--seconds", deadline + 30, "--seed", seed]
        if paths:
            arguments += ["--paths", 1]
        if kinds:
            arguments += ["--kinds", kinds]
        if largest:
            arguments += ["--max", largest]
        self.run = cluster.mpirun(*arguments, deadline=deadline, env=ftcluster.component_env())

    def rounds(self, number, kind="", seconds=None):
        """Wait until that many rounds have begun; False when they do not in time."""
        end = self.end if seconds is None else min(self.end, time.monotonic() + seconds)
        return self.marks.rounds(number, end, self.run, kind) is not None

    def under_way(self, kind="", rounds=2):
        """Wait for the run to be in the middle of a round of the kind."""
        if not self.rounds(rounds, kind):
            self.run.wait()
            self.run.tell()
            raise NotUnderWay(f"the run did not come to its {rounds}. round {kind}")

    def goes_on(self, rounds=10, seconds=None):
        """Check that more rounds begin from now on.

        A round begins only when rank 0 has all of the one before it, so all but
        the first were exchanged whole after this call.
        """
        self.drain()
        if not self.rounds(rounds, seconds=seconds):
            self.run.stop()
            self.run.tell()
            raise AssertionError("the run made no progress after the fault")

    def stands_still(self, host, seconds):
        """The host is stopped for so long; check that nothing goes on without it, and all does afterwards."""
        self.cluster.tool("freeze", host)
        self.drain()
        check(not self.rounds(10, seconds=seconds), "the host did not stand still")
        self.cluster.tool("thaw", host)
        self.goes_on()

    def until(self, wanted, complaint, seconds=60):
        """Wait until wanted() is true, looking again as each round begins; the run must not stand still or end meanwhile."""
        end = time.monotonic() + seconds
        while not wanted():
            self.drain()
            if not self.rounds(1, seconds=end - time.monotonic()):
                self.run.stop()
                self.run.tell()
                raise AssertionError(complaint)

    def out_of_use(self, rank, kind):
        """The paths of a kind that the rank has taken out for some peer, and not back, by what it said (pml_dr_verbose 1)."""
        told = re.findall(rf"pml/dr\[rank {rank}\] [\d:.]+: peer (.*?) path ({kind}\[\d+\]): \S+ -> (\S+)$", self.run.err,
                          re.MULTILINE)
        last = {(peer, path): state for peer, path, state in told}
        return {path for (_, path), state in last.items() if state in OUT_OF_USE}

    def given(self, path):
        """Payload that dr gave to the paths of this name at all ranks, as it said in the end (pml_dr_stats 2)."""
        return sum(map(int, re.findall(rf"^pml/dr\[rank \d+ -> .* {re.escape(path)}\]: state=\w+ sent=\d+ bytes=(\d+)",
                                       self.run.err, re.MULTILINE)))

    def finish(self):
        """Ask the program for its end and wait; returns the exit code."""
        with open(self._enough, "w", encoding="ascii"):
            pass
        return self.run.wait()

    def finish_right(self):
        """Finish; the program must have found every byte right."""
        code = self.finish()
        if code != 0 or " 0 wrong" not in self.run.out:
            self.run.tell()
            raise AssertionError(f"exit code {code}: {verdict(self.run)}")

    def drain(self):
        """Forget the marks written so far."""
        while self.marks.wait(lambda t: True, time.monotonic()) is not None:
            pass

    def close(self):
        self.run.stop()
        self.marks.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def cut_in_turn(story, host, rank, kinds):
    """Cut one rail of a host after the other, without a word, but for the last.

    Each rail is one path alone, and `kinds` are the BTLs that have them. After a cut the rank, which is on that host, takes one
    more path of that kind out, and from then on the next rail carries messages, both ways. Which of two of a kind is on which
    rail is not told by their numbers, which follow the order in which the library names the devices.
    """
    cluster = story.cluster

    def carried():
        """Bytes over each rail, of the way that carried less."""
        return [min(cluster.carried(host, rail)) for rail in range(len(kinds))]

    def cut(rail, kind, left):
        began = time.monotonic()
        cluster.tool("cut", host, rail, "--how", "drop")
        check(cluster.await_struck("drop", host, rail, 1, story.end), "nothing was cut")
        story.until(lambda: len(story.out_of_use(rank, kind)) >= kinds[:rail + 1].count(kind),
                    f"no path of {kind} was taken out after the cut of rail {rail}")
        took = time.monotonic() - began
        before = carried()
        story.until(lambda: carried()[rail + 1] - before[rail + 1] > CARRIED,
                    f"rail {rail + 1} carries next to nothing though it is the turn of {left}")
        since = [now - then for now, then in zip(carried(), before)][rail + 1:]
        share = since[0] / sum(since)
        comment(f"a path of {kind} was taken out {took:.1f} s after the cut of rail {rail}; {time.monotonic() - began:.1f} s after it {left} "
                f"had carried {CARRIED >> 20} MiB, {share:.3f} of all from then on")
        story.goes_on()

    for rail, (kind, left) in enumerate(zip(kinds, kinds[1:])):
        cut(rail, kind, left)


def verdict(run):
    lines = [line for line in run.out.splitlines() if line.startswith("hashring:")]
    if lines:
        return lines[-1]
    return "past the deadline" if run.code == ftcluster.PAST_DEADLINE else "it gave no verdict"


def counters_add_up(cluster, kind, host, rail, at_least=1):
    """Check that the fault struck."""
    struck = cluster.struck(kind, host, rail)
    check(struck >= at_least, f"{kind} struck {struck} packets at {host} rail {rail}")
    return struck


def heal_all(cluster):
    """End every fault on every rail."""
    for host, networks in cluster.counters().items():
        for network in networks:
            cluster.tool("heal", host, network)


def available(component):
    """Whether a component can be found: (framework_name), for example pml_dr."""
    framework, name = component.split("_", 1)
    run = ftcluster.command(["ompi_info", "--parsable", "--param", framework, name],
                            env=ftcluster.component_env())
    return f"mca:{framework}:{name}:version" in run.out
