#!/usr/bin/env python3
"""Jobs of two mpiruns on one host meet by MPI_Comm_accept and MPI_Comm_connect, over an ompi-server. Prints TAP.

Open MPI does not say of a process of another mpirun that it is on this host, so btl/dgram and btl/ucx must find out.
"""

import concurrent.futures
import contextlib
import os
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftmpi  # noqa: E402
from fttap import check, main  # noqa: E402

PROGRAM = os.path.join(ftmpi.BUILD, "test", "mpi", "programs", "two_jobs")
SERVER = "ompi-server" + os.path.basename(ftmpi.MPIRUN).removeprefix("mpirun")
DEADLINE = 40


@contextlib.contextmanager
def server(folder):
    """An ompi-server; gives the file that tells where it is."""
    where = os.path.join(folder, "server")
    near = os.path.join(os.path.dirname(ftmpi.MPIRUN), SERVER)
    command = [near if os.path.exists(near) else "ompi-server", "--no-daemonize", "--report-uri", where]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          env={**os.environ, "TMPDIR": folder}) as process:
        try:
            end = time.monotonic() + DEADLINE
            while not (os.path.exists(where) and os.path.getsize(where)):
                check(process.poll() is None and time.monotonic() < end, "no ompi-server")
                os.sched_yield()
            yield where
        finally:
            process.terminate()


def meet(network, pml="dr"):
    def test():
        with tempfile.TemporaryDirectory() as folder, server(folder) as where:
            port = os.path.join(folder, "port")
            os.mkfifo(port)

            def job(part):
                command = ftmpi.command_for(network, pml, {}, [PROGRAM, part, port])
                return ftmpi.run([command[0], "--ompi-server", "file:" + where, *command[1:]], DEADLINE, show_stacks=True)

            with concurrent.futures.ThreadPoolExecutor() as pool:
                for result in pool.map(job, ("accept", "connect")):
                    result.must(result.code == 0 and result.output.count("two_jobs: right") == 2, "they did not meet")
    test.__doc__ = f"over {network}"
    return test


if __name__ == "__main__":
    ftmpi.become_subreaper()
    main([meet(network) for network in ("vader+tcp", "tcp", "dgram", "ucx_tcp", "dgram+tcp")])
