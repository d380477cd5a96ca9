#!/usr/bin/env python3
"""btl/ucx on one machine: what it carries, what it refuses, what it leaves alone. TAP."""

import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
sys.dont_write_bytecode = True

import ftmanual  # noqa: E402
import ftmpi  # noqa: E402
import fttap  # noqa: E402

DEADLINE = 60
WORK = ["--rounds", 10, "--max", 300000]
LOOPBACK = {"btl_ucx_if_include": "lo", "btl_ucx_stats": 1, "btl_ucx_verbose": 1, "pml_dr_stats": 1}
ILLEGAL_INSTRUCTION = 1 << 3  # in a mask of signals


def command(parameters, program=None, pml="dr", btl="ucx,self", ranks=2):
    """The whole command; without --mca btl when btl is None."""
    program = program or [ftmpi.HASHRING, *WORK]
    btls = {"btl": btl} if btl else {}
    return [ftmpi.MPIRUN, "--oversubscribe", "-np", str(ranks),
            *ftmpi.mca({"pml": pml, **btls, **parameters}), *[str(word) for word in program]]


def run(parameters, **options):
    """A run that ends in time."""
    result = ftmpi.run(command(parameters, **options), DEADLINE, show_stacks=True)
    result.must(not result.late, "the job hung")
    result.must("Signal:" not in result.output and "terminate called" not in result.output,
                "the job crashed")
    return result


def carries(text, pml="dr", **parameters):
    """Every byte is right, it went by UCX, and the end of the job is no failure."""
    def case():
        names = {f"btl_ucx_{name}": value for name, value in parameters.items()}
        result = run({**LOOPBACK, **names}, pml=pml, ranks=3)
        result.must(result.right, "the data was not right")
        result.must(result.ucx.get("delivered", 0) > 1000, "it did not go by UCX")
        for counter in ("malformed", "strangers", "no_receiver", "broken"):
            result.must(result.ucx[counter] == 0, f"{counter} is not 0")
        result.must("lost its way" not in result.output, "something broke")
    case.__doc__ = f"{text}: every byte is right"
    return case


def inert(text, **options):
    """Nothing is seen of it."""
    def case():
        parameters = {"btl_ucx_transports": "nonsense", "btl_ucx_stats": 1}
        result = run(parameters, **options)
        result.must(result.right, "the run is disturbed")
        result.must("ucx" not in result.output, "it said something")
    case.__doc__ = f"{text}, it says and does nothing"
    return case


def refuses(parameters, *words):
    """A value that cannot be used: each word comes once, and the job fails for want of a path."""
    def case():
        result = run(parameters)
        result.must(result.code != 0, "the job went on as if nothing were wrong")
        flat = " ".join(result.output.split())
        for word in words:
            result.must(flat.count(word) == 1, f"\"{word}\" came {flat.count(word)} times")
    case.__doc__ = " ".join(f"{n} {v}" for n, v in parameters.items()) + " is refused"
    return case


def host_without_such_a_network():
    """a network that this host does not have is refused with what there is"""
    result = run({"btl_ucx_transports": "tcp", "btl_ucx_if_include": "203.0.113.0/24"})
    flat = " ".join(result.output.split())
    result.must(result.code != 0 and "Devices asked for: 203.0.113.0/24" in flat
                and re.search(r"UCX has on this host: .*tcp \(.*lo", flat), "no message says so")


