#!/usr/bin/env python3
"""errmgr/radixft: MPI_Comm_spawn of what cannot be started fails in all who call it, and the job goes on."""

import os
import re
import signal
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
from fttap import check, main  # noqa: E402
from test_radixft import RADIXFT  # noqa: E402
from test_radixft_join import PATIENT, SPAWN_FAILED, all_refused, job, patient, returns_and_ends  # noqa: E402


def prepare(it):
    """The files that joins.cc wants to start."""
    folder = os.path.dirname(it.marks.path)
    for name, mode, text in (("plain", 0o644, ""), ("no_interpreter", 0o755, "#!/no/such/interpreter\n")):
        with open(os.path.join(folder, name), "w", encoding="ascii") as file:
            file.write(text)
        os.chmod(file.name, mode)
    return folder


def in_vain(command, complaint):
    """The spawn fails, twice, and what can be started is spawned after that."""
    with job(*RADIXFT, again="n2") as it:
        prepare(it)
        for _ in range(2):
            it.command(command)
            all_refused(it)
        it.command(b"l")
        it.hears("joined", "nothing can be spawned any more")
        it.finishes()
        check(re.search(complaint, it.run.err), "mpirun does not say why")


def absent():
    """A program that does not exist"""
    in_vain(b"0", r"absent")


def not_executable():
    """A file that is not executable"""
    in_vain(b"1", r"plain")


def without_interpreter():
    """A program that exists and whose start fails"""
    in_vain(b"2", r"no_interpreter")


def one_of_two():
    """One program that can be started and one that cannot, on one host"""
    in_vain(b"3", r"absent")


def at_mpirun():
    """A program that does not exist, on mpirun's own host"""
    in_vain(b"4", r"absent")


def on_one_of_two_hosts():
    """A program that one of two hosts lacks, while the other one is slow to start its rank"""
    with job(*PATIENT) as it:
        program = os.path.join(ftcluster.build_dir(), "test", "mpi", "survivors", "joins")
        it.cluster.tool("run", "n2", "ln", "-s", program, "/dev/shm/joins")
        it.command(b"l")
        it.hears("joined", "the host did not join")
        for slow in (False, True):
            daemon = it.pid_of("^orted", "n2")
            if slow:
                os.kill(daemon, signal.SIGSTOP)
            try:
                it.command(b"5")
                it.says(f"of job {3 + slow} on daemon 3 is dead (it could not be started)")
            finally:
                os.kill(daemon, signal.SIGCONT)
            all_refused(it)
        it.command(b"l")
        it.hears("joined", "nothing can be spawned any more")
        it.finishes()


def without_mpirun():
    """mpirun dies when the host has joined on which nothing can be started, and when that has failed"""
    for moment in ("daemon 3 on n3 is a member now", "is dead (it could not be started)"):
        with job(*patient("suspect_floor", "suspect_ceiling")) as it:
            it.command(b"\xcf")
            it.says(moment)
            os.kill(it.pid_of("^mpirun", "n0"), signal.SIGKILL)
            ended = returns_and_ends(it, moment, 2)
            check(ended == ["refused " + SPAWN_FAILED] * 2, f"{moment}: the spawn ended like this: {ended}")


TESTS = [without_mpirun, on_one_of_two_hosts, absent, not_executable, without_interpreter, one_of_two, at_mpirun]

if __name__ == "__main__":
    main([test for test in TESTS if test.__name__ in sys.argv[1:]] or TESTS, ftcluster.SIDE_BY_SIDE)
