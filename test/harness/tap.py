"""Reads the Test Anything Protocol, strictly: what is missing or makes no sense has failed."""

import os
import re
import signal

PLAN = re.compile(r"^1\.\.(\d+)\s*(?:#\s*(.*))?$")
CASE = re.compile(r"^(not )?ok\b\s*(\d+)?\s*(?:-\s*)?([^#]*)(?:#\s*(.*))?$")
SKIP = re.compile(r"^skip\S*\s*(.*)$", re.IGNORECASE)
MOST_SAID = 40


class Result:
    def __init__(self):
        self.passed = 0
        self.failed = []    # names
        self.said = []      # of each failed case, the lines of diagnosis after it, MOST_SAID at most
        self.skipped = []   # (name, why)
        self.problems = []  # what is wrong with the output as a whole


def parse(lines):
    """The result that a test's standard output tells."""
    result = Result()
    plan = None
    seen = 0
    said = None
    for line in lines:
        if line.startswith("#"):
            if said is not None and len(said) < MOST_SAID:
                said.append(line)
            continue
        match = PLAN.match(line)
        if match:
            if plan is not None:
                result.problems.append("two plans in one output")
            plan = int(match.group(1))
            skip = SKIP.match(match.group(2) or "")
            if plan == 0:
                if skip and skip.group(1):
                    result.skipped.append(("everything", skip.group(1)))
                else:
                    result.problems.append("plans no case and does not say why")
            continue
        if line.startswith("Bail out!"):
            result.problems.append(line)
            continue
        match = CASE.match(line)
        if not match:
            continue
        seen += 1
        failed, number, name, directive = match.groups()
        name = name.strip() or f"case {seen}"
        if number is not None and int(number) != seen:
            result.problems.append(f"case {seen} calls itself {number}")
        skip = SKIP.match(directive or "")
        said = None
        if failed:
            result.failed.append(name)
            said = []
            result.said.append(said)
        elif skip and not skip.group(1):
            result.problems.append(f"skipped without a reason: {name}")
        elif skip:
            result.skipped.append((name, skip.group(1)))
        else:
            result.passed += 1
    if plan is None:
        result.problems.append("no plan (1..N) in its output")
    elif plan != seen:
        result.problems.append(f"{plan} cases planned, {seen} reported")
    return result


def describe_status(status):
    """The wait status in words."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"signal {number} ({signal.Signals(number).name})"
    return f"exit code {os.WEXITSTATUS(status)}"
