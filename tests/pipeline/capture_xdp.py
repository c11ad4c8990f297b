"""Capture past the kernel's network stack (AF_XDP): what is ours arrives from every queue, what is not
passes, what is lost has its name, and what is in the way is said. Needs root and `ip`; skipped elsewhere."""
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np

import harness
from capture import arrive_whole
from capture_common import counters, in_namespaces, packets, recorded
from wires_common import Running

FRAME = 512


def ip(*words, **more):
    return subprocess.run(["ip", *words], check=True, **more)


def links():
    """v0 with two queues here; the other end, v1, in a namespace with a process of its own."""
    ip("link", "add", "v0", "mtu", "9000", "numrxqueues", "2", "numtxqueues", "2", "type", "veth", "peer",
       "name", "v1", "mtu", "9000", "numrxqueues", "2", "numtxqueues", "2")
    other = subprocess.Popen(["unshare", "-n", "sleep", "120"])
    while os.readlink(f"/proc/{other.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
        time.sleep(0.01)
    ip("link", "set", "v1", "netns", str(other.pid))
    ip("addr", "add", "10.9.8.1/24", "dev", "v0")
    ip("link", "set", "v0", "up")
    there = ["nsenter", "-t", str(other.pid), "-n"]
    for words in ("addr add 10.9.8.2/24 dev v1", "link set v1 up", "link set lo up"):
        subprocess.run([*there, "ip", *words.split()], check=True)
    return other, there


def pipeline(more, addresses='"10.9.8.1:4000"', interfaces="[v0]"):
    fengine = packets.ChordCrs()
    return f"""
stream: {{epoch_ns: 1700000000000000000}}
pipeline:
  - {{stage: capture, packet: chord-crs, sources: {list(fengine.sources)}, streams: {list(fengine.streams)},
     interfaces: {interfaces}, addresses: [{addresses}], frame_samples: {FRAME}, open: 4,
     start_sample: 0, {more}, out: packets}}
  - {{stage: record, in: packets, directory: ., prefix: raw, overwrite: true}}
"""


def node(directory, more, **where):
    run = Running(directory, pipeline(more, **where), name="node.yaml")
    backend = "packet" if "backend: auto" in more else "xdp"
    assert f"with `{backend}`" in run.text(), run.text()
    return run


SEND = """
import socket, sys, time
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(8)]
data = sys.stdin.buffer.read()
size, rate, *ports = (int(word) for word in sys.argv[1:])
for k in range(len(data) // size):
    sockets[k % 8].sendto(data[k * size:(k + 1) * size], ("10.9.8.1", ports[k % len(ports)]))
    time.sleep(1 / rate)
"""


def send(there, sent, *ports, rate=4000):
    """From the other end, by sockets that hash to different queues."""
    return subprocess.run(
        [*there, sys.executable, "-c", SEND,
         str(len(sent[0])),
         str(rate), *map(str, ports)], input=b"".join(sent), check=True)


def field(fengine, frames, seed=1):
    return np.random.default_rng(seed).integers(0, 256, fengine.shape(frames * FRAME), np.uint8)


def all_came(d, fengine, raw, said):
    got, came, *_ = recorded(d, fengine, FRAME)
    assert came.all() and np.array_equal(got, raw), said


def in_link(function):
    def run(*arguments):
        other, there = links()
        try:
            with harness.scratch() as d:
                function(d, there, *arguments)
        finally:
            other.kill()
            other.wait()
    return run


@in_link
def queues(d, there):
    """Two threads, two queues, two addresses of one interface: each packet once. No frame closes before the
    end: a busy machine may let one of the threads wait."""
    fengine = packets.ChordCrs()
    raw = field(fengine, 4)
    run = node(d, "backend: xdp, threads: 2, idle_s: 3, receive_buffer: 4194304, "
               f"hold_samples: {3 * FRAME}", addresses='"10.9.8.1:4000", "*:4001"')
    sent = [packet for *_, packet in fengine.packets(raw)]
    send(there, sent, 4000, 4001)
    run.finish()
    all_came(d, fengine, raw, run.text())
    _, total = counters(run.text())
    assert total["accepted"] == total["packets"] == len(sent), total


@in_link
def passes(d, there):
    """Other packets pass: other ports, other addresses, ARP, ping, TCP."""
    fengine = packets.ChordCrs()
    raw = field(fengine, 2)
    run = node(d, "backend: xdp, idle_s: 3")
    ours = [packet for *_, packet in fengine.packets(raw)]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other, socket.socket() as tcp:
        other.bind(("10.9.8.1", 4010))
        other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        other.settimeout(20)
        tcp.bind(("10.9.8.1", 4000))
        tcp.listen()
        tcp.settimeout(20)
        send(there, [p for packet in ours for p in (packet, packet)], 4000, 4010)
        assert other.recv(9000) == ours[0], run.text()
        n = 1
        other.settimeout(0.5)
        try:
            while other.recv(9000):
                n += 1
        except TimeoutError:
            pass
        assert n > len(ours) // 2, n
        client = subprocess.Popen(
            [*there, sys.executable, "-c",
             "import socket; socket.create_connection(('10.9.8.1', 4000), 20).sendall(b'x' * 20000)"])
        connection, _ = tcp.accept()
        came = 0
        while part := connection.recv(65536):
            came += len(part)
        assert client.wait() == 0 and came == 20000, came
    run.finish()
    all_came(d, fengine, raw, run.text())


@in_link
def losses(d, there):
    """While the node stands still its memory is full: what is lost is counted, under the kernel's names."""
    fengine = packets.ChordCrs()
    raw = field(fengine, 16)
    run = node(d, "backend: xdp, idle_s: 3, receive_buffer: 65536")
    sent = [packet for *_, packet in fengine.packets(raw)]
    run.process.send_signal(signal.SIGSTOP)
    send(there, sent, 4000, rate=20000)
    run.process.send_signal(signal.SIGCONT)
    run.finish()
    by_source, total = counters(run.text())
    assert total["kernel"] > len(sent) // 2, run.text()
    assert total["kernel"] + total["packets"] == len(sent), (len(sent), total)
    assert f"AF_XDP: rx_dropped {total['kernel']}, rx_ring_full 0" in run.text(), run.text()
    got, came, _, first = recorded(d, fengine, FRAME)
    assert np.array_equal(got[came], raw[first:first + len(got)][came]) and came.any()


@in_link
def in_the_way(d, there):
    """More threads than queues, a program that is there already, no single interface: refused with the
    reason; `auto` takes the next way, and says so. A NIC that copies does not make auto choose xdp."""
    for more, interfaces, message in (("threads: 3", "[v0]", "3 threads cannot share the 2 queues of v0"),
                                      ("threads: 1", "[]", "name it in `interfaces`")):
        text = pipeline(f"backend: xdp, {more}", '"*:4000"', interfaces)
        result = harness.run(d, text, status=1)
        assert message in result.err, (message, result)
    auto = node(d, "backend: auto, idle_s: 1")
    assert "`xdp` is not used: the driver of v0 hands packets over by a copy" in auto.text(), auto.text()
    auto.process.send_signal(signal.SIGINT)
    auto.finish(130)
    first = node(d, "backend: xdp, idle_s: 1")
    result = harness.run(d, pipeline("backend: xdp", '"10.9.8.1:4001"'), status=1)
    assert "queue 0 of v0 has a receiver already" in result.err, result
    first.process.send_signal(signal.SIGINT)
    first.finish(130)
    shown = ip("link", "show", "v0", capture_output=True, text=True).stdout
    assert "xdp" not in shown, shown


@in_link
def rights(d, there):
    """The three rights that the documentation names are enough; without one of them it is named."""
    fengine = packets.ChordCrs()
    raw = field(fengine, 2)
    os.chmod(d, 0o777)
    cases = (("net_raw,net_admin,bpf,ipc_lock", None), ("net_raw,ipc_lock", "CAP_BPF and CAP_NET_ADMIN"),
             ("net_admin,bpf,ipc_lock", "CAP_NET_RAW"))
    for have, message in cases:
        with open(os.path.join(d, "node.yaml"), "w") as f:
            f.write(pipeline("backend: xdp, idle_s: 3"))
        only = ",".join(["-all", *(f"+{right}" for right in have.split(","))])
        words = ["setpriv", f"--bounding-set={only}", f"--inh-caps={only}"]
        run = subprocess.Popen([*words, os.path.abspath(harness.PROGRAM), "run", "node.yaml"], cwd=d,
                               stderr=subprocess.PIPE, text=True)
        said = ""
        while message is None and "listening" not in said and run.poll() is None:
            said += run.stderr.readline()
        if message is None:
            send(there, [packet for *_, packet in fengine.packets(raw)], 4000)
        said += run.communicate(timeout=60)[1]
        assert run.returncode == (message is not None) and (message or "with `xdp`") in said, said
    all_came(d, fengine, raw, said)


CASES = {
    "whole": (arrive_whole, "xdp"), "queues": (queues,), "passes": (passes,), "losses": (losses,),
    "in_the_way": (in_the_way,), "rights": (rights,)
}

if __name__ == "__main__":
    sys.exit(in_namespaces(__file__, CASES))
