"""HPCC over faulty rails, under pml/dr and under stock ob1, then a solver whose ranks, node and mpirun are
killed; called by contrib/demo."""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.path.append(os.path.join(TOP, "test", "harness"))

import cores  # noqa: E402
import counts  # noqa: E402
import screen as screen_module  # noqa: E402
import stage as stage_module  # noqa: E402
import survival  # noqa: E402

HOSTS = 4
RANKS = 4
CUT_IN = "MPIRandomAccess_LCG"
DR_DEADLINE = 300
OB1_DEADLINE = 20
SKIPPED = 77  # as for a test that could not be run

FAULTS = {"btl_fault_drop": 1, "btl_fault_duplicate": 1, "btl_fault_corrupt": 1,
          "btl_fault_seed": 1, "btl_fault_count": 1, "btl_fault_count_interval_ms": 1000}
# On loopback there is no rail to cut for the kernel: the injector does it, at one rank. btl/tcp pairs
# the links of two ranks as it likes, so where each of the two lost its first both ways may be gone.
INJECTED_CUT = {"btl_fault_kill_after": 5000}


def options():
    parser = argparse.ArgumentParser(prog="contrib/demo")
    parser.add_argument("--loopback", action="store_true")
    parser.add_argument("--dgram", action="store_true")
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--logs", default=os.path.join(TOP, "build", "demo"))
    parser.add_argument("--only", choices=("dr", "ob1", "radixft"))
    return parser.parse_args()


