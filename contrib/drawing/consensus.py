"""Time of validate_all by number of processes: figures 1 and 2 of Buntinas 2011, simulated."""

import plot

CURVES = {
    "validate-collectives": ("fig1.csv", "validate_all beside collectives (simulated, calibrated to the paper)", {
        "paper_strict": "validate_all, the paper's algorithm", "fast_strict": "validate_all, this project's",
        "unoptimised_collectives": "the pattern, unoptimised collectives",
        "optimised_collectives": "the pattern, optimised collectives"}),
    "validate-semantics": ("fig2.csv", "validate_all, strict and loose (simulated, calibrated to the paper)", {
        "paper_strict": "the paper's, strict", "paper_loose": "the paper's, loose",
        "fast_strict": "this project's, strict", "fast_loose": "this project's, loose"}),
}


def chart(figure, key):
    name, title, curves = CURVES[key]
    header = ["processes", *curves]

    def measure():
        [(found, rows)] = figure.simulated(["test", "sim", "consensus", "consensus_latency"], [name])
        return [[row[found.index(column)] for column in header] for row in rows]

    rows = figure.rows(header, measure)
    picture = plot.Chart(title, "processes", "us", log_x=2)
    for column, words in curves.items():
        picture.line(words, [(r["processes"], r[column]) for r in rows], dashed="collectives" in column)
    figure.draw(picture)


def collectives(figure):
    """validate_all beside the same pattern done with collectives (2011, figure 1)"""
    chart(figure, "validate-collectives")


def semantics(figure):
    """validate_all with strict and with loose semantics (2011, figure 2)"""
    chart(figure, "validate-semantics")


FIGURES = {"validate-collectives": collectives, "validate-semantics": semantics}
