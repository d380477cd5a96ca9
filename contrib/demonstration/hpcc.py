"""HPC Challenge: its input, its progress and its own verdict."""

import os
import re

# Grid of processes for a number of ranks: rows and columns of HPL and PTRANS.
GRIDS = {2: (1, 2), 4: (2, 2), 6: (2, 3), 8: (2, 4)}

INPUT = """\
HPLinpack benchmark input file
ompi-ft demonstration
HPL.out      output file name (ignored)
8            device out (ignored)
1            # of problem sizes (N)
{size}         Ns
2            # of NBs
64 96        NBs
0            PMAP process mapping (0=Row-,1=Column-major)
1            # of process grids (P x Q)
{rows}            Ps
{columns}            Qs
16.0         threshold
1            # of panel fact
2            PFACTs (0=left, 1=Crout, 2=Right)
1            # of recursive stopping criterium
4            NBMINs (>= 1)
1            # of panels in recursion
2            NDIVs
1            # of recursive panel fact.
1            RFACTs (0=left, 1=Crout, 2=Right)
1            # of broadcast
1            BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)
1            # of lookahead depth
1            DEPTHs (>=0)
2            SWAP (0=bin-exch,1=long,2=mix)
64           swapping threshold
0            L1 in (0=transposed,1=no-transposed) form
0            U  in (0=transposed,1=no-transposed) form
1            Equilibration (0=no,1=yes)
8            memory alignment in double (> 0)
##### This line (no. 32) is ignored (it serves as a separator). ######
1            Number of additional problem sizes for PTRANS
1200         values of N
0            number of additional blocking sizes for PTRANS
40           values of NB
"""


def write_input(folder, ranks, size):
    rows, columns = GRIDS[ranks]
    with open(os.path.join(folder, "hpccinf.txt"), "w", encoding="ascii") as out:
        out.write(INPUT.format(size=size, rows=rows, columns=columns))


class Output:
    """hpccoutf.txt, which HPCC appends to section by section."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "hpccoutf.txt")
        self._told = 0

    def text(self):
        try:
            with open(self.path, encoding="utf-8", errors="replace") as source:
                return source.read()
        except FileNotFoundError:
            return ""

    def new_sections(self):
        """Names of the sections that began since the last call."""
        names = re.findall(r"^Begin of (\w+) section", self.text(), re.M)
        fresh, self._told = names[self._told:], len(names)
        return fresh


class Verdict:
    """HPCC's residual checks: (name, what it found, whether that is right)."""

    def __init__(self, text):
        self.checks = []
        self.finished = "End of HPC Challenge tests." in text
        sections = dict(re.findall(r"^Begin of (\w+) section\.\n(.*?)^End of \1 section",
                                   text, re.M | re.S))
        # Every check is listed, also one whose section never came: then it is not right.
        self._residuals("HPL", sections, r"PASSED|FAILED")
        self._residuals("PTRANS", sections, r"PASSED|FAILED")
        for name in ("MPIRandomAccess", "MPIRandomAccess_LCG", "StarRandomAccess",
                     "StarRandomAccess_LCG"):
            self._random_access(name, sections)
        self._dgemm(sections)
        self._stream(sections)
        self._fft(sections)
        for name in ("SingleDGEMM", "SingleSTREAM", "SingleFFT", "StarFFT"):
            self._nodes(name, sections)
        success = re.search(r"^Success=(\d+)", text, re.M)
        self._add("HPCC as a whole", f"Success={success.group(1)}" if success else "no summary",
                  bool(success) and success.group(1) == "1")

    @property
    def passed(self):
        return self.finished and all(right for _, _, right in self.checks)

    def right(self):
        return sum(1 for _, _, right in self.checks if right)

    def _add(self, name, found, right):
        self.checks.append((name, found, right))

    def _residuals(self, name, sections, words):
        section = sections.get(name, "")
        found = re.findall(words, section)
        failed = re.findall(r"(\d+) tests completed and failed residual checks", section)
        right = (bool(found) and "FAILED" not in found and bool(failed)
                 and all(int(f) == 0 for f in failed))
        number = found.count("PASSED")
        text = f"{number} of {len(found)} residual checks passed" if found else "not reached"
        self._add(name, text, right)

    def _random_access(self, name, sections):
        # HPCC lets up to 1 % of wrong locations pass; a network that keeps its promise has none.
        found = re.search(r"Found (\d+) errors in (\d+) locations", sections.get(name, ""))
        text = f"{found.group(1)} errors in {found.group(2)} locations" if found else "not reached"
        self._add(name, text, bool(found) and found.group(1) == "0")

    def _dgemm(self, sections):
        found = re.search(r"Scaled residual: (\S+)", sections.get("StarDGEMM", ""))
        text = f"scaled residual {found.group(1)}" if found else "not reached"
        self._add("StarDGEMM", text, bool(found) and float(found.group(1)) < 16.0)

    def _stream(self, sections):
        section = sections.get("StarSTREAM", "")
        self._add("StarSTREAM", "solution validates" if "Solution Validates" in section
                  else "not validated" if section else "not reached",
                  "Solution Validates" in section)

    def _fft(self, sections):
        found = re.search(r"max\(\|x-x0\|\): *(\S+)", sections.get("MPIFFT", ""))
        text = f"largest error {found.group(1)}" if found else "not reached"
        self._add("MPIFFT", text, bool(found) and float(found.group(1)) < 1e-12)

    def _nodes(self, name, sections):
        found = re.search(r"Node\(s\) with error (\d+)", sections.get(name, ""))
        text = f"nodes with error: {found.group(1)}" if found else "not reached"
        self._add(name, text, bool(found) and found.group(1) == "0")
