#!/usr/bin/env python3
"""contrib/figures: a picture from simulation and one from given figures are whole SVG, errors are clear."""

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

sys.dont_write_bytecode = True
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))))
sys.path.insert(0, os.path.join(TOP, "test", "lib"))

from fttap import check, main  # noqa: E402


def figures(*arguments):
    build = ["--build", os.environ["FT_BUILD"]] if "FT_BUILD" in os.environ else []
    return subprocess.run([os.path.join(TOP, "contrib", "figures"), *build, *arguments], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


def is_picture(path, *words):
    """The file is SVG, has curves and says each of the words."""
    root = xml.etree.ElementTree.parse(path).getroot()
    check(root.tag.endswith("svg"), root.tag)
    check(sum(1 for e in root.iter() if e.tag.endswith("path")) > 10, "no curves")
    text = " ".join(e.text or "" for e in root.iter())
    for word in words:
        check(word in text, f"no '{word}' in the picture")


def simulated():
    """a figure of the consensus is simulated and drawn"""
    with tempfile.TemporaryDirectory() as folder:
        done = figures("--out", folder, "validate-semantics")
        check(done.returncode == 0, done.stdout)
        is_picture(os.path.join(folder, "validate-semantics.svg"), "strict", "loose")


def redrawn():
    """what was measured is drawn again from its table, cut and heal marked"""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "failover.csv"), "w", encoding="ascii") as table:
            table.write("way,seconds,mb_per_s,cut_s,heal_s\n")
            for way in ("silent", "loud"):
                for i in range(30):
                    table.write(f"{way},{i / 10},{100 + i},1.0,2.0\n")
        done = figures("--redraw", "--out", folder, "failover")
        check(done.returncode == 0, done.stdout)
        is_picture(os.path.join(folder, "failover-silent.svg"), "rail cut", "rail healed", "MB/s")
        is_picture(os.path.join(folder, "failover-loud.svg"), "rail cut")


def measured():
    """what was measured of validate_all is drawn, a picture for each BTL"""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "validate-measured.csv"), "w", encoding="ascii") as table:
            table.write("btl,processes,paper_strict,paper_loose,strict,loose,unoptimised_collectives,optimised_collectives\n")
            for btl in ("vader", "tcp"):
                for ranks in (2, 4, 8):
                    table.write(f"{btl},{ranks},{9 * ranks},{6 * ranks},{5 * ranks},{3 * ranks},{2 * ranks},{ranks}\n")
        done = figures("--redraw", "--out", folder, "validate-measured")
        check(done.returncode == 0, done.stdout)
        for btl in ("vader", "tcp"):
            is_picture(os.path.join(folder, f"validate-measured-{btl}.svg"), btl, "strict", "stock", "coll/basic")


def watched():
    """what watching costs is drawn, a picture for each figure of the paper"""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "watching.csv"), "w", encoding="ascii") as table:
            table.write("what,interval_ms,kind,bytes,ratio,low,high\n")
            for what in ("heartbeat", "self-check"):
                for ms in (1, 10, 100):
                    for kind, size in (("latency", 8), ("latency", 4096), ("bandwidth", 65536)):
                        table.write(f"{what},{ms},{kind},{size},{1 + 0.1 / ms},0.95,1.2\n")
        done = figures("--redraw", "--out", folder, "watching")
        check(done.returncode == 0, done.stdout)
        for number, words in ((3, "latency"), (4, "bandwidth"), (5, "self-checks"), (6, "65536 B")):
            is_picture(os.path.join(folder, f"watching-{number}.svg"), words)


def stabilized():
    """T_s on the virtual cluster is drawn beside models and simulation with its latencies; a table with a gap is refused"""
    with tempfile.TemporaryDirectory() as folder:
        def draw(family):
            with open(os.path.join(folder, "stabilization-measured.csv"), "w", encoding="ascii") as table:
                table.write("nodes,arity,t_s,low,high,pairs,family\n")
                for nodes in (3, 7, 15):
                    for arity in (2, 4, 8):
                        table.write(f"{nodes},{arity},{100 * nodes},{90 * nodes},{120 * nodes},{100 + nodes},{family}\n")
            return figures("--redraw", "--out", folder, "stabilization-measured")

        done = draw(150)
        check(done.returncode == 0, done.stdout)
        for suffix in ("6", "8", "arity-8"):
            is_picture(os.path.join(folder, f"stabilization-measured-{suffix}.svg"), "measured", "base model",
                       "contention model", "simulated with")
        is_picture(os.path.join(folder, "stabilization-measured-7.svg"), "pairs", "parents with 4 children")
        done = draw(0)
        check(done.returncode == 1 and "a latency is missing" in done.stdout and "Traceback" not in done.stdout, done.stdout)


def refused():
    """an unknown figure and a folder that is no build are refused with a sentence"""
    done = figures("pie")
    check(done.returncode == 2 and "no figure is called pie" in done.stdout, done.stdout)
    with tempfile.TemporaryDirectory() as folder:
        done = figures("--build", folder, "--out", folder, "bandwidth")
        check(done.returncode == 1 and "is no build" in done.stdout and "Traceback" not in done.stdout, done.stdout)


main([simulated, redrawn, measured, watched, stabilized, refused])
