#!/usr/bin/env python3
"""A virtual cluster comes, does what it is told, and leaves nothing behind."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
from fttap import Skip, check, main  # noqa: E402

TOOL = ftcluster.TOOL
REGISTRY = f"/tmp/ompi-ft-clusters-{os.getuid()}"


def traces(folder):
    """What of a cluster in the folder can be seen from outside of it."""
    with open("/proc/self/mounts", encoding="utf-8") as source:
        found = [f"mount {line}" for line in source.read().splitlines() if folder in line]
    for name in os.listdir("/sys/class/net"):
        if name.startswith(("br-", "n0-", "n1-", "rail", "mgmt")):
            found.append(f"interface {name}")
    for name in os.listdir(REGISTRY) if os.path.isdir(REGISTRY) else []:
        # Another cluster may come or go meanwhile.
        with contextlib.suppress(FileNotFoundError), open(os.path.join(REGISTRY, name), encoding="utf-8") as source:
            if folder in source.read():
                found.append(f"registry entry {name}")
    if os.path.exists(folder):
        found += [f"file {os.path.join(folder, n)}" for n in os.listdir(folder)]
    return found


def record(cluster):
    with open(os.path.join(cluster.state, "cluster.json"), encoding="utf-8") as source:
        return json.load(source)


def first_processes(cluster):
    """Of each host, by its name."""
    pids = {}
    for line in cluster.tool("ps").splitlines():
        host, pid, _ = line.split(" ", 2)
        pids.setdefault(host, int(pid))
    return pids


def host_inits(cluster):
    """One open pidfd for the first process of each host."""
    return [os.pidfd_open(pid) for pid in first_processes(cluster).values()]


def sleeper(cluster, host):
    """A command that runs on the host for as long as it may."""
    marks = cluster.marks()
    run = cluster.start("run", host, "sh", "-c", f"echo 0 up > {marks.path}; exec sleep 1000")
    check(marks.wait(lambda t: t == "up", run.deadline, run), "the command was not started")
    marks.close()
    return run


def lost(run):
    """The command had begun, and its host is gone: nobody is left who could say so."""
    check((run.wait(), run.err) == (255, ""), f"a lost command gave {run.code}, not 255, and said {run.err!r}")


def all_end(pidfds, seconds):
    deadline = time.monotonic() + seconds
    left = set(pidfds)
    while left:
        ready = ftcluster.wait_readable(list(left), deadline)
        if not ready:
            break
        left -= set(ready)
    for fd in pidfds:
        os.close(fd)
    return not left


def up_and_down_leave_nothing():
    """up and down leave no interface, process, mount or file behind"""
    with ftcluster.Cluster(hosts=4) as cluster:
        # Up, it is seen only by its folder and its entry in the registry.
        seen = [t.split(" ", 1)[0] for t in traces(cluster.folder)]
        check(sorted(seen) == ["file", "registry"], traces(cluster.folder))
        inits = host_inits(cluster)
        check(len(inits) == 4, f"{len(inits)} hosts, not 4")
    check(all_end(inits, 10), "a host outlived its cluster")
    check(not traces(cluster.folder), f"left behind: {traces(cluster.folder)}")


def down_is_idempotent():
    """down may be repeated, and come before up"""
    folder = tempfile.mkdtemp(prefix="ftc-")
    try:
        for _ in range(2):
            run = ftcluster.command([TOOL, "down", "--state", folder])
            check(run.code == 0, run.err)
    finally:
        os.rmdir(folder)


def second_up_is_refused():
    """a second up in the same state folder is refused, the first goes on"""
    with ftcluster.Cluster(hosts=2) as cluster:
        run = ftcluster.command([TOOL, "up", "--state", cluster.state])
        check(run.code == 1 and "is up" in run.err, f"{run.code} {run.err}")
        check(cluster.tool("run", "n1", "hostname").strip() == "n1", "n1 does not answer")


def failed_up_cleans_up():
    """an up that fails half way says why and leaves nothing behind"""
    folder = tempfile.mkdtemp(prefix="ftc-")
    tools = os.path.join(folder, "bin")
    state = os.path.join(folder, "state")
    os.mkdir(tools)
    try:
        # Everything is there but nft: bridges come up, the first port does not.
        for name in ("ip", "nsenter", "ss"):
            path = subprocess.run(["sh", "-c", f"command -v {name}"], check=True,
                                  capture_output=True, text=True).stdout.strip()
            os.symlink(path, os.path.join(tools, name))
        env = dict(os.environ, PATH=tools)
        run = ftcluster.command([sys.executable, TOOL, "up", "--state", state], env=env)
        check(run.code == 1 and "nft" in run.err, f"{run.code} {run.err}")
        left = [t for t in traces(folder) if not t.endswith(tools)]
        check(not left, f"left behind: {left}")
    finally:
        shutil.rmtree(folder)


def not_permitted_is_77():
    """without permission for namespaces up says so with exit code 77"""
    folder = tempfile.mkdtemp(prefix="ftc-")
    state = os.path.join(folder, "state")
    try:
        # In a user namespace whose owner allows no network namespace at all.
        script = ('echo 0 > /proc/sys/user/max_net_namespaces && '
                  f'exec "{sys.executable}" "{TOOL}" up --state "{state}"')
        run = ftcluster.command(["unshare", "-Ur", "sh", "-c", script])
        check(run.code == 77, f"exit code {run.code}: {run.err}")
        check("namespaces" in run.err and len(run.err.strip().splitlines()) == 1, run.err)
        check(not traces(folder), f"left behind: {traces(folder)}")
    finally:
        shutil.rmtree(folder)


def killed_supervisor_takes_all_along():
    """a supervisor killed with SIGKILL takes every host along; reap tidies up"""
    cluster = ftcluster.Cluster(hosts=3)
    with cluster:
        inits = host_inits(cluster)
        run = sleeper(cluster, "n1")
        os.kill(record(cluster)["pid"], signal.SIGKILL)
        check(all_end(inits, 10), "a host outlived its supervisor")
        lost(run)
        run = ftcluster.command([TOOL, "reap"])
        check(run.code == 0 and cluster.state in run.out, f"not reaped: {run.out} {run.err}")
        check(not os.path.exists(cluster.state), "reap left the state folder")


def owner_end_takes_cluster_down():
    """the end of the owner is the end of the cluster; reap removes its files"""
    folder = tempfile.mkdtemp(prefix="ftc-")
    state = os.path.join(folder, "state")
    owner = subprocess.Popen(["sleep", "1000"])
    try:
        run = ftcluster.command([TOOL, "up", "--state", state, "-n", "2", "--owner",
                                 str(owner.pid)])
        check(run.code == 0, run.err)
        with open(os.path.join(state, "cluster.json"), encoding="utf-8") as source:
            supervisor = os.pidfd_open(json.load(source)["pid"])
        owner.kill()
        owner.wait()
        check(all_end([supervisor], 10), "the cluster outlived its owner")
        run = ftcluster.command([TOOL, "reap"])
        check(state in run.out and not os.path.exists(state), f"not reaped: {run.out}")
    finally:
        owner.kill()
        owner.wait()
        ftcluster.command([TOOL, "down", "--state", state])
        os.rmdir(folder)


def time_is_bounded():
    """a cluster ends by itself when its time is up"""
    with ftcluster.Cluster(hosts=1, ttl=1) as cluster:
        # It was up, or there would have been an error; it may be over before this is run.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            supervisor = os.pidfd_open(record(cluster)["pid"])
            check(all_end([supervisor], 10), "the cluster outlived its time")


def clusters_side_by_side():
    """two clusters at once do not see each other"""
    with ftcluster.Cluster(hosts=2) as one, ftcluster.Cluster(hosts=2) as two:
        seen = [json.loads(c.tool("status")) for c in (one, two)]
        spaces = {h["netns"] for s in seen for h in s.values()}
        check(len(spaces) == 4, "two hosts share a network namespace")
        one.tool("kill", "n1")
        check(two.tool("run", "n1", "hostname").strip() == "n1", "killed in both clusters")


def commands_and_their_ends():
    """run gives the command's exit code, output and signals; a deadline is kept"""
    with ftcluster.Cluster(hosts=2) as cluster:
        run = cluster.start("run", "n1", "sh", "-c", "echo out; echo err >&2; exit 7")
        check((run.wait(), run.out, run.err) == (7, "out\n", "err\n"),
              f"{run.code} {run.out!r} {run.err!r}")
        run = cluster.start("run", "--deadline", "0.5", "n1", "sleep", "1000")
        check(run.wait() == 124, f"past the deadline: {run.code}")
        run = cluster.start("run", "n1", "no-such-command")
        check(run.wait() == 127 and "no-such-command" in run.err, f"{run.code} {run.err}")
        run = cluster.start("run", "n9", "true")
        check(run.wait() == 255 and "n9" in run.err, f"{run.code} {run.err}")
        run = sleeper(cluster, "n1")
        os.kill(run.pid, signal.SIGTERM)
        check(run.wait() == 128 + signal.SIGTERM, f"SIGTERM gave {run.code}")


