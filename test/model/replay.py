#!/usr/bin/env python3
"""Holds traces of the real engine against consensus.pml: replay.py FIRST COUNT. Prints TAP.

The simulator runs the engine and writes each input of each process and what came of it. Here each trace becomes a tape,
and spin runs the model with -DREPLAY: it gets the inputs of the tape in their order and works out by its own rules, those
that spin checks exhaustively, what is sent and returned. It must come to the same messages, numbers, sets and values as
the engine at every step, and its assertions must hold in the end. Then traces are altered, in one field of one message,
one return, one message too few: each must be refused.

The engine's tree of three is flat like the model's. What has no meaning for the model is left out of a comparison:
messages to the dead and on a way that is cut, and sets that tell nothing new (an answer that says yes carries none).
"""

import collections
import concurrent.futures
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(HERE, "consensus.pml")
BUILD = os.environ.get("FT_BUILD", "")
TRACES = os.path.join(BUILD, "test", "sim", "consensus", "consensus_traces")

NOTHING, ANY = 255, 254
CALLS, HEARS, IS_SURE, DIES, SUSPECTS = 0, 1, 2, 3, 4
EXCHANGED, ATTEMPTS = 1, 16
# What the engine calls the steps up and down a tree, and its question, is in the model 13, 14 and 15.
UP, DOWN, QUESTION, EARLIER = 29, 30, 31, 16
# spin numbers the words of an mtype from the last one on.
KINDS = {word: 8 - i for i, word in enumerate(
    ("ballot", "commit", "decide", "answer", "report", "halt", "halted", "exchange"))}
NAMES = {"stop": "halt", "stopped": "halted"}
LATE = "a report of somebody who has returned"
MUTATED = 5
DEADLINE_S = 60


class Unfit(Exception):
    """The trace has something that the model has no word for."""


class Message:
    """A message of the engine in the model's terms."""

    def __init__(self, words):
        self.kind = NAMES.get(words[0], words[0])
        if self.kind not in KINDS:
            raise Unfit(f"a message {words[0]}")
        number = self.number(*map(int, words[1:4]))
        stage, step, yes, suspects = map(int, words[4:8])
        value = NOTHING if words[9] == "-" else int(words[9])
        under = 0 if value == NOTHING else self.number(*map(int, words[10:13])) or EXCHANGED
        self.tree, self.yes, self.set, self.value, self.under = number, 0, suspects, NOTHING, 0
        if self.kind == "exchange":
            self.tree = 16 * stage + (step if step < UP else step - EARLIER)
        elif self.kind == "commit":
            self.value = value
        elif self.kind == "decide":
            self.tree, self.set, self.value = 0, ANY, value
        elif self.kind == "answer":
            self.yes, self.set = yes, ANY if yes else suspects
            if stage == 0:
                self.value, self.under = value, under
        elif self.kind in ("report", "halt", "halted"):
            self.tree = 0

    @staticmethod
    def number(round_, root, attempt):
        if round_ > 1:
            raise Unfit("a second round")
        return root * ATTEMPTS + attempt + EXCHANGED if round_ else 0

    def tape(self, to):
        return [KINDS[self.kind], to, self.tree, self.yes, self.set, self.value, self.under]


class Step:
    def __init__(self, who):
        self.who, self.inputs, self.sends, self.returns, self.died = who, [], [], NOTHING, False
        self.stopped = False


class Trace:
    """One trace: what the model needs to know of it, and the tape."""

    def __init__(self, lines):
        _, self.seed, size, self.algorithm, fan_out, semantics, old = lines[0].split()
        self.size, self.loose = int(size), semantics == "loose"
        self.defines = {"paper": [], "fast": ["FAST"], "tree": ["FAST", "FAN " + fan_out]}[self.algorithm]
        self.kind = f"{self.algorithm}{fan_out if self.algorithm == 'tree' else ''} {semantics} {size}"
        self.steps = []
        dead = self.old = int(old)
        called, waiting, returned = set(), {}, {}
        stopped = set()
        self.cut = set()  # no way between these two any more
        step = None
        for line in lines[1:]:
            words = line.split()
            if words[0] == "step":
                who = int(words[1])
                step = Step(who)
                step.returns = returned.get(who, NOTHING)
                step.stopped = who in stopped
                if words[2] == "hear" and {who, int(words[3])} == self.cut:
                    continue  # it was on its way
                if words[2] == "suspect":
                    self.cut = {who, int(words[3]).bit_length() - 1}
                self.take(step, words[2:], called, waiting)
                self.steps.append(step)
            elif words[0] == "send":
                if words[2] == "report" and step.who in returned:
                    raise Unfit(LATE)
                if not dead >> int(words[1]) & 1 and {step.who, int(words[1])} != self.cut:
                    step.sends.append((int(words[1]), Message(words[2:])))
            elif words[0] == "return":
                step.returns = returned[step.who] = int(words[1])
            elif words[0] == "stop":
                step.stopped = True
                stopped.add(step.who)
            elif words[0] == "died":
                step.died = True
                dead |= 1 << step.who
        self.steps = [s for s in self.steps if s.inputs or s.died]

    @staticmethod
    def take(step, words, called, waiting):
        if words[0] == "call":
            called.add(step.who)
            step.inputs = [(CALLS, int(words[1]), None), *waiting.pop(step.who, [])]
        elif words[0] == "hear":
            heard = (HEARS, int(words[1]), Message(words[2:]))
            if step.who in called:
                step.inputs = [heard]
            else:
                waiting.setdefault(step.who, []).append(heard)
        elif words[0] in ("sure", "suspect"):
            step.inputs = [(IS_SURE if words[0] == "sure" else SUSPECTS, int(words[1]), None)]
        else:
            step.inputs = [(DIES, 0, None)]

    def tape(self):
        out = []
        for s in self.steps:
            out += [s.who, s.returns, int(s.died) + 2 * int(s.stopped), len(s.sends)]
            for to, message in s.sends:
                out += message.tape(to)
            out.append(len(s.inputs))
            for what, whom, message in s.inputs:
                out += [what, whom]
                if message:
                    _, _, tree, _, _, value, _ = message.tape(0)
                    out += [KINDS[message.kind], tree, value]
        return out

    def promela(self):
        """The model with this tape."""
        defines = [f"N {self.size}", "REPLAY", *self.defines, *(["LOOSE"] if self.loose else [])]
        tape = self.tape()
        lines = [f"#define {define}" for define in [*defines, f"LENGTH {len(tape)}", f"OLD_DEAD {self.old}"]]
        load = "; ".join(f"tape[{i}] = {value}" for i, value in enumerate(tape))
        return "\n".join([*lines, f"inline load() {{ {load} }}", f'#include "{MODEL}"', ""])


