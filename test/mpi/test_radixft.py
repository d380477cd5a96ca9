#!/usr/bin/env python3
"""errmgr/radixft on one host: what ompi_info shows, and that it is inert unless it is named."""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
sys.dont_write_bytecode = True

import ftmanual  # noqa: E402
import ftmpi  # noqa: E402
import fttap  # noqa: E402

SURVIVORS = os.path.join(ftmpi.BUILD, "test", "mpi", "survivors", "survivors")
FORKS = os.path.join(ftmpi.BUILD, "test", "mpi", "survivors", "forks")
DEADLINE = 60


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


def one_host():
    """a job of one host, without daemons, runs under it"""
    result = run("--mca", "errmgr", "radixft", SURVIVORS)
    result.must(result.code == 0, f"exit code {result.code}")
    result.must(result.output.count("finalized") == 4, "a rank is missing")


def forked_children():
    """children that a rank forks end when they call exit(), with the threads of radixft and of dr in it"""
    for options in (("errmgr", "radixft", "errmgr_radixft_self_check", "20"), ("pml", "dr"),
                    ("pml", "dr", "pml_dr_progress", "thread")):
        words = [word for name, value in zip(options[::2], options[1::2]) for word in ("--mca", name, value)]
        result = run(*words, FORKS)
        result.must(result.code == 0 and result.output.count("its children ended") == 4, f"{options}: a child hung")


fttap.main([settings_agree_with_the_manual, three_components, inert_unless_named, one_host, forked_children])
