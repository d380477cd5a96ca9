"""What a user's process does with a cluster: start it, ask it, run in it."""

import json
import os
import select
import signal
import time

from . import linux, plan as plan_module, registry, switch as switch_module, wire

UP_DEADLINE = 60.0
ANSWER_DEADLINE = 30.0
NOT_PERMITTED = 77
GONE = 255  # what a remote shell answers when the connection is lost


class ClusterError(Exception):
    """Something a user must know; code is the exit code of the command."""

    def __init__(self, text, code=1):
        super().__init__(text)
        self.code = code


# Up and down ----------------------------------------------------------------

def up(plan, script, owner=None, ttl=3600.0, slots=2):
    """Start a cluster; returns its record. The state folder may exist empty."""
    old = registry.read(plan.state)
    if old is not None:
        if registry.alive(old):
            raise ClusterError(f"a cluster is up in {plan.state}; take it down first")
        registry.remove(old)
    made_state = not os.path.isdir(plan.state)
    prepare_state(plan, script, slots)
    read_fd, write_fd = os.pipe()
    middle = os.fork()
    if middle == 0:
        start_supervisor(plan, write_fd, owner, ttl)
    os.close(write_fd)
    report = read_report(read_fd, UP_DEADLINE)
    os.close(read_fd)
    os.waitpid(middle, 0)
    record = {"plan": plan.to_dict(), "pid": report.get("pid", 0), "start_time": None,
              "owner": owner, "made_state": made_state, "created": time.time(),
              "owner_start_time": linux.start_time(owner) if owner else None}
    if record["pid"]:
        record["start_time"] = linux.start_time(record["pid"])
    if "up" not in report:
        registry.remove(record)
        raise ClusterError(report.get("error", "the supervisor did not come up in time"),
                           report.get("code", 1))
    registry.enter(record)
    return record


def prepare_state(plan, script, slots):
    try:
        for name in ("sock", "tmp"):
            os.makedirs(plan.path(name), mode=0o700, exist_ok=True)
        files = {
            "hosts": (plan.hosts_text(), 0o644),
            "hostfile": (plan.hostfile_text(slots), 0o644),
            "rsh": (f"#!/bin/sh\nexec '{script}' --state '{plan.state}' rsh \"$@\"\n", 0o755),
            "log": ("", 0o644),
        }
        for name, (text, mode) in files.items():
            with open(plan.path(name), "w", encoding="utf-8") as out:
                out.write(text)
            os.chmod(plan.path(name), mode)
    except OSError as failed:
        raise ClusterError(f"cannot prepare the state folder: {failed}") from failed


def read_report(fd, seconds):
    """Collect the supervisor's lines until it is up, failed or time is over."""
    report, data = {}, b""
    end = time.monotonic() + seconds
    while "up" not in report and "error" not in report:
        left = end - time.monotonic()
        ready, _, _ = select.select([fd], [], [], max(0.0, left))
        chunk = os.read(fd, 65536) if ready else b""
        if not chunk:
            break
        data += chunk
        *lines, data = data.split(b"\n")
        for line in lines:
            report.update(json.loads(line))
    return report


def start_supervisor(plan, write_fd, owner, ttl):
    """In a forked child: become the supervisor's parent, then leave."""
    def tell(**words):
        os.write(write_fd, json.dumps(words).encode() + b"\n")

    try:
        os.setsid()
        owner_fd = os.pidfd_open(owner) if owner else None
        if not os.path.exists("/etc/hosts"):
            tell(error="this machine has no /etc/hosts, over which each virtual host has its own: "
                 "create it, it may be empty", code=NOT_PERMITTED)
            os._exit(0)
        try:
            linux.enter_private_namespaces()
        except OSError as refused:
            tell(error="this machine does not let us make network namespaces "
                 f"({refused.strerror}): run as root, or allow unprivileged user "
                 "namespaces (sysctl kernel.unprivileged_userns_clone=1, and in a "
                 "container --privileged or --cap-add=SYS_ADMIN,NET_ADMIN)",
                 code=NOT_PERMITTED)
            os._exit(0)
        pid = os.fork()
        if pid != 0:
            tell(pid=pid)
            os._exit(0)
        supervise(plan, tell, write_fd, owner_fd, ttl)
    except Exception as failed:  # pylint: disable=broad-except
        tell(error=f"the supervisor failed: {failed}")
    finally:
        os._exit(1)


