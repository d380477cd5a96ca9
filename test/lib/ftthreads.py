"""The program semantics/threads, MPI_THREAD_MULTIPLE, under pml/dr while btl/fault strikes."""

import ftmpi

CASES = 8

# What tells that a fault struck: btl/fault's counter, and dr's of what it did about it.
COUNTERS = {
    "btl_fault_drop": ("dropped", "retransmitted"),
    "btl_fault_duplicate": ("duplicated", "duplicates"),
    "btl_fault_corrupt": ("corrupted", "corrupt_payload"),
    "btl_fault_kill_after": ("killed", "retransmitted"),
    "btl_fault_revive_after_ms": ("killed", "paths_up"),
}


def run(network, parameters, program, part, deadline, ranks=2):
    """Runs it over a network of ftmpi's; each case makes that part of the turns it makes without faults."""
    return ftmpi.run(ftmpi.command_for(network, "dr", parameters, [program, part], ranks), deadline, show_stacks=True)


def must_be_well(result, parameters):
    """All cases were run, and every fault that was asked for struck and was answered."""
    result.must(not result.late, "a stall")
    result.must(result.code == 0 and "not ok" not in result.output, "it failed")
    result.must(f"ok {CASES} " in result.output, "not every case was run")
    faults_struck(result, parameters)


def faults_struck(result, parameters):
    """Every fault that was asked for struck and was answered."""
    for parameter, (fault, answer) in COUNTERS.items():
        if parameter in parameters:
            result.must(result.faults.get(fault, 0) > 0, f"the fault did not strike: {fault}=0")
            result.must(result.dr.get(answer, 0) > 0, f"dr did not count it: {answer}=0")


def told(result):
    """What struck, in short."""
    faults = dict.fromkeys(fault for fault, _ in COUNTERS.values())
    return f"{result.seconds:.1f} s, " + ", ".join(f"{fault}={result.faults.get(fault, 0)}" for fault in faults)
