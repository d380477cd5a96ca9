#!/usr/bin/env python3
"""btl/tcp carries fragments as large as pml/dr's, without being told: only where dr is named, and only where nobody has
set btl_tcp_max_send_size."""

import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
sys.dont_write_bytecode = True

import fttap  # noqa: E402

PROGRAM = os.path.join(os.environ["FT_BUILD"], "test", "mpi", "semantics", "fragments")
DEADLINE_SECONDS = 40
STOCK = 131072
SMALL = 65536
LARGE = 524288
RENDEZVOUS = 1


def run(*arguments, program=(), **environment):
    """{word: number} of what the program printed."""
    return finish(["-n", "2", "--mca", "btl", "tcp,self", *arguments, PROGRAM, *program], **environment)


def finish(arguments, **environment):
    """The same, with mpirun's arguments whole."""
    command = [os.environ.get("FT_MPIRUN", "mpirun"), "--oversubscribe", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                          timeout=DEADLINE_SECONDS, env={**os.environ, **environment})
    fttap.check(done.returncode == 0, f"exit code {done.returncode}: {' '.join(command)}\n{done.stdout}")
    return {word: int(number) for word, number in re.findall(r"^(\w+) (\d+)$", done.stdout, re.MULTILINE)}


def is_large(found):
    fttap.check(LARGE < found["max_send_size"] < LARGE + 1024, f"{found}")
    # 1 MiB and a rendezvous.
    fttap.check(2 + RENDEZVOUS <= found["fragments"] < 1048576 // STOCK, f"{found}")


def named():
    """with --mca pml dr fragments of 512 KiB go over TCP"""
    is_large(run("--mca", "pml", "dr"))
    is_large(run("--mca", "pml", "dr", program=["early"]))


def in_file():
    """also when a parameter file names dr, and another behind it"""
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as parameters:
        parameters.write("pml = dr,ob1\n")
        parameters.flush()
        is_large(run(OMPI_MCA_mca_base_param_files=parameters.name))


def as_set():
    """what the user has set stays, be it smaller or larger"""
    found = run("--mca", "pml", "dr", "--mca", "btl_tcp_max_send_size", str(STOCK))
    fttap.check(found["max_send_size"] == STOCK and found["fragments"] >= 1048576 // STOCK + RENDEZVOUS, f"{found}")
    found = run("--mca", "pml", "dr", "--mca", "btl_tcp_max_send_size", str(4 * LARGE))
    fttap.check(found["max_send_size"] == 4 * LARGE, f"{found}")


def unlike():
    """between processes with different values the smaller one holds, whoever has it"""
    def with_sizes(*sizes):
        arguments = []
        for size in sizes:
            # mpirun's --mca is for all of them
            set_here = ["env", f"OMPI_MCA_btl_tcp_max_send_size={size}"] if size else []
            arguments += [*([":"] if arguments else []), "-n", "1", *set_here, PROGRAM]
        return finish(["--mca", "pml", "dr", "--mca", "btl", "tcp,self", *arguments])

    for sizes in ((None, SMALL), (SMALL, None)):
        found = with_sizes(*sizes)
        fttap.check(found["fragments"] >= 1048576 // SMALL + RENDEZVOUS, f"{sizes}: {found}")


def others():
    """jobs that do not name dr are as they were"""
    for arguments in ([], ["--mca", "pml", "ob1"], ["--mca", "pml", "^dr"], ["--mca", "pml", "ob1,dr"]):
        found = run(*arguments)
        fttap.check(found["max_send_size"] == STOCK and "fragments" not in found, f"{arguments}: {found}")


fttap.main([named, in_file, as_set, unlike, others])
