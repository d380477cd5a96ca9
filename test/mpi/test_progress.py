#!/usr/bin/env python3
"""A sender that computes while the network loses: who sends again what was lost?"""

import os
import re
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
sys.dont_write_bytecode = True

import fttap  # noqa: E402

MPIRUN = os.environ.get("FT_MPIRUN", "mpirun")
HELPER = os.path.join(os.environ["FT_BUILD"], "test", "mpi", "semantics", "helper")
COMPUTING = os.path.join(os.environ["FT_BUILD"], "test", "mpi", "semantics", "computing")
# At 20 % loss at either end the chance that none of so many is lost is 1 in 10^7.
MESSAGES = "40"
DEADLINE_SECONDS = 60
WATCHED_SECONDS = 8
BEGINS = "# rank 0 has met, and begins"


def computing(mode, btls, seconds, drop):
    """Waits until the first message that is awaited outside of MPI is sent, and for so long from then on.
    \\return (exit code or None when it did not end in that time, everything printed)"""
    command = [MPIRUN, "--oversubscribe", "-n", "2",
               "--mca", "pml", "dr", "--mca", "btl", btls + ",self", "--mca", "pml_dr_progress",
               mode, "--mca", "pml_dr_rto_max_ms", "100", "--mca", "btl_fault_drop", str(drop),
               COMPUTING, "5", "1", MESSAGES]
    lines = []
    begun = threading.Event()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as run:
        def read():
            for line in run.stdout:
                lines.append(line)
                if BEGINS in line:
                    begun.set()
            begun.set()  # it has ended

        reader = threading.Thread(target=read)
        reader.start()
        begun.wait(DEADLINE_SECONDS)
        try:
            code = run.wait(seconds)
        except subprocess.TimeoutExpired:
            run.terminate()
            code = None
        reader.join()
    return code, "".join(lines)


def thread_sends_again():
    """with pml_dr_progress thread the message arrives while the sender computes, whose thread asks for what is missing"""
    for btls in ("fault,tcp", "fault,vader"):
        code, text = computing("thread", btls, DEADLINE_SECONDS, 20)
        fttap.check(code == 0, f"{btls}: exit {code}\n{text}")
        asked = re.search(r"rank 0 asked (\d+) times while it computed", text)
        fttap.comment(f"{btls}: {asked[0]}")
        fttap.check(int(asked[1]) > 0, f"{btls}: it waited for timeouts\n{text}")


def without_loss():
    """without loss the thread disturbs nobody"""
    code, text = computing("thread", "vader,tcp", DEADLINE_SECONDS, 0)
    fttap.check(code == 0, f"exit {code}\n{text}")


def app_does_not():
    """with pml_dr_progress app it waits for the sender to call MPI"""
    code, text = computing("app", "fault,tcp", WATCHED_SECONDS, 20)
    fttap.check(BEGINS in text, f"it did not come to its first message\n{text}")
    fttap.check(code is None, f"nothing was lost: exit {code}\n{text}")


def unknown_word():
    """another word is refused with a message"""
    code, text = computing("sometimes", "tcp", DEADLINE_SECONDS, 0)
    fttap.check(code not in (0, None) and "app, thread" in text, f"exit {code}\n{text}")


def runs_when_it_has_to():
    """the thread runs while something is unacknowledged, and sleeps else"""
    for btls in ("tcp", "vader"):
        done = subprocess.run([MPIRUN, "--oversubscribe", "-n", "2", "--mca", "pml", "dr", "--mca", "btl", btls + ",self",
                               "--mca", "pml_dr_progress", "thread", HELPER],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEADLINE_SECONDS, check=False)
        fttap.check(done.returncode == 0, f"{btls}: exit {done.returncode}\n{done.stdout}")


def locks_come_first():
    """Open MPI's locks are on for the thread when the BTLs are initialised, and only then"""
    for parameters, expected in (({"pml": "dr", "pml_dr_progress": "thread"}, 1), ({"pml": "dr", "pml_dr_progress": "app"}, 0),
                                 ({"pml": "ob1", "pml_dr_progress": "thread"}, 0)):
        settings = [word for name, value in parameters.items() for word in ("--mca", name, value)]
        done = subprocess.run([MPIRUN, "-n", "1", *settings, "--mca", "btl", "tcp,self", "gdb", "-nx", "-batch",
                               "-ex", "set breakpoint pending on", "-ex", "break mca_btl_base_select", "-ex", "run",
                               "-ex", 'printf "locks=%d\\n", *(char *)&opal_uses_threads', "-ex", "kill", "--args", HELPER],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEADLINE_SECONDS, check=False)
        fttap.check(f"locks={expected}" in done.stdout, f"{parameters}: {done.stdout[-2000:]}")


fttap.main([thread_sends_again, without_loss, app_does_not, unknown_word, runs_when_it_has_to, locks_come_first])