class Demo:
    """The whole of it."""

    def __init__(self, asked):
        self.asked = asked
        self.screen = screen_module.Screen()
        shutil.rmtree(asked.logs, ignore_errors=True)
        os.makedirs(asked.logs)
        self.state = tempfile.mkdtemp(prefix="ompi-ft-demo-", dir="/tmp")
        self.place = stage_module.Place(TOP, os.path.join(self.state, "c"), HOSTS)
        self.stage = stage_module.Stage(self.place, self.screen, asked.logs, RANKS, asked.size)
        self.results = []

    def run(self):
        """Both acts; the exit code."""
        code = 0
        if self.asked.only != "radixft":
            code = self.first_act()
        else:
            self.find_place()
        if self.asked.only in (None, "radixft"):
            code = self.second_act() or code
        return code

    def second_act(self):
        screen = self.screen
        screen.begin("A solver that runs on while a rank, a node and mpirun are killed")
        if not self.place.virtual:
            screen.text("This needs the virtual cluster, and is left out.")
            return SKIPPED if self.asked.only == "radixft" else 0
        screen.text(f"""contrib/examples/heat.c computes how heat spreads over a plate, on
            {survival.RANKS} ranks of {HOSTS} hosts: mpirun --mca errmgr radixft --mca pml dr. One
            after the other a rank, a whole host and mpirun are killed. The ranks that live agree on
            who is left and go on; the daemons go on without mpirun, and output goes to a file. In the
            end one rank computes everything by itself, and compares every number.""")
        act = survival.Survival(TOP, self.place, screen, self.asked.logs)
        good = act.run()
        if good:
            screen.line(screen.paint(f"PASSED under radixft: killed {', '.join(act.killed)}; the result is "
                                     f"right, and nothing is left running, after {act.seconds:.0f} s.", "good"))
            return 0
        screen.line(screen.paint(f"FAILED under radixft: {act.ending()}", "bad"))
        return 1

    def first_act(self):
        screen = self.screen
        screen.begin("A real application on a network that loses, doubles and spoils messages")
        self.find_place()
        faults = dict(FAULTS, btl="fault,tcp,self")
        # Loopback is one path for datagrams; TCP is the other one there.
        btl = ("fault,tcp,self" if not self.asked.dgram else
               "fault,dgram,self" if self.place.virtual else "fault,dgram,tcp,self")
        at_rank_0 = {} if self.place.virtual else INJECTED_CUT
        screen.text(f"""HPC Challenge (HPCC) runs on {RANKS} ranks. Of all fragments 1 % are dropped,
            1 % doubled and 1 % have bits flipped by btl/fault, and in the middle of the run
            {'the kernel cuts rail 0 of host n1 without a word' if self.place.virtual
             else 'one of the two ways that lead to rank 0 goes dead without a word'}.
            HPCC checks its own results: residuals of HPL and PTRANS, every location of
            RandomAccess, the error of FFT.""")
        if self.asked.only != "ob1":
            self.act("dr", f"pml/dr with all faults: mpirun --mca pml dr --mca btl {btl} ...",
                     dict(faults, pml="dr", btl=btl, pml_dr_stats=1, pml_dr_stats_interval_ms=1000,
                          pml_dr_verbose=1), DR_DEADLINE,
                     CUT_IN, at_rank_0)
        if self.asked.only != "dr":
            self.act("ob1", "stock ob1 with the same faults (time limit "
                     f"{OB1_DEADLINE} s): mpirun --mca pml ob1 --mca btl fault,tcp,self ...",
                     dict(faults, pml="ob1"), OB1_DEADLINE, CUT_IN, at_rank_0)
            if self.place.virtual:
                self.act("ob1-cut", "stock ob1 with nothing but the cut rail (time limit "
                         f"{OB1_DEADLINE} s): mpirun --mca pml ob1 --mca btl tcp,self ...",
                         {"pml": "ob1", "btl": "tcp,self"}, OB1_DEADLINE, CUT_IN)
        return self.conclude()

    def find_place(self):
        if self.asked.loopback:
            self.screen.text("As asked for, everything runs on this host's loopback interface.")
            return
        able, words = self.place.up()
        if able:
            self.screen.text(f"A virtual cluster is up: {HOSTS} hosts (network namespaces), each "
                             "with two rails for MPI and a network for the runtime.")
        else:
            self.screen.text(f"No virtual cluster: {words}. The same runs on this host's loopback "
                             "interface instead, with two TCP paths between each two ranks.")

    def act(self, name, title, parameters, deadline, cut_in, at_rank_0=None):
        self.screen.begin(title)
        tally = counts.Tally()
        result = self.stage.run(name, parameters, deadline, tally, cut_in, at_rank_0)
        tone = "good" if result.code == 0 and result.verdict.passed else "bad"
        self.screen.event("mpirun", result.ending(), tone)
        self.results.append((name, result, tally))

    def conclude(self):
        screen = self.screen
        names = [name for name, _, _ in self.results]
        first = self.results[0][1]
        screen.begin("What HPCC says of its results")
        rows = []
        for row, (check, _, _) in enumerate(first.verdict.checks):
            found = [r.verdict.checks[row] for _, r, _ in self.results]
            rows.append(([check] + [f[1] for f in found],
                         [None] + ["good" if f[2] else "bad" for f in found]))
        screen.table(["check"] + names, rows)
        screen.begin("What happened")
        rows = [(["the run"] + [r.ending() for _, r, _ in self.results],
                 [None] + ["good" if r.code == 0 and r.verdict.passed else "bad"
                           for _, r, _ in self.results])]
        for title, value in counts.ROWS:
            rows.append(([title] + [value(r, t) for _, r, t in self.results],
                         [None] * (1 + len(self.results))))
        screen.table([""] + names, rows)
        screen.line()
        return self.verdict()

    def verdict(self):
        """The last words, and the exit code."""
        screen = self.screen
        by_name = {name: (result, tally) for name, result, tally in self.results}
        screen.line(f"Logs and HPCC's full output: {os.path.relpath(self.asked.logs, os.getcwd())}")
        if "dr" not in by_name:
            return 0
        result, tally = by_name["dr"]
        problems = []
        if result.code != 0 or not result.verdict.passed:
            problems.append(f"{result.ending()}; {result.verdict.right()} of "
                            f"{len(result.verdict.checks)} checks passed")
        problems += tally.not_struck()
        if result.cut_at is not None and result.dropped == 0:
            problems.append("the kernel's cut struck no packet")
        if result.cut_at is None and tally.fault["killed"] == 0:
            problems.append("no path was cut in the middle")
        if problems:
            screen.line(screen.paint("FAILED under pml/dr: " + "; ".join(problems), "bad"))
            return 1
        screen.line(screen.paint(f"PASSED under pml/dr: all {len(result.verdict.checks)} checks of "
                                 f"HPCC, in {result.seconds:.0f} s, with every fault above.",
                                 "good"))
        return 0

    def close(self):
        self.place.down()
        shutil.rmtree(self.state, ignore_errors=True)


def main():
    # Ctrl-C and SIGTERM end the demonstration through its clean-up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    demo = Demo(options())
    shared = cores.Shared()
    try:
        code = demo.run()
        print(f"The demonstration took {time.monotonic() - began:.0f} s.")
    except KeyboardInterrupt:
        print("\ncontrib/demo: interrupted; cleaning up", file=sys.stderr)
        code = 130
    except RuntimeError as failed:
        print(f"contrib/demo: {failed}", file=sys.stderr)
        code = 1
    finally:
        demo.close()
        shared.end()
    return code


if __name__ == "__main__":
    sys.exit(main())
