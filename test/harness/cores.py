"""How Linux shares the processors while tests run."""

import contextlib

AUTOGROUP = "/proc/sys/kernel/sched_autogroup_enabled"


class Shared:
    """Shares them among processes and not among sessions first (sched(7), autogroup), if this process may choose.

    Hosts of a virtual cluster are sessions, and their ranks poll and yield (mpi_yield_when_idle). Under Linux 6.18 a rank
    that yields alone in its session was given a whole core for ten seconds and more, while everything else waited for it,
    threads of the kernel included: daemons were silent for so long, and evicted (docs/failures.md). With autogroups off
    that was not seen. What was there before is put back by end(), which may be called twice, and from a signal handler;
    who is killed outright leaves it off.
    """

    def __init__(self, setting=AUTOGROUP):
        self.setting = setting
        self.changed = self._value() == "1" and self._set("0")

    def _value(self):
        try:
            with open(self.setting, encoding="ascii") as setting:
                return setting.read().strip()
        except OSError:
            return ""

    def _set(self, value):
        with contextlib.suppress(OSError), open(self.setting, "w", encoding="ascii") as setting:
            setting.write(value)
        return self._value() == value

    def end(self):
        if self.changed:
            self.changed = False
            self._set("1")
