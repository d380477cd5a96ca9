"""Which part of the project a test belongs to, and how many minutes of a complete check each part may take."""

import fnmatch

# (part, minutes it may take on two cores, patterns of test names); the first match counts.
PARTS = [
    ("everything's style and harness", None, ["style/*", "unit/harness", "unit/configure", "unit/base/*", "fuzz/wire", "sanitizer/unit"]),
    ("btl/dgram", 4, ["*dgram*", "*datagram*", "*ucx*", "mpi/matrix/ofi", "sim/congestion"]),
    ("errmgr/radixft", 8, ["*radixft*", "*membership*", "*detector*", "fuzz/stabilizer"]),
    ("coll/validate and libmpi_ft", 8, ["*validate*", "*consensus*", "fuzz/agreement", "*mpi_ft*", "*examples*"]),
    ("pml/dr and btl/fault", 21, ["*"]),
]


def part_of(name):
    """The part that the test of this name belongs to."""
    for part, _minutes, patterns in PARTS:
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            return part
    raise AssertionError(f"no part for {name}")


class Clock:
    """Adds up what the tests of each part took; tests that share the machine count with their share of it."""

    def __init__(self, builds=0.0, soak=False):
        self.builds = builds
        self.soak = soak  # with the long tests no part is held to its minutes
        self.seconds = {part: 0.0 for part, _minutes, _patterns in PARTS}

    def add(self, name, seconds, share):
        self.seconds[part_of(name)] += seconds / share

    def lines(self):
        """One line for each part that ran, with what it may take, and a mark when it took longer."""
        rows = [("building", None, self.builds)]
        rows += [(part, minutes, self.seconds[part]) for part, minutes, _patterns in PARTS]
        for part, minutes, seconds in rows:
            if seconds:
                limited = minutes and not self.soak
                limit = f" of {minutes}" if limited else ""
                over = "  <== over its time" if limited and seconds > 60 * minutes else ""
                yield f"  {part:<32}{seconds / 60:6.1f}{limit} min{over}"
