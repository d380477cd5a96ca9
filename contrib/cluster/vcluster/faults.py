"""What nftables does to the frames at a port of the switch.

A port is the switch's end of a host's cable: what the host sends comes in
there (hook ingress), what it is to receive leaves there (hook egress).
Directions are named as the host sees them: "out" and "in".

Every fault has a named counter, so that a test can assert that it struck.
"""

import json
import subprocess

DIRECTIONS = ("out", "in")
KINDS = ("drop", "lose", "corrupt")
COMMAND_DEADLINE = 10.0

# Place of the byte that corruption rewrites, in bits from the start of the
# TCP or UDP header, and the eight bytes around it that must look like payload.
_BYTE = "@th,800,8"
_AROUND = "@th,768,64"
_TOP_BITS = "0x8080808080808080"


class FaultError(Exception):
    """The kernel did not accept a rule; the text says which and why."""


def run(argv, text=None):
    """Run a tool within the deadline; raises FaultError with its message."""
    try:
        done = subprocess.run(argv, input=text, capture_output=True, text=True,
                              timeout=COMMAND_DEADLINE, check=False)
    except (OSError, subprocess.TimeoutExpired) as failed:
        raise FaultError(f"{' '.join(argv)}: {failed}") from failed
    if done.returncode != 0:
        detail = done.stderr.strip() or f"exit code {done.returncode}"
        rules = f"\n{text}" if text else ""
        raise FaultError(f"{' '.join(argv)}: {detail}{rules}")
    return done.stdout


class Port:
    """The faults at one port and the counters of what they struck."""

    def __init__(self, name):
        self.name = name
        self.table = "ft_" + name.replace("-", "_")
        self.faults = {d: {} for d in DIRECTIONS}

    def create(self):
        """Put the empty chains in place. The port must exist."""
        text = f"table netdev {self.table} {{\n"
        for direction, hook in (("out", "ingress"), ("in", "egress")):
            for kind in KINDS:
                text += f"  counter {direction}_{kind} {{ }}\n"
            text += (f"  chain {direction} {{ type filter hook {hook} device "
                     f"\"{self.name}\" priority 0; policy accept; }}\n")
        run(["nft", "-f", "-"], text + "}\n")

    def forget(self):
        """Remove the table, if the kernel has not done so with the port."""
        try:
            run(["nft", "delete", "table", "netdev", self.table])
        except FaultError:
            pass
        self.faults = {d: {} for d in DIRECTIONS}

    def set(self, direction, kind, value):
        """Switch a fault on, or with value None off, in "in", "out" or "both".

        Values: drop takes True, lose a rate, corrupt a rate and where, and
        drop-peer a list of addresses: only packets to and from those.
        """
        for one in DIRECTIONS if direction == "both" else (direction,):
            if value is None:
                self.faults[one].pop(kind, None)
            else:
                self.faults[one][kind] = value
        self._apply()

    def clear(self):
        self.faults = {d: {} for d in DIRECTIONS}
        self._apply()

    def _apply(self):
        text = ""
        for direction in DIRECTIONS:
            text += f"flush chain netdev {self.table} {direction}\n"
            for rule in self._rules(direction):
                text += f"add rule netdev {self.table} {direction} {rule}\n"
        run(["nft", "-f", "-"], text)

    def _rules(self, direction):
        faults = self.faults[direction]
        if "drop" in faults:
            yield f"counter name {direction}_drop drop"
        # Only IP, not ARP: with the peer's hardware address forgotten the other direction would fail too.
        for address in faults.get("drop-peer", ()):
            end = "daddr" if direction == "out" else "saddr"
            yield f"ip {end} {address} counter name {direction}_drop drop"
        if "lose" in faults:
            yield f"{chance(faults['lose'])} counter name {direction}_lose drop"
        if "corrupt" in faults:
            rate, where = faults["corrupt"]
            match = "ip protocol { tcp, udp } ip length > 200"
            if where == "payload":
                match += f" {_AROUND} & {_TOP_BITS} == {_TOP_BITS}"
            yield (f"{match} {chance(rate)} counter name {direction}_corrupt "
                   f"{_BYTE} set {_BYTE} ^ 0x55")

    def counters(self):
        """Packets struck so far: {"out": {kind: n}, "in": {kind: n}}."""
        result = {d: {k: 0 for k in KINDS} for d in DIRECTIONS}
        listing = json.loads(run(["nft", "-j", "list", "counters", "table", "netdev",
                                  self.table]))
        for item in listing.get("nftables", []):
            counter = item.get("counter")
            if counter:
                direction, kind = counter["name"].split("_")
                result[direction][kind] = counter["packets"]
        return result


def chance(rate):
    """nft's condition that is true for this part of the packets."""
    if not 0.0 < rate <= 1.0:
        raise FaultError(f"a rate is a number above 0 and up to 1, not {rate}")
    return f"numgen random mod 1000000 < {max(1, round(rate * 1e6))}"

