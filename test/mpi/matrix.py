#!/usr/bin/env python3
"""The fault matrix: networks times faults under a PML. Prints TAP.

  matrix.py ob1                 the faults strike: stock ob1 suffers from each
  matrix.py dr                  pml/dr carries everything over each of them
  matrix.py over NETWORK...     the same over networks of btl/dgram and btl/ucx
  matrix.py thread              some of it with a thread that makes progress
  matrix.py load                the same while the processors are kept busy
  matrix.py counterparts        and it does not, when the mechanism it needs is off
  matrix.py repeat N [load]     dr, N times with different seeds: for soaking

Each cell under dr asserts that its fault struck: btl/fault counted it, and dr counted what it did
about it.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
sys.dont_write_bytecode = True

import ftmpi  # noqa: E402
import fttap  # noqa: E402

# Which of btl/fault's counters a fault must have moved, and its parameters without btl_fault_.
FAULTS = {
    "no fault": ([], {}),
    "drop": (["dropped"], {"drop": 2}),
    "duplicate": (["duplicated"], {"duplicate": 2}),
    "corrupt": (["corrupted"], {"corrupt": 2}),
    "reorder": (["reordered"], {"reorder": 10}),
    "delay": (["delayed"], {"delay_us": 500, "delay_percent": 10}),
    "kill": (["killed"], {"kill_after": 60, "kill_btl": "any", "ranks": 0}),
    "kill_error": (["killed"], {"kill_error": 60, "kill_btl": "any", "ranks": 0}),
    "all together": (["dropped", "duplicated", "corrupted", "reordered", "delayed", "killed"],
                     {"drop": 1, "duplicate": 1, "corrupt": 1, "reorder": 5, "delay_us": 300,
                      "delay_percent": 5, "kill_after": 60, "kill_btl": "any"}),
}

# So that long messages are cut into several fragments over TCP, too.
SEVERAL = {"pml_dr_fragment_bytes": 65536}

# What dr must have counted about it.
ANSWERS = {
    "drop": ["retransmitted"],
    "duplicate": ["duplicates"],
    "corrupt": ["corrupt_header", "corrupt_payload"],
    "kill": ["retransmitted"],
    "kill_error": ["retransmitted"],
    "all together": ["retransmitted", "duplicates", "corrupt_payload"],
}

WORK = ["--rounds", 20, "--max", 300000]
LOADED_WORK = ["--rounds", 10, "--max", 200000]  # each kind of round once
DEADLINE = 40  # seconds; a cell takes one to three on an idle machine
LOADED_DEADLINE = 60
AT_A_TIME = 2  # of the cells that spend their time in a stall


def work():
    """What the program is to do in a cell under dr."""
    return LOADED_WORK if sys.argv[1] == "load" else WORK


def faults_of(name, seed):
    """The parameters of a fault as MCA parameters."""
    return {f"btl_fault_{key}": value for key, value in {**FAULTS[name][1], "seed": seed}.items()}


def assert_struck(result, name, late=False):
    """btl/fault says that it did what it was asked for."""
    result.must(result.faults.get("fragments", 0) > 0, "btl/fault counted nothing")
    for counter in FAULTS[name][0]:
        result.must(result.faults[counter] > 0, f"the fault did not strike: {counter}=0")
    if not FAULTS[name][0] and not late:
        idle = [c for c in result.faults if c != "fragments" and result.faults[c] != 0]
        result.must(not idle, f"btl/fault did something that nobody asked for: {idle}")


# ---- dr ----

def unreachable(network, name, seed, deadline):
    """The only path is gone for good: the program sees an error, in time."""
    parameters = {**faults_of(name, seed), **SEVERAL, "pml_dr_give_up_ms": 3000, "pml_dr_rto_max_ms": 500,
                  "pml_dr_drain_ms": 2000}
    result = ftmpi.run(ftmpi.command_for(network, "dr", parameters, [ftmpi.HASHRING, *work()]),
                       deadline, show_stacks=True)
    result.must(not result.late, "the job hung although its only path is dead")
    result.must(result.code != 0, "the job claims to have survived without a path")
    result.must("has lost every way to a process" in result.output, "no message says why it failed")


def survives(network, name, seed, deadline, extra=None):
    """Every byte is right, in time, and the fault did strike."""
    parameters = {**faults_of(name, seed), **SEVERAL, **(extra or {})}
    result = ftmpi.run(ftmpi.command_for(network, "dr", parameters, [ftmpi.HASHRING, *work()]),
                       deadline, show_stacks=True)
    result.must(not result.late, f"not finished after {deadline} s: a stall")
    result.must(result.right, "the data was not right, or the run failed")
    assert_struck(result, name)
    answers = ANSWERS.get(name, [])
    if answers:
        result.must(sum(result.dr.get(answer, 0) for answer in answers) > 0,
                    f"dr did not count {answers}: {result.dr}")
    fttap.comment(f"{result.seconds:.1f} s")
    if result.seconds > deadline / 3:
        result.tell()  # in time, but slow enough to want to know why


def dr_cell(network, name, seed=1, deadline=DEADLINE):
    """One cell of the matrix under dr."""
    single = ftmpi.NETWORKS[network][2] == 1
    if single and name in ("kill", "kill_error"):
        unreachable(network, name, seed, deadline)
        if name == "kill":
            # Dead for as long at each of several deaths: not too many of them.
            survives(network, name, seed, deadline,
                     {"btl_fault_revive_after_ms": 200, "btl_fault_kill_after": 60})
        return
    extra = {}
    if name == "all together":
        if single:
            extra = {"btl_fault_revive_after_ms": 200, "btl_fault_kill_after": 200}
        else:
            extra["btl_fault_ranks"] = 0
    survives(network, name, seed, deadline, extra)


def cell(function, network, name, *arguments):
    """A test case for fttap."""
    def case():
        function(network, name, *arguments)
    case.__doc__ = f"{sys.argv[1]}, {network}, {name}" + (
        f", seed {arguments[0]}" if len(arguments) > 1 else "")
    return case


# ---- ob1 ----

def ob1_suffers(network, name):
    """What stock ob1 makes of the fault."""
    program = [ftmpi.HASHRING, *WORK, "--stall", 3]
    seeds = range(1, 9) if name == "corrupt" else [1]
    for seed in seeds:
        result = ftmpi.run(ftmpi.command_for(network, "ob1", faults_of(name, seed), program), 30)
        result.must(not result.late, "the program did not even notice that it stalls")
        if name in ("no fault", "reorder", "delay"):
            result.must(result.right, "ob1 copes with this one")
            assert_struck(result, name)
            return
        result.must(not result.right, "ob1 cannot cope with this one, but says that all was right")
        if name == "corrupt":
            # Which fragment is hit is drawn; a broken header of ob1's crashes or hangs it instead.
            if " wrong, first at " in result.output:
                return
            continue
        if name == "kill_error":
            # ob1 aborts when a fragment with data fails, and ignores it when a control message does.
            return
        if name != "all together":
            result.must("hashring: stalled" in result.output or
                        " wrong, first at " in result.output or "came twice" in result.output or
                        "TRUNC" in result.output or "signal" in result.output,
                        "failed in another way than by a hang or wrong data")
        if result.faults:
            counters = FAULTS[name][0]
            result.must(sum(result.faults[c] for c in counters) > 0, "the fault did not strike")
        return
    result.must(False, f"no corrupted byte came through in {len(seeds)} runs")


# ---- with a thread that makes progress ----

# network, fault -> what else the cell needs
BESIDE_A_THREAD = {
    ("tcp", "drop"): {},
    ("tcp2", "all together"): {"btl_fault_ranks": 0},
}


# ---- mechanisms off ----

# mechanism -> (network, fault)
COUNTERPARTS = [
    ("retransmit", "vader", "drop"),
    ("retransmit", "tcp", "drop"),
    ("checksum", "vader", "corrupt"),
    ("checksum", "tcp", "corrupt"),
    ("duplicate", "vader", "duplicate"),
    ("duplicate", "tcp", "duplicate"),
    ("failover", "tcp2", "kill"),
    ("failover", "vader+tcp", "kill"),
    ("order", "vader", "reorder"),
]


def fails_without(mechanism, network, name):
    """The cell that dr survives must fail with the mechanism off."""
    program = [ftmpi.HASHRING, *WORK, "--stall", 3]
    parameters = {**faults_of(name, 1), **SEVERAL}
    result = ftmpi.run(ftmpi.command_for(network, "dr", parameters, [ftmpi.HASHRING, *WORK]),
                       DEADLINE, show_stacks=True)
    result.must(result.right, "does not even work with the mechanism on")
    parameters["pml_dr_test_disable"] = mechanism
    parameters["pml_dr_drain_ms"] = 1000
    result = ftmpi.run(ftmpi.command_for(network, "dr", parameters, program), 30)
    result.must(not result.right, f"all was right without {mechanism}: the cell proves nothing")
    if result.faults:
        result.must(sum(result.faults[c] for c in FAULTS[name][0]) > 0,
                    "the fault did not strike")


def counterpart(mechanism, network, name):
    """A test case for fttap."""
    def case():
        fails_without(mechanism, network, name)
    case.__doc__ = f"without {mechanism}, {network} with {name} fails"
    return case


def main():
    """Chooses the cases by the command line."""
    what = sys.argv[1]
    ftmpi.become_subreaper()
    theirs = [n for n, (btls, _, _) in ftmpi.NETWORKS.items() if "dgram" not in btls and "ucx" not in btls]
    stock = [n for n in theirs if n != "vader+tcp"]
    if what == "ob1":
        fttap.main([cell(ob1_suffers, n, f) for n in stock for f in FAULTS], AT_A_TIME)
    elif what == "dr":
        fttap.main([cell(dr_cell, n, f) for n in theirs for f in FAULTS])
    elif what == "over":
        fttap.main([cell(dr_cell, n, f) for n in sys.argv[2:] for f in FAULTS])
    elif what == "thread":
        fttap.main([cell(survives, n, f, 1, DEADLINE, {"pml_dr_progress": "thread", **more})
                    for (n, f), more in BESIDE_A_THREAD.items()])
    elif what == "counterparts":
        fttap.main([counterpart(*each) for each in COUNTERPARTS], AT_A_TIME)
    elif what == "load":
        with ftmpi.Load():
            fttap.main([cell(dr_cell, n, f, 2, LOADED_DEADLINE)
                        for n in stock for f in FAULTS])
    elif what == "repeat":
        cases = [cell(dr_cell, n, f, seed, LOADED_DEADLINE) for seed in range(1, int(sys.argv[2]) + 1)
                 for n in ftmpi.NETWORKS for f in FAULTS]
        with ftmpi.Load(None if "load" in sys.argv else 0):
            fttap.main(cases)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
