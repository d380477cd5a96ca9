"""The command line of the virtual cluster."""

import argparse
import json
import os
import sys
import tempfile

from . import client, plan as plan_module, registry, switch as switch_module

DESCRIPTION = """\
A virtual cluster on this machine: hosts n0, n1, ... (network, UTS, mount, IPC
and PID namespaces) joined by a management network "m" and rails "0", "1", ...
Faults are made by the kernel: nftables, link state, TCP resets, SIGKILL."""

EPILOG = """\
Exit codes: 0 done, 1 failed, 77 namespaces are not permitted here, 124 past
the deadline, 255 the host is down; run and mpirun give the command's own.

Without the permission for namespaces there is no cluster.  Then run the ranks
on this host over the loopback interface; one interface still gives two paths:
  mpirun --mca btl_tcp_if_include lo --mca btl_tcp_links 2 ...
Nothing can be cut there by the kernel; only btl/fault makes faults."""


def main(argv, script):
    options = parser().parse_args(argv)
    options.state = os.path.abspath(options.state or default_state())
    options.script = script
    try:
        return options.act(options) or 0
    except client.ClusterError as failed:
        print(f"cluster: {failed}", file=sys.stderr)
        return failed.code
    except (ValueError, OSError, switch_module.RequestError) as failed:
        print(f"cluster: {failed}", file=sys.stderr)
        return 1


def numbers(text):
    return [int(word) for word in text.split(",")]


def default_state():
    return (os.environ.get("FT_CLUSTER_STATE")
            or os.path.join(tempfile.gettempdir(), f"ompi-ft-cluster-{os.getuid()}"))


def parser():
    top = argparse.ArgumentParser(
        prog="cluster", description=DESCRIPTION, epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--state", help="folder of this cluster's files "
                     "(default: $FT_CLUSTER_STATE, or one per user)")
    subs = top.add_subparsers(required=True, metavar="COMMAND")

    def sub(name, act, text):
        made = subs.add_parser(name, help=text, description=text)
        made.add_argument("--state", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        made.set_defaults(act=act)
        return made

    one = sub("up", do_up, "start the cluster")
    one.add_argument("-n", type=int, default=4, metavar="N", help="hosts (default 4)")
    one.add_argument("--rails", type=int, default=2, help="MPI networks (default 2)")
    one.add_argument("--mbit", type=numbers, metavar="N[,N...]", help="what a rail carries to a "
                     "host, in Mbit/s: one number for all, or one for each (default: what the "
                     "machine can)")
    one.add_argument("--slots", type=int, default=2, help="slots of a host (default 2)")
    one.add_argument("--owner", type=int, metavar="PID",
                     help="take the cluster down when this process ends")
    one.add_argument("--ttl", type=float, default=3600.0, metavar="SECONDS",
                     help="take it down after this time in any case (default 3600)")
    sub("down", do_down, "end the cluster and remove its files; may be repeated")
    sub("reap", do_reap, "remove clusters whose supervisor or owner is gone")
    sub("status", do_status, "print hosts and faults as JSON")
    sub("counters", do_counters, "print what each fault struck, in packets, as JSON")
    sub("ps", do_ps, "list the processes of every host")

    one = sub("run", do_run, "run a command on a host")
    one.add_argument("--deadline", type=float, metavar="SECONDS")
    one.add_argument("host", metavar="HOST")
    one.add_argument("command", nargs=argparse.REMAINDER, metavar="CMD...")
    one = sub("rsh", do_rsh, "the same through a shell, as a plm_rsh_agent")
    one.add_argument("host", metavar="HOST")
    one.add_argument("command", nargs=argparse.REMAINDER, metavar="CMD...")

    one = sub("mpirun", do_mpirun, "run mpirun on a host, over all hosts")
    one.add_argument("--on", default="n0", metavar="HOST", help="mpirun's host (default n0)")
    one.add_argument("--oob", default="m", metavar="NETS", help="networks of the runtime, "
                     "comma-separated (default m, the management network)")
    one.add_argument("--deadline", type=float, metavar="SECONDS",
                     help="end everything on all hosts after this time")
    one.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS...",
                     help="mpirun's own arguments (after -- if they begin with -)")

    one = fault(sub, "cut", do_cut, "cut a host's cable to a network")
    one.add_argument("--how", choices=("drop", "link-down", "reset", "reset-once"),
                     default="drop", help="drop: silently; link-down: carrier lost; "
                     "reset: TCP connections aborted on both ends, then silence; "
                     "reset-once: aborted, and the rail works on")
    one.add_argument("--peer", metavar="HOST", help="drop only what goes between the host and this "
                     "one; all others are reached as ever")
    direction(one)
    fault(sub, "heal", do_heal, "end every fault of a host on a network")
    one = fault(sub, "corrupt", do_corrupt, "rewrite a payload byte of some packets of TCP and UDP")
    one.add_argument("--rate", type=float, required=True, help="part of the packets, 0..1")
    one.add_argument("--where", choices=("payload", "any"), default="payload",
                     help="payload: only among bytes whose top bits are all set, as the "
                     "test programs send them; any: headers too (stock btl/tcp does "
                     "not check its own and may crash)")
    direction(one)
    one = fault(sub, "lose", do_lose, "lose some packets at random")
    one.add_argument("--rate", type=float, required=True, help="part of the packets, 0..1")
    direction(one)

    one = fault(sub, "rate", do_rate, "change what a rail carries to a host; heal leaves it")
    one.add_argument("mbit", type=int, metavar="MBIT", help="Mbit/s")

    one = sub("kill", do_kill, "a host loses its power")
    one.add_argument("host", metavar="HOST")
    one.add_argument("--silent", action="store_true", help="no packet tells of it")
    for name, text in (("boot", "start a killed host again"),
                       ("freeze", "stop every process of a host (SIGSTOP)"),
                       ("thaw", "let them go on"),
                       ("sweep", "kill every process of a host")):
        one = sub(name, do_simple, text)
        one.add_argument("host", metavar="HOST")
        one.set_defaults(op=name)
    return top


