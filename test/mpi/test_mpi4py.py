#!/usr/bin/env python3
"""mpi4py's own test suite under pml/dr and under ob1: test by test the same comes of it.

usage: test_mpi4py.py [FOLDER]

The suite is that of Debian's source package, fetched with apt-get source (which wants a deb-src line) and
kept below the build folder; or it is FOLDER, its folder of tests, also named by FT_MPI4PY_SUITE in the
environment where the mirror has no sources. FT_MPI4PY_MODULES, names separated by blanks (a module or
module.Class), runs only these, FT_MPI4PY_RANKS only on so many ranks; one-sided ones want OMPI_MCA_osc=pt2pt and
MPI4PY_RC_THREAD_LEVEL=single. Debian's package python3-mpi4py is what is tested. A module that does not end
within its time counts as late, and is to be late under both, too.
"""

import collections
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

import fttap  # noqa: E402

PYTHON = "/usr/bin/python3"  # the one that Debian's packages are for
KEPT = os.path.join(os.environ["FT_BUILD"], "mpi4py")
RANKS = tuple(map(int, os.environ.get("FT_MPI4PY_RANKS", "1 2 4 5").split()))
SECONDS = 120
BTLS = "vader,tcp,self"


def fetched():
    """The suite's folder."""
    found = glob.glob(os.path.join(KEPT, "mpi4py-*", "test"))
    if found:
        return found[0]
    shutil.rmtree(KEPT, ignore_errors=True)
    os.makedirs(KEPT)
    done = subprocess.run(["apt-get", "-q", "source", "mpi4py"], cwd=KEPT, capture_output=True, text=True, check=False)
    found = glob.glob(os.path.join(KEPT, "mpi4py-*", "test"))
    fttap.check(found, f"apt-get source mpi4py gave no test folder:\n{done.stdout[-500:]}{done.stderr[-1500:]}")
    return found[0]


def outcomes(folder, module, pml, ranks):
    """[{test: outcome}] by rank, and what was printed."""
    with tempfile.TemporaryDirectory() as reports:
        command = [os.environ.get("FT_MPIRUN", "mpirun"), "--oversubscribe", "-n", str(ranks), "--mca", "pml", pml,
                   "--mca", "btl", BTLS, PYTHON, os.path.join(HERE, "mpi4py_ranks.py"), folder, module, reports]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, start_new_session=True) as job:
            try:
                text, _ = job.communicate(timeout=SECONDS)
                end = f"exit code {job.returncode}"
            except subprocess.TimeoutExpired:
                os.killpg(job.pid, signal.SIGTERM)  # mpirun ends its ranks
                text, _ = job.communicate()
                end = "late"
        found = []
        for rank in range(ranks):
            try:
                with open(os.path.join(reports, str(rank)), encoding="utf-8") as lines:
                    found.append(json.load(lines))
            except FileNotFoundError:
                found.append({"the whole module": end})
    return found, text


def same_on(ranks):
    """A test: the whole suite on so many ranks."""
    def test():
        folder = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("FT_MPI4PY_SUITE") or fetched()
        folder = os.path.abspath(folder)
        modules = os.environ.get("FT_MPI4PY_MODULES", "").split() or sorted(
            os.path.basename(name)[:-3] for name in glob.glob(os.path.join(folder, "test_*.py")))
        fttap.check(modules, f"no test_*.py in {folder}")
        tally, differing = collections.Counter(), []
        for module in modules:
            ob1, _ = outcomes(folder, module, "ob1", ranks)
            dr, text = outcomes(folder, module, "dr", ranks)
            tally.update(outcome for one in dr for outcome in one.values())
            for rank, (theirs, ours) in enumerate(zip(ob1, dr)):
                different = [f"rank {rank}: {name}: ob1 {theirs.get(name)}, dr {ours.get(name)}"
                             for name in sorted({*theirs, *ours}) if theirs.get(name) != ours.get(name)]
                if different:
                    fttap.comment("\n".join(different) + "\n" + text[-4000:])
                    differing += different
        fttap.comment(f"{len(modules)} modules at {ranks} ranks: " +
                      ", ".join(f"{times} {outcome}" for outcome, times in sorted(tally.items())))
        fttap.check(tally["ok"], "no test passes under either")
        fttap.check(not differing, f"{len(differing)} outcomes differ")

    test.__doc__ = f"the suite on {ranks} ranks"
    return test


fttap.main([same_on(ranks) for ranks in RANKS])
