#!/usr/bin/env python3
"""The performance variables of pml/dr under faults: each counts what it is to count, as pml_dr_stats says. Prints TAP.

usage: pvars.py BTLS RANKS [parameter=value...]
"""

import functools
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import ftmpi  # noqa: E402
import fttap  # noqa: E402

PROGRAM = os.path.join(ftmpi.BUILD, "test", "mpi", "semantics", "pvars")
CASES = 9
DEADLINE = 100
FAULTS = {"btl_fault_drop": 2, "btl_fault_corrupt": 2, "btl_fault_duplicate": 20, "btl_fault_count": 1}

# Variable -> its word in the line of each process.
OF_PROCESS = {
    "fragments_sent": "sent",
    "fragments_acknowledged": "acked",
    "fragments_received": "received",
    "retransmitted_timeout": "timeout",
    "retransmitted_watchdog": "watchdog",
    "retransmitted_gap": "gap",
    "retransmitted_tail": "tail",
    "questions_sent": "questions",
    "retransmitted_nack": "nack",
    "retransmitted_failover": "failover",
    "retransmitted_spurious": "spurious",
    "spurious_timeouts": "spurious_timeouts",
    "duplicates": "duplicates",
    "corrupt_headers": "corrupt_header",
    "corrupt_payloads": "corrupt_payload",
    "failovers": "paths_down",
    "returns": "paths_up",
}
# The same in the lines of its paths, added up.
OF_PATHS = {
    "path_bytes": "bytes",
    "path_failovers": "failovers",
    "path_returns": "returns",
    "path_lost_bytes": "lost_bytes",
    "path_congestion_events": "congestion_events",
}
# These have counted something, all ranks together. What tells of the tail is asked for over datagrams in another way, and
# a timeout that was in vain is not told from others there.
ALWAYS = ["retransmitted_timeout", "retransmitted_gap", "retransmitted_nack", "retransmitted_spurious", "duplicates",
          "corrupt_headers", "corrupt_payloads"]
BUT_OVER_DATAGRAMS = ["retransmitted_tail", "questions_sent", "spurious_timeouts"]
OVER_DATAGRAMS = ["path_lost_bytes"]
# The longest fragment here.
FRAGMENT = 16384
# With btl_fault_kill_btl: one path of two died, with fragments in flight or, if the other one was quicker, without.
OF_A_DEAD_PATH = ["failovers", "path_failovers"]


@functools.cache
def run():
    """The one run that all look at."""
    btls, ranks, *words = sys.argv[1:]
    parameters = dict(word.split("=", 1) for word in words)
    command = [ftmpi.MPIRUN, "--oversubscribe", "-np", ranks,
               *ftmpi.mca({"pml": "dr", "btl": f"fault,{btls},self", "pml_dr_stats": 2,
                           "pml_dr_fragment_bytes": FRAGMENT, **FAULTS, **parameters}), PROGRAM]
    return ftmpi.run(command, DEADLINE, show_stacks=True)


def lines(who):
    """Rank -> the words name=value of its lines, those of one name added up."""
    found = {}
    for rank, line in re.findall(rf"^{who}: (.*)$", run().output, re.MULTILINE):
        its = found.setdefault(int(rank), {})
        for name, value in re.findall(r"(\w+)=(\d+)", line):
            its[name] = its.get(name, 0) + int(value)
    return found


def a_path_died():
    """Whether one was to be killed."""
    return any(word.startswith("btl_fault_kill_btl=") for word in sys.argv[3:])


def program():
    """every variable is there and says what the program knows"""
    result = run()
    result.must(not result.late, "a stall")
    result.must(result.code == 0 and "not ok" not in result.output, "it failed")
    result.must(f"ok {CASES} " in result.output, "not every case was run")


def counted():
    """each kind of fault and of repair was counted"""
    total = ftmpi.sums(run().output, "pvars")
    datagrams = "dgram" in sys.argv[1]
    wanted = ALWAYS + (OVER_DATAGRAMS if datagrams else BUT_OVER_DATAGRAMS) + (OF_A_DEAD_PATH if a_path_died() else [])
    fttap.comment(", ".join(f"{name} {total.get(name)}" for name in wanted))
    zero = [name for name in wanted if total.get(name, 0) == 0]
    run().must(not zero, f"counted nothing: {zero}")


def agree():
    """each says what the line of pml_dr_stats says at the end, but for what was sent and came since"""
    variables, process = lines(r"pvars\[rank (\d+)\]"), lines(r"pml/dr\[rank (\d+)\]")
    paths = lines(r"pml/dr\[rank (\d+) -> \[\[\d+,\d+\],\d+\] [^:]+\]")
    run().must(len(variables) == int(sys.argv[2]) and variables.keys() == process.keys() == paths.keys(),
               f"lines of {variables.keys()}, {process.keys()}, {paths.keys()}")
    wrong = []
    for rank, said in variables.items():
        since = sum(process[rank][OF_PROCESS[name]] - said[name] for name in ("fragments_sent", "fragments_received"))
        run().must(0 <= since < 50, f"rank {rank}: {since} fragments since")
        since += 4  # acknowledgements are none of these
        for table, told, most in ((OF_PROCESS, process, since), (OF_PATHS, paths, since * FRAGMENT)):
            for name, word in table.items():
                value = told[rank].get(word, 0)
                if not value - most <= said[name] <= value:
                    wrong.append(f"rank {rank}: {name} {said[name]}, {word} {value}")
    run().must(not wrong, "\n".join(wrong))


def trips_agree():
    """the round trip and its variance of the path that died, which measures no more, are those of pml_dr_stats"""
    dead = re.findall(r"^pml/dr\[rank (\d+) -> \S+ [^:]+\]: state=(?:down|probing|gone) .* rtt_us=([\d.]+) rttvar_us=([\d.]+) ",
                      run().output, re.MULTILINE)
    said = dict(re.findall(r"^trips\[rank (\d+)\]:(.*)$", run().output, re.MULTILINE))
    run().must(dead and len(said) == int(sys.argv[2]), f"no path is dead: {dead}, {said}")
    wrong = [(rank, trip, variance) for rank, trip, variance in dead
             if float(trip) != 0 and f"{trip}/{variance}" not in said[rank].split()]
    run().must(not wrong, f"{wrong} are not among {said}")


if __name__ == "__main__":
    ftmpi.become_subreaper()
    fttap.main([program, counted, agree] + ([trips_agree] if a_path_died() else []))
