#!/usr/bin/env python3
"""The thread sanitizer over pml/dr in real jobs with MPI_THREAD_MULTIPLE: the component and the program are
instrumented, Open MPI is not. usage: threads.py"""

import glob
import os
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

import fttap  # noqa: E402

THREAD = os.environ["FT_BUILD_THREAD"]
COMPONENT = os.path.join(THREAD, "ompi", "mca", "pml", "dr", ".libs")
PROGRAM = os.path.join(THREAD, "test", "mpi", "semantics", "threads")
SUPPRESSIONS = os.path.join(HERE, "thread_suppressions.txt")
SECONDS = 240
FOUND = 66  # exit code of a process with a report


def reports_of(text):
    """What the sanitizer said, one summary for each kind of report."""
    return sorted(set(re.findall(r"SUMMARY: ThreadSanitizer: .*", text)))


def job(btls, *parameters):
    """semantics/threads over these BTLs has no race."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "tsan")
        options = f"suppressions={SUPPRESSIONS} log_path={log} exitcode={FOUND} history_size=4"
        environment = dict(os.environ, TSAN_OPTIONS=options)
        # A folder in the list that does not exist ends the search without a word.
        fttap.check(os.path.exists(os.path.join(COMPONENT, "mca_pml_dr.so")), f"no component in {COMPONENT}")
        environment["OMPI_MCA_mca_base_component_path"] = "SYS_DEFAULT:" + COMPONENT
        command = [os.environ.get("FT_MPIRUN", "mpirun"), "--oversubscribe", "-n", "2", "--mca", "pml", "dr",
                   "--mca", "btl", f"{btls},self", *parameters, PROGRAM]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS,
                              check=False)
        text = ""
        for name in glob.glob(log + ".*"):
            with open(name, encoding="utf-8", errors="replace") as lines:
                text += lines.read()
    found = reports_of(text)
    if found or done.returncode != 0:
        fttap.comment(text[:20000])
        fttap.comment((done.stdout + done.stderr)[-4000:])
    fttap.check(not found, "\n".join(found))
    fttap.check(done.returncode == 0, f"exit code {done.returncode}")
    fttap.check(done.stdout.count("\nok ") + done.stdout.startswith("ok ") >= 6, done.stdout)


def vader():
    """no race over vader"""
    job("vader")


def tcp():
    """no race over tcp"""
    job("tcp")


if __name__ == "__main__":
    fttap.main([vader, tcp])