def kill_and_boot():
    """a killed host is down with all it ran, boots again, and is itself again"""
    with ftcluster.Cluster(hosts=2) as cluster:
        run = sleeper(cluster, "n1")
        # While this is open the kernel does not take the dead host's network apart, as it may not have yet when it boots.
        network = os.open(f"/proc/{first_processes(cluster)['n1']}/ns/net", os.O_RDONLY)
        cluster.tool("kill", "n1")
        lost(run)
        check(cluster.start("run", "n1", "true").wait() == 255, "a killed host answers")
        check(cluster.start("kill", "n1").wait() == 1, "killed twice")
        cluster.tool("boot", "n1")
        os.close(network)
        check(cluster.tool("run", "n1", "hostname").strip() == "n1", "not itself")
        out = cluster.tool("run", "n1", "ip", "-o", "-4", "address")
        check(all(i in out for i in ("mgmt", "rail0", "rail1")), out)


def many_hosts_need_not_learn():
    """hosts of a large cluster know each other's hardware addresses, of which the kernel learns but a few"""
    with ftcluster.Cluster(hosts=20, rails=1) as cluster:
        refused = "(exec 3<>/dev/tcp/n17/1) 2>&1 | grep -q refused"  # so it answers
        cluster.tool("run", "n3", "bash", "-c", refused)
        for host in ("n0", "n19"):
            known = cluster.tool("run", host, "ip", "neighbour").splitlines()
            check(len(known) == 2 * 19, f"{host} knows {len(known)} neighbours")
            check(all("PERMANENT" in line for line in known), known)


