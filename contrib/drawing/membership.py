"""Stabilization time of the radix tree by number of nodes: figures 4, 5, 6 and 8 of Varma et al. 2006, simulated."""

import plot

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


FIGURES = {"stabilization": stabilization}