def fault(sub, name, act, text):
    made = sub(name, act, text)
    made.add_argument("host", metavar="HOST")
    made.add_argument("rail", metavar="RAIL", help='0, 1, ... or m')
    return made


def direction(made):
    made.add_argument("--direction", choices=("in", "out", "both"), default="both",
                      help="as the host sees it (default both)")


# Commands -------------------------------------------------------------------

def do_up(options):
    plan = plan_module.Plan(options.state, options.n, options.rails, options.mbit)
    record = client.up(plan, options.script, options.owner, options.ttl, options.slots)
    print(f"cluster up: {len(plan.hosts)} hosts, {len(plan.rails)} rails, state "
          f"{plan.state}, supervisor {record['pid']}")


def do_down(options):
    record = registry.read(options.state)
    if record is None:
        print(f"cluster down: none in {options.state}")
        return
    registry.remove(record)
    print(f"cluster down: {options.state}")


def do_reap(_options):
    for state in registry.reap():
        print(f"removed {state}")


def do_status(options):
    print(json.dumps(client.Cluster(options.state).ask("status"), indent=1))


def do_counters(options):
    print(json.dumps(client.Cluster(options.state).ask("counters"), indent=1))


def do_ps(options):
    for host, pid, command in client.Cluster(options.state).processes():
        print(f"{host} {pid} {command}")


def do_run(options):
    if not options.command:
        raise ValueError("which command is to be run?")
    return client.Cluster(options.state).run(options.host, options.command,
                                             deadline=options.deadline)


def do_rsh(options):
    text = " ".join(options.command)
    return client.Cluster(options.state).run(options.host, ["/bin/sh", "-c", text],
                                             keep=True)


def do_mpirun(options):
    cluster = client.Cluster(options.state)
    arguments = options.arguments
    if arguments[:1] == ["--"]:
        arguments = arguments[1:]
    env = cluster.environment(options.on)
    env.update(mpi_environment(cluster.plan, options.oob.split(",")))
    code = cluster.run(options.on, ["mpirun", "--hostfile", cluster.plan.path("hostfile"),
                                    *arguments], env=env, deadline=options.deadline)
    if code == 124:
        for host, state in cluster.ask("status").items():
            if state["up"]:
                cluster.ask("sweep", host=host)
    return code


def mpi_environment(plan, oob_networks):
    """Settings of Open MPI for this cluster.

    They go through the environment, where an argument of mpirun overrides
    them.
    """
    for network in oob_networks:
        if network not in plan.networks:
            raise ValueError(f"--oob: there is no network {network!r}; there are "
                             + ",".join(plan.networks))
    settings = {
        "plm_rsh_agent": plan.path("rsh"),
        "oob_tcp_if_include": ",".join(plan.subnet(n) for n in oob_networks),
        "btl_tcp_if_include": ",".join(plan.subnet(r) for r in plan.rails),
        "btl_dgram_if_include": ",".join(plan.subnet(r) for r in plan.rails),
        "hwloc_base_binding_policy": "none",
        "rmaps_base_oversubscribe": "1",
        "mpi_yield_when_idle": "1",
    }
    result = {f"OMPI_MCA_{name}": value for name, value in settings.items()
              if f"OMPI_MCA_{name}" not in os.environ}
    result.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return result


def do_cut(options):
    answer = client.Cluster(options.state).ask(
        "cut", host=options.host, rail=options.rail, how=options.how,
        direction=options.direction, peer=options.peer)
    if "connections" in answer:
        print(f"{answer['connections']} connections aborted")


def do_heal(options):
    client.Cluster(options.state).ask("heal", host=options.host, rail=options.rail)


def do_corrupt(options):
    client.Cluster(options.state).ask(
        "corrupt", host=options.host, rail=options.rail, rate=options.rate,
        where=options.where, direction=options.direction)


def do_lose(options):
    client.Cluster(options.state).ask(
        "lose", host=options.host, rail=options.rail, rate=options.rate,
        direction=options.direction)


def do_rate(options):
    client.Cluster(options.state).ask("rate", host=options.host, rail=options.rail,
                                      mbit=options.mbit)


def do_kill(options):
    client.Cluster(options.state).ask("kill", host=options.host, silent=options.silent)


def do_simple(options):
    client.Cluster(options.state).ask(options.op, host=options.host)
