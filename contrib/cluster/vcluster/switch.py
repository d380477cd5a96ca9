"""The supervisor of one cluster: bridges, ports, life and death of hosts.

It is init of a PID namespace that holds the whole cluster, and owns the
network namespace with the bridges.  When it ends, however it ends, the kernel
ends everything in the cluster and frees every interface: nothing has to be
cleaned up by name.
"""

import os
import select
import signal
import socket
import time
import traceback

from . import faults, host as host_module, linux, plan as plan_module, wire

BOOT_DEADLINE = 20.0
FIREWALLS = "/proc/sys/net/bridge/bridge-nf-call-"


def keep_out_firewalls():
    """A switch has none. Where this machine has br_netfilter loaded, every packet on a bridge would
    go the way of one that is routed, which is a tenth of a short message's."""
    for name in ("iptables", "ip6tables", "arptables"):
        try:
            with open(FIREWALLS + name, "w", encoding="ascii") as setting:
                setting.write("0")
        except OSError:
            pass  # not loaded, or not ours to change: it is as it was


class RequestError(Exception):
    """A request that cannot be fulfilled; the text is for the user."""


class Machine:
    """What the switch knows of one host."""

    def __init__(self, name):
        self.name = name
        self.pid = None
        self.ports = {}


class Switch:
    """See the module's text."""

    def __init__(self, plan, log):
        self.plan = plan
        self._log = log
        self._machines = {h: Machine(h) for h in plan.hosts}

    # Life -------------------------------------------------------------------

    def build(self):
        """Put up the bridges and boot every host."""
        keep_out_firewalls()
        for network in self.plan.networks:
            bridge = self.plan.bridge(network)
            faults.run(["ip", "link", "add", "name", bridge, "type", "bridge",
                        "forward_delay", "0", "stp_state", "0", "mcast_snooping", "0"])
            faults.run(["ip", "link", "set", bridge, "up"])
        for name in self.plan.hosts:
            self.boot(name)

    def boot(self, name):
        machine = self._machines[name]
        if machine.pid is not None:
            raise RequestError(f"{name} is up already")
        for path in (self.plan.dark_mark(name), self.plan.host_socket(name)):
            if os.path.exists(path):
                os.unlink(path)
        os.makedirs(self.plan.tmp(name), exist_ok=True)
        ready_r, ready_w = os.pipe()
        go_r, go_w = os.pipe()
        pid = self._fork_in_new_pid_namespace()
        if pid == 0:
            run_host(self.plan, name, ready_w, go_r)
        os.close(ready_w)
        os.close(go_r)
        try:
            expect(ready_r, b"1", f"{name} did not get its namespaces")
            self._plug(machine, pid)
            os.write(go_w, b"1")
            expect(ready_r, b"2", f"{name} did not come up")
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        finally:
            os.close(ready_r)
            os.close(go_w)
        machine.pid = pid
        self._log(f"{name} is up")

    @staticmethod
    def _fork_in_new_pid_namespace():
        # A process may leave its PID namespace for children only once; going
        # back to its own one first makes it possible again.
        own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        try:
            linux.unshare(linux.CLONE_NEWPID)
            pid = os.fork()
            if pid != 0:
                linux.setns(own, linux.CLONE_NEWPID)
            return pid
        finally:
            os.close(own)

    @staticmethod
    def _unplug(port_name):
        """The kernel takes the namespace of a killed host apart when it has the time, and its cables with it."""
        try:
            socket.if_nametoindex(port_name)
            faults.run(["ip", "link", "delete", port_name])
        except (OSError, faults.FaultError):
            pass  # it has

    def _plug(self, machine, pid):
        for network in self.plan.networks:
            port_name = self.plan.port(machine.name, network)
            self._unplug(port_name)
            faults.run(["ip", "link", "add", "name", port_name, "type", "veth", "peer",
                        "name", self.plan.interface(network), "netns", str(pid)])
            faults.run(["ip", "link", "set", port_name, "master",
                        self.plan.bridge(network), "up"])
            if self.plan.mbit and network in self.plan.rails:
                self._shape("add", network, port_name, self.plan.mbit[self.plan.rails.index(network)])
            port = faults.Port(port_name)
            port.forget()
            port.create()
            machine.ports[network] = port

    def _shape(self, how, network, port_name, mbit):
        # A packet that waits behind the bridge would count as one in its sender's own queues, and TCP allows itself two
        # super-packets there (TCP small queues): it would be held at a share of the rail that no real switch holds it at. A
        # bridge that listens to everything hands its ports copies, which belong to no socket.
        faults.run(["ip", "link", "set", self.plan.bridge(network), "promisc", "on"])
        # A bucket of several super-packets, or segmentation offload starves in it.
        faults.run(["tc", "qdisc", how, "dev", port_name, "root", "tbf", "rate",
                    f"{mbit}mbit", "burst", "512kb", "latency", "20ms"])

    def reap(self):
        """Collect ended children; a host's end is noted."""
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for machine in self._machines.values():
                if machine.pid == pid:
                    machine.pid = None
                    self._log(f"{machine.name} is down")

    # Requests ---------------------------------------------------------------

    def handle(self, request):
        """Fulfil one request; returns the answer."""
        operations = {
            "status": self._status, "cut": self._cut, "heal": self._heal,
            "corrupt": self._corrupt, "lose": self._lose, "rate": self._rate, "counters": self._counters,
            "kill": self._kill, "boot": lambda r: self.boot(self._machine(r).name),
            "freeze": lambda r: self._signal_all(r, signal.SIGSTOP),
            "thaw": lambda r: self._signal_all(r, signal.SIGCONT),
            "sweep": lambda r: self._signal_all(r, signal.SIGKILL),
        }
        operation = operations.get(request.get("op"))
        if operation is None:
            raise RequestError(f"unknown request {request.get('op')!r}")
        return operation(request)

    def _machine(self, request):
        machine = self._machines.get(request["host"])
        if machine is None:
            raise RequestError(f"there is no host {request['host']!r}; there are "
                               f"{self.plan.hosts[0]}..{self.plan.hosts[-1]}")
        return machine

    def _live(self, request):
        machine = self._machine(request)
        if machine.pid is None:
            raise RequestError(f"{machine.name} is down")
        return machine

    def _port(self, request):
        machine = self._live(request)
        port = machine.ports.get(str(request["rail"]))
        if port is None:
            raise RequestError(f"there is no rail {request['rail']!r}; there are "
                               + " ".join(self.plan.networks))
        return machine, port

    def _status(self, _request):
        return {m.name: {"up": m.pid is not None,
                         "netns": netns_of(m.pid) if m.pid else None,
                         "faults": {n: p.faults for n, p in m.ports.items()}}
                for m in self._machines.values()}

    def _cut(self, request):
        machine, port = self._port(request)
        how = request["how"]
        direction = request.get("direction", "both")
        if how != "drop" and direction != "both":
            raise RequestError(f"a cut by {how} always hits both directions")
        peer = request.get("peer")
        if how != "drop" and peer:
            raise RequestError(f"a cut by {how} always hits all peers")
        if how == "drop" and peer:
            self._cut_from(machine, port, direction, request)
        elif how == "drop":
            port.set(direction, "drop", True)
        elif how == "link-down":
            faults.run(["ip", "link", "set", port.name, "down"])
        elif how in ("reset", "reset-once"):
            address = self.plan.address(machine.name, str(request["rail"]))
            if how == "reset":
                # Silence first, and then both ends: nobody can connect anew in between.
                port.set("both", "drop", True)
                for other in self._machines.values():
                    if other is not machine and other.pid is not None:
                        reset_connections(other.pid, "dst", address)
            return {"connections": reset_connections(machine.pid, "src", address)}
        else:
            raise RequestError(f"unknown way to cut: {how}")
        return {}

    def _cut_from(self, machine, port, direction, request):
        """Between this host and one other; cuts from several others add up."""
        peer = self._machine({"host": request["peer"]})
        if peer is machine:
            raise RequestError(f"{peer.name} cannot be cut from itself")
        address = self.plan.address(peer.name, str(request["rail"]))
        for one in faults.DIRECTIONS if direction == "both" else (direction,):
            others = port.faults[one].get("drop-peer", [])
            port.set(one, "drop-peer", sorted({*others, address}))

    def _heal(self, request):
        _, port = self._port(request)
        port.clear()
        faults.run(["ip", "link", "set", port.name, "up"])
        return {}

    def _corrupt(self, request):
        _, port = self._port(request)
        port.set(request.get("direction", "both"), "corrupt",
                 (float(request["rate"]), request.get("where", "payload")))
        return {}

    def _lose(self, request):
        _, port = self._port(request)
        port.set(request.get("direction", "both"), "lose", float(request["rate"]))
        return {}

    def _rate(self, request):
        _, port = self._port(request)
        rail = str(request["rail"])
        if rail not in self.plan.rails:
            raise RequestError("only rails have a rate")
        self._shape("replace", rail, port.name, plan_module.rate(int(request["mbit"])))
        return {}

    def _counters(self, _request):
        return {m.name: {n: p.counters() for n, p in m.ports.items()}
                for m in self._machines.values() if m.pid is not None}

    def _kill(self, request):
        machine = self._live(request)
        if request.get("silent"):
            # Nothing that dies on the host may be heard: neither on the
            # cables nor by those who wait for a command they started there.
            with open(self.plan.dark_mark(machine.name), "w", encoding="ascii"):
                pass
            for port in machine.ports.values():
                port.set("both", "drop", True)
        os.kill(machine.pid, signal.SIGKILL)
        os.waitpid(machine.pid, 0)
        machine.pid = None
        for port in machine.ports.values():
            if request.get("silent"):
                # A dead process's connections say goodbye again and again until
                # the kernel has taken the namespace apart: pull the cable first.
                faults.run(["ip", "link", "delete", port.name])
            port.forget()
        self._log(f"{machine.name} was killed{' silently' if request.get('silent') else ''}")
        return {}

    def _signal_all(self, request, number):
        """Send a signal to every process of a host but its init; count them."""
        machine = self._live(request)
        netns = netns_of(machine.pid)
        hit = 0
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) in (1, machine.pid):
                continue
            if netns_of(int(entry)) == netns:
                try:
                    os.kill(int(entry), number)
                    hit += 1
                except ProcessLookupError:
                    pass
        return {"processes": hit}


