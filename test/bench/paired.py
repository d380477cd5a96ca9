"""Runs that are compared in pairs: mpirun, the class of the cores, counters, medians with their intervals.

On virtual machines the latency of a cache line between two cores flips between two classes within minutes, and everything
else follows it: only runs of one class are compared.
"""

import re
import statistics
import subprocess
import time

NEAR_NS = 80.0
DEADLINE_S = 120
COUNTED = ("sent", "checksummed", "acked", "retransmitted")


class BenchError(Exception):
    """A run failed; the text is for the user."""


class Run:
    """What one mpirun printed."""

    def __init__(self, out, err, seconds):
        self.seconds = seconds
        self.figures = {}
        self.words = [line.split() for line in out.splitlines()]
        for words in self.words:
            if len(words) >= 4 and words[0] in ("latency", "echo", "bandwidth", "rate", "probe"):
                self.figures[(words[0], int(words[1]))] = [float(w) for w in [words[2], *words[4:]]]
        self.counters = {}
        for line in err.splitlines():
            if "pml/dr[rank" in line:
                for name, value in re.findall(r"(\w+)=(\d+)", line):
                    self.counters[name] = self.counters.get(name, 0) + int(value)

    @property
    def probes(self):
        return [values[0] for name, values in self.figures.items() if name[0] == "probe"]


def class_of(probes):
    """near, far, or mixed when they disagree; all is one class where there is nothing to probe."""
    if not probes:
        return "unknown"
    near = [probe < NEAR_NS for probe in probes]
    return "near" if all(near) else "mixed" if any(near) else "far"


class Machine:
    """Where things run."""

    def __init__(self, environment):
        self.environment = environment

    def mpirun(self, pml, btl, program, mca=(), cwd=None, ranks=2):
        """One mpirun of two ranks, each bound to a core, or of more, which share the cores; btl None names no BTL."""
        places = ["--bind-to", "core"] if ranks == 2 else ["--oversubscribe"]
        command = ["mpirun", "-n", str(ranks), *places, "--mca", "pml", pml]
        command += ["--mca", "btl", btl + ",self"] if btl else []
        for name, value in dict(mca).items():
            command += ["--mca", name, str(value)]
        command += [str(word) for word in program]
        start = time.monotonic()
        try:
            done = subprocess.run(command, env=self.environment, cwd=cwd, capture_output=True, text=True,
                                  timeout=DEADLINE_S, check=False)
        except subprocess.TimeoutExpired:
            raise BenchError(f"not done within {DEADLINE_S} s: {' '.join(command)}") from None
        if done.returncode != 0:
            raise BenchError(f"exit code {done.returncode}: {' '.join(command)}\n{done.stderr[-2000:]}")
        return Run(done.stdout, done.stderr, time.monotonic() - start)


def interval(values, beyond=0.025):
    """Interval of the median, by order statistics; it is below, and above, with at most this probability."""
    values = sorted(values)
    count = len(values)
    if count < 6:
        return values[0], values[-1]
    # binomial(count, 1/2): the largest k with P(X < k) <= beyond
    total, term, k = 0.0, 0.5 ** count, 0
    while total + term <= beyond:
        total += term
        k += 1
        term = term * (count - k + 1) / k
    return values[max(k - 1, 0)], values[count - max(k, 1)]


class Sample:
    """Paired values of one class: the median of what is made of each pair, with its interval."""

    def __init__(self, base, other, compare, beyond=0.025):
        made = [compare(b, o) for b, o in zip(base, other)]
        self.count = len(made)
        self.base = statistics.median(base)
        self.other = statistics.median(other)
        self.value = statistics.median(made)
        self.low, self.high = interval(made, beyond)


def ratio(base, other):
    return other / base


def difference(base, other):
    return other - base


class Rounds:
    """Rounds of runs, each round one run of every column, the order turning from round to round. A run of a round is
    `run(column)`; `around` is called between runs where the runs do not probe by themselves."""

    def __init__(self, columns, run, around=None):
        self.columns = columns
        self._run = run
        self._around = around
        self._last = around() if around else []
        self.rounds = []

    def _one(self, column):
        done = self._run(column)
        probes = list(done.probes)
        if self._around:
            after = self._around()
            probes = self._last + after
            self._last = after
        return done, class_of(probes)

    def comparable(self, column):
        """{class: [(base run, run of that column)]} and how many pairs were of two classes."""
        found, left_out = {}, 0
        for runs in self.rounds:
            (base, its_class), (other, other_class) = runs[self.columns[0]], runs[column]
            if its_class == other_class != "mixed":
                found.setdefault(its_class, []).append((base, other))
            else:
                left_out += 1
        return found, left_out

    def pairs(self, column):
        """The pairs of the class that has most of them: class, pairs, pairs not compared."""
        found, left_out = self.comparable(column)
        if not found:
            return "none", [], left_out
        best = max(found, key=lambda its_class: len(found[its_class]))
        return best, found[best], left_out + sum(len(p) for c, p in found.items() if c != best)

    def go(self, wanted, tell, limit_s):
        """Rounds until every column has so many pairs of one class, at most three times as many rounds, within the time."""
        start = time.monotonic()
        while len(self.rounds) < 3 * wanted:
            turn = len(self.rounds) % len(self.columns)
            order = self.columns[turn:] + self.columns[:turn]
            self.rounds.append({column: self._one(column) for column in order})
            tell(len(self.rounds))
            enough = all(len(self.pairs(column)[1]) >= wanted for column in self.columns[1:])
            if enough or time.monotonic() - start > limit_s:
                return


def sample(pairs, name, compare):
    """The pairs' figures of that name, nothing when the class is empty."""
    if not pairs:
        return None
    return Sample([base.figures[name][0] for base, _ in pairs], [other.figures[name][0] for _, other in pairs], compare)


def counts(run):
    """Fragments sent, checksummed, acknowledged and sent again in that run, both ranks."""
    if not run.counters:
        return ""  # not a run of dr
    return " / ".join(str(run.counters.get(name, "?")) for name in COUNTED)

