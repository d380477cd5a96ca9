"""Where a figure finds the programs and the components, and where its results go."""

import csv
import os
import subprocess
import tempfile

import manifest
import plot

DEADLINE_S = 600


class FigureError(Exception):
    """Something that a figure needs is missing or failed; the text is for the user."""


class NoTable(FigureError):
    """There is nothing to draw again."""


class Figure:
    def __init__(self, build, out, redraw=False):
        self.build = os.path.abspath(build)
        self.out = out
        self.redraw = redraw

    def rows(self, header, measure):
        """The rows of the figure: measured and kept as .csv, or what was kept."""
        if not self.redraw:
            plot.write_csv(self.out + ".csv", header, measure())
        elif not os.path.exists(self.out + ".csv"):
            raise NoTable(f"{self.out}.csv does not exist; without --redraw it is measured")
        return plot.read_csv(self.out + ".csv")

    def draw(self, chart, suffix=""):
        chart.draw(self.out + suffix + ".svg")

    def environment(self):
        """In which mpirun finds the components of this build."""
        settings = os.path.join(self.build, "test", "settings.env")
        if not os.path.exists(settings):
            raise FigureError(f"{self.build} is no build; run contrib/build, or name one with --build")
        values = manifest.read_settings(settings)
        return {**os.environ, **values, "FT_BUILD": self.build, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                "OMPI_MCA_mca_base_component_path": "SYS_DEFAULT:" + values["FT_COMPONENT_DIR"]}

    def bench(self, name):
        """Path of a program of test/bench, which is built when it is missing."""
        folder = os.path.join(self.build, "test", "bench")
        self.run(["make", "-s", "-C", folder, name])
        return os.path.join(folder, name)

    def program(self, *names):
        path = os.path.join(self.build, *names)
        if not os.access(path, os.X_OK):
            raise FigureError(f"{path} is missing: make -C {self.build}/test check TESTS=")
        return path

    def simulated(self, names, tables, *more):
        """What a simulator writes to these tables, told `more`: [(header, rows)]. Lines with # in them are for people."""
        program = self.program(*names)
        found = []
        with tempfile.TemporaryDirectory() as folder:
            self.run([program, "--csv", folder, *more])
            for table in tables:
                with open(os.path.join(folder, table), encoding="ascii") as file:
                    header, *rows = csv.reader(line for line in file if not line.startswith("#"))
                if not rows:
                    raise FigureError(f"{program} wrote no figures to {table}")
                found.append((header, rows))
        return found

    def run(self, argv, **more):
        """Run to its end; \\return what it printed."""
        try:
            done = subprocess.run(argv, env=self.environment(), capture_output=True, text=True, timeout=DEADLINE_S,
                                  check=False, **more)
        except subprocess.TimeoutExpired:
            raise FigureError(f"not done within {DEADLINE_S} s: {' '.join(argv)}") from None
        if done.returncode != 0:
            raise FigureError(f"exit code {done.returncode}: {' '.join(argv)}\n{done.stderr[-2000:]}")
        return done.stdout