def supervise(plan, tell, write_fd, owner_fd, ttl):
    """The supervisor's life, as init of its PID namespace. Never returns."""
    null = os.open("/dev/null", os.O_RDWR)
    log_fd = os.open(plan.path("log"), os.O_WRONLY | os.O_APPEND)
    for target, source in ((0, null), (1, log_fd), (2, log_fd)):
        os.dup2(source, target)
    for fd in range(3, 256):
        if fd not in (write_fd, owner_fd):
            try:
                os.close(fd)
            except OSError:
                pass
    os.chdir("/")

    def log(text):
        os.write(1, f"{time.strftime('%H:%M:%S')} {text}\n".encode())

    try:
        linux.mount_proc()
        switch = switch_module.Switch(plan, log)
        switch.build()
        listener = wire.listen(plan.control_socket())
    except Exception as failed:  # pylint: disable=broad-except
        log(f"failed: {failed}")
        denied = isinstance(failed, PermissionError)
        tell(error=f"the virtual network could not be built: {failed}",
             code=NOT_PERMITTED if denied else 1)
        os._exit(1)
    tell(up=True)
    os.close(write_fd)
    why = switch_module.serve(switch, listener, owner_fd, time.monotonic() + ttl)
    log(f"ends: {why}")
    os._exit(0)  # the kernel ends everything in our PID namespace


# A cluster that is up -------------------------------------------------------

class Cluster:
    """A running cluster, addressed by its state folder."""

    def __init__(self, state):
        # Not asked here is whether the supervisor lives: a host of the
        # cluster cannot see that process. Its socket answers or does not.
        record = registry.read(state)
        if record is None:
            raise ClusterError(f"no cluster is up in {state}; start one with "
                               "'cluster up -n 4'")
        self.record = record
        self.plan = plan_module.Plan.from_dict(record["plan"])

    def ask(self, op, **arguments):
        """Have the supervisor do something; returns its answer."""
        try:
            line = wire.connect(self.plan.control_socket())
            line.send({"op": op, **arguments})
            reply = line.receive(ANSWER_DEADLINE)
            line.close()
        except (OSError, TimeoutError, wire.Closed) as failed:
            raise ClusterError(f"the cluster in {self.plan.state} does not answer "
                               f"({failed}); 'cluster down' removes it") from failed
        if "error" in reply:
            raise ClusterError(reply["error"])
        return reply["ok"]

    def processes(self):
        """The processes of every host: (host, process id, command line), sorted."""
        by_netns = {s["netns"]: h for h, s in self.ask("status").items() if s["up"]}
        rows = []
        for entry in os.listdir("/proc"):
            host = by_netns.get(switch_module.netns_of(int(entry))) if entry.isdigit() else None
            if host is None:
                continue
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as source:
                    command = source.read().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            rows.append((host, int(entry), command.strip()))
        return sorted(rows)

    def environment(self, host):
        """What a command on the host finds in its environment."""
        result = dict(os.environ)
        result.update(TMPDIR=self.plan.tmp(host), HOSTNAME=host)
        return result

    def run(self, host, argv, keep=False, env=None, deadline=None):
        """Run a command on a host with our standard files; its exit code.

        With keep it goes on when we end, as under a remote shell without a
        terminal.  With a deadline (seconds) it gets SIGTERM then, SIGKILL
        three seconds later, and the result is 124.
        """
        if host not in self.plan.hosts:
            raise ClusterError(f"there is no host {host!r}", GONE)
        if os.path.exists(self.plan.dark_mark(host)):
            return self._wait_in_the_dark(host, deadline)
        request = {"argv": argv, "cwd": os.getcwd(), "keep": keep,
                   "env": self.environment(host) if env is None else env}
        try:
            line = wire.connect(self.plan.host_socket(host))
            line.send({"run": request}, fds=(0, 1, 2))
        except OSError as failed:
            raise ClusterError(f"{host} is down ({failed.strerror})", GONE) from failed
        code = _wait(line, deadline)
        if code is None and os.path.exists(self.plan.dark_mark(host)):
            return self._wait_in_the_dark(host, deadline)
        line.close()
        return GONE if code is None else code

    @staticmethod
    def _wait_in_the_dark(_host, deadline):
        # A host that lost its power says nothing: a remote shell just waits.
        poll = select.poll()
        poll.poll(None if deadline is None else int(deadline * 1000))
        return 124


def _wait(line, deadline):
    """Pass signals on and wait for the exit code; None when the line is lost."""
    wake_r, wake_w = os.pipe()
    os.set_blocking(wake_r, False)
    os.set_blocking(wake_w, False)
    signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    end = None if deadline is None else time.monotonic() + deadline
    steps = [signal.SIGTERM, signal.SIGKILL]
    timed_out = False
    while True:
        left = None if end is None else max(0.0, end - time.monotonic())
        ready, _, _ = select.select([line, wake_r], [], [], left)
        try:
            if wake_r in ready:
                for number in os.read(wake_r, 64):
                    line.send({"signal": number})
            if not ready:
                timed_out = True
                line.send({"signal": steps.pop(0)})
                end = time.monotonic() + 3.0 if steps else None
            if line in ready:
                for message in line.feed():
                    if "exit" in message:
                        code = message["exit"]
                        return 124 if timed_out else code if code >= 0 else 128 - code
                    if "error" in message:
                        raise ClusterError(message["error"])
        except (wire.Closed, ConnectionError):
            return None
