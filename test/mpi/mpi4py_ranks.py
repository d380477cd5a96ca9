#!/usr/bin/env python3
"""Runs one module of mpi4py's test suite on each rank: mpi4py_ranks.py FOLDER MODULE REPORTS

Every rank writes what became of each test to REPORTS/RANK, as JSON: {test: "ok" | "failed" | "error" | "skipped"}.
"""

import json
import os
import sys
import unittest


class Outcomes(unittest.TestResult):
    """What became of each test."""

    def __init__(self):
        super().__init__()
        self.of = {}

    def addSuccess(self, test):
        super().addSuccess(test)
        self.of[test.id()] = "ok"

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.of[test.id()] = "failed"

    def addError(self, test, err):
        super().addError(test, err)
        self.of[test.id()] = "error"

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.of[test.id()] = "skipped"


def main():
    folder, module, reports = sys.argv[1:]
    sys.path.insert(0, folder)
    os.chdir(folder)
    sys.argv[1:] = []
    from mpi4py import MPI  # as the suite's own runner does it: before any test
    outcomes = Outcomes()
    unittest.defaultTestLoader.loadTestsFromName(module).run(outcomes)
    for test, text in outcomes.failures + outcomes.errors:
        print(f"{test.id()}:\n{text}", file=sys.stderr)
    with open(os.path.join(reports, str(MPI.COMM_WORLD.Get_rank())), "w", encoding="utf-8") as out:
        json.dump(outcomes.of, out)


main()
