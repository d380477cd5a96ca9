#!/usr/bin/env python3
"""Slurm's srun, as far as mpirun needs it: starts a command on hosts of a virtual cluster, and goes on until all have ended.

Hosts come from --nodelist, or from the allocation in SLURM_NODELIST. Its environment is that of the command. It returns the
highest exit code of all; with --kill-on-bad-exit it ends the others when one is not 0. $FT_SRUN_RSH is the cluster's remote
shell, and $FT_SRUN_SAID a file to which it appends how it was called. $FT_SRUN_FAILS has it return that at once, and
$FT_SRUN_CODE has it return that at the end, whatever the commands returned.
"""

import os
import re
import shlex
import subprocess
import sys
import threading


def hosts_of(text):
    """The hosts of "n[0-2]", or of "n1,n2"."""
    folded = re.fullmatch(r"(\w+)\[(\d+)-(\d+)\]", text)
    if folded:
        return [f"{folded[1]}{number}" for number in range(int(folded[2]), int(folded[3]) + 1)]
    return text.split(",")


def read_options(arguments):
    """Options by their name, of which the last counts, and the command."""
    options = {}
    while arguments and arguments[0].startswith("--"):
        name, _, value = arguments.pop(0)[2:].partition("=")
        options[name] = value
    return options, arguments


class Step:
    """The command on all hosts."""

    def __init__(self, hosts, command, kill):
        self._kill = kill
        self._lock = threading.Lock()
        self._ended = {}
        words = " ".join(map(shlex.quote, command))
        self._shells = [subprocess.Popen(
            [os.environ["FT_SRUN_RSH"], host, "exec " + words],
            env={**os.environ, "SLURM_NODEID": str(number), "SLURMD_NODENAME": host})
            for number, host in enumerate(hosts)]

    def _await(self, shell):
        code = shell.wait()
        with self._lock:
            self._ended[shell] = code
            if code != 0 and self._kill:
                for other in self._shells:
                    if other not in self._ended:
                        other.terminate()

    def wait(self):
        """The highest exit code."""
        waiting = [threading.Thread(target=self._await, args=(shell,)) for shell in self._shells]
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join()
        return max(map(abs, self._ended.values()))


def main():
    with open(os.environ["FT_SRUN_SAID"], "a", encoding="utf-8") as said:
        said.write(" ".join(sys.argv[1:]) + "\n")
    if "FT_SRUN_FAILS" in os.environ:
        return int(os.environ["FT_SRUN_FAILS"])
    options, command = read_options(sys.argv[1:])
    hosts = hosts_of(options.get("nodelist") or os.environ["SLURM_NODELIST"])
    code = Step(hosts, command, options.get("kill-on-bad-exit", "0") != "0").wait()
    return int(os.environ.get("FT_SRUN_CODE", code))


sys.exit(main())
