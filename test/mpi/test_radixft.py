#!/usr/bin/env python3
"""errmgr/radixft on one host: what ompi_info shows, and that it is inert unless it is named."""

import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
sys.dont_write_bytecode = True

import ftmanual  # noqa: E402
import ftmpi  # noqa: E402
import fttap  # noqa: E402

SURVIVORS = os.path.join(ftmpi.BUILD, "test", "mpi", "survivors", "survivors")
FORKS = os.path.join(ftmpi.BUILD, "test", "mpi", "survivors", "forks")
LEAVES = os.path.join(ftmpi.BUILD, "test", "mpi", "programs", "leaves")
DISCONNECTS = os.path.join(ftmpi.BUILD, "test", "mpi", "survivors", "disconnects")
REMAINS = os.path.join(ftmpi.BUILD, "test", "mpi", "survivors", "remains")
WINDOWS = os.path.join(ftmpi.BUILD, "test", "mpi", "survivors", "windows")
MANAGER = os.path.join(ftmpi.BUILD, "test", "mpi", "survivors", "manager")
DEADLINE = 60
SHARED = "shares PMIx's store"


def run(*arguments):
    """mpirun of four ranks on this host."""
    return ftmpi.run([ftmpi.MPIRUN, "--oversubscribe", "-np", "4", *arguments], DEADLINE,
                     show_stacks=True)


def settings_agree_with_the_manual():
    """the manual page describes every parameter with its default, and no other"""
    ftmanual.agree("errmgr", "radixft", "orte_glue/mca/errmgr/radixft")


def three_components():
    """ompi_info lists the error manager and the two components that join it"""
    found = re.findall(r"MCA (\w+): radixft", ftmanual.ompi_info())
    fttap.check(sorted(found) == ["errmgr", "grpcomm", "routed"], f"it lists {found}")


def inert_unless_named():
    """installed and not asked for, it is silent and not used"""
    result = run("--mca", "errmgr_base_verbose", "5", "--mca", "routed_base_verbose", "5",
                 "--mca", "grpcomm_base_verbose", "5", "--mca", "errmgr_radixft_arity", "3",
                 SURVIVORS)
    result.must(result.code == 0, f"exit code {result.code}")
    result.must("radixft [daemon" not in result.output and "power of two" not in result.output,
                "it speaks")
    result.must(result.output.count("finalized") == 4, "a rank is missing")
    chosen = re.findall(r"Selected component \[(\w+)\]", result.output)
    result.must("radixft" not in chosen, f"selected: {chosen}")
    result.must(result.output.count(SHARED) == 4, "PMIx works otherwise")


def one_host():
    """a job of one host, without daemons, runs under it"""
    result = run("--mca", "errmgr", "radixft", SURVIVORS)
    result.must(result.code == 0, f"exit code {result.code}")
    result.must(result.output.count("finalized") == 4, "a rank is missing")
    result.must(SHARED not in result.output, "a rank that is killed may leave PMIx's server before a lock")


def forked_children():
    """children that a rank forks end when they call exit(), with the threads of radixft and of dr in it"""
    for options in (("errmgr", "radixft", "errmgr_radixft_self_check", "20"), ("pml", "dr"),
                    ("pml", "dr", "pml_dr_progress", "thread")):
        words = [word for name, value in zip(options[::2], options[1::2]) for word in ("--mca", name, value)]
        result = run(*words, FORKS)
        result.must(result.code == 0 and result.output.count("its children ended") == 4, f"{options}: a child hung")


def all_through(result):
    """The three ranks that live have finalized, and mpirun counts one death."""
    result.must(result.code == 0, f"exit code {result.code}")
    result.must(result.output.count("is through") == 3, "a rank is missing")
    result.must("radixft: 1 of 4 ranks died, the others ran on" in result.output, "the death is not told")


def waiting_for_anyone():
    """who waits for an answer from any rank does not wait for the dead: the job ends, or counts on the others alone"""
    options = ["--mca", "errmgr", "radixft", "--mca", "pml", "dr"]
    result = run(*options, MANAGER)
    result.must(result.code == 75, f"exit code {result.code}")
    all_through(run(*options, MANAGER, "return"))


def nobody_left():
    """when all ranks have died, in MPI_Init or after it, nobody is said to have run on, or to have called abort"""
    script = "import sys; sys.exit(3)"
    result = run("--mca", "errmgr", "radixft", sys.executable, "-c", script)
    result.must(result.code == 3, f"exit code {result.code}")
    result.must("died before all ranks were through MPI_Init (exit code 3)" in " ".join(result.output.split()),
                "the reason is not told")
    result.must('calling "abort"' not in result.output, "a rank is said to have called abort")
    result = ftmpi.run([ftmpi.MPIRUN, "-np", "1", "--mca", "errmgr", "radixft", REMAINS, "alone"], DEADLINE,
                       show_stacks=True)
    result.must(result.code == 137, f"exit code {result.code}")
    result.must("radixft: 1 of 1 ranks died, nobody was left." in result.output, "the last words are wrong")


def child_of_the_dead():
    """a dead rank's child, which has its connection to the runtime, holds up nobody"""
    all_through(run("--mca", "errmgr", "radixft", REMAINS, "child"))