def no_firewall_in_the_switch():
    """packets between hosts do not go through the machine's own firewall, which stays as it is elsewhere"""
    folder = "/proc/sys/net/bridge"
    if not os.path.isdir(folder):
        raise Skip("br_netfilter is not loaded: no firewall looks at bridges")
    names = [os.path.join(folder, f"bridge-nf-call-{kind}tables") for kind in ("ip", "ip6", "arp")]
    before = subprocess.run(["cat", *names], capture_output=True, text=True, check=True).stdout
    with ftcluster.Cluster(hosts=2, rails=1) as cluster:
        enter = ["nsenter", "-t", str(record(cluster)["pid"]), *([] if os.getuid() == 0 else ["-U"]), "-n"]
        inside = subprocess.run([*enter, "cat", *names], capture_output=True, text=True, check=True).stdout
        outside = subprocess.run(["cat", *names], capture_output=True, text=True, check=True).stdout
    check(inside.split() == ["0", "0", "0"], f"in the switch: {inside}")
    check(outside == before, f"on the machine: {before} before, {outside} now")


if __name__ == "__main__":
    main([up_and_down_leave_nothing, down_is_idempotent, second_up_is_refused,
          failed_up_cleans_up, not_permitted_is_77, killed_supervisor_takes_all_along,
          owner_end_takes_cluster_down, time_is_bounded, clusters_side_by_side,
          commands_and_their_ends, kill_and_boot, many_hosts_need_not_learn, no_firewall_in_the_switch])
