"""The manifests test/<level>/tests.list and the settings of a build."""

import os
import re
import shlex

# The ladder: from what is quick and exact to what is slow and real.
LADDER = ["style", "unit", "sim", "model", "mpi", "cluster", "sanitizer", "fuzz", "suite", "bench"]
# Levels whose tests do not depend on the wall clock, and so may share the machine.
PARALLEL = ["style", "unit", "sim", "model", "fuzz"]


class Error(Exception):
    """Something in a manifest that is wrong, told with file and line."""


class Test:
    """One line of a manifest."""

    def __init__(self, level, name, deadline, when, command, build):
        self.level = level
        self.name = f"{level}/{name}"
        self.deadline = deadline
        self.when = when
        self.command = command
        self.build = build
        self.log = os.path.join(build, "test-logs", self.name.replace("*", "_") + ".log")
        self.started = 0.0

    @property
    def parallel(self):
        return self.level in PARALLEL

    def shown_command(self):
        return " ".join(shlex.quote(word) for word in self.command)


def read_settings(path):
    """Lines NAME=value, as the build wrote them."""
    settings = {}
    try:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                name, _, value = line.rstrip("\n").partition("=")
                settings[name] = value
    except FileNotFoundError:
        raise SystemExit(f"test/run: {path} is missing: run make in the build folder first") from None
    return settings


def load(top, build, env):
    """Every test of every level, in the order of the ladder and of the manifests."""
    levels = [entry for entry in os.listdir(os.path.join(top, "test"))
              if os.path.exists(os.path.join(top, "test", entry, "tests.list"))]
    unknown = [level for level in levels if level not in LADDER]
    if unknown:
        raise Error(f"test/{unknown[0]} is not a level that test/harness/manifest.py knows")
    tests = []
    for level in sorted(levels, key=LADDER.index):
        tests += load_level(top, build, env, level)
    return tests


def load_level(top, build, env, level):
    path = os.path.join(top, "test", level, "tests.list")
    tests, names = [], set()
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            where = f"test/{level}/tests.list:{number}"
            fields = line.split(None, 3)
            if len(fields) != 4:
                raise Error(f"{where}: wanted: name deadline check|soak command...")
            name, deadline, when, command = fields
            try:
                seconds = float(deadline)
            except ValueError:
                seconds = 0.0
            if seconds <= 0:
                raise Error(f"{where}: the deadline must be a number of seconds, not {deadline}")
            if when not in ("check", "soak"):
                raise Error(f"{where}: wanted check or soak, not {when}")
            if name in names:
                raise Error(f"{where}: {name} is there twice")
            names.add(name)
            words = resolve(shlex.split(expand(command, env, where)), top, build)
            tests.append(Test(level, name, seconds, when, words, build))
    return tests


def expand(text, env, where):
    def value(match):
        name = match.group(1) or match.group(2)
        if name not in env:
            raise Error(f"{where}: ${name} is not set")
        return env[name]

    return re.sub(r"\$(?:(\w+)|\{(\w+)\})", value, text)


def resolve(words, top, build):
    """Finds a command that is a relative path in the source tree, then in the build folder."""
    if "/" in words[0] and not os.path.isabs(words[0]):
        for root in (top, build):
            if os.path.exists(os.path.join(root, words[0])):
                return [os.path.join(root, words[0])] + words[1:]
    return words
