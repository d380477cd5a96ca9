#!/usr/bin/env python3
"""What the demonstration asks mpirun for, and its reading of HPCC's output: right only when every check is."""

import contextlib
import io
import os
import re
import sys
import types

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.insert(0, os.path.join(TOP, "test", "lib"))
sys.path.insert(0, os.path.join(TOP, "contrib", "demonstration"))

import counts  # noqa: E402
import demo  # noqa: E402
import hpcc  # noqa: E402
import screen  # noqa: E402
from fttap import check, main  # noqa: E402

with open(os.path.join(HERE, "hpccoutf.txt"), encoding="utf-8") as source:
    GOOD = source.read()


def good_output_passes():
    """the output of a good run passes, and every check is seen"""
    verdict = hpcc.Verdict(GOOD)
    check(verdict.passed, verdict.checks)
    check(len(verdict.checks) == 14, f"{len(verdict.checks)} checks")


def spoiled(pattern, replacement, name):
    """A test that one spoiled result fails the check of that name alone."""
    def test():
        text, number = re.subn(pattern, replacement, GOOD, count=1, flags=re.M)
        check(number == 1, f"{pattern} is not in the sample")
        verdict = hpcc.Verdict(text)
        wrong = [n for n, _, right in verdict.checks if not right]
        check(wrong == [name] and not verdict.passed, f"wrong checks: {wrong}")
    words = replacement.replace(r"\1", "").strip()
    test.__doc__ = f"{name} fails on: {words}"
    return test


def cut_off_output_fails():
    """an output that breaks off anywhere does not pass"""
    lines = GOOD.splitlines(keepends=True)
    last = next(n for n, line in enumerate(lines) if "End of HPC Challenge tests." in line)
    for end in range(last + 1):
        check(not hpcc.Verdict("".join(lines[:end])).passed, f"passed after {end} lines")


def statistics_are_added_up():
    """the lines of all ranks are added up, events are told"""
    tally = counts.Tally()
    check(tally.watch("pml/dr[rank 0]: sent=10 retransmitted=2 (timeout=2) duplicates=1") is None,
          "a statistics line was shown")
    tally.watch("pml/dr[rank 1]: sent=5 retransmitted=1 (timeout=1) duplicates=0")
    check((tally.dr["sent"], tally.dr["retransmitted"]) == (15, 3), tally.dr)
    tally.watch("pml/dr[rank 1] so far: sent=7 retransmitted=2 (timeout=1) duplicates=0")
    check((tally.dr["sent"], tally.dr["retransmitted"]) == (17, 4), tally.dr)
    told = tally.watch("pml/dr[rank 2] 10:11:12.000013: peer [[7,1],3] path tcp[0]: suspect -> down")
    check(told is not None and "tcp[0] to rank 3: taken out" in told[1], told)
    check(tally.not_struck() != [], "nothing injected, and nobody minds")


class Told(demo.Demo):
    """The first act, of which is noted what it would run."""

    def __init__(self, words, virtual):
        sys.argv = ["demo", *words]
        self.asked, self.screen = demo.options(), screen.Screen()
        self.place = types.SimpleNamespace(virtual=virtual)
        self.btl = {}
        with contextlib.redirect_stdout(io.StringIO()):
            self.first_act()

    def find_place(self):
        """It is known."""

    def act(self, name, title, parameters, deadline, cut_in, at_rank_0=None):
        self.btl[name] = parameters["btl"]
        # Where all ranks lost one of their two links, both ways between two of them could be gone.
        check("btl_fault_kill_after" not in parameters, f"{name}: {parameters}")
        if name != "ob1-cut":
            check(bool(at_rank_0) != self.place.virtual, f"{name}: {at_rank_0}")

    def conclude(self):
        return 0


def one_option_puts_it_on_datagrams():
    """--dgram puts dr's fragments in datagrams, with another path where there are no two rails, and leaves ob1 alone"""
    for words, virtual, dr in (([], True, "fault,tcp,self"), (["--dgram"], True, "fault,dgram,self"),
                               (["--dgram", "--loopback"], False, "fault,dgram,tcp,self")):
        btl = Told(words, virtual).btl
        check(btl["dr"] == dr, f"{words}: {btl}")
        check(all("dgram" not in value for name, value in btl.items() if name != "dr"), f"{words}: {btl}")


if __name__ == "__main__":
    main([
        good_output_passes,
        spoiled(r"\.\.\. PASSED", "... FAILED", "HPL"),
        spoiled(r"^ +0 tests completed and failed residual checks,",
                "   1 tests completed and failed residual checks,", "HPL"),
        spoiled(r"^(WALL.*)PASSED", r"\1FAILED", "PTRANS"),
        spoiled(r"(Begin of MPIRandomAccess section(?:.|\n)*?)Found 0 errors",
                r"\1Found 1 errors", "MPIRandomAccess"),
        spoiled(r"Scaled residual: .*", "Scaled residual: nan", "StarDGEMM"),
        spoiled(r"max\(\|x-x0\|\): .*", "max(|x-x0|): 1.0e-3", "MPIFFT"),
        spoiled(r"Solution Validates.*", "Failed Validation", "StarSTREAM"),
        spoiled(r"(Begin of StarFFT section(?:.|\n)*?)Node\(s\) with error 0",
                r"\1Node(s) with error 2", "StarFFT"),
        spoiled(r"^Success=1", "Success=0", "HPCC as a whole"),
        cut_off_output_fails,
        statistics_are_added_up,
        one_option_puts_it_on_datagrams,
    ])
