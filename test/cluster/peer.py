"""Two ends of a conversation between virtual hosts, for the cluster's own tests.

peer.py serve ADDRESS            echo UDP datagrams and one TCP connection at a
                                 time; prints the ports, then what happens
peer.py hold ADDRESS PORT        connect by TCP, print "up", wait for the end and
                                 print how it came
peer.py datagrams ADDRESS PORT N WANTED
                                 send N datagrams, print how many came back; waits
                                 long for the wanted ones, and briefly for more
peer.py bytes ADDRESS PORT N     send N bytes of 0xC3 by TCP, print how many of the
                                 echoed ones differ
"""

import select
import socket
import sys

QUIET_SECONDS = 0.7  # after so long without an answer none that is not wanted is expected
PATIENCE_SECONDS = 20.0  # for one that is


def say(*words):
    print(*words, flush=True)


def serve(address):
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind((address, 0))
    tcp = socket.create_server((address, 0))
    say("ports", udp.getsockname()[1], tcp.getsockname()[1])
    links = []
    while True:
        for ready in select.select([udp, tcp, *links], [], [])[0]:
            if ready is udp:
                data, sender = udp.recvfrom(65536)
                udp.sendto(data, sender)
            elif ready is tcp:
                links.append(tcp.accept()[0])
                say("accepted")
            else:
                echo(ready, links)


def echo(link, links):
    try:
        data = link.recv(65536)
        if data:
            link.sendall(data)
            return
        say("ended")
    except OSError as failed:
        say("lost", failed.strerror)
    links.remove(link)
    link.close()


def hold(address, port):
    with socket.create_connection((address, port), timeout=10) as link:
        link.settimeout(None)
        say("up")
        try:
            data = link.recv(1)
            say("ended" if not data else "data")
        except OSError as failed:
            say("lost", failed.strerror)


def datagrams(address, port, number, wanted):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.connect((address, port))
        back = set()
        for i in range(number):
            link.send(i.to_bytes(4, "big"))
            while select.select([link], [], [], 0)[0]:
                back.add(link.recv(16))
        while len(back) < number and select.select(
                [link], [], [], PATIENCE_SECONDS if len(back) < wanted else QUIET_SECONDS)[0]:
            back.add(link.recv(16))
        say(len(back))


def send_bytes(address, port, number):
    with socket.create_connection((address, port), timeout=20) as link:
        left, wrong, got = number, 0, 0
        while got < number:
            if left and number - left - got < 262144:
                left -= link.send(b"\xc3" * min(left, 65536))
                continue
            data = link.recv(65536)
            if not data:
                break
            got += len(data)
            wrong += len(data) - data.count(b"\xc3")
        say(got, wrong)


if __name__ == "__main__":
    numbers = [int(a) for a in sys.argv[3:]]
    {"serve": serve, "hold": hold, "datagrams": datagrams,
     "bytes": send_bytes}[sys.argv[1]](sys.argv[2], *numbers)
