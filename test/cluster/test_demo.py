#!/usr/bin/env python3
"""The demonstration as a user runs it, with its own verdict. Prints TAP."""

import glob
import os
import re
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
from fttap import Skip, check, comment, main  # noqa: E402

DEADLINE = 400
VERDICT = r"^PASSED under pml/dr: all \d+ checks of HPCC, in \d+ s, with every fault above\.$"
CUT = r"rank \d+: path (\w+)\[\d+\] to rank \d+: taken out"


def demonstrate(folder, *words):
    """What the demonstration printed, and what the components said."""
    # What it runs with for itself comes on mpirun's command line; this is looked at by what is tested alone.
    environment = ftcluster.component_env({"OMPI_MCA_btl_dgram_stats": "1"})
    run = ftcluster.command([os.path.join(ftcluster.TOP, "contrib", "demo"), "--no-build", "--no-packages", "--logs", folder, *words],
                            DEADLINE, environment)
    for line in run.out.splitlines():
        comment(line)
    if run.code != 0:
        run.tell()
        raise AssertionError(f"the demonstration ended with exit code {run.code}")
    said = ""
    for log in glob.glob(os.path.join(folder, "*", "output.log")):
        with open(log, encoding="utf-8") as source:
            said += source.read()
    return run.out, said


def first_act_over_datagrams():
    """--dgram --only dr: HPCC passes its own checks while a rail is cut, and its messages went in datagrams"""
    if not shutil.which("hpcc"):
        raise Skip("there is no hpcc here")
    with tempfile.TemporaryDirectory() as folder:
        printed, said = demonstrate(os.path.join(folder, "logs"), "--dgram", "--only", "dr")
    check(re.search(VERDICT, printed, re.MULTILINE), "it did not say that all passed")
    if "A virtual cluster is up" in printed:  # on loopback the other path is TCP
        cut = set(re.findall(CUT, printed))
        check(cut == {"dgram"}, f"the cut rail was one of {cut or 'nothing'}")
    counted = [dict((name, int(number)) for name, number in re.findall(r"(\w+)=(\d+)", line))
               for line in re.findall(r"btl/dgram\[rank \d+\]: (.*)$", said, re.MULTILINE)]
    dr = sum(int(number) for number in re.findall(r"pml/dr\[rank \d+\]: sent=(\d+)", said))
    delivered = sum(line["delivered"] for line in counted)
    comment(f"{delivered} of {dr} fragments were delivered by datagrams")
    check(delivered > dr // 2 > 1000, f"only {delivered} of {dr} fragments went in datagrams")


if __name__ == "__main__":
    main([first_act_over_datagrams])
