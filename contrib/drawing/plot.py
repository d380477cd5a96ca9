"""Line charts as SVG, drawn by gnuplot."""

import csv
import subprocess

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")


class PlotError(Exception):
    """gnuplot is missing or did not accept the script; the text is for the user."""


class Chart:
    """One picture: what stands at the axes, and lines through points."""

    def __init__(self, title, x, y, log_x=0, log_y=0):
        self.title, self.x, self.y = title, x, y
        self.log_x, self.log_y = log_x, log_y
        self.lines = []
        self.notes = []

    def line(self, name, points, dashed=False, dots=True):
        """A line through (x, y) or, with an interval, (x, y, low, high)."""
        self.lines.append((name, sorted(points), dashed, dots))

    def note(self, x, text):
        """A vertical line at x with a word beside it."""
        self.notes.append((x, text))

    def script(self):
        """What gnuplot is told."""
        text = ["set terminal svg size 800,520 dynamic font 'sans,13' background '#ffffff'",
                f"set title {quoted(self.title)} noenhanced",
                f"set xlabel {quoted(self.x)} noenhanced", f"set ylabel {quoted(self.y)} noenhanced",
                "set key below noenhanced", "set grid linecolor '#dddddd'",
                "set border 3", "set tics nomirror"]
        for axis, base in (("x", self.log_x), ("y", self.log_y)):
            if base:
                text.append(f"set logscale {axis} {base}")
            else:
                text.append(f"set {axis}range [0:*]")
        if self.log_x == 2:
            text += ["set xrange [*:*]", "set format x '2^{%L}'"]
        for n, (x, words) in enumerate(self.notes):
            text.append(f"set arrow from first {x},graph 0 to first {x},graph 1 nohead dashtype 3")
            text.append(f"set label {quoted(words)} at first {x},graph {0.97 - 0.06 * (n % 3)} offset 0.5,0 noenhanced")
        bars, parts = [], []
        for n, (name, points, dashed, dots) in enumerate(self.lines):
            colour = COLOURS[n % len(COLOURS)]
            text.append(f"$data{n} << EOD")
            text += [" ".join(f"{value:.9g}" for value in point) for point in points]
            text.append("EOD")
            style = "linespoints pointtype 7 pointsize 0.4" if dots else "lines"
            if points and len(points[0]) == 4:
                bars.append(f"$data{n} using 1:2:3:4 with yerrorbars pointtype 0 linecolor '{colour}' notitle")
            parts.append(f"$data{n} using 1:2 with {style} linewidth 2 linecolor '{colour}' "
                         f"dashtype {2 if dashed else 1} title {quoted(name)}")
        text.append("plot " + ", ".join(bars + parts))  # a bar wipes out what is drawn behind its middle
        return "\n".join(text) + "\n"

    def draw(self, path):
        try:
            done = subprocess.run(["gnuplot"], input=self.script(), text=True, capture_output=True, timeout=60,
                                  check=False)
        except FileNotFoundError:
            raise PlotError("gnuplot is missing: apt-get install gnuplot-nox") from None
        if done.returncode != 0 or done.stderr:
            raise PlotError(f"gnuplot did not draw {path}: {done.stderr.strip()}")
        with open(path, "w", encoding="utf-8") as file:
            # gnuplot ends some lines with white space, which no file of the tree has.
            file.writelines(line.rstrip() + "\n" for line in done.stdout.splitlines())


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def write_csv(path, header, rows):
    with open(path, "w", encoding="ascii", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(header)
        out.writerows(rows)


def read_csv(path):
    """The rows as dictionaries; what looks like a number is one."""
    with open(path, encoding="ascii", newline="") as file:
        return [{name: number(value) for name, value in row.items()} for row in csv.DictReader(file)]


def number(text):
    try:
        return float(text)
    except ValueError:
        return text
