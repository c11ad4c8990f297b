"""Capture on a network interface of its own (a veth pair in a network namespace): the interface goes down and
comes back; packets too large for the MTU come in fragments. Needs root and `ip`; skipped elsewhere."""
import glob
import json
import os
import socket
import struct
import subprocess
import sys
import time

import numpy as np

import harness
from capture_common import counters, in_namespaces, ip_udp, packets, recorded, share_of
from wires_common import Running

PORT, FRAME = 4000, 512


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def link(key, interface="v0"):
    words = ["ip", "-j", "link", "show", "dev", interface]
    return json.loads(subprocess.run(words, check=True, capture_output=True).stdout)[0][key]


def node(directory, fengine, backend, interfaces="v0", addresses=f'"10.9.8.1:{PORT}"'):
    return Running(directory, f"""
stream: {{epoch_ns: 1700000000000000000}}
pipeline:
  - {{stage: capture, packet: chord-crs, sources: {list(fengine.sources)}, streams: {list(fengine.streams)},
     interfaces: [{interfaces}], addresses: [{addresses}], backend: {backend}, frame_samples: {FRAME},
     start_sample: 0, open: 8, out: {{name: packets, depth: 32}}}}
  - {{stage: record, in: packets, directory: ., prefix: raw}}
""", name="node.yaml")


