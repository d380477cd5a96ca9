#!/usr/bin/env python3
"""pml/dr over btl/ucx on the virtual cluster: every byte is right whatever the kernel does to a rail.

usage: test_ucx.py [NAME...]: these cases only, by the names of their functions.

Each fault is made while messages are under way and is shown to have struck.
"""

import os
import re
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

import ftcluster  # noqa: E402
import ftring  # noqa: E402
from fttap import check, comment, main  # noqa: E402

UCX = {"pml": "dr", "btl": "ucx,self", "btl_ucx_stats": 1, "btl_ucx_verbose": 1, "pml_dr_stats": 1,
       "btl_ucx_transports": "tcp"}
DEADLINE = 90
STOPPED_SECONDS = 5
LOST_PEER = os.path.join(ftcluster.build_dir(), "test", "mpi", "semantics", "lost_peer")
# Far above VERDICT_MS, far below pml_dr_give_up_ms.
LOST_DEADLINE = 40
VERDICT_MS = 2000


def networks(cluster):
    """The IP network of each rail."""
    addresses = cluster.tool("run", "n0", "--", "ip", "-br", "-4", "address", "show")
    return [re.match(r"[\d.]+/\d+", line.split()[2]).group(0)
            for line in addresses.splitlines() if line.startswith("rail")]


def parameters_for(cluster, ucx, tcp=None):
    """UCX has these rails; btl/tcp has that one, if any."""
    nets = networks(cluster)
    own = dict(UCX, btl_ucx_if_include=",".join(nets[rail] for rail in ucx))
    if tcp is not None:
        own.update(btl="ucx,tcp,self", btl_tcp_if_include=nets[tcp])
    return own


def counted(story, name):
    """The sum over all ranks of what btl/ucx counted."""
    lines = re.findall(r"^btl/ucx\[rank \d+\]: (module=.*)$", story.run.err, re.MULTILINE)
    return sum(int(n) for line in lines for n in re.findall(rf"\b{name}=(\d+)", line))


def answered(story, name):
    """The sum over all ranks of what pml/dr counted."""
    lines = re.findall(r"^pml/dr\[rank \d+\]: (.*)$", story.run.err, re.MULTILINE)
    return sum(int(n) for line in lines for n in re.findall(rf"\b{name}=(\d+)", line))


def finish(story):
    """The run ends well, and went by UCX."""
    story.finish_right()
    check(counted(story, "delivered") > 0, "nothing went by UCX")
    check(counted(story, "strangers") == 0, "our own messages were taken for foreign")


def cut_and_go_on(cluster, story, rail, how):
    """A cut in the middle of a large message, and rounds after it."""
    cluster.tool("cut", "n1", rail, "--how", how)
    if how != "reset-once":
        check(cluster.await_struck("drop", "n1", rail, 1, story.end), "nothing was cut")
    began = time.monotonic()
    story.goes_on()
    comment(f"went on {time.monotonic() - began:.1f} s after the cut of rail {rail}")


def rail_after_rail():
    """from UCX on one rail to UCX on the other to TCP, as each is cut without a word"""
    with ftcluster.Cluster(rails=3) as cluster:
        parameters = dict(parameters_for(cluster, [0, 1], tcp=2), pml_dr_verbose=1)
        with ftring.Story(cluster, parameters, 2 * DEADLINE, kinds="bulk,storm") as story:
            story.under_way("bulk", rounds=4)
            ftring.cut_in_turn(story, "n1", 1, ["ucx", "ucx", "tcp"])
            finish(story)


def reset():
    """a rail whose connections are reset: UCX says so, and another rail carries on"""
    with ftcluster.Cluster() as cluster:
        parameters = parameters_for(cluster, [0, 1])
        with ftring.Story(cluster, parameters, DEADLINE, kinds="bulk,storm") as story:
            story.under_way("bulk", rounds=4)
            cut_and_go_on(cluster, story, "0", "reset")
            finish(story)
            check(counted(story, "broken") > 0, "no connection broke")


def reset_once():
    """the only rail's connections are reset once: new ones are made, and nothing is lost"""
    with ftcluster.Cluster(hosts=2, rails=1) as cluster:
        parameters = dict(parameters_for(cluster, [0]), btl_ucx_reconnect=1)
        with ftring.Story(cluster, parameters, DEADLINE, kinds="bulk,storm") as story:
            story.under_way("bulk", rounds=4)
            cut_and_go_on(cluster, story, "0", "reset-once")
            finish(story)
            check(counted(story, "renewed") > 0, "no connection was made anew")


def one_to_one():
    """endpoints connected one to one, of which a rail's are reset: UCX says so, and another rail carries on"""
    with ftcluster.Cluster() as cluster:
        parameters = dict(parameters_for(cluster, [0, 1]), btl_ucx_connect="ep")
        with ftring.Story(cluster, parameters, DEADLINE, kinds="bulk,storm") as story:
            story.under_way("bulk", rounds=4)
            cut_and_go_on(cluster, story, "0", "reset")
            finish(story)
            check(counted(story, "wired") > 0 and counted(story, "broken") > 0, "no connection broke")