def netns_of(pid):
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return None


def reset_connections(pid, end, address):
    """Have the kernel abort every TCP connection with this address as its source or destination; their number."""
    out = faults.run(["nsenter", "-t", str(pid), "-n", "ss", "-K", "-H", "-n", "-t",
                      "state", "connected", end, address])
    return len(out.splitlines())


def expect(fd, token, complaint):
    ready, _, _ = select.select([fd], [], [], BOOT_DEADLINE)
    got = os.read(fd, 4096) if ready else b""
    if got != token:
        detail = got.decode(errors="replace").strip()
        raise RequestError(f"{complaint}{': ' + detail if detail else ''}")


def run_host(plan, name, ready_w, go_r):
    """In the new host's first process. Never returns."""
    try:
        signal.set_wakeup_fd(-1)
        for fd in range(3, 256):
            if fd not in (ready_w, go_r):
                try:
                    os.close(fd)
                except OSError:
                    pass
        host_module.become_host(plan, name)
        os.write(ready_w, b"1")
        if os.read(go_r, 1) != b"1":
            os._exit(1)
        host_module.plug_in(plan, name, faults.run)
        listener = wire.listen(plan.host_socket(name))
        os.write(ready_w, b"2")
        os.close(ready_w)
        os.close(go_r)
        host_module.Host(listener).serve()
    except Exception as failed:  # pylint: disable=broad-except
        try:
            os.write(ready_w, str(failed).encode())
        except OSError:
            traceback.print_exc()
    finally:
        os._exit(1)


