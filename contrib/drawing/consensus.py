"""Time of validate_all by number of processes: figures 1 and 2 of Buntinas 2011, simulated and measured here."""

import statistics

import plot

ROUNDS = 31
RANKS = (2, 4, 8, 16, 32)
# Which run, and which of its columns: the pattern, strict, loose.
MEASURED = {
    "paper_strict": ("paper", 1, "the paper's, strict"), "paper_loose": ("paper", 2, "the paper's, loose"),
    "strict": ("fast", 1, "this project's, strict"), "loose": ("fast", 2, "this project's, loose"),
    "unoptimised_collectives": ("fast", 0, "broadcast + reduction, coll/basic"),
    "optimised_collectives": ("stock", 0, "broadcast + reduction, stock")}
RUNS = {"fast": {"coll": "validate,basic,libnbc,self,inter"},
        "paper": {"coll": "validate,basic,libnbc,self,inter", "coll_validate_algorithm": "paper"}, "stock": {}}

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


def measured(figure):
    """both, measured here: 2 to 32 ranks over vader and over tcp, which share the cores of this machine"""
    header = ["btl", "processes", *MEASURED]

    def run(btl, ranks, parameters):
        """Medians of the pattern, strict and loose, us."""
        command = ["mpirun", "-n", str(ranks), "--oversubscribe", "--mca", "pml", "dr", "--mca", "btl", btl + ",self"]
        for name, value in parameters.items():
            command += ["--mca", name, value]
        said = figure.run([*command, figure.bench("validate_all"), "pattern", str(ROUNDS)])
        rounds = [line.split()[1:] for line in said.splitlines() if line.startswith("pattern ")]
        return [statistics.median(map(float, column)) for column in zip(*rounds)]

    def measure():
        for btl in ("vader", "tcp"):
            for ranks in RANKS:
                found = {name: run(btl, ranks, parameters) for name, parameters in RUNS.items()}
                yield [btl, ranks, *(f"{found[name][column]:.2f}" for name, column, _ in MEASURED.values())]

    rows = figure.rows(header, measure)
    for btl in sorted({row["btl"] for row in rows}):
        picture = plot.Chart(f"validate_all, strict and loose, beside collectives ({btl}, measured here)", "processes", "us",
                             log_x=2, log_y=10)
        for column, (_, _, words) in MEASURED.items():
            picture.line(words, [(r["processes"], r[column]) for r in rows if r["btl"] == btl],
                         dashed="collectives" in column)
        figure.draw(picture, "-" + btl)


FIGURES = {"validate-measured": measured, "validate-collectives": collectives, "validate-semantics": semantics}