def one_to_one_anew():
    """endpoints connected one to one, of which the only rail's are reset once: new ones are made, and nothing is lost"""
    with ftcluster.Cluster(hosts=2, rails=1) as cluster:
        parameters = dict(parameters_for(cluster, [0]), btl_ucx_reconnect=1, btl_ucx_connect="ep")
        with ftring.Story(cluster, parameters, DEADLINE, kinds="bulk,storm") as story:
            story.under_way("bulk", rounds=4)
            cut_and_go_on(cluster, story, "0", "reset-once")
            finish(story)
            check(counted(story, "renewed") > 0, "no connection was made anew")
            check(counted(story, "wired") > 2, "nothing was connected one to one again")


def one_to_one_no_answer():
    """endpoints connected one to one, on a rail that was cut before: it counts as broken in time, and the other one carries"""
    with ftcluster.Cluster() as cluster:
        parameters = dict(parameters_for(cluster, [0, 1]), btl_ucx_connect="ep", btl_ucx_wire_ms=1500,
                          btl_ucx_verdict_ms=0)
        cluster.tool("cut", "n1", "0", "--how", "drop")
        with ftring.Story(cluster, parameters, DEADLINE, kinds="bulk,storm") as story:
            story.under_way("bulk", rounds=4)
            story.until(lambda: "Operation timed out" in story.run.err, "nobody gave up for want of an answer")
            story.goes_on()
            finish(story)
            check(counted(story, "wired") > 0 and counted(story, "broken") > 0, "no path counted as broken")


def rail_back():
    """a rail that was cut without a word and healed is used again"""
    with ftcluster.Cluster() as cluster:
        parameters = parameters_for(cluster, [0, 1])
        with ftring.Story(cluster, parameters, DEADLINE, kinds="bulk,storm") as story:
            story.under_way("bulk", rounds=4)
            cut_and_go_on(cluster, story, "0", "drop")
            cluster.tool("heal", "n1", "0")
            story.goes_on()
            cut_and_go_on(cluster, story, "1", "drop")
            finish(story)


def last_rail():
    """the only rail to a host is reset for good: btl_ucx_verdict_ms ends what waits for it, long before pml_dr_give_up_ms"""
    with ftcluster.Cluster(hosts=3, rails=1) as cluster:
        marks = cluster.marks()
        parameters = dict(parameters_for(cluster, [0]), btl_ucx_verdict_ms=VERDICT_MS)
        options = [word for name, value in parameters.items() for word in ("--mca", name, value)]
        run = cluster.mpirun("-np", 3, "--map-by", "node", *options, LOST_PEER, marks.path, deadline=LOST_DEADLINE,
                             env=ftcluster.component_env())
        check(marks.wait(lambda text: text == "talks", time.monotonic() + LOST_DEADLINE, run), "they never talked")
        cluster.tool("cut", "n1", "0", "--how", "reset")
        code = run.wait()
        marks.close()
        if code != 0 or run.out.count("survived") != 3:
            run.tell(60)
        check(code == 0 and run.out.count("survived") == 3, f"exit code {code}")


def corrupted_on_the_wire():
    """bytes that the network rewrites, past TCP's own checksum, are noticed and sent again"""
    with ftcluster.Cluster() as cluster:
        parameters = parameters_for(cluster, [0, 1])
        with ftring.Story(cluster, parameters, DEADLINE, largest=100000) as story:
            story.under_way()
            cluster.tool("corrupt", "n1", "0", "--rate", "0.05")
            check(cluster.await_struck("corrupt", "n1", "0", 5, story.end), "nothing was rewritten")
            story.goes_on(5)
            story.finish_right()
            check(answered(story, "corrupt_payload") > 0, "dr noticed nothing")
            check(answered(story, "retransmitted") > 0, "nothing was sent again")


def stopped_host():
    """a host that stands still for seconds and goes on loses nothing"""
    with ftcluster.Cluster() as cluster:
        parameters = parameters_for(cluster, [0, 1])
        with ftring.Story(cluster, parameters, DEADLINE, kinds="bulk,storm") as story:
            story.under_way("bulk", rounds=4)
            story.stands_still("n1", STOPPED_SECONDS)
            finish(story)


TESTS = [rail_after_rail, reset, reset_once, one_to_one, one_to_one_anew, one_to_one_no_answer,
         rail_back, last_rail, corrupted_on_the_wire, stopped_host]

if __name__ == "__main__":
    unknown = set(sys.argv[1:]) - {t.__name__ for t in TESTS}
    if unknown:
        sys.exit(f"test_ucx.py: no case {', '.join(sorted(unknown))}")
    main([t for t in TESTS if len(sys.argv) < 2 or t.__name__ in sys.argv])
