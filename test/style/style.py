#!/usr/bin/env python3
"""Checks of the source text: test/style/style.py format|tidy|tree|scripts [FOLDER[:N/OF]...]. Prints TAP, one case a file.
N/OF takes the N-th of OF shares of a folder's files.

With folders, only what is below them.
"""

import concurrent.futures
import hashlib
import os
import re
import subprocess
import sys

TOP = os.environ.get("FT_TOP", os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
BUILD = os.environ.get("FT_BUILD", os.path.join(TOP, "build", "release"))
JOBS = os.cpu_count() or 1

# A third of the states of a function that the analyzer looks at by itself: what comes behind takes twice as long as all else,
# and has found nothing.
BOUNDED = ["-Xclang", "-analyzer-config", "-Xclang", "max-nodes=75000"]
MOST_LINES = 600
MOST_FONTS = 8  # words of one line of a manual page in turn in two fonts
# Written so that no pattern matches its own line here.
FORBIDDEN = [
    (r"/(?:work|farm|root)/\w", "a path of one machine"),
    (r"/home/[a-z]", "a path of one machine"),
    (r"\b(?:[T]ODO|[F]IXME|[X]XX)\b", "something unfinished"),
    (r"\b(?:[p]kill|[k]illall)\b", "ends processes by name instead of by id"),
    (r"\b[i]ssue #?[0-9]", "speaks of a tracker that a reader of the tree does not have"),
    (r"\b(?:[C]laude|[A]nthropic|[C]hat[G]PT|[C]opilot)\b", "speaks of something other than the project"),
]


def tracked():
    """The files of the project: git knows them, a release carries the list."""
    listing = subprocess.run(["git", "-C", TOP, "ls-files", "-z"], capture_output=True, check=False)
    if listing.returncode == 0:
        names = listing.stdout.decode().split("\0")
    else:
        with open(os.path.join(TOP, ".files"), encoding="utf-8") as lines:
            names = lines.read().split("\n")
    return sorted(name for name in names if name and os.path.isfile(os.path.join(TOP, name)))


def text_of(name):
    """The file's text, None for a file that is not text."""
    with open(os.path.join(TOP, name), "rb") as source:
        data = source.read()
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def run(command):
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stdout + done.stderr).strip() or "failed"


def sources():
    return [n for n in tracked() if n.endswith((".hpp", ".cc", ".h", ".c", ".cpp"))]


def check_format():
    """Every source is formatted as .clang-format says."""
    names = sources()
    return names, lambda n: run(["clang-format", "--dry-run", "-Werror", n])


def check_tidy():
    """clang-tidy finds nothing in the engines. What was clean and has not changed is not looked at again."""
    names = [n for n in sources() if n.startswith("opal/ft/") and n.endswith(".cc")]
    headers = [n for n in sources() if n.startswith("opal/ft/") and n.endswith(".hpp")]
    common = "".join(text_of(n) or "" for n in headers + [".clang-tidy"])
    memory = os.path.join(BUILD, "test-logs", "tidy-clean")
    os.makedirs(memory, exist_ok=True)

    def check(name):
        key = hashlib.sha256((common + name + (text_of(name) or "")).encode()).hexdigest()
        stamp = os.path.join(memory, key)
        if os.path.exists(stamp):
            return ""
        problem = run(["clang-tidy", "--quiet", name, "--", "-std=c++20", "-I" + TOP, "-DFT_DEBUG=1", *BOUNDED])
        if not problem:
            with open(stamp, "w", encoding="utf-8"):
                pass
        return problem

    return names, check


def joined_words(line):
    """Whether a line of a manual page goes on behind the end of a sentence or clause in a macro that joins its words."""
    macro = re.match(r"\.(?:BR|RB|BI|IB|IR|RI)[ \t]+(.*)", line)
    words = re.findall(r'"(?:[^"]|"")*"?|\S+', macro.group(1)) if macro else []
    return any(re.fullmatch(r"(?:\(\d\w*\))?[)\]]*[.,;!?]", word) for word in words[:-1]) or len(words) > MOST_FONTS


def check_tree():
    """Every file is short enough to be read, ends in a newline, and speaks of the project alone."""

    def check(name):
        text = text_of(name)
        if text is None:
            return ""
        problems = []
        lines = text.split("\n")
        if name.endswith((".hpp", ".cc", ".h", ".c", ".py", ".sh", ".m4", ".am", "/run")):
            if len(lines) > MOST_LINES + 1:
                problems.append(f"{len(lines) - 1} lines, {MOST_LINES} are the most")
        if text and not text.endswith("\n"):
            problems.append("no newline at the end")
        for number, line in enumerate(lines, 1):
            if line.rstrip("\r") != line or re.search(r"[ \t]+$", line) and not name.endswith(".md"):
                problems.append(f"line {number}: white space at the end")
            if re.search(r"\.[1-9]$", name) and joined_words(line):
                problems.append(f"line {number}: these words are printed as one: {line[:100]}")
            for pattern, why in FORBIDDEN:
                if re.search(pattern, line):
                    problems.append(f"line {number}: {why}: {line.strip()[:100]}")
        return "\n".join(problems[:20])

    corpora = ("/corpus/", "/testdata/")
    return [n for n in tracked() if not any(c in n for c in corpora)], check


def check_scripts():
    """shellcheck and the Python compiler find nothing in the scripts."""
    shells, pythons = [], []
    for name in tracked():
        first = (text_of(name) or "").split("\n", 1)[0]
        if re.match(r"#!.*\b(?:ba|da)?sh\b", first):
            shells.append(name)
        elif name.endswith(".py") or re.match(r"#!.*\bpython3\b", first):
            pythons.append(name)

    def check(name):
        if name in shells:
            return run(["shellcheck", "--severity=warning", "--external-sources", name])
        try:
            compile(text_of(name) or "", name, "exec")
        except SyntaxError as error:
            return str(error)
        return ""

    return shells + pythons, check


CHECKS = {"format": check_format, "tidy": check_tidy, "tree": check_tree, "scripts": check_scripts}


def share(names, folder):
    """Those of the names that stand below a folder, or in one share of it."""
    folder, _, part = folder.partition(":")
    number, _, of = (part or "1/1").partition("/")
    return [name for name in names if name.startswith(folder.rstrip("/") + "/")][int(number) - 1 :: int(of)]


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in CHECKS:
        sys.exit(f"usage: {sys.argv[0]} {'|'.join(CHECKS)} [FOLDER[:N/OF]...]")
    names, check = CHECKS[sys.argv[1]]()
    if sys.argv[2:]:
        names = [name for folder in sys.argv[2:] for name in share(names, folder)]
    if not names:
        sys.exit(f"{sys.argv[0]}: nothing to check below {' '.join(sys.argv[2:]) or TOP}")
    print(f"1..{len(names)}")
    failed = False
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for number, (name, problem) in enumerate(zip(names, pool.map(check, names)), 1):
            print(f"{'not ' if problem else ''}ok {number} - {name}")
            for line in problem.split("\n") if problem else []:
                print(f"# {line}")
            failed = failed or bool(problem)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
