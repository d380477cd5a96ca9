#!/usr/bin/env python3
"""Tests of test/run's own parts: does a bad test fail, and does nothing outlive it? Prints TAP."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import types

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(TOP, "test", part) for part in ("harness", "lib", "bench")]

import cores  # noqa: E402
import ftcluster  # noqa: E402
import ftlines  # noqa: E402
import manifest  # noqa: E402
import paired  # noqa: E402
import parts  # noqa: E402
import supervisor  # noqa: E402
import tap  # noqa: E402

BUILD = tempfile.mkdtemp(prefix="harness.")


class Overdue(manifest.Test):
    """A test whose deadline has passed as soon as there is a file, which it makes before it says its last word."""

    ready = os.path.join(BUILD, "ready")

    @property
    def deadline(self):
        return 0.0 if os.path.exists(self.ready) else self.at_the_latest

    @deadline.setter
    def deadline(self, seconds):
        self.at_the_latest = seconds


def outcome_of(script, kind=manifest.Test):
    """Runs a shell script as a test and returns its outcome."""
    test = kind("unit", "script", 20.0, "check", ["sh", "-c", script], BUILD)
    pool = supervisor.Pool(dict(os.environ))
    pool.start(test)
    done = []
    while not done:
        done = pool.wait(1.0)
    return done[0][1]


def overdue_outcome_of(script):
    """The same of one whose deadline passes when it runs the command GET_LATE. Whether it came to that is told, too."""
    outcome = outcome_of(script.replace("GET_LATE", f"touch {Overdue.ready}; echo late"), Overdue)
    was_ready = os.path.exists(Overdue.ready)
    if was_ready:
        os.unlink(Overdue.ready)
    return outcome, was_ready


def gone(pid_file):
    """True when the process whose id was written there is no more."""
    with open(pid_file, encoding="utf-8") as source:
        pid = int(source.read())
    return not os.path.exists(f"/proc/{pid}")


def a_good_test_passes():
    outcome = outcome_of("echo 1..2; echo ok 1 - one; echo noise >&2; echo 'ok 2 - two # SKIP no'")
    result = tap.parse(outcome["tap"])
    return (outcome["status"] == 0 and not outcome["problem"] and result.passed == 1
            and result.skipped == [("two", "no")] and not result.problems and not result.failed)


def a_failed_case_is_seen():
    said = ["1..3", "ok 1 - one", "# of one", "not ok 2 - two", "# why", "# where", "#", "# of three", "ok 3 - three", "# more"]
    result = tap.parse(outcome_of("; ".join(f"echo '{line}'" for line in said))["tap"])
    return (result.failed == ["two"] and result.said == [["# why", "# where"]] and result.passed == 2
            and not result.problems)


def bad_tap_is_a_problem():
    bad = [
        [],
        ["ok 1 - no plan"],
        ["1..2", "ok 1 - one is missing"],
        ["1..1", "ok 1 - one", "ok 2 - one too many"],
        ["1..1", "1..1", "ok 1 - two plans"],
        ["1..2", "ok 2 - wrong number", "ok 1 - wrong number"],
        ["1..1", "ok 1 - skipped without a reason # SKIP"],
        ["1..0"],
        ["1..1", "ok 1 - one", "Bail out! no more"],
    ]
    return all(tap.parse(lines).problems for lines in bad)


def a_skip_of_everything_says_why():
    result = tap.parse(["1..0 # SKIP no network namespaces here"])
    return result.skipped == [("everything", "no network namespaces here")] and not result.problems


def a_crash_is_seen():
    outcome = outcome_of("echo 1..1; echo ok 1 - one; kill -SEGV $$")
    return os.WIFSIGNALED(outcome["status"]) and "SIGSEGV" in tap.describe_status(outcome["status"])


def the_deadline_holds_for_all_descendants():
    # A daemon in a session of its own that ignores SIGTERM, and a parent that cleans up after itself.
    daemon, trapped = os.path.join(BUILD, "daemon"), os.path.join(BUILD, "trapped")
    outcome, was_ready = overdue_outcome_of(
        f"trap 'echo done > {trapped}; exit 1' TERM; echo 1..1; "
        f"setsid sh -c 'trap \"\" TERM; echo $$ > {daemon}; while :; do sleep 60; done' & "
        f"while ! test -s {daemon}; do :; done; GET_LATE; while :; do sleep 60 & wait; done")
    return (was_ready and "deadline" in outcome["problem"] and gone(daemon) and os.path.exists(trapped)
            and any("ending these" in line for line in outcome["tail"]))


def shared_memory_of_what_is_ended_goes_too():
    """Only of that: a file that none of its processes has mapped is somebody else's."""
    names = [f"/dev/shm/vader_segment.harness.{os.getpid()}.{i}" for i in range(2)]
    mapped = os.path.join(BUILD, "mapped")
    holder = (f"{sys.executable} -c 'import mmap,signal,sys; f=open(sys.argv[1],\"r+\"); m=mmap.mmap(f.fileno(),0);"
              f" print(\"y\",flush=True); signal.pause()' {names[0]} > {mapped}")
    for name in names:
        with open(name, "wb") as file:
            file.write(b"x")
    try:
        outcome_of(f"echo 1..1; echo ok 1 - one; {holder} & while ! test -s {mapped}; do :; done")
        return [os.path.exists(name) for name in names] == [False, True]
    finally:
        for name in names:
            if os.path.exists(name):
                os.unlink(name)