def read(first, count):
    done = subprocess.run([TRACES, str(first), str(count)], capture_output=True, text=True, check=True)
    lines, traces, unfit = [], [], collections.Counter()
    for line in [*done.stdout.splitlines(), "trace"]:
        if line.startswith("trace") and lines:
            try:
                traces.append(Trace(lines))
            except Unfit as reason:
                unfit[str(reason)] += 1
            lines = []
        lines.append(line)
    return traces, unfit


def replay(trace):
    """Nothing when the model does the same, else what spin says."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.pml")
        with open(path, "w", encoding="ascii") as file:
            file.write(trace.promela())
        done = subprocess.run(["spin", "-T", "-B", path], cwd=folder, capture_output=True, text=True, timeout=DEADLINE_S,
                              check=False)
    said = done.stdout + done.stderr
    good = "replayed" in said and "assertion violated" not in said and "rror" not in said
    return "" if good else said[-1500:] or "spin said nothing"


def alter(trace, rng):
    """Alters the trace in one place; what was done, or nothing when it has no such place."""
    places = [(step, at) for step in trace.steps for at in range(len(step.sends)) if not step.died]
    kind = rng.choice(("tree", "value", "kind", "lost", "added", "return"))
    if kind == "return":
        steps = [s for s in trace.steps if s.returns != NOTHING and not s.died]
        if not steps:
            return ""
        rng.choice(steps).returns ^= 1
        return "a returned set"
    if not places:
        return ""
    step, at = rng.choice(places)
    to, message = step.sends[at]
    if kind == "lost":
        del step.sends[at]
        return f"a {message.kind} less"
    if kind == "added":
        step.sends.append((to, message))
        return f"a {message.kind} more"
    if kind == "kind":
        was, message.kind = message.kind, "report" if message.kind != "report" else "answer"
        return f"a {was} that is a {message.kind}"
    if kind == "value" and message.value != NOTHING:
        message.value ^= 1
        return f"the value of a {message.kind}"
    message.tree += 1
    return f"the number of a {message.kind}"


def main():
    first, count = int(sys.argv[1]), int(sys.argv[2])
    traces, unfit = read(first, count)
    rng = random.Random(first)
    print("1..5")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        said = list(pool.map(replay, traces))
        bad = [(trace.seed, words) for trace, words in zip(traces, said) if words]
        steps = sum(len(trace.steps) for trace in traces)
        victims = traces[:len(traces) // MUTATED]
        altered = [(trace, what) for trace in victims if (what := alter(trace, rng))]
        refused = list(pool.map(replay, [trace for trace, _ in altered]))
    passed = [f"seed {trace.seed}, {what}" for (trace, what), words in zip(altered, refused) if not words]
    kinds = {t.kind for t in traces}
    died = sum(any(s.died for s in t.steps) for t in traces)
    wronged = sum(bool(t.cut) for t in traces)
    stopped = sum(any(s.stopped for s in t.steps) for t in traces)
    results = [
        (traces and not bad, f"{len(traces)} traces from seed {first}, {steps} steps: the model does at each what the engine "
         "did"),
        (len(kinds) == 16 and died * 3 > len(traces), f"with deaths {died}; {', '.join(sorted(kinds))} processes"),
        (wronged * 10 > len(traces) and stopped * 20 > len(traces), f"with a false suspicion {wronged}, in {stopped} of them somebody "
         "was told to stop"),
        (unfit.total() * 20 <= count + 20 * unfit[LATE], f"{unfit.total()} traces have what the model has no word for, "
         f"{unfit[LATE]} of them {LATE}"),
        (altered and not passed, f"{len(altered)} altered traces are refused")]
    for number, (good, words) in enumerate(results, 1):
        print(f"{'ok' if good else 'not ok'} {number} - {words}")
    for seed, words in bad[:3]:
        print(f"# seed {seed}:\n# " + words.replace("\n", "\n# "))
    for what in passed[:10]:
        print(f"# was not refused: {what}")
    return 0 if all(good for good, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
