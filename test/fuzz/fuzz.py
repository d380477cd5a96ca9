#!/usr/bin/env python3
"""test/fuzz/fuzz.py TARGET SECONDS SOURCE...: fuzzes one target and measures its corpus. Prints TAP.

The corpus in test/fuzz/corpus/TARGET must pass, cover at least 95 % of the lines of each SOURCE, and
SECONDS of fuzzing that start from it must find nothing. With --grow instead of SECONDS, fuzzes for a
minute and adds to the corpus what reaches something new.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

TOP = os.environ.get("FT_TOP", os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
FUZZ = os.environ.get("FT_BUILD_FUZZ", os.path.join(TOP, "build", "fuzz"))
COVERAGE = os.environ.get("FT_BUILD_COVERAGE", os.path.join(TOP, "build", "coverage"))
LEAST_PERCENT = 95.0
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(TOP, "test", "harness"))

import linecov  # noqa: E402


def fuzzer(target, *arguments):
    """Runs the libFuzzer program; returns its exit code and output."""
    program = os.path.join(FUZZ, "test", "fuzz", f"fuzz_{target}")
    done = subprocess.run([program, "-timeout=60", "-rss_limit_mb=2048", *arguments],
                          capture_output=True, text=True, errors="replace", check=False)
    return done.returncode, done.stdout + done.stderr


def grow(target, corpus):
    with tempfile.TemporaryDirectory() as fresh, tempfile.TemporaryDirectory() as merged:
        code, output = fuzzer(target, "-max_total_time=60", f"-artifact_prefix={fresh}/crash-", fresh, corpus)
        if code == 0:
            code, output = fuzzer(target, "-merge=1", merged, corpus, fresh)
        if code:
            sys.exit(output)
        shutil.rmtree(corpus)
        shutil.copytree(merged, corpus)
    print(f"{len(os.listdir(corpus))} inputs in {corpus}")


def tell(number, good, name, notes=()):
    print(f"{'' if good else 'not '}ok {number} - {name}", flush=True)
    for note in notes:
        print(f"# {note}", flush=True)
    return 0 if good else 1


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    target, seconds, sources = sys.argv[1], sys.argv[2], sys.argv[3:]
    corpus = os.path.join(TOP, "test", "fuzz", "corpus", target)
    if seconds == "--grow":
        grow(target, corpus)
        return 0
    print(f"1..{2 + len(sources)}", flush=True)
    failed = 0
    code, output = fuzzer(target, "-runs=0", corpus)
    failed += tell(1, code == 0, "the corpus passes", output.splitlines()[-30:] if code else ())
    with tempfile.TemporaryDirectory() as fresh:
        code, output = fuzzer(target, f"-max_total_time={seconds}", f"-artifact_prefix={fresh}/crash-",
                              fresh, corpus)
        done = re.search(r"Done (\d+) runs", output)
        runs = int(done.group(1)) if done else 0
        # More than the corpus once: how many more is up to how busy the machine is.
        good = code == 0 and runs > len(os.listdir(corpus))
        failed += tell(2, good, f"{seconds} s of fuzzing find nothing",
                       [f"{runs} runs"] + ([] if good else output.splitlines()[-40:]))
    program = os.path.join(COVERAGE, "test", "fuzz", f"fuzz_{target}")
    lines = linecov.measure(TOP, COVERAGE, [[program, corpus]])
    for number, source in enumerate(sources, 3):
        counts = lines.get(source, {})
        share = linecov.percent(counts)
        failed += tell(number, share >= LEAST_PERCENT,
                       f"the corpus covers {LEAST_PERCENT:g} % of the lines of {source}",
                       [f"{share:.1f} % of {len(counts)} lines; not: {linecov.missed(counts) or 'none'}"])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
