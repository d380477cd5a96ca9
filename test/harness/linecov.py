"""Which lines of which source files a set of runs executed, told by gcov."""

import json
import os
import shutil
import subprocess
import tempfile


def measure(top, build, commands):
    """Runs the commands, which were built in `build` with --enable-coverage.

    Returns {source relative to top: {line: times executed}}. The counters of other runs are neither read
    nor changed: this run's go to a folder of their own.
    """
    with tempfile.TemporaryDirectory(prefix="linecov.") as folder:
        env = {**os.environ, "GCOV_PREFIX": folder, "CMOCKA_MESSAGE_OUTPUT": "TAP"}
        for command in commands:
            subprocess.run(command, cwd=build, env=env, check=True, stdout=subprocess.DEVNULL)
        return collect(top, folder)


def collect(top, folder):
    lines = {}
    for where, _, names in os.walk(folder):
        for name in sorted(n for n in names if n.endswith(".gcda")):
            note = name[:-5] + ".gcno"
            # The counters lie below `folder` under the path that their object had.
            shutil.copy(os.path.join(where[len(folder):], note), where)
            told = subprocess.run(["gcov", "--json-format", "--stdout", name], cwd=where,
                                  capture_output=True, text=True, check=True)
            for document in told.stdout.splitlines():
                add(top, json.loads(document), lines)
    return lines


def add(top, document, lines):
    base = document["current_working_directory"]
    for entry in document["files"]:
        path = os.path.normpath(os.path.join(base, entry["file"]))
        name = os.path.relpath(path, top)
        if name.startswith(".."):
            continue
        counts = lines.setdefault(name, {})
        for line in entry["lines"]:
            number = line["line_number"]
            counts[number] = max(counts.get(number, 0), line["count"])


def percent(counts):
    """The share of lines that were executed, in percent."""
    return 100.0 * sum(1 for n in counts.values() if n) / len(counts) if counts else 0.0


def missed(counts):
    """The lines that were not executed, as a short text."""
    return ", ".join(str(line) for line, n in sorted(counts.items()) if not n)