class Wire:
    """Sends Ethernet frames from the other end."""

    def __init__(self, interface="v1", other="v0", source=(10, 9, 8, 2), to=(10, 9, 8, 1), port=PORT):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        self.socket.bind((interface, 0))
        self.to = bytes(int(byte, 16) for byte in link("address", other).split(":"))
        if to[0] == 239:
            self.to = bytes([1, 0, 0x5E, *to[1:]])
        self.addresses, self.port, self.ident = bytes([*source, *to]), port, 0

    def frame(self, ip_packet):
        """Slowly enough that nothing fills up in between."""
        self.socket.send(self.to + bytes(5) + b"\x01\x08\x00" + ip_packet)
        time.sleep(0.0002)

    def datagram(self, payload, fragment_bytes=None, checksum=0):
        packet = bytearray(ip_udp(payload))
        packet[12:20] = self.addresses
        packet[22:24] = struct.pack(">H", self.port)
        packet[26:28] = struct.pack(">H", checksum)
        head, body = packet[:20], packet[20:]
        self.ident += 1
        each = fragment_bytes or len(body)
        for at in range(0, len(body), each):
            part = body[at:at + each]
            more = 0x2000 if at + each < len(body) else 0
            head[2:8] = struct.pack(">HHH", 20 + len(part), self.ident & 0xFFFF, more | at // 8)
            head[10:12] = b"\0\0"
            total = sum(struct.unpack(">10H", bytes(head)))
            total = (total & 0xFFFF) + (total >> 16)
            head[10:12] = struct.pack(">H", ~(total + (total >> 16)) & 0xFFFF)
            self.frame(bytes(head) + bytes(part))

    def settle(self, run):
        """Until the node has taken what was sent: something foreign behind it is counted. An interface that
        has just come back may lose it."""
        before, sent, due = run.packets(("foreign",)), 0, 0

        def taken():
            nonlocal sent, due
            came = run.packets(("foreign",)) - before
            if sent > 0 and (came == sent or (came > 0 and time.monotonic() > due)):
                return True
            if time.monotonic() > due:
                self.datagram(b"LLDP" * 20)
                sent, due = sent + 1, time.monotonic() + 3
            return False
        wait_until(taken, run)


def wait_until(condition, run):
    end = time.time() + 60
    while not condition():
        assert time.time() < end, run.text()
        time.sleep(0.01)


def carrier():
    return link("operstate") == "UP"


def goes_and_comes_back(backend, anew):
    """The interface is down for a while, or it is removed and made anew."""
    fengine = packets.ChordCrs()
    with harness.scratch() as d:
        raw = np.random.default_rng(4).integers(0, 256, fengine.shape(24 * FRAME), np.uint8)
        run = node(d, fengine, backend)
        wait_until(lambda: f"with `{backend}`" in run.text(), run)
        wire = Wire()
        sent = list(fengine.packets(raw))
        for *_, packet in [s for s in sent if s[2] < 2 * FRAME]:
            wire.datagram(packet)
        wire.settle(run)
        if anew:
            ip("link", "del", "v0")
            wait_until(lambda: "receiving fails: " in run.text(), run)
            make_link()
            wait_until(lambda: "interface v0 is another one: listening again" in run.text(), run)
            wire = Wire()
        else:
            ip("link", "set", "v0", "down")
            if backend != "socket":
                wait_until(lambda: "receiving fails: Network is down" in run.text(), run)
            else:
                time.sleep(0.3)
            ip("link", "set", "v0", "up")
            wait_until(carrier, run)
        for n in range(4, 24):
            for *_, packet in [s for s in sent if s[2] // FRAME == n]:
                wire.datagram(packet)
            wire.settle(run)
        run.process.send_signal(2)
        run.finish(130)
        came, right = np.zeros(raw.shape, bool), True
        files = len(glob.glob(os.path.join(d, "raw*.dada")))  # where whole frames lack a new one begins
        for number in range(files):
            got, there, share, first = recorded(d, fengine, FRAME, files, number)
            right = right and np.array_equal(got[there], raw[first:first + len(got)][there])
            assert np.array_equal(share, share_of(there.mean(axis=2)))
            came[first:first + len(got)] = there
        assert right, run.text()
        # Whoever was silent counts as sending again after 20 ms; until then frames do not go on.
        assert came[:2 * FRAME].all() and not came[2 * FRAME:4 * FRAME].any(), run.text()
        assert came[20 * FRAME:-16].all(), (came[4 * FRAME:].mean(), run.text())


def udp_checksum(payload):
    words = bytes([10, 9, 8, 2, 10, 9, 8, 1]) + struct.pack(
        ">HHHHH", 17, 8 + len(payload), 4000, PORT, 8 + len(payload)) + payload + bytes(len(payload) % 2)
    total = int(np.frombuffer(words, ">u2").astype(np.int64).sum())
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF or 0xFFFF


def interface_counters():
    """The interface's own counters, from the start of the stage; a new interface begins at 0."""
    with harness.scratch() as d:
        run = node(d, packets.ChordCrs(), "packet")
        wait_until(lambda: "with `packet`" in run.text(), run)

        def unknown(n):
            wire = Wire()
            for _ in range(n):  # frames that nobody takes
                wire.socket.send(wire.to + bytes(5) + b"\x01\x88\xb5" + bytes(60))
        unknown(7)
        wait_until(lambda: run.counted()["v0"]["dropped"] >= 7, run)
        ip("link", "del", "v0")
        make_link()
        wait_until(lambda: "interface v0 is another one: listening again" in run.text(), run)
        unknown(4)
        wait_until(lambda: run.counted()["v0"]["dropped"] >= 11, run)
        run.process.send_signal(2)
        told = run.finish(130)["capture"]["counted"]["v0"]
        assert 11 <= told["dropped"] < 40 and told["missed"] == 0, told


def several(backend):
    """Two interfaces in one stage: a multicast group on one, an address and another port on the other."""
    fengine = packets.ChordCrs()
    ip("link", "add", "v2", "mtu", "9000", "type", "veth", "peer", "name", "v3", "mtu", "9000")
    ip("addr", "add", "10.9.7.1/24", "dev", "v2")
    ip("link", "set", "v2", "up")
    ip("link", "set", "v3", "up")
    with harness.scratch() as d:
        raw = np.random.default_rng(7).integers(0, 256, fengine.shape(2 * FRAME), np.uint8)
        run = node(d, fengine, backend, "v0, v2", f'"239.1.1.5:{PORT}", "10.9.7.1:{PORT + 1}"')
        wait_until(lambda: run.text().count(f"with `{backend}`") == 2, run)
        assert "050101EF" in open("/proc/net/igmp").read(), "the group is not joined"
        wires = (Wire(to=(239, 1, 1, 5)), Wire("v3", "v2", (10, 9, 7, 2), (10, 9, 7, 1), PORT + 1))
        elsewhere = Wire(to=(239, 1, 1, 6))
        sent = 0
        for source, stream, sample, packet in fengine.packets(raw):
            wires[source % 2].datagram(packet)
            sent += 1
            if sent % 10 == 0:
                elsewhere.datagram(packet)
        run.finish_after(sent)
        got, there, *_ = recorded(d, fengine, FRAME)
        _, total = counters(run.text())
        assert there.all() and np.array_equal(got, raw), run.text()
        assert total["accepted"] == total["packets"] == sent, total


def sleeps(backend):
    """Whoever waits for packets takes no processor."""
    with harness.scratch() as d:
        run = node(d, packets.ChordCrs(), backend)
        wait_until(lambda: f"with `{backend}`" in run.text(), run)
        time.sleep(0.5)

        def taken():
            words = open(f"/proc/{run.process.pid}/stat").read().rsplit(")", 1)[1].split()
            return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
        before = taken()
        time.sleep(3)
        assert taken() - before < 0.5, taken() - before
        run.process.send_signal(2)
        run.finish(130)


def checksums(backend):
    """Packets damaged after the sender are refused if the sender writes checksums; if not, nobody
    knows."""
    fengine = packets.ChordCrs()
    with harness.scratch() as d:
        raw = np.random.default_rng(6).integers(0, 256, fengine.shape(2 * FRAME), np.uint8)
        run = node(d, fengine, backend)
        wait_until(lambda: f"with `{backend}`" in run.text(), run)
        wire, damaged = Wire(), 0
        for k, (*_, packet) in enumerate(fengine.packets(raw)):
            checksum = udp_checksum(packet) if k % 3 else 0
            if k % 6 == 4:
                flipped = bytearray(packet)
                flipped[22 + 7 * k % 6000] ^= 1 << k % 8
                packet, damaged = bytes(flipped), damaged + 1
            wire.datagram(packet, checksum=checksum)
        wire.settle(run)
        run.process.send_signal(2)
        run.finish(130)
        got, there, *_ = recorded(d, fengine, FRAME)
        _, total = counters(run.text())
        assert np.array_equal(got[there], raw[:len(got)][there]) and 0.8 < there.mean() < 0.9, there.mean()
        assert total["malformed"] == (0 if backend == "socket" else damaged) and damaged > 10, total


def small_mtu(backend):
    """Fragments say that the MTU on the way is too small; packets that come whole are still taken."""
    fengine = packets.ChordCrs()
    with harness.scratch() as d:
        raw = np.random.default_rng(5).integers(0, 256, fengine.shape(2 * FRAME), np.uint8)
        run = node(d, fengine, backend)
        wait_until(lambda: "listening" in run.text(), run)
        wire = Wire()
        for k, (*_, packet) in enumerate(fengine.packets(raw)):
            wire.datagram(packet, 1480 if k % 7 == 3 else None)
        wire.settle(run)
        run.process.send_signal(2)
        run.finish(130)
        assert "IP fragments came: the MTU on the way is too small" in run.text(), run.text()
        got, there, *_ = recorded(d, fengine, FRAME)
        assert np.array_equal(got[there], raw[:len(got)][there]) and 0.8 < there.mean() < 0.9, there.mean()


def make_link():
    ip("link", "add", "v0", "mtu", "9000", "type", "veth", "peer", "name", "v1", "mtu", "9000")
    ip("addr", "add", "10.9.8.1/24", "dev", "v0")
    ip("link", "set", "v0", "up")
    ip("link", "set", "v1", "up")


CASES = {
    **{f"down_{b}": (goes_and_comes_back, b, False) for b in ("packet", "socket", "xdp")},
    **{f"anew_{b}": (goes_and_comes_back, b, True) for b in ("packet", "socket", "xdp")},
    "counters": (interface_counters,),
    **{f"several_{b}": (several, b) for b in ("packet", "socket", "xdp")},
    **{f"sleeps_{b}": (sleeps, b) for b in ("packet", "socket", "xdp")},
    **{f"checksum_{b}": (checksums, b) for b in ("packet", "socket", "xdp")},
    **{f"mtu_{b}": (small_mtu, b) for b in ("packet", "xdp")},
}


if __name__ == "__main__":
    sys.exit(in_namespaces(__file__, CASES, make_link))
