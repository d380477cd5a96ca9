"""Bandwidth over time while a rail dies and comes back: figure 7 of Shipman et al. 2007."""

import time

import ftcluster
import plot
import figure as figure_module
from fttap import Skip

MBIT = 1000
RAIL = 0
CUT_S, HEAL_S, END_S = 4.0, 9.0, 18.0
WAYS = {"silent": ("drop", "every packet dropped without a word: found by dr's timers"),
        "loud": ("reset", "connections reset and refused: reported by the BTL")}


def until(moment, run):
    """Wait for that moment (time.time()), or for the end of the run."""
    ftcluster.wait_readable([run], time.monotonic() + max(0.0, moment - time.time()))


def one(figure, how):
    """[(seconds, MB/s)], and when the rail was cut and healed, of one run."""
    program = figure.bench("stream")
    with ftcluster.Cluster(hosts=2, rails=2, mbit=MBIT) as cluster:
        run = cluster.mpirun("-np", 2, "--map-by", "node", "--mca", "pml", "dr", "--mca", "btl", "tcp,self", program,
                             "--seconds", END_S, "--bytes", 131072, "--window", 16, deadline=END_S + 60,
                             env=figure.environment())
        try:
            start = first_line(run)
            until(start + CUT_S, run)
            cluster.tool("cut", "n1", RAIL, "--how", how)
            cut = time.time() - start
            until(start + HEAL_S, run)
            cluster.tool("heal", "n1", RAIL)
            heal = time.time() - start
            if run.wait() != 0:
                raise figure_module.FigureError(f"the run ended with {run.code}: {run.err[-2000:]}")
        finally:
            run.stop()
        slices = [line.split()[1:] for line in run.out.splitlines() if line.startswith("slice ")]
        return [(float(t), float(rate)) for t, rate in slices], cut, heal


def first_line(run):
    """When the first message arrived. Output is asked for again and again: it goes through mpirun into a file, and
    nobody tells when a file grows."""
    while True:
        for line in run.out.splitlines():
            if line.startswith("start "):
                return float(line.split()[1])
        if ftcluster.wait_readable([run], time.monotonic() + 0.02):
            raise figure_module.FigureError(f"the run ended before its first message: {run.err[-2000:]}")


def over_time(figure):
    """bandwidth over time while one of two rails dies, silently and loudly, and comes back (2007, figure 7)"""
    def measure():
        rows = []
        for way, (how, _) in WAYS.items():
            try:
                slices, cut, heal = one(figure, how)
            except Skip as reason:
                raise figure_module.FigureError(str(reason)) from None
            rows += [[way, t, rate, cut, heal] for t, rate in slices]
        return rows

    rows = figure.rows(["way", "seconds", "mb_per_s", "cut_s", "heal_s"], measure)
    for way, (_, words) in WAYS.items():
        mine = [r for r in rows if r["way"] == way]
        chart = plot.Chart(f"Two rails of {MBIT} Mbit/s, one dies and comes back ({words})", "time, s", "MB/s")
        chart.line("dr over tcp", [(r["seconds"], r["mb_per_s"]) for r in mine], dots=False)
        chart.note(mine[0]["cut_s"], "rail cut")
        chart.note(mine[0]["heal_s"], "rail healed")
        figure.draw(chart, "-" + way)


FIGURES = {"failover": over_time}
