#!/usr/bin/env python3
"""Checks consensus.pml with spin: test_consensus.py [--soak]. Prints TAP.

The model as it is must hold: up to two deaths at any point, and one false suspicion, strict and loose. Then each
deliberate mistake must be found, by the assertion that it breaks: a model that can't fail shows nothing.
"""

import concurrent.futures
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(HERE, "consensus.pml")
MEGABYTES = 2000
SECONDS = 60
AT_ONCE = 2

# name, defines, the text of the assertion that must fail, or None
CASES = [
    ("3 processes, up to 2 die, strict", ["FAILS=2"], None),
    ("3 processes, up to 2 die, loose", ["FAILS=2", "LOOSE"], None),
    ("3 processes, up to 2 die, 1 is wronged, strict", ["FAILS=2", "WRONG"], None),
    ("3 processes, up to 2 die, 1 is wronged, loose", ["FAILS=2", "WRONG", "LOOSE"], None),
    ("the exchange, 3 processes, up to 2 die, strict", ["FAST", "FAILS=2"], None),
    ("the exchange, 3 processes, up to 2 die, loose", ["FAST", "FAILS=2", "LOOSE"], None),
    ("the exchange, 3 processes, up to 2 die, 1 is wronged, strict", ["FAST", "FAILS=2", "WRONG"], None),
    ("the exchange, 3 processes, up to 2 die, 1 is wronged, loose", ["FAST", "FAILS=2", "WRONG", "LOOSE"], None),
    ("along a chain, 3 processes, up to 2 die, strict", ["FAST", "FAN=1", "FAILS=2"], None),
    ("along a chain, 3 processes, up to 2 die, loose", ["FAST", "FAN=1", "FAILS=2", "LOOSE"], None),
    ("along a chain, 3 processes, up to 2 die, 1 is wronged, strict", ["FAST", "FAN=1", "FAILS=2", "WRONG"], None),
    ("along a chain, 3 processes, up to 2 die, 1 is wronged, loose", ["FAST", "FAN=1", "FAILS=2", "WRONG", "LOOSE"], None),
    ("along a flat tree, 3 processes, up to 2 die, strict", ["FAST", "FAN=2", "FAILS=2"], None),
    ("along a flat tree, 3 processes, up to 2 die, loose", ["FAST", "FAN=2", "FAILS=2", "LOOSE"], None),
    ("along a flat tree, 3 processes, up to 2 die, 1 is wronged, strict", ["FAST", "FAN=2", "FAILS=2", "WRONG"], None),
    ("along a flat tree, 3 processes, up to 2 die, 1 is wronged, loose", ["FAST", "FAN=2", "FAILS=2", "WRONG", "LOOSE"], None),
    ("beginning the exchange anew with a value accepted is found", ["FAST", "FAILS=2", "ANEW_ANYHOW"], "returned"),
    ("returning in COMMIT under strict semantics is found", ["FAILS=2", "NO_COMMIT"], "returned"),
    ("a new root that forgets what was accepted is found", ["FAILS=2", "FORGET"], "returned"),
    ("orphans that report nothing are found", ["FAILS=2", "NO_REPORT"], "returned!=255"),
    ("accepting a ballot that lacks known failures is found", ["FAILS=2", "ACCEPT_ANY"], "entry"),
    ("not waiting for the wronged to stop is found", ["FAILS=2", "WRONG", "NO_FENCE"], "dead"),
]
SOAK = [
    ("4 processes, up to 2 die, strict", ["N=4", "FAILS=2"], None),
    ("4 processes, up to 2 die, loose", ["N=4", "FAILS=2", "LOOSE"], None),
    ("the exchange, 4 processes, 1 dies, strict", ["FAST", "N=4", "FAILS=1"], None),
    ("the exchange, 4 processes, 1 dies, loose", ["FAST", "N=4", "FAILS=1", "LOOSE"], None),
    ("along a tree, 4 processes, 1 dies, strict", ["FAST", "FAN=2", "N=4", "FAILS=1"], None),
    ("along a flat tree, 4 processes, 1 dies, strict", ["FAST", "FAN=3", "N=4", "FAILS=1"], None),
    ("along a tree, 4 processes, 1 dies, loose", ["FAST", "FAN=2", "N=4", "FAILS=1", "LOOSE"], None),
]


def verify(folder, defines, seconds, megabytes):
    """What pan printed; raises with what went wrong before it ran."""
    flags = ["-D" + define for define in defines]
    made = subprocess.run(["spin", "-a", *flags, MODEL], cwd=folder, capture_output=True, text=True, check=False)
    if made.returncode != 0 or not os.path.exists(os.path.join(folder, "pan.c")):
        raise RuntimeError("spin: " + (made.stdout + made.stderr).strip())
    built = subprocess.run(
        ["gcc", "-w", "-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=8192", "-o", "pan", "pan.c"],
        cwd=folder, capture_output=True, text=True, check=False)
    if built.returncode != 0:
        raise RuntimeError("gcc: " + built.stderr.strip())
    # -E: a process that only waits is no error; the judge in the model says what must have been reached.
    done = subprocess.run(["prlimit", f"--as={megabytes << 20}", "./pan", "-E", "-n", "-m200000", "-w22"], cwd=folder,
                          capture_output=True, text=True, check=False, timeout=seconds)
    return done.stdout + done.stderr


def judge(output, wanted):
    """Nothing if the run is as wanted, else what is wrong with it."""
    if "max search depth too small" in output or "error: " in output:
        return "the search was not complete"
    if wanted is None:
        return "" if "errors: 0" in output else output.split("\n", 1)[0] or "no result"
    violated = [line for line in output.split("\n") if "assertion violated" in line]
    if not violated:
        return "nothing was found"
    return "" if wanted in violated[0] else "another assertion failed: " + violated[0]


def states(output):
    for line in output.split("\n"):
        if "states, stored" in line:
            return line.split()[0] + " states"
    return "no count"


def run(case, seconds, megabytes):
    """What is wrong with a case, if anything, and how many states it has."""
    _, defines, wanted = case
    folder = tempfile.mkdtemp()
    try:
        output = verify(folder, defines, seconds, megabytes)
        return judge(output, wanted), states(output)
    except subprocess.TimeoutExpired:
        return f"not done after {seconds} s", states("")
    except RuntimeError as error:
        return str(error), states("")
    finally:
        shutil.rmtree(folder)


def main():
    soak = "--soak" in sys.argv[1:]
    cases = SOAK if soak else CASES
    seconds, megabytes = (3000, 14000) if soak else (SECONDS, MEGABYTES)
    print(f"1..{len(cases)}")
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(1 if soak else AT_ONCE) as pool:
        done = pool.map(lambda case: run(case, seconds, megabytes), cases)
        for count, ((name, _, _), (problem, counted)) in enumerate(zip(cases, done), 1):
            failed += bool(problem)
            print(f"{'not ok' if problem else 'ok'} {count} - {name} ({counted})")
            if problem:
                print("# " + problem.replace("\n", "\n# "))
            sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
