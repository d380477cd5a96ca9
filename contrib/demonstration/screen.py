"""What the demonstration writes: plain lines, in colour on a terminal only."""

import os
import sys
import textwrap
import time

COLOURS = {"good": "32", "bad": "31", "fault": "33", "dr": "36", "dim": "2", "bold": "1"}
WIDTH = 96


class Screen:
    """Lines with the time since the stage began."""

    def __init__(self):
        self._colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self._began = time.monotonic()

    def paint(self, text, tone):
        if not self._colour or tone is None:
            return text
        return f"\033[{COLOURS[tone]}m{text}\033[0m"

    def begin(self, title):
        """Start a stage: a heading, and the clock at zero."""
        self._began = time.monotonic()
        self.line("")
        self.line(self.paint(title, "bold"))
        self.line("-" * min(len(title), WIDTH))

    def clock(self):
        return time.monotonic() - self._began

    @staticmethod
    def line(text=""):
        print(text, flush=True)

    def text(self, paragraph):
        for row in textwrap.wrap(" ".join(paragraph.split()), WIDTH):
            self.line(row)

    def event(self, source, text, tone=None):
        """One thing that happened now; source is who says it."""
        stamp = f"{self.clock():7.1f} s"
        print(f"{self.paint(stamp, 'dim')}  {source:<9} {self.paint(text, tone)}", flush=True)

    def table(self, headings, rows):
        """Rows of (texts, tones); the first column is the widest."""
        widths = [max(len(headings[i]), *(len(r[0][i]) for r in rows))
                  for i in range(len(headings))]
        self.line("  ".join(self.paint(h.ljust(w), "bold") for h, w in zip(headings, widths)))
        self.line("  ".join("-" * w for w in widths))
        for texts, tones in rows:
            self.line("  ".join(self.paint(t.ljust(w), tone)
                                for t, w, tone in zip(texts, widths, tones)).rstrip())