def where_it_stood_is_told():
    stuck = os.path.join(BUILD, "stuck")
    shutil.copy("/bin/sleep", stuck)
    outcome, was_ready = overdue_outcome_of(
        f"echo 1..1; {stuck} 600 & while ! grep -q '(stuck) S' /proc/$!/stat; do :; done; GET_LATE; wait")
    return was_ready and any("#0" in line and "nanosleep" in line for line in outcome["tail"])


def what_is_left_behind_is_found_and_ended():
    daemon = os.path.join(BUILD, "orphan")
    outcome = outcome_of("echo 1..1; echo ok 1 - one; "
                         f"setsid sh -c 'echo $$ > {daemon}; exec sleep 600' >&- 2>&- & "
                         f"while ! test -s {daemon}; do :; done")
    return "left 1 processes behind" in outcome["problem"] and gone(daemon)


def output_is_merged_by_whole_lines():
    outcome = outcome_of("echo 1..1; printf 'ok 1 '; echo between >&2; echo '- one'; printf tail")
    return outcome["tap"] == ["1..1", "ok 1 - one"] and outcome["tail"][-1] == "tail"


def a_run_reads_both_outputs_by_whole_lines():
    script = """
        printf 'an error, ' >&2
        printf 'call 4\\r\\n'
        read -r _
        echo 'to its end' >&2
        printf 'a last word'
    """
    with subprocess.Popen(["bash", "-c", script], stdin=subprocess.PIPE, **ftlines.PIPES) as process:
        lines = ftlines.Lines(process)
        while b"call 4" not in lines.whole:
            try:
                return lines.until_the_end(0.01) and False  # it waits for a word
            except subprocess.TimeoutExpired:
                pass
        process.stdin.write(b"on\n")
        process.stdin.close()
        text = lines.until_the_end(10)
    return text in ("call 4\nan error, to its end\na last word\n", "call 4\na last word\nan error, to its end\n")


def each_test_has_a_folder_of_its_own():
    outcome = outcome_of("echo 1..1; test -d $TMPDIR && touch $TMPDIR/x && echo ok 1 $TMPDIR")
    folder = outcome["tap"][-1].split()[-1]
    return folder.startswith("/") and not os.path.exists(folder)


def a_missing_program_is_explained():
    test = manifest.Test("unit", "none", 5.0, "check", ["./no-such-program"], BUILD)
    pool = supervisor.Pool(dict(os.environ))
    pool.start(test)
    done = []
    while not done:
        done = pool.wait(1.0)
    return "cannot be started" in done[0][1]["problem"]


def timing_sensitive_tests_run_alone():
    pool = supervisor.Pool({})
    unit = manifest.Test("unit", "a", 5.0, "check", ["true"], BUILD)
    mpi = manifest.Test("mpi", "a", 5.0, "check", ["true"], BUILD)
    empty = pool.admits(mpi, 8)
    pool.jobs = {3: (mpi, 0, b"")}
    beside_mpi = pool.admits(unit, 8) or pool.admits(mpi, 8)
    pool.jobs = {3: (unit, 0, b"")}
    return empty and not beside_mpi and pool.admits(unit, 8) and not pool.admits(mpi, 8) \
        and not pool.admits(unit, 1)


def manifests_are_checked():
    def error_of(line):
        folder = tempfile.mkdtemp(dir=BUILD)
        os.makedirs(os.path.join(folder, "test", "unit"))
        with open(os.path.join(folder, "test", "unit", "tests.list"), "w", encoding="utf-8") as out:
            out.write(line + "\n")
        try:
            manifest.load(folder, folder, {"FT_BUILD": folder})
        except manifest.Error as error:
            return str(error)
        return ""

    bad = ["name 10 check", "name ten check true", "name 10 often true", "name -1 check true",
           "name 10 check $FT_NOTHING/x", "name 10 check true\nname 10 check true"]
    return all("tests.list:" in error_of(line) for line in bad) and not error_of("# x\n\nn 1 soak true")


def the_time_of_every_part_is_added_up():
    clock = parts.Clock(90)
    clock.add("cluster/radixft/nodes", 60, 1)
    clock.add("sim/membership/swarm", 120, 2)
    clock.add("mpi/matrix/dgram", 30, 1)
    clock.add("mpi/matrix/dr", 45, 1)
    lines = [" ".join(line.split()) for line in clock.lines()]
    return lines == ["building 1.5 min", "btl/dgram 0.5 of 4 min", "errmgr/radixft 2.0 of 8 min",
                     "pml/dr and btl/fault 0.8 of 21 min"]


