#!/usr/bin/env python3
"""MPICH's test suite under pml/dr and under ob1: what is right under ob1 is right under dr.

usage: test_mpich.py [FOLDER ...]    such as pt2pt or threads/pt2pt; all that the PML has a part in, if none is named

The suite is the folder test/mpi of Debian's source package mpich, fetched with apt-get source (which wants a deb-src
line) and kept below the build folder, or FT_MPICH_SUITE in the environment. What asks for more than Open MPI 4.1 has is
not built, and said. A program is right when it ends with exit code 0 and says that there were no errors. One that is not
right under dr and is under ob1 is run again, as some hang now and then under either in Open MPI's own MPI_Comm_idup: it
differs when it is right three times under ob1 and at none of four under dr.
"""

import glob
import os
import shlex
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

import ftmpi  # noqa: E402
import fttap  # noqa: E402

KEPT = os.path.join(os.environ["FT_BUILD"], "mpich")
BUILT = os.path.join(KEPT, "built")
FOLDERS = ("pt2pt", "comm", "topo", "group", "attr", "errhan", "init", "datatype", "coll", "spawn", "threads/pt2pt",
           "threads/comm")
SECONDS = 120  # of one program
SLOTS = 100  # one of them spawns 64 processes
BUILD_SECONDS = 3600
ATTEMPTS = 3  # where the two differ
MPICC = os.environ.get("FT_MPICC", "mpicc")
BTLS = "vader,tcp,self"
RIGHT_WORDS = ("No Errors", "No errors", "Test passed")

# mpi.h of Open MPI refuses what MPI 3 has removed, by an error wherever it is named; the suite asks for some of it.
REMOVED = """#define OMPI_OMIT_MPI1_COMPAT_DECLS 0
#define OMPI_REMOVED_USE_STATIC_ASSERT 0
#define __mpi_interface_removed__(function, instead)
"""


def quietly(command, folder):
    """What a command of the build prints; it may fail in part."""
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False,
                          stdin=subprocess.DEVNULL, timeout=BUILD_SECONDS)


def suite():
    """The suite's folder."""
    if "FT_MPICH_SUITE" in os.environ:
        return os.path.abspath(os.environ["FT_MPICH_SUITE"])
    pattern = os.path.join(KEPT, "mpich-*", "test", "mpi")
    if not glob.glob(pattern):
        shutil.rmtree(KEPT, ignore_errors=True)
        os.makedirs(KEPT)
        done = quietly(["apt-get", "-q", "source", "mpich"], KEPT)
        fttap.check(glob.glob(pattern), f"apt-get source mpich gave no test/mpi:\n{done.stdout[-500:]}{done.stderr[-1500:]}")
    return glob.glob(pattern)[0]


def configured():
    """The suite's folder, with a folder beside it in which its programs can be built."""
    source = suite()
    if not os.path.exists(os.path.join(BUILT, "Makefile")):
        os.makedirs(BUILT, exist_ok=True)
        done = quietly([os.path.join(source, "configure"), f"CC={MPICC}", f"MPICC={MPICC}", "--with-mpi=/usr", "--disable-cxx",
                        "--disable-fortran", "--enable-strictmpi=no"], BUILT)
        fttap.check(done.returncode == 0, f"it cannot be configured:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
    with open(os.path.join(BUILT, "removed.h"), "w", encoding="ascii") as header:
        header.write(REMOVED)
    for folder in ("dtpools", "util"):
        make(folder, "all")
    return source


def make(folder, *targets):
    done = quietly(["make", "-k", "-s", f"-j{os.cpu_count()}", "-C", os.path.join(BUILT, folder), *targets, "TESTS=",
                    f"CFLAGS=-include {BUILT}/removed.h -O1 -w"], BUILT)
    return done.stdout + done.stderr


def listed(source, folder):
    """(program, ranks, arguments) as the folder's list has them, each once; and the programs that could not be built."""
    make(folder, "all", "check")
    lists = [os.path.join(BUILT, folder, "testlist"), os.path.join(source, folder, "testlist")]
    runs, unbuilt = {}, set()
    with open(next(filter(os.path.exists, lists)), encoding="utf-8") as lines:
        for line in lines:
            words = shlex.split(line, comments=True)
            if not words:
                continue
            ranks = int(words[1]) if len(words) > 1 and words[1].isdigit() else 2
            arguments = tuple(word.removeprefix("arg=") for word in words if word.startswith("arg="))
            if os.path.isfile(os.path.join(BUILT, folder, words[0])):
                runs[words[0], ranks, arguments] = True
            else:
                unbuilt.add(words[0])
    return list(runs), unbuilt


def outcome(folder, program, ranks, arguments, pml):
    """right, wrong or late; and what it printed."""
    place = os.path.join(BUILT, folder)
    result = ftmpi.run([ftmpi.MPIRUN, "--host", f"localhost:{SLOTS}", "--wdir", place, "-np", str(ranks),
                        *ftmpi.mca({"pml": pml, "btl": BTLS, "mpi_yield_when_idle": 1}),
                        os.path.join(place, program), *arguments], SECONDS)
    right = result.code == 0 and any(words in result.output for words in RIGHT_WORDS)
    return "late" if result.late else "right" if right else "wrong", result.output


def right_as_under_ob1(folder):
    """A test: the programs of one folder."""
    def test():
        runs, unbuilt = listed(SOURCE[0], folder)
        fttap.check(runs, f"nothing could be built in {folder}")
        right, neither, differing = 0, [], []
        for run in runs:
            name = " ".join([run[0], str(run[1]), *run[2]])
            ours, text = outcome(folder, *run, "dr")
            again = 0
            while ours != "right" and again < ATTEMPTS and outcome(folder, *run, "ob1")[0] == "right":
                ours, text = outcome(folder, *run, "dr")
                again += 1
            if ours == "right":
                right += 1
            elif again == ATTEMPTS:
                differing.append(name)
                fttap.comment(f"{name}: right under ob1, {ours} under dr\n{text[-3000:]}")
            else:
                neither.append(name)
        fttap.comment(f"{folder}: {right} of {len(runs)} runs are right under dr; under neither: {neither}; "
                      f"not built: {sorted(unbuilt)}")
        fttap.check(right, "nothing is right under dr")
        fttap.check(not differing, f"right under ob1 alone: {differing}")

    test.__doc__ = f"{folder}: what is right under ob1 is right under dr"
    return test


SOURCE = []


def prepared():
    """the suite is there"""
    SOURCE.append(configured())


fttap.main([prepared, *map(right_as_under_ob1, sys.argv[1:] or FOLDERS)])
