"""Bandwidth by message size and by fragment size: figures 4 and 5 of Shipman et al. 2007."""

import statistics

import plot

REPEATS = 7  # of all in turn, as the machine changes its pace within seconds
SIZES = [4 ** k for k in range(3, 12)]
MESSAGES = [65536, 1048576, 4194304]
FRAGMENTS = [4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288]
RUNS = {"ob1": ("ob1", {}), "dr, CRC32C and ACKs": ("dr", {"pml_dr_checksum": "full"}),
        "dr, ACKs only": ("dr", {"pml_dr_checksum": "none"})}


def measured(figure, btl, pml, parameters, sizes):
    """{size: GB/s} of one run between two ranks."""
    command = ["mpirun", "-n", "2", "--bind-to", "core", "--mca", "pml", pml, "--mca", "btl", btl + ",self"]
    for name, value in parameters.items():
        command += ["--mca", name, str(value)]
    command += [figure.bench("p2p"), "--seconds", "0.1", "--bandwidth", ",".join(map(str, sizes))]
    found = {}
    for line in figure.run(command).splitlines():
        words = line.split()
        if words and words[0] == "bandwidth":
            found[int(words[1])] = float(words[2])
    return found


def middle(values):
    """Median, least and largest."""
    return statistics.median(values), min(values), max(values)


def by_message(figure):
    """bandwidth by message size: ob1, dr with and without CRC32C, over tcp and vader (2007, figure 4)"""
    header = ["btl", "run", "bytes", "gb_per_s", "low", "high"]

    def measure():
        rows = []
        for btl in ("vader", "tcp"):
            runs = [{name: measured(figure, btl, *run, SIZES) for name, run in RUNS.items()} for _ in range(REPEATS)]
            rows += [[btl, name, size, *middle([run[name][size] for run in runs])]
                     for name in RUNS for size in SIZES]
        return rows

    rows = figure.rows(header, measure)
    for btl in ("vader", "tcp"):
        chart = plot.Chart(f"Bandwidth by message size, {btl} (median of {REPEATS}, bars: least and largest)",
                           "message size, bytes", "GB/s", log_x=2, log_y=10)
        for name in RUNS:
            chart.line(name, [(r["bytes"], r["gb_per_s"], r["low"], r["high"]) for r in rows
                              if (r["btl"], r["run"]) == (btl, name)])
        figure.draw(chart, "-" + btl)


def by_fragment(figure):
    """bandwidth by the size of a fragment, S_max, over tcp and vader (2007, figure 5)"""
    header = ["btl", "fragment_bytes", "bytes", "gb_per_s", "low", "high"]

    def measure():
        rows = []
        for btl in ("vader", "tcp"):
            runs = [{fragment: measured(figure, btl, "dr", {"pml_dr_fragment_bytes": fragment}, MESSAGES)
                     for fragment in FRAGMENTS} for _ in range(REPEATS)]
            rows += [[btl, fragment, size, *middle([run[fragment][size] for run in runs])]
                     for fragment in FRAGMENTS for size in MESSAGES]
        return rows

    rows = figure.rows(header, measure)
    for btl in ("vader", "tcp"):
        chart = plot.Chart(f"dr: bandwidth by fragment size, {btl} (median of {REPEATS}, bars: least and largest)",
                           "pml_dr_fragment_bytes", "GB/s", log_x=2)
        for size in MESSAGES:
            chart.line(f"{size // 1024} KiB messages", [(r["fragment_bytes"], r["gb_per_s"], r["low"], r["high"])
                                                        for r in rows if (r["btl"], r["bytes"]) == (btl, size)])
        figure.draw(chart, "-" + btl)


FIGURES = {"bandwidth": by_message, "fragment-size": by_fragment}
