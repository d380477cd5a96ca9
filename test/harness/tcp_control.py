"""Which TCP congestion control is measured with."""


class TcpControl:
    """This network namespace's while something is measured; the one before in the end.

    A machine may have BBR, which paces by a timer at the rate that it took the way for. Over loopback that decides what
    is measured: fragments of 128 KiB moved 3.6 GB/s with it, and 7.4 with CUBIC, which is what Debian's kernel has unless
    somebody chose another. Where it may not be set, `name` is what there is.
    """

    SETTING = "/proc/sys/net/ipv4/tcp_congestion_control"

    def __init__(self, name="cubic"):
        self.wanted = name

    def __enter__(self):
        with open(self.SETTING, encoding="ascii") as file:
            self.before = self.name = file.read().strip()
        if self.before != self.wanted and self.write(self.wanted):
            self.name = self.wanted
        return self

    def __exit__(self, *_):
        # The name stays: it is what was measured with.
        if self.name != self.before:
            self.write(self.before)

    def write(self, name):
        """\\return whether it may be set"""
        try:
            with open(self.SETTING, "w", encoding="ascii") as file:
                file.write(name)
        except OSError:
            return False
        return True
