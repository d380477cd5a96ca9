"""Names, addresses and files of one cluster."""

import hashlib
import os

MANAGEMENT = "m"
MAX_HOSTS = 200
MAX_RAILS = 8
MAX_MBIT = 100000
# Beyond so many the kernel forgets hardware addresses that it has learned.
LEARNED_NEIGHBOURS = 500
# Path of a Unix socket is limited to 107 bytes; the longest name below is
# "sock/n199" and a temporary directory of Open MPI must fit as well.
MAX_STATE_LENGTH = 80


def rate(mbit):
    """A rate that a rail can have; raises ValueError."""
    if not 1 <= mbit <= MAX_MBIT:
        raise ValueError(f"the rate of a rail must be 1..{MAX_MBIT} Mbit/s, not {mbit}")
    return mbit


def rates(mbit, rails):
    """The rate of each rail, from None, one for all, or one for each."""
    if not mbit:
        return []
    each = list(map(rate, mbit if isinstance(mbit, (list, tuple)) else [mbit]))
    if len(each) not in (1, rails):
        raise ValueError(f"{len(each)} rates for {rails} rails: give one for all, or one for each")
    return each * rails if len(each) == 1 else each


class Plan:
    """What a cluster of n hosts with r rails looks like.

    Networks: "m" carries the runtime (daemons, standard output), rails
    "0".."r-1" carry MPI.  The second byte of the addresses is taken from the
    state folder's name, so that two clusters differ in it.
    """

    def __init__(self, state, hosts, rails, mbit=None):
        if not 1 <= hosts <= MAX_HOSTS:
            raise ValueError(f"number of hosts must be 1..{MAX_HOSTS}, not {hosts}")
        if not 1 <= rails <= MAX_RAILS:
            raise ValueError(f"number of rails must be 1..{MAX_RAILS}, not {rails}")
        if len(state) > MAX_STATE_LENGTH:
            raise ValueError(
                f"the state folder's path is longer than {MAX_STATE_LENGTH} bytes, which "
                f"sockets do not allow; name a shorter one with --state: {state}")
        self.state = state
        self.mbit = rates(mbit, rails)
        self.hosts = [f"n{i}" for i in range(hosts)]
        self.rails = [str(r) for r in range(rails)]
        self.networks = [MANAGEMENT] + self.rails
        digest = hashlib.sha256(f"{state} {os.getuid()}".encode()).digest()
        self.block = 64 + digest[0] % 128

    # Networks and interfaces ------------------------------------------------

    def subnet(self, network):
        third = self.networks.index(network)
        return f"10.{self.block}.{third}.0/24"

    def address(self, host, network):
        third = self.networks.index(network)
        return f"10.{self.block}.{third}.{self.hosts.index(host) + 1}"

    def hardware_address(self, host, network):
        third = self.networks.index(network)
        return f"02:fc:{self.block:02x}:{third:02x}:00:{self.hosts.index(host) + 1:02x}"

    def neighbours(self, host):
        """The commands of "ip -batch" that name the other hosts' hardware addresses; none for few hosts.

        The kernel keeps 1024 learned ones at most for all namespaces together, and from 512 on
        forgets them after seconds; then connections fail between healthy hosts. These do not count.
        """
        if len(self.hosts) ** 2 * len(self.networks) < LEARNED_NEIGHBOURS:
            return ""
        return "".join(f"neighbour add {self.address(other, network)} lladdr "
                       f"{self.hardware_address(other, network)} nud permanent dev {self.interface(network)}\n"
                       for network in self.networks for other in self.hosts if other != host)

    def bridge(self, network):
        return f"br-{network}"

    def port(self, host, network):
        """Name of the switch's end of the host's cable."""
        return f"{host}-{network}"

    def interface(self, network):
        """Name of the host's end of the cable."""
        return "mgmt" if network == MANAGEMENT else f"rail{network}"

    # Files ------------------------------------------------------------------

    def path(self, *names):
        return os.path.join(self.state, *names)

    def host_socket(self, host):
        return self.path("sock", host)

    def control_socket(self):
        return self.path("sock", "switch")

    def dark_mark(self, host):
        """File that says: this host vanished without a word."""
        return self.path("sock", host + ".dark")

    def tmp(self, host):
        return self.path("tmp", host)

    def hosts_text(self):
        lines = ["127.0.0.1 localhost"]
        lines += [f"{self.address(h, MANAGEMENT)} {h}" for h in self.hosts]
        return "\n".join(lines) + "\n"

    def hostfile_text(self, slots):
        return "".join(f"{h} slots={slots}\n" for h in self.hosts)

    def to_dict(self):
        return {"state": self.state, "hosts": len(self.hosts), "rails": len(self.rails),
                "mbit": self.mbit}

    @staticmethod
    def from_dict(d):
        return Plan(d["state"], d["hosts"], d["rails"], d["mbit"])
