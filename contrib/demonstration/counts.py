"""What the components say on standard error, understood and added up."""

import collections
import re

EVENT = re.compile(r"pml/dr\[rank (\d+)\] [\d:.]+: peer (.*?) path (.*?): (\S+) -> (\S+)$")
LINE = re.compile(r"(pml/dr|btl/fault)\[rank (\d+)\]( so far)?: (.*)$")
PAIR = re.compile(r"(\w+)=(\d+)")
SHOWN_EVENTS = 12
SHOWN_OTHERS = 3
NEWS_SECONDS = 10.0


class Tally:
    """Sums over all ranks of what one run told."""

    def __init__(self):
        self._by_rank = {"pml/dr": {}, "btl/fault": {}}
        self.events = 0
        self.suspicions = 0
        self._others = 0
        self._next_news = NEWS_SECONDS
        self._told = {}

    @property
    def dr(self):
        return self._sum("pml/dr")

    @property
    def fault(self):
        return self._sum("btl/fault")

    def _sum(self, who):
        total = collections.Counter()
        for counts in self._by_rank[who].values():
            total.update(counts)
        return total

    def watch(self, line):
        """Take a line; returns (source, text, tone) when it is worth showing."""
        event = EVENT.search(line)
        if event:
            return self._event(*event.groups())
        found = LINE.search(line)
        if found:
            who, rank, _, text = found.groups()
            # The sums of a rank only grow: the latest line of each is the one that counts.
            self._by_rank[who][rank] = {k: int(v) for k, v in PAIR.findall(text)}
            return None
        # A race in stock plm/rsh, harmless.
        if "setpgid(" in line:
            return None
        if line.strip() and not line.startswith("---") and self._others < SHOWN_OTHERS:
            self._others += 1
            return ("mpirun", line[:110], "dim")
        return None

    def _event(self, rank, peer, path, before, after):
        if "suspect" in (before, after) and after != "down":
            self.suspicions += 1  # a late answer; it becomes news when the path is taken out
            return None
        self.events += 1
        if self.events > SHOWN_EVENTS:
            return None
        to = re.sub(r"\[\[\w+,\d+\],(\d+)\]", r"rank \1", peer)
        words = {"down": "taken out, traffic fails over", "up": "back in use",
                 "gone": "gone for good, traffic fails over"}.get(after, f"{before} -> {after}")
        more = " (more of these in the log)" if self.events == SHOWN_EVENTS else ""
        return ("pml/dr", f"rank {rank}: path {path} to {to}: {words}{more}",
                "good" if after == "up" else "fault")

    def news(self, seconds):
        """Every few seconds: (source, text, tone) for what is injected, found and mended so far."""
        if seconds < self._next_news:
            return []
        self._next_news = seconds + NEWS_SECONDS
        fault, dr = self.fault, self.dr
        texts = []
        if fault:
            texts.append(("btl/fault", f"so far {fault['dropped']} fragments dropped, "
                          f"{fault['duplicated']} doubled, {fault['corrupted']} corrupted", "fault"))
        if dr:
            texts.append(("pml/dr", f"so far {dr['duplicates']} duplicates and "
                          f"{dr['corrupt_header'] + dr['corrupt_payload']} corrupt ones found, "
                          f"{dr['retransmitted']} sent again, {dr['paths_down']} paths taken out",
                          "dr"))
        fresh = [t for t in texts if self._told.get(t[0]) != t[1]]
        self._told.update({t[0]: t[1] for t in fresh})
        return fresh

    def not_struck(self):
        """Which of the injected faults did not happen."""
        return [f"no fragment was {kind}" for kind in ("dropped", "duplicated", "corrupted")
                if self.fault[kind] == 0]


def _fault(key):
    return lambda result, tally: str(tally.fault[key]) if tally.fault else "-"


def _dr(*keys):
    return lambda result, tally: str(sum(tally.dr[k] for k in keys)) if tally.dr else "-"


def _cut(result, _tally):
    if result.cut_at is None:
        return "-"
    return f"after {result.cut_at:.1f} s, {result.dropped} packets"


ROWS = [
    ("rail cut by the kernel", _cut),
    ("injected: fragments dropped", _fault("dropped")),
    ("injected: fragments doubled", _fault("duplicated")),
    ("injected: fragments corrupted", _fault("corrupted")),
    ("injected: lost on a dead path", _fault("killed")),
    ("detected: duplicates", _dr("duplicates")),
    ("detected: corrupt", _dr("corrupt_header", "corrupt_payload")),
    ("fragments sent", _dr("sent")),
    ("sent again", _dr("retransmitted")),
    ("paths taken out", _dr("paths_down")),
    ("paths back again", _dr("paths_up")),
]
