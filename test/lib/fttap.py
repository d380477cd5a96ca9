"""Tests in Python that print TAP.

A test is a function; its docstring's first line or its name is what is
printed.  It fails by raising, passes by returning, and is skipped by raising
Skip with the reason.
"""

import sys
import traceback


class Skip(Exception):
    """This test cannot run here; the text says why."""


def check(condition, complaint):
    """Fail the running test with the complaint unless the condition holds."""
    if not condition:
        raise AssertionError(complaint)


def comment(text):
    """Print lines of diagnosis that TAP ignores."""
    for line in str(text).rstrip("\n").split("\n"):
        print(f"# {line}")
    sys.stdout.flush()


def main(tests):
    """Run the tests in order and exit: 0 when none failed, else 1."""
    print(f"1..{len(tests)}", flush=True)
    failed = 0
    for number, test in enumerate(tests, 1):
        name = (test.__doc__ or test.__name__).strip().split("\n")[0].rstrip(".")
        name = name.replace("#", "number")
        try:
            test()
            print(f"ok {number} - {name}", flush=True)
        except Skip as why:
            print(f"ok {number} - {name} # SKIP {why}", flush=True)
        except BaseException as error:  # pylint: disable=broad-except
            failed += 1
            print(f"not ok {number} - {name}", flush=True)
            comment(traceback.format_exc() if not isinstance(error, AssertionError)
                    else f"{error}\n{where(error)}")
            if isinstance(error, KeyboardInterrupt):
                break
    sys.exit(1 if failed else 0)


def where(error):
    """The places an assertion went through, one a line."""
    frames = traceback.extract_tb(error.__traceback__)
    return "\n".join(f"  at {f.filename.rsplit('/', 1)[-1]}:{f.lineno} {f.line}"
                     for f in frames[1:])