def serve(switch, listener, owner_fd, end_time):
    """Answer requests until told to stop, the owner ends or the time is up."""
    wake_r, wake_w = os.pipe()
    os.set_blocking(wake_r, False)
    os.set_blocking(wake_w, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
    lines = {}
    while True:
        left = end_time - time.monotonic()
        if left <= 0:
            return "its time is up"
        watched = [listener, wake_r, *lines] + ([owner_fd] if owner_fd is not None else [])
        ready, _, _ = select.select(watched, [], [], left)
        for fd in ready:
            if fd is listener:
                sock, _ = listener.accept()
                lines[sock.fileno()] = wire.Line(sock)
            elif fd == wake_r:
                os.read(wake_r, 4096)
            elif fd == owner_fd:
                return "its owner ended"
            elif fd in lines and answer(switch, lines, fd):
                return "asked to"
        switch.reap()


def answer(switch, lines, fd):
    """Serve one readable connection; True when it asks the switch to stop."""
    line = lines[fd]
    try:
        for request in line.feed():
            if request.get("op") == "down":
                return True
            try:
                line.send({"ok": switch.handle(request) or {}})
            except (RequestError, faults.FaultError, KeyError, ValueError) as failed:
                line.send({"error": str(failed)})
    except (wire.Closed, OSError, ValueError):
        del lines[fd]
        line.close()
    return False