def seen_in_ranks(parameters, **options):
    """What each rank has loaded, which signals it catches, and how many threads it has."""
    with tempfile.TemporaryDirectory() as folder:
        enough = os.path.join(folder, "enough")
        program = [ftmpi.HASHRING, "--until", enough, "--seconds", DEADLINE, "--max", 1000]
        with open(os.path.join(folder, "output"), "w+", encoding="utf-8") as output, \
                subprocess.Popen(command(parameters, program, **options), stdout=output,
                                 stderr=subprocess.STDOUT, start_new_session=True) as process:
            end = time.monotonic() + DEADLINE / 2
            ranks = []
            while len(ranks) < 2 and time.monotonic() < end and process.poll() is None:
                # The last thing that MPI_Init loads is something of coll's.
                ranks = [pid for pid in filter(ftmpi.is_rank, ftmpi.descendants(process.pid))
                         if "mca_coll_" in text_of(pid, "maps")]
            seen = [(text_of(pid, "maps"),
                     int(re.search(r"SigCgt:\s*(\w+)", text_of(pid, "status")).group(1), 16),
                     len(os.listdir(f"/proc/{pid}/task"))) for pid in ranks]
            with open(enough, "w", encoding="ascii"):
                pass
            code = process.wait(DEADLINE)
            output.seek(0)
            text = output.read()
    result = ftmpi.Result(["hashring"], code, text, 0, False, "")
    result.must(result.right, "the data was not right")
    result.must(len(seen) >= 2, "the ranks were not found")
    return seen


def killed_peer(transport):
    """A rank dies: the others agree on it, and are not misled by what UCX says first."""
    def case():
        agree = os.path.join(ftmpi.BUILD, "test", "mpi", "validate", "agree")
        for dead, when in (("2", "later"), ("0", "during")):
            result = run({**LOOPBACK, "btl_ucx_transports": transport, "errmgr": "radixft"},
                         program=[agree, dead, when], ranks=4)
            right = set(re.findall(r"^rank (\d+) right$", result.output, re.MULTILINE))
            result.must(result.code == 0 and right == {"0", "1", "2", "3"} - {dead},
                        f"rank {dead} died {when}: right were {sorted(right)}")
    case.__doc__ = f"a killed peer over {transport}: the survivors agree on who died"
    return case


def text_of(pid, name):
    """A file of /proc, empty when the process is gone."""
    try:
        with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""


def leaves_processes_alone():
    """UCX is loaded where it is named only, and gets neither signals nor a thread of its own"""
    threads = set()
    for options, loaded in (({"btl": "tcp,self"}, False), ({"btl": None}, False), ({}, True)):
        for maps, caught, count in seen_in_ranks(LOOPBACK, **options):
            fttap.check(("libompi_ft_ucx" in maps) == loaded,
                        f"{options}: loaded is {not loaded}")
            if options.get("btl", "") is not None:
                fttap.check(not caught & ILLEGAL_INSTRUCTION, f"{options}: SIGILL is caught")
                threads.add(count)
    fttap.check(len(threads) == 1, f"threads of the ranks: {threads}")


def settings_agree_with_the_manual():
    """the manual page describes every parameter with its default, and no other"""
    ftmanual.agree("btl", "ucx", "opal/mca/btl/ucx")


TESTS = [
    carries("shared memory and TCP"),
    carries("TCP", transports="tcp"),
    carries("TCP, the smallest fragments", transports="tcp", fragment=1024),
    carries("POSIX shared memory", transports="posix"),
    carries("System V shared memory, small fragments", transports="sysv", fragment=2000),
    carries("TCP under ob1", pml="ob1", transports="tcp"),
    carries("shared memory under ob1", pml="ob1", transports="posix"),
    inert("not in the list of BTLs", btl="vader,self"),
    inert("with a list that only excludes", btl="^openib"),
    leaves_processes_alone,
    killed_peer("tcp"),
    killed_peer("posix"),
    refuses({"btl_ucx_transports": "tcp,pigeons"}, "Not there: pigeons", "There are:"),
    refuses({"btl_ucx_transports": ""}, "Not there: (nothing)"),
    host_without_such_a_network,
    refuses({"btl_ucx_if_include": "10.1.0.0/33"}, "Parameter: btl_ucx_if_include Value: 10.1.0.0/33"),
    refuses({"btl_ucx_fragment": 65536}, "It must be 1024 to 65528"),
    refuses({"btl_ucx_fragment": 100}, "It must be 1024 to 65528"),
    refuses({"btl_ucx_latency": 2000000}, "It must be 0 to 1000000"),
    settings_agree_with_the_manual,
]

if __name__ == "__main__":
    ftmpi.become_subreaper()
    fttap.main(TESTS)
