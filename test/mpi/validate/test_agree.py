#!/usr/bin/env python3
"""MPI_Comm_validate_all with real deaths: every survivor returns, and all hold the same set.

Ranks kill themselves (SIGKILL) before, during and after calls; errmgr/radixft
tells the others. Each run has a deadline, within which all survivors must
have compared their sets and left MPI_Finalize.
"""

import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "lib"))

import ftmpi  # noqa: E402
from fttap import check, main  # noqa: E402

PROGRAMS = os.path.join(ftmpi.BUILD, "test", "mpi", "validate")
DEADLINE = 60


def agree(ranks, dead, when, btl="vader,self", deadly=True, more=(), **parameters):
    """Runs the program; every survivor must be right and have printed the wanted set."""
    own = {"pml": "dr", "btl": btl, **parameters}
    if deadly:
        own["errmgr"] = "radixft"
    command = [ftmpi.MPIRUN, "--oversubscribe", "-np", str(ranks), *ftmpi.mca(own),
               os.path.join(PROGRAMS, "agree"), dead, when, *more]
    result = ftmpi.run(command, DEADLINE, show_stacks=True)
    gone = set()
    for word in dead.split(","):
        if word != "none":
            first, _, last = word.partition("-")
            gone |= set(range(int(first), int(last or first) + 1))
    alive = set(range(ranks)) - gone
    right = {int(rank) for rank in re.findall(r"^rank (\d+) right$", result.output, re.M)}
    sets = {text for _, text in re.findall(r"^rank (\d+) set (\S+)$", result.output, re.M)}
    wanted = ",".join(str(rank) for rank in sorted(gone)) or "none"
    result.must(not result.late, f"{dead} {when}: a hang")
    result.must(result.code == 0, f"{dead} {when}: exit code {result.code}")
    result.must(right == alive, f"{dead} {when}: right were {sorted(right)}")
    result.must(sets == {wanted}, f"{dead} {when}: the sets are {sets}")
    return result


def no_failure():
    """Nobody fails: an empty set, under the stock error manager, over two BTLs"""
    agree(4, "none", "known", deadly=False)
    agree(3, "none", "known", deadly=False, btl="tcp,self")


def alone():
    """A single rank agrees with itself"""
    agree(1, "none", "known", deadly=False)


def known():
    """Leaf, inner rank and root are dead, and all know"""
    for ranks, dead in ((2, "1"), (2, "0"), (4, "3"), (4, "1"), (4, "0"), (8, "0,1,5")):
        agree(ranks, dead, "known")


def before():
    """They die just before the call"""
    for ranks, dead in ((3, "2"), (4, "0"), (6, "1,3")):
        agree(ranks, dead, "before")


def during():
    """They die while others call"""
    for ranks, dead in ((4, "0"), (5, "0,2"), (8, "1,4-6")):
        agree(ranks, dead, "during")


def later():
    """They die after a call of all"""
    for ranks, dead in ((4, "2"), (6, "0,1")):
        agree(ranks, dead, "later")


def all_but_one():
    """Only one is left"""
    agree(5, "0-3", "known")


def over_tcp():
    """Over TCP"""
    agree(4, "0,2", "during", btl="tcp,self")


def loose():
    """Loose semantics"""
    agree(4, "1", "during", coll_validate_semantics="loose")
    agree(4, "0", "known", coll_validate_semantics="loose")


def loose_by_info():
    """Loose semantics for one communicator, by its info key"""
    agree(4, "1", "during", more=("3", "info"))
    fragments = [agree(4, "none", "known", deadly=False, more=more, pml_dr_stats=1).dr["sent"]
                 for more in (("300",), ("300", "info"))]
    check(fragments[1] < 0.75 * fragments[0], f"fragments sent, strict and loose: {fragments}")


def exchanges():
    """The exchange around a ring and along a tree, whatever the machine is"""
    for more in ({"coll_validate_algorithm": "fast"}, {"coll_validate_algorithm": "tree", "coll_validate_fan_out": 2}):
        agree(5, "0,3", "during", **more)
        agree(4, "1", "known", **more)
        agree(4, "1", "during", coll_validate_semantics="loose", **more)


def papers():
    """The paper's own five sweeps"""
    agree(5, "0,3", "during", coll_validate_algorithm="paper")
    agree(4, "0", "known", coll_validate_algorithm="paper")


def papers_calm():
    """The paper's own five sweeps, nobody fails"""
    agree(4, "none", "known", deadly=False, coll_validate_algorithm="paper")


CALM = [no_failure, alone, papers_calm]
WITH_DEATHS = [known, before, during, later, all_but_one, loose, loose_by_info, exchanges, papers]

if sys.argv[1:] == ["tcp"]:
    main([over_tcp])
main(CALM + WITH_DEATHS)
