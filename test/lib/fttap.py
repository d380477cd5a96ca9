"""Tests in Python that print TAP.

A test is a function; its docstring's first line or its name is what is
printed.  It fails by raising, passes by returning, and is skipped by raising
Skip with the reason.
"""

import concurrent.futures
import itertools
import sys
import threading
import traceback

_here = threading.local()  # said: the lines of the test that this thread runs beside others


class Skip(Exception):
    """This test cannot run here; the text says why."""


def check(condition, complaint):
    """Fail the running test with the complaint unless the condition holds."""
    if not condition:
        raise AssertionError(complaint)


def comment(text):
    """Print lines of diagnosis that TAP ignores; with several tests at a time, when the test's turn has come, and with one
    at a time once more when it has failed, behind the line that says so."""
    lines = [f"# {line}" for line in str(text).rstrip("\n").split("\n")]
    said = getattr(_here, "said", None)
    if said is None or _here.at_once:
        print("\n".join(lines), flush=True)
    if said is not None:
        said += lines


def outcome(test, said, at_once=False):
    """Run a test: None when it passed, or what it raised. What it says is kept in said, and printed at once where that is
    wanted: who is ended by its deadline has said it."""
    _here.said, _here.at_once = said, at_once
    try:
        test()
        return None
    except BaseException as error:  # pylint: disable=broad-except
        return error
    finally:
        _here.said = None


def failed(error):
    """Whether a test that ended with this has."""
    return error is not None and not isinstance(error, Skip)


def outcomes(tests, at_a_time):
    """The outcome of each test, in their order, and what is still to be printed of what it said."""
    if at_a_time == 1:
        for test in tests:
            lines = []
            error = outcome(test, lines, at_once=True)
            yield error, lines if failed(error) else []
        return
    pool = concurrent.futures.ThreadPoolExecutor(at_a_time)
    said = [[] for _ in tests]
    under_way = [pool.submit(outcome, *pair) for pair in zip(tests, said)]
    try:
        for ended, lines in zip(under_way, said):
            yield ended.result(), lines
    finally:
        pool.shutdown(cancel_futures=True)


def main(tests, at_a_time=1, alone=()):
    """Run the tests and exit: 0 when none failed, else 1.

    They begin in their order, so many at a time, each in a thread: it may hold nothing that another one uses. They are told
    of in that order, each with what it said. Those that must run alone follow behind.
    """
    tests = list(tests)
    print(f"1..{len(tests) + len(alone)}", flush=True)
    bad = 0
    ends = itertools.chain(outcomes(tests, at_a_time), outcomes(alone, 1))
    for number, (test, (error, said)) in enumerate(zip([*tests, *alone], ends), 1):
        name = (test.__doc__ or test.__name__).strip().split("\n")[0].rstrip(".")
        name = name.replace("#", "number")
        if error is None:
            print(f"ok {number} - {name}", flush=True)
        elif isinstance(error, Skip):
            print(f"ok {number} - {name} # SKIP {error}", flush=True)
        else:
            bad += 1
            print(f"not ok {number} - {name}", flush=True)
            comment("".join(traceback.format_exception(error)) if not isinstance(error, AssertionError)
                    else f"{error}\n{where(error)}")
        if said:
            print("\n".join(said), flush=True)
        if failed(error):
            print("#", flush=True)  # what follows is not said of this one
        if isinstance(error, KeyboardInterrupt):
            break
    sys.exit(1 if bad else 0)


def where(error):
    """The places an assertion went through, one a line."""
    frames = traceback.extract_tb(error.__traceback__)
    return "\n".join(f"  at {f.filename.rsplit('/', 1)[-1]}:{f.lineno} {f.line}"
                     for f in frames[1:])
