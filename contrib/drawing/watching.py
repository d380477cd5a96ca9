"""What watching costs, by its rate: figures 3 to 6 of Batchu et al. 2004."""

import os
import re

import plot
import figure as figure_module

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
HEADER = ["what", "interval_ms", "kind", "bytes", "ratio", "low", "high"]
ROW = re.compile(r"^(heartbeat|self-check) (\d+) ms: (latency|bandwidth) (\d+) B +([\d.]+) +([\d.]+) +([\d.]+) ", re.M)
# The paper's figure: what is varied, what is measured.
PICTURES = {3: ("heartbeat", "latency"), 4: ("heartbeat", "bandwidth"), 5: ("self-check", "latency"),
            6: ("self-check", "bandwidth")}
WORDS = {"heartbeat": "between heartbeats of daemons, no self-checks",
         "self-check": "between self-checks of a rank, a heartbeat every 4 s"}


def watching(figure):
    """latency and bandwidth by the rates of heartbeats and self-checks (2004, figures 3 to 6)"""
    def measure():
        rows = ROW.findall(figure.run([os.path.join(TOP, "test", "bench", "failures"), "--runs", "7", "heartbeat"]))
        if not rows:
            raise figure_module.FigureError("test/bench/failures heartbeat printed no figures")
        return rows

    rows = figure.rows(HEADER, measure)
    for number, (what, kind) in PICTURES.items():
        chart = plot.Chart(f"{kind}, of that without, two ranks over TCP", f"ms {WORDS[what]}", "ratio", log_x=10)
        for size in sorted({row["bytes"] for row in rows if (row["what"], row["kind"]) == (what, kind)}):
            chart.line(f"{size:.0f} B", [tuple(row[name] for name in ("interval_ms", "ratio", "low", "high"))
                                         for row in rows if (row["what"], row["kind"], row["bytes"]) == (what, kind, size)])
        figure.draw(chart, f"-{number}")


FIGURES = {"watching": watching}
