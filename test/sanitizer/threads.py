#!/usr/bin/env python3
"""The thread sanitizer over pml/dr in real jobs with MPI_THREAD_MULTIPLE, with faults and without: the components
and the program are instrumented, Open MPI is not. usage: threads.py [CASE...]"""

import glob
import os
import re
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

import ftmpi  # noqa: E402
import fttap  # noqa: E402
import ftthreads  # noqa: E402

THREAD = os.environ["FT_BUILD_THREAD"]
COMPONENTS = {"pml/dr": "ompi/mca/pml/dr", "bml/dr": "ompi/mca/bml/dr", "btl/fault": "opal/mca/btl/fault"}
PROGRAM = os.path.join(THREAD, "test", "mpi", "semantics", "threads")
SUPPRESSIONS = os.path.join(HERE, "thread_suppressions.txt")
SECONDS = 240
FOUND = 66  # exit code of a process with a report

LOSS = {"btl_fault_drop": 1, "btl_fault_corrupt": 1, "btl_fault_duplicate": 1}
HELPER = {"pml_dr_progress": "thread"}
# What is under way is sent again though nothing was lost, out of copies, and comes late.
HASTE = {"pml_dr_rto_initial_us": 200, "pml_dr_rto_min_us": 200, "pml_dr_rto_max_ms": 1}
# Of the paths of one rank; soon missed, soon looked for again.
DEATH = {"btl_fault_ranks": 0, "btl_fault_kill_after": 150, "pml_dr_probe_interval_ms": 20, "pml_dr_hold_down_ms": 50}
RETURN = {"btl_fault_revive_after_ms": 1500}  # on a busy machine a path is not found dead much sooner


def reports_of(text):
    """What the sanitizer said, one summary for each kind of report."""
    return sorted(set(re.findall(r"SUMMARY: ThreadSanitizer: .*", text)))


def component_path():
    """Where Open MPI finds the instrumented components, and only these."""
    folders = []
    for name, folder in COMPONENTS.items():
        libraries = os.path.join(THREAD, folder, ".libs")
        # A folder in the list that does not exist ends the search without a word.
        fttap.check(glob.glob(os.path.join(libraries, "mca_*.so")), f"no {name} in {libraries}")
        folders.append(libraries)
    return ":".join(["SYS_DEFAULT", *folders])


def job(network, *settings, part=4, ranks=2):
    """semantics/threads over this network has no race, and is right."""
    parameters = {name: value for some in settings for name, value in some.items()}
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "tsan")
        os.environ["TSAN_OPTIONS"] = f"suppressions={SUPPRESSIONS} log_path={log} exitcode={FOUND} history_size=7"
        os.environ["OMPI_MCA_mca_base_component_path"] = component_path()
        result = ftthreads.run(network, parameters, PROGRAM, part, SECONDS, ranks)
        text = ""
        for name in glob.glob(log + ".*"):
            with open(name, encoding="utf-8", errors="replace") as lines:
                text += lines.read()
    found = reports_of(text)
    if found:
        fttap.comment(text[:20000])
    result.must(not found, "\n".join(found))
    ftthreads.must_be_well(result, parameters)
    fttap.comment(ftthreads.told(result))


def vader():
    """no race over vader"""
    job("vader", part=1)


def tcp():
    """no race over tcp"""
    job("tcp", part=1)


def vader_loss():
    """no race over vader while fragments are lost, spoilt and doubled"""
    job("vader", LOSS)


def tcp_loss():
    """no race over tcp while fragments are lost, spoilt and doubled"""
    job("tcp", LOSS)


def vader_helper():
    """no race over vader with the thread that makes progress, amid loss"""
    job("vader", LOSS, HELPER)


def tcp_helper():
    """no race over tcp with the thread that makes progress, amid loss"""
    job("tcp", LOSS, HELPER)


def tcp_calm_helper():
    """no race over tcp with the thread that makes progress, and nothing for it to mend"""
    job("tcp", HELPER, part=1)


def tcp_hasty():
    """no race over tcp among three while timeouts come too early"""
    job("tcp", HASTE, part=2, ranks=3)


def death():
    """no race while one of two TCP paths dies for good"""
    job("tcp2", DEATH, {"btl_fault_kill_btl": "any"})


def back():
    """no race while vader dies beside tcp and comes back, amid loss"""
    job("vader+tcp", LOSS, DEATH, RETURN, {"btl_fault_kill_btl": "vader"}, part=2)


def back_helper():
    """no race while vader dies beside tcp and comes back, with the thread that makes progress"""
    job("vader+tcp", LOSS, DEATH, RETURN, {"btl_fault_kill_btl": "vader"}, HELPER, part=2)


ALL = [vader, tcp, vader_loss, tcp_loss, vader_helper, tcp_helper, tcp_calm_helper, tcp_hasty, death, back, back_helper]

if __name__ == "__main__":
    ftmpi.become_subreaper()
    wanted = sys.argv[1:]
    fttap.main([case for case in ALL if not wanted or case.__name__ in wanted])