def a_part_over_its_time_is_marked():
    def lines(seconds, soak=False):
        clock = parts.Clock(soak=soak)
        clock.add("cluster/dgram", seconds, 1)
        clock.add("unit/harness", 10000, 1)  # has no limit
        return [" ".join(line.split()) for line in clock.lines()]
    rest = ["everything's style and harness 166.7 min"]
    return (lines(240) == [*rest, "btl/dgram 4.0 of 4 min"]
            and lines(250) == [*rest, "btl/dgram 4.2 of 4 min <== over its time"]
            and lines(7200, soak=True) == [*rest, "btl/dgram 120.0 min"])


def rounds_go_on_until_there_are_enough_pairs():
    def numbers(probes, limit_s):
        """How many rounds there were, and pairs; the run of each round's second column finds the cores as in probes."""
        left = iter(probes)
        rounds = paired.Rounds(["a", "b"], lambda column: types.SimpleNamespace(probes=[50.0 if column == "a" else next(left)]))
        rounds.go(4, lambda count: None, limit_s)
        return len(rounds.rounds), len(rounds.pairs("b")[1])
    near, far = 50.0, 110.0
    return (numbers([near] * 4, 60) == (4, 4) and numbers([near, far, far] * 4, 60) == (10, 4)
            and numbers([far] * 12, 60) == (12, 0) and numbers([near], 0) == (1, 1))


def a_command_leaves_no_descriptor_behind():
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        ftcluster.command(["true"])
    return len(os.listdir("/proc/self/fd")) == before


# The first case ends after the second, which it waits for; the third says nothing of its own.
BESIDE = """
import sys, threading
sys.path.insert(0, sys.argv[1])
from fttap import Skip, check, comment, main
go = threading.Event()
def first():
    comment("one")
    check(go.wait(20), "nothing runs beside this")
    comment("two")
def second():
    comment("three")
    go.set()
    check(False, "four")
def third():
    raise Skip("five")
def fourth():
    raise ValueError("six")
def fifth():
    check(threading.active_count() <= int(sys.argv[2]) + 1 and not under_way, "something runs beside this")
under_way = [1, 2]
def last(test):
    def run():
        try:
            test()
        finally:
            under_way.pop()
    run.__name__ = test.__name__
    return run
main([first, second, last(third), last(fourth)], int(sys.argv[2]), alone=[fifth])
"""


def cases_side_by_side_are_told_in_order():
    told = []
    for at_a_time in ("2", "3"):
        run = ftcluster.command([sys.executable, "-c", BESIDE, os.path.join(TOP, "test", "lib"), at_a_time])
        lines = [line for line in run.out.splitlines() if not re.match("#   ", line)]
        told.append((run.code, lines[:8], lines[8:11], lines[-1]))
    return told == 2 * [(1, ["1..5", "ok 1 - first", "# one", "# two", "not ok 2 - second", "# four", "# three", "#"],
                         ["ok 3 - third # SKIP five", "not ok 4 - fourth", "# Traceback (most recent call last):"],
                         "ok 5 - fifth")]


def what_is_awaited_ends():
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    ftcluster.await_end(child.pid, time.monotonic())
    lived = child.poll() is None
    child.stdin.close()
    ftcluster.await_end(child.pid, time.monotonic() + 20)
    return lived and child.poll() is not None


def cores_are_shared_while_it_lasts():
    def seen(before):
        with tempfile.TemporaryDirectory() as folder:
            setting = os.path.join(folder, "setting")
            if before is not None:
                with open(setting, "w", encoding="ascii") as out:
                    out.write(before)
            values = []
            shared = cores.Shared(setting)
            for act in (lambda: None, shared.end, shared.end):
                act()
                if os.path.exists(setting):
                    with open(setting, encoding="ascii") as now:
                        values.append(now.read())
            return values
    return seen("1") == ["0", "1", "1"] and seen("0") == ["0", "0", "0"] and not seen(None)


CASES = [
    a_good_test_passes, a_failed_case_is_seen, bad_tap_is_a_problem, a_skip_of_everything_says_why,
    a_crash_is_seen, the_deadline_holds_for_all_descendants,
    shared_memory_of_what_is_ended_goes_too, where_it_stood_is_told,
    what_is_left_behind_is_found_and_ended, output_is_merged_by_whole_lines,
    a_run_reads_both_outputs_by_whole_lines, each_test_has_a_folder_of_its_own,
    a_missing_program_is_explained, timing_sensitive_tests_run_alone, manifests_are_checked,
    the_time_of_every_part_is_added_up, a_part_over_its_time_is_marked,
    rounds_go_on_until_there_are_enough_pairs, a_command_leaves_no_descriptor_behind,
    cases_side_by_side_are_told_in_order, what_is_awaited_ends,
    cores_are_shared_while_it_lasts,
]


def main():
    print(f"1..{len(CASES)}", flush=True)
    failed = 0
    for number, case in enumerate(CASES, 1):
        good = case()
        failed += not good
        print(f"{'' if good else 'not '}ok {number} - {case.__name__}", flush=True)
    shutil.rmtree(BUILD)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
