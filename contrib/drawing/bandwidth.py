"""Bandwidth by message size and by fragment size: figures 4 and 5 of Shipman et al. 2007.

Virtual machines move their cores about: they are near each other, or far, for seconds at a time. All curves run in
turn, and only what was measured in one class of the cores is drawn.
"""

import statistics
import sys

import plot
from figure import FigureError
from paired import class_of

REPEATS = 7  # of one class of the cores, for each curve
MOST = 20    # rounds
SIZES = [4 ** k for k in range(3, 12)]
MESSAGES = [65536, 1048576, 4194304]
FRAGMENTS = [4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288]
RUNS = {"ob1": ("ob1", {}), "dr, CRC32C and ACKs": ("dr", {"pml_dr_checksum": "full"}),
        "dr, ACKs only": ("dr", {"pml_dr_checksum": "none"})}


def measured(figure, btl, pml, parameters, sizes):
    """{size: GB/s} of one run between two ranks, and the class of the cores in it."""
    command = ["mpirun", "-n", "2", "--bind-to", "core", "--mca", "pml", pml, "--mca", "btl", btl + ",self"]
    for name, value in parameters.items():
        command += ["--mca", name, str(value)]
    command += [figure.bench("p2p"), "--seconds", "0.1", "--bandwidth", ",".join(map(str, sizes))]
    found, probes = {}, []
    for line in figure.run(command).splitlines():
        words = line.split()
        if words and words[0] == "bandwidth":
            found[int(words[1])] = float(words[2])
        elif words and words[0] == "probe":
            probes.append(float(words[2]))
    return found, class_of(probes)


def in_turn(curves, sizes):
    """Runs of all curves in turn, `curves` being {name: what measures it once}.

    Returns the class that was drawn, and {(name, size): (median, least, largest)}."""
    kept = {name: {} for name in curves}
    for _ in range(MOST):
        for name, once in curves.items():
            found, its_class = once()
            kept[name].setdefault(its_class, []).append(found)
        enough = {its_class: min(len(runs.get(its_class, ())) for runs in kept.values())
                  for runs in kept.values() for its_class in runs if its_class != "mixed"}
        best = max(enough, key=enough.get, default=None)
        if best is not None and enough[best] >= REPEATS:
            break
    if best is None or not enough[best]:
        raise FigureError("the cores were never of one class throughout a run of each curve; measure again")
    print(f"contrib/figures: cores {best}, {enough[best]} runs of each curve or more", file=sys.stderr)
    result = {}
    for name, runs in kept.items():
        for size in sizes:
            values = [run[size] for run in runs[best]]
            result[name, size] = statistics.median(values), min(values), max(values)
    return best, result


def cores_of(rows, btl):
    cores = next(r["cores"] for r in rows if r["btl"] == btl)
    return {"near": "cores near each other", "far": "cores far from each other"}.get(cores, "cores not probed")


def by_message(figure):
    """bandwidth by message size: ob1, dr with and without CRC32C, over tcp and vader (2007, figure 4)"""
    header = ["btl", "run", "bytes", "gb_per_s", "low", "high", "cores"]

    def measure():
        rows = []
        for btl in ("vader", "tcp"):
            cores, found = in_turn({name: (lambda how=how: measured(figure, btl, *how, SIZES))
                                    for name, how in RUNS.items()}, SIZES)
            rows += [[btl, name, size, *found[name, size], cores] for name in RUNS for size in SIZES]
        return rows

    rows = figure.rows(header, measure)
    for btl in ("vader", "tcp"):
        chart = plot.Chart(f"Bandwidth by message size, {btl}, {cores_of(rows, btl)} (median; bars: least and largest)",
                           "message size, bytes", "GB/s", log_x=2, log_y=10)
        for name in RUNS:
            chart.line(name, [(r["bytes"], r["gb_per_s"], r["low"], r["high"]) for r in rows
                              if (r["btl"], r["run"]) == (btl, name)])
        figure.draw(chart, "-" + btl)


def by_fragment(figure):
    """bandwidth by the size of a fragment, S_max, over tcp and vader (2007, figure 5)"""
    header = ["btl", "fragment_bytes", "bytes", "gb_per_s", "low", "high", "cores"]

    def measure():
        rows = []
        for btl in ("vader", "tcp"):
            cores, found = in_turn({fragment: (lambda bytes_=fragment: measured(
                figure, btl, "dr", {"pml_dr_fragment_bytes": bytes_}, MESSAGES)) for fragment in FRAGMENTS}, MESSAGES)
            rows += [[btl, fragment, size, *found[fragment, size], cores]
                     for fragment in FRAGMENTS for size in MESSAGES]
        return rows

    rows = figure.rows(header, measure)
    for btl in ("vader", "tcp"):
        chart = plot.Chart(f"dr: bandwidth by fragment size, {btl}, {cores_of(rows, btl)} (median; bars: least and largest)",
                           "pml_dr_fragment_bytes", "GB/s", log_x=2)
        for size in MESSAGES:
            chart.line(f"{size // 1024} KiB messages", [(r["fragment_bytes"], r["gb_per_s"], r["low"], r["high"])
                                                        for r in rows if (r["btl"], r["bytes"]) == (btl, size)])
        figure.draw(chart, "-" + btl)


FIGURES = {"bandwidth": by_message, "fragment-size": by_fragment}
