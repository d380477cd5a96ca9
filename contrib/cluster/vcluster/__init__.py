"""A virtual cluster on one machine: hosts with several network rails.

Every host is a set of Linux namespaces (network, UTS, mount, IPC, PID).  The
bridges that join them live in one more network namespace, so that nothing of
a cluster is visible in, or can collide with, the machine's own network.

Modules, from the ground up:

  linux       the few system calls the standard library lacks
  wire        how the programs talk to each other over Unix sockets
  plan        names, addresses and files of one cluster
  faults      what nftables does to the frames at a switch port
  host        the init process of one virtual host, which runs commands in it
  switch      the supervisor: bridges, ports, life and death of the hosts
  registry    which clusters exist, and removal of those without an owner
  client      what a user's process does: start, ask, run, stop
  cli         the command line
"""
