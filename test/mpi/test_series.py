#!/usr/bin/env python3
"""An Open MPI of another series than the one that the components were built for: they say so and stay out. TAP.

The series that runs here is the right one, so a library that is loaded first gives another text for opal_version_string, which is
where the components look. Nothing else is changed by it: what runs is right, and a component that does not look would be used."""

import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
sys.dont_write_bytecode = True

import ftmpi  # noqa: E402
import fttap  # noqa: E402

DEADLINE = 30
WORK = [ftmpi.HASHRING, "--rounds", "3", "--max", "10000"]
TCP = {"btl": "tcp,self", "btl_tcp_if_include": "lo"}


def run(version, parameters):
    """hashring under an Open MPI that says that it is of this version."""
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(folder, "version.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, "-xc", "-"], check=True, text=True,
                       input=f'const char opal_version_string[] = "{version}";\n')
        return ftmpi.run(["env", f"LD_PRELOAD={library}", ftmpi.MPIRUN, "--oversubscribe", "-np", "2",
                          *ftmpi.mca(parameters), *WORK], DEADLINE, show_stacks=True)


def refused(framework, component, version, parameters):
    """The component was asked for: one clear message, and the job ends."""
    def case():
        result = run(version, parameters)
        result.must(not result.late, "the job hung")
        result.must(result.code != 0, "the job went on")
        flat = " ".join(result.output.split())
        told = flat.count(f'The component "{component}" of the framework "{framework}" was asked for, but cannot be used')
        result.must(told == 1, f"the message came {told} times")
        result.must(f"runs here: Open MPI {version}, on {os.uname().nodename}" in flat, "it does not name what runs here")
        result.must("built for: Open MPI 4.1" in flat, "it does not name what is wanted")
        result.must("Signal:" not in flat and "terminate called" not in flat, "the job crashed")
    case.__doc__ = f"{framework} {component} is not used with Open MPI {version}, and the job that names it ends with a message"
    return case


def silent_unless_asked():
    """a job that names no component runs under another series as ever, and nobody says anything"""
    result = run("4.0.7", TCP)
    result.must(result.right, "the run is disturbed")
    result.must("cannot be used" not in result.output and "not found" not in result.output, "somebody speaks")


def same_series():
    """another release of the same series is taken"""
    result = run("4.1.19rc2", {"errmgr": "radixft", "pml": "dr", "pml_dr_stats": 1, **TCP})
    result.must(result.right, "the run is disturbed")
    result.must("pml/dr" in result.output, "pml/dr was not used")
    result.must("cannot be used" not in result.output, "somebody refuses")


fttap.main([
    refused("pml", "dr", "4.0.7", {"pml": "dr", **TCP}),
    refused("btl", "dgram", "4.10.1", {"pml": "ob1", "btl": "dgram,self"}),
    refused("errmgr", "radixft", "5.0.7", {"errmgr": "radixft", **TCP}),
    silent_unless_asked,
    same_series,
])
