"""Stabilization time of the radix tree by number of nodes: figures 4 to 8 of Varma et al. 2006, simulated and measured."""

import os
import statistics
import tempfile

import plot
import figure as figure_module

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

PROGRAM = ["test", "sim", "membership", "scale"]
TORUS = {"base_model": "base model", "simulated": "simulated, every pair one hop apart",
         "distance_model": "distance model", "simulated_torus": "simulated on a torus",
         "installed": "simulated, until installed everywhere"}
SWITCH = {"base_model": "base model", "simulated": "simulated"}
# The paper's figure: the simulator's table, what it shows, its curves.
PICTURES = {4: ("fig4.csv", "on a torus, arity 2", TORUS), 5: ("fig5.csv", "on a torus, arity 4", TORUS),
            6: ("fig6.csv", "over TCP and one switch, arity 2", SWITCH),
            8: ("fig8.csv", "over TCP and one switch, arity 4", SWITCH)}


def stabilization(figure):
    """stabilization time by nodes, on a torus and at a switch, arity 2 and 4 (2006, figures 4, 5, 6, 8)"""
    def measure():
        tables = figure.simulated(PROGRAM, [table for table, _, _ in PICTURES.values()])
        return [[number, row[header.index("nodes")], column, row[header.index(column)]]
                for (number, (_, _, curves)), (header, rows) in zip(PICTURES.items(), tables)
                for row in rows for column in curves]

    rows = figure.rows(["figure", "nodes", "curve", "us"], measure)
    for number, (_, where, curves) in PICTURES.items():
        chart = plot.Chart(f"T_s by number of nodes, {where} (latencies of the paper)", "nodes", "us", log_x=2,
                           log_y=10 if curves is TORUS else 0)
        for column, words in curves.items():
            chart.line(words, [(r["nodes"], r["us"]) for r in rows if (r["figure"], r["curve"]) == (number, column)],
                       dashed="model" in column, dots=False)
        figure.draw(chart, f"-{number}")


# What test/bench/failures measures; the simulator's table for each arity, its suffix and its curves.
POINTS = ["nodes", "arity", "t_s", "low", "high", "pairs", "family"]
HOSTS, ARITIES = (4, 8, 16), (2, 4, 8)
MEASURED = {2: ("fig6.csv", "-6"), 4: ("fig8.csv", "-8"), 8: ("switch8.csv", "-arity-8")}
MODELS = {"base_model": "base model, latency of heartbeats among the fewest",
          "contention_model": "contention model, latencies of families as measured",
          "simulated_contention": "simulated with these latencies"}


def measure_points(figure):
    """T_s and the latencies beside it on the virtual cluster, one line for each number of hosts and arity."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "points.csv")
        for hosts in HOSTS:
            figure.run([os.path.join(TOP, "test", "bench", "failures"), "--runs", "7", "--hosts", str(hosts), "--csv", path,
                        "stabilize"])
        return [[row[name] for name in POINTS] for row in plot.read_csv(path)]


def contention_table(rows):
    """Lines of what the paper's figure 7 shows: nodes, latency of pairs, and of parents with 2, 4 and 8 children."""
    lines = []
    for nodes in sorted({row["nodes"] for row in rows}):
        here = {row["arity"]: row for row in rows if row["nodes"] == nodes}
        if sorted(here) != list(ARITIES) or not all(row["pairs"] > 0 and row["family"] > 0 for row in here.values()):
            raise figure_module.FigureError(f"a latency is missing among {nodes:.0f} nodes: measure again")
        lines.append([int(nodes), statistics.median(row["pairs"] for row in here.values()),
                      *(here[arity]["family"] for arity in ARITIES)])
    return lines


def stabilization_measured(figure):
    """stabilization time on the virtual cluster against models and simulation with its latencies (2006, figures 6, 7, 8)"""
    rows = figure.rows(POINTS, lambda: measure_points(figure))
    lines = contention_table(rows)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "contention.csv")
        plot.write_csv(path, ["nodes", "pairs", "two_children", "four_children", "eight_children"], lines)
        tables = figure.simulated(PROGRAM, [table for table, _ in MEASURED.values()], "--contention", path,
                                  "--latency", str(lines[0][1]), "--most", str(int(2 * lines[-1][0])))

    chart = plot.Chart("Latency by number of nodes that talk at once, virtual cluster", "nodes", "us", log_x=2)
    for column, words in enumerate(("pairs", *(f"parents with {arity} children" for arity in ARITIES)), 1):
        chart.line(words, [(line[0], line[column]) for line in lines])
    figure.draw(chart, "-7")
    for (arity, (_, suffix)), (header, simulated) in zip(MEASURED.items(), tables):
        chart = plot.Chart(f"T_s by number of nodes, virtual cluster, arity {arity}", "nodes", "us", log_x=2)
        chart.line("measured", [tuple(row[name] for name in ("nodes", "t_s", "low", "high"))
                                for row in rows if row["arity"] == arity])
        for column, words in MODELS.items():
            at = header.index(column)
            chart.line(words, [(plot.number(row[0]), plot.number(row[at])) for row in simulated],
                       dashed="model" in column, dots=False)
        figure.draw(chart, suffix)


FIGURES = {"stabilization": stabilization, "stabilization-measured": stabilization_measured}