def windows():
    """A program of one-sided communication that knows nothing of failures is ended when a rank dies, not left to wait for it"""
    for how in ("pscw", "lock", "lock_all"):
        result = run("--mca", "errmgr", "radixft", "--mca", "pml", "dr", "--mca", "osc", "pt2pt", WINDOWS, how)
        result.must(result.code == 75, f"{how}: exit code {result.code}")
        result.must("a window that holds a dead process" in " ".join(result.output.split()), f"{how}: it does not say why")
    result = run("--mca", "errmgr", "radixft", "--mca", "pml", "dr", WINDOWS, "pscw")
    result.must(result.code == 75, f"with Open MPI's first choice of osc: exit code {result.code}")


def lingering_wrapper():
    """a rank that a script has started is dead when it has ended, not when the script has"""
    if not has_life_lines():
        raise fttap.Skip("no life lines before Linux 5.16")
    for end in ("kill", "exit"):
        with tempfile.TemporaryDirectory() as folder:
            fifo = os.path.join(folder, "over")
            os.mkfifo(fifo)
            # It ends when the others have done without the rank.
            script = '"$@" || read -r word < "$0"'
            all_through(run("--mca", "errmgr", "radixft", "sh", "-c", script, fifo, REMAINS, end, fifo))


def codes_below_scripts():
    """of a rank that a script has started and reaped, mpirun's last words name the exit code, or none"""
    if not has_life_lines():
        raise fttap.Skip("no life lines before Linux 5.16")
    for _ in range(10):
        result = run("--mca", "errmgr", "radixft", "sh", "-c", '"$0" $((10 + OMPI_COMM_WORLD_RANK)); exit $?', LEAVES)
        told = re.findall(r"^  rank (\d) on \S+: (.*?), reaped by", result.output, re.M)
        result.must(len(told) == 4, f"of the four ranks it tells {told}")
        for rank, how in told:
            result.must(how in (f"left with exit code {10 + int(rank)} and without MPI_Finalize",
                                "ended without MPI_Finalize, exit code not known"), f"rank {rank}: {how}")


def without_mpirun():
    """a program that was started without mpirun goes on when its parent ends"""
    with tempfile.TemporaryDirectory() as folder:
        fifo = os.path.join(folder, "marks")
        os.mkfifo(fifo)
        kept = os.open(fifo, os.O_RDWR)  # the program writes there also when the script has ended
        # It ends when the program is through MPI_Init.
        script = 'OMPI_MCA_errmgr=radixft "$@" & read -r word < "$0"'
        result = ftmpi.run(["sh", "-c", script, fifo, SURVIVORS, "--marks", fifo, "--busy", "1"], DEADLINE)
        os.close(kept)
    result.must(result.code == 0 and "finalized 0" in result.output, "the program was ended")


def parts(how, pml, expected):
    """The only rank and the children that it spawns part so often."""
    result = ftmpi.run([ftmpi.MPIRUN, "--oversubscribe", "-np", "1", *ftmpi.mca({"errmgr": "radixft", "pml": pml}),
                        DISCONNECTS, how], DEADLINE, show_stacks=True)
    result.must(result.code == 0, f"exit code {result.code}")
    result.must(result.output.count("parted") == expected, f"{how}, {pml}: not {expected} times parted")
    return result


def disconnects():
    """MPI_Comm_disconnect comes back when a process of the communicator has died, or dies meanwhile"""
    for pml in ("dr", "ob1"):
        for how in ("before", "during"):
            parts(how, pml, 3)


def disconnects_the_merged():
    """MPI_Comm_disconnect comes back from an intracommunicator of two jobs"""
    parts("merged", "dr", 8)


def spawned_by_a_singleton():
    """a program that was started by itself spawns others, one of them dies, and they part; mpirun --novm starts a job, too"""
    for how, expected in (("merged", 8), ("before", 3)):
        result = ftmpi.run(["env", "OMPI_MCA_errmgr=radixft", "OMPI_MCA_pml=dr", "OMPI_MCA_rmaps_base_oversubscribe=1",
                            DISCONNECTS, how], DEADLINE, show_stacks=True)
        result.must(result.code == 0, f"exit code {result.code}")
        result.must(result.output.count("parted") == expected, f"{how}: not {expected} times parted")
    result = run("--novm", "--mca", "errmgr", "radixft", SURVIVORS)
    result.must(result.code == 0 and result.output.count("finalized") == 4, "--novm: a rank is missing")


def forgets_jobs():
    """mpirun keeps nothing of jobs that ended well after a rank of another one has died"""
    result = parts("many", "dr", 3 + 6 * 4)
    result.must("mpirun keeps none" in result.output, "it grows")


def has_life_lines():
    """Whether the system can wait for several futexes."""
    return tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) >= (5, 16)


fttap.main([settings_agree_with_the_manual, three_components, inert_unless_named, one_host, forked_children,
            waiting_for_anyone, nobody_left, child_of_the_dead, windows, lingering_wrapper,
            codes_below_scripts, without_mpirun, disconnects, disconnects_the_merged,
            spawned_by_a_singleton, forgets_jobs])
