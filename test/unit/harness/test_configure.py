#!/usr/bin/env python3
"""configure says clearly that it cannot do with this Open MPI, or that nobody has tried."""

import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))))
sys.path.insert(0, os.path.join(TOP, "test", "lib"))

from fttap import check, main  # noqa: E402

# Which Open MPI it is, and what folder its headers would be in.
OMPI_INFO = """#!/bin/sh
echo 'ompi:version:full:{version}'
echo 'path:incdir:{folder}/include'
"""


def configure(folder, *options):
    """Exit code and words of configure, run in this folder."""
    done = subprocess.run([os.path.join(TOP, "configure"), *options], cwd=folder, text=True, timeout=100,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, " ".join(done.stdout.split())


def version(number):
    """Exit code and words of configure with an Open MPI that says that it is this version, and has no headers."""
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(os.path.join(folder, "ompi", "bin"))
        for name in ("ompi_info", "mpicc", "mpicxx", "mpirun"):
            path = os.path.join(folder, "ompi", "bin", name)
            with open(path, "w", encoding="ascii") as script:
                script.write(OMPI_INFO.format(version=number, folder=folder) if name == "ompi_info" else "#!/bin/sh\n")
            os.chmod(path, 0o755)
        return configure(folder, f"--with-ompi={folder}/ompi")


def other_interfaces():
    """Open MPI 5.0 and 4.0 are refused, with what to do"""
    for number in ("5.0.7", "4.0.3", "4.10.1"):
        code, words = version(number)
        check(code != 0 and f"Open MPI {number} is not supported, 4.1.x is: install Debian 12's openmpi-bin" in words,
              f"{number}: exit code {code}: {words[-300:]}")


def never_tried():
    """Another 4.1 is taken, with a warning; 4.1.4 without one; what is missing is named"""
    for number, warned in (("4.1.6", True), ("4.1.4", False)):
        code, words = version(number)
        check(("was never tried" in words) == warned and "not supported" not in words, f"{number}: {words[-300:]}")
        check(code != 0 and "internal headers are missing" in words, f"{number}: exit code {code}: {words[-300:]}")


def no_such_folder():
    """A folder that is not there is named"""
    with tempfile.TemporaryDirectory() as folder:
        code, words = configure(folder, "--with-ompi=/no/such/folder")
        check(code != 0 and "there is no folder /no/such/folder/bin" in words, f"exit code {code}: {words[-300:]}")


main([other_interfaces, never_tried, no_such_folder])
