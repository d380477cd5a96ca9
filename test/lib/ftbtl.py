"""What the tests of this project's BTLs have in common: jobs over the loopback interface, what they carry, what they refuse."""

import os
import subprocess
import tempfile
import time

import ftmpi

DEADLINE = 60
WORK = ["--rounds", 10, "--max", 300000]


class Btl:
    """One BTL, with the parameters under which it uses loopback and counts what it does."""

    def __init__(self, name, loopback):
        self.name = name
        self.loopback = {**loopback, "pml_dr_stats": 1}

    def command(self, parameters, program=None, pml="dr", btl="", ranks=2):
        """The whole command; without --mca btl when btl is None."""
        program = program or [ftmpi.HASHRING, *WORK]
        btls = {} if btl is None else {"btl": btl or f"{self.name},self"}
        return [ftmpi.MPIRUN, "--oversubscribe", "-np", str(ranks), *ftmpi.mca({"pml": pml, **btls, **parameters}),
                *[str(word) for word in program]]

    def run(self, parameters, **options):
        """A run that ends in time."""
        result = ftmpi.run(self.command(parameters, **options), DEADLINE, show_stacks=True)
        result.must(not result.late, "the job hung")
        result.must("Signal:" not in result.output and "terminate called" not in result.output, "the job crashed")
        return result

    def carries(self, text, never, pml="dr", **parameters):
        """A case: every byte is right, and went by this BTL; the counters named by `never` are 0."""
        def case():
            names = {f"btl_{self.name}_{name}": value for name, value in parameters.items()}
            result = self.run({**self.loopback, **names}, pml=pml, ranks=3)
            counted = ftmpi.sums(result.output, f"btl/{self.name}")
            result.must(result.right, "the data was not right")
            result.must(counted.get("delivered", 0) > 1000, f"it did not go by btl/{self.name}")
            for counter in never:
                result.must(counted[counter] == 0, f"{counter} is not 0")
            result.must("lost its way" not in result.output, "something broke")
        case.__doc__ = f"{text}: every byte is right"
        return case

    def inert(self, text, parameters, **options):
        """A case: with parameters that it would refuse if it looked at them, nothing is seen of it."""
        def case():
            result = self.run({**parameters, f"btl_{self.name}_stats": 1}, **options)
            result.must(result.right, "the run is disturbed")
            result.must(self.name not in result.output, "it said something")
        case.__doc__ = f"{text}, it says and does nothing"
        return case

    def refused(self, parameters, words, **options):
        """A message that holds all the words comes once, and the job fails for want of a path."""
        result = self.run(parameters, **options)
        result.must(result.code != 0, "the job went on as if nothing were wrong")
        flat = " ".join(result.output.split())
        for word in words:
            result.must(flat.count(word) == 1, f"\"{word}\" came {flat.count(word)} times")

    def refuses(self, parameters, *words):
        """A case: a value that cannot be used."""
        def case():
            self.refused(parameters, words)
        case.__doc__ = " ".join(f"{n} {v}" for n, v in parameters.items()) + " is refused"
        return case

    def left_by_exit(self, text, **parameters):
        """A case: children that ranks fork, and ranks themselves, end by exit(); the job goes on, or ends with their code."""
        def case():
            program = os.path.join(ftmpi.BUILD, "test", "mpi", "programs", "leaves")
            own = {**self.loopback, **{f"btl_{self.name}_{name}": value for name, value in parameters.items()}}
            result = self.run(own, program=[program, "children"])
            result.must(result.code == 0 and result.output.count(" 0 wrong after its children ended") == 2,
                        "the children disturbed the ranks")
            for _ in range(3):
                result = self.run({**own, "pml_dr_progress": "thread"}, program=[program, 3])
                result.must(result.code == 3, f"exit code {result.code}")
        case.__doc__ = f"{text}: children and ranks that call exit() disturb nobody"
        return case

    def during(self, parameters, act, largest=1000, **options):
        """A run that goes on until act(process, end) has returned: its result, and what act returned. `end` is a time by
        time.monotonic()."""
        with tempfile.TemporaryDirectory() as folder:
            enough = os.path.join(folder, "enough")
            program = [ftmpi.HASHRING, "--until", enough, "--seconds", DEADLINE, "--max", largest]
            with open(os.path.join(folder, "output"), "w+", encoding="utf-8") as output, \
                    subprocess.Popen(self.command(parameters, program, **options), stdout=output,
                                     stderr=subprocess.STDOUT, start_new_session=True) as process:
                try:
                    found = act(process, time.monotonic() + DEADLINE / 2)
                finally:
                    with open(enough, "w", encoding="ascii"):
                        pass
                code = process.wait(DEADLINE)
                output.seek(0)
                text = output.read()
        return ftmpi.Result(["hashring"], code, text, 0, False, ""), found
