"""Holds a component's man page, its MCA parameters and its performance variables together."""

import os
import re
import subprocess

from fttap import check

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))


def ompi_info(*arguments, env=None):
    """What ompi_info prints."""
    return subprocess.run(["ompi_info", *arguments], stdout=subprocess.PIPE, text=True, check=True,
                          env=env).stdout


def agree(framework, component, folder, env=None):
    """The page in folder describes every parameter with its default, and no other."""
    prefix = f"{framework}_{component}"
    listing = ompi_info("--param", framework, component, "--level", "9", "--parsable", env=env)
    registered = dict(re.findall(rf"param:{prefix}_(\w+):value:(.*)", listing))
    with open(os.path.join(TOP, folder, f"mca_{prefix}.7"), encoding="utf-8") as page:
        described = dict(re.findall(rf"^\.BR {prefix}_(\w+) \" \(default (.*?)[,)]", page.read(), re.M))
    check(registered and set(registered) == set(described),
          f"only registered: {set(registered) - set(described)}; "
          f"only described: {set(described) - set(registered)}")
    for name, value in registered.items():
        check(described[name] == (value or "none"),
              f"{name}: {value!r} registered, {described[name]!r} described")


def names_agree(framework, component, folder):
    """The same for a page that names several parameters at once and without their prefix: the names."""
    prefix = f"{framework}_{component}"
    listing = ompi_info("--param", framework, component, "--level", "9", "--parsable")
    registered = set(re.findall(rf"param:{prefix}_(\w+):value:", listing))
    with open(os.path.join(TOP, folder, f"mca_{prefix}.7"), encoding="utf-8") as page:
        section = re.search(r"^\.SH PARAMETERS\n(.*?)^\.SH ", page.read(), re.M | re.S)
    described = set()
    for line in re.findall(r"^\.TP\n\.BR? (.*)$", section[1] if section else "", re.M):
        described.update(re.sub(r'"[^"]*"', " ", line).split())
    check(registered and registered == described,
          f"only registered: {registered - described}; only described: {described - registered}")


def variables_agree(framework, component, folder):
    """The page in folder describes every performance variable, and no other."""
    prefix = f"{framework}_{component}"
    listing = ompi_info("--param", framework, component, "--level", "9", "--parsable")
    registered = set(re.findall(rf"pvar:{prefix}_(\w+):class:", listing))
    with open(os.path.join(TOP, folder, f"mca_{prefix}.7"), encoding="utf-8") as page:
        section = re.search(r"^\.SH PERFORMANCE VARIABLES\n(.*?)^\.SH ", page.read(), re.M | re.S)
    described = set(re.findall(rf"^\.TP\n\.B {prefix}_(\w+)$", section[1], re.M)) if section else set()
    check(registered and registered == described,
          f"only registered: {registered - described}; only described: {described - registered}")
