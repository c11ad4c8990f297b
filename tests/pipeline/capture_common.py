"""Shared by the tests of capture: a pipeline that captures, its recording, and its counters."""
import concurrent.futures
import glob
import os
import re
import socket
import struct
import subprocess
import sys
import time

import numpy as np

import harness
import wires_common
from wires_common import ask, free_port, REASONS, Running  # noqa: F401

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import packets  # noqa: E402


def capture(directory, fengine, port, frame_samples, more="start_sample: 0",
            stream="sample_ns: 2560", record=True, out="raw", control="", extra="", frames=4):
    """A running capture of what `fengine` sends, with room for all of it: who stands still loses nothing, if
    no more than so many `frames` are sent before the node has counted them."""
    channels = len(fengine.channel_ids())
    out = f"- {{stage: record, in: packets, directory: ., prefix: {out}, overwrite: true}}" if record else ""
    return Running(directory, f"""
{control}
stream: {{epoch_ns: 1700000000000000000, {stream}, freq_mhz: {{first: 400, step: 0.1, count: {channels}}}}}
pipeline:
  - stage: capture
    packet: {fengine.name}
    addresses: "127.0.0.1:{port}"
    sources: {list(fengine.sources)}
    streams: {list(fengine.streams)}
    values: offset_binary
    real: high
    frame_samples: {frame_samples}
    open: {frames}
    {more.replace(", ", chr(10) + "    ")}
    receive_buffer: 134217728
    out: {{name: packets, depth: 32}}
  {out}{extra}
""", name="capture.yaml")


def recorded(directory, fengine, frame_samples, files=1, number=0):
    """raw[time][channel][input], received [time][channel][input] and the share [time][channel], and the first
    sample, of the recording (of one of its files): by the words of formats/packets/layout.h."""
    path = sorted(glob.glob(os.path.join(directory, "raw*.dada")))
    assert len(path) == files, path
    path = path[number:]
    keys, size = harness.header(path[0])
    assert keys["DTYPE"] == "uint8" and keys["AXES"] == "time,freq,input", keys
    f = np.fromfile(path[0], np.uint8, offset=size)
    t, nsources, nstreams = fengine.t, len(fengine.sources), len(fengine.streams)
    payload = t * fengine.c * fengine.i
    slots, blocks = nsources * nstreams, frame_samples // t
    row = (slots + 31) // 32 * 4
    first, n = int(keys["SAMPLE0"]), int(keys["SAMPLES"])
    ids = fengine.channel_ids()
    raw = np.zeros((n, len(ids), nsources * fengine.i), np.uint8)
    got = np.zeros(raw.shape, bool)
    at, done = 0, 0
    while done < n:
        here = min(frame_samples - (first + done) % frame_samples, n - done) // t
        data = f[at:at + here * slots * payload].reshape(here, nsources, nstreams, payload)
        at += here * slots * payload
        bits = np.unpackbits(f[at:at + blocks * row].reshape(blocks, row), axis=1, bitorder="little")
        at += blocks * row
        r = raw[done:done + here * t].reshape(here, t, *raw.shape[1:])
        g = got[done:done + here * t].reshape(here, t, *raw.shape[1:])
        for s in range(nsources):
            for k, stream in enumerate(fengine.streams):
                at_f, inputs = [ids.index(c)
                                for c in fengine.channels(stream)], slice(s * fengine.i, (s + 1) * fengine.i)
                g[:, :, at_f, inputs] = bits[:here, s * nstreams + k, None, None, None]
                r[:, :, at_f, inputs] = fengine.unpacked(data[:, s, k])
        assert not bits[:, slots:].any()
        done += here * t
    assert at == f.size, (at, f.size)
    share = harness.read_gaps(path[0], first, n, len(ids), 1)
    return raw, got, share, first


def share_of(fraction):
    """Validity of a share: 0 only for none, 255 only for all."""
    byte = np.floor(fraction * 255 + 0.5)
    return np.where(fraction == 0, 0, np.where(fraction == 1, 255, np.clip(byte, 1, 254))).astype(np.uint8)


def counters(text):
    """{source or None: {reason: n}} of the notes at the end, and the totals."""
    by_source = {}
    for line in text.splitlines():
        m = re.search(r"(source (\d+)|no known source): (.*)", line)
        if m is None:
            continue
        n = {r: 0 for r in (*REASONS, "never came")}
        for value, reason in re.findall(r"(\d+) (never came|\w+)", m.group(3)):
            n[reason] = int(value)
        by_source[int(m.group(2)) if m.group(2) else None] = n
    total = re.search(r"(\d+) packets: (.*); (\d+) never came, of which the kernel lost (\d+); (\d+) resets",
                      text)
    assert total, text
    sums = {reason: int(value) for value, reason in re.findall(r"(\d+) (\w+)", total.group(2))}
    return by_source, {
        **sums, "packets": int(total.group(1)), "never came": int(total.group(3)),
        "kernel": int(total.group(4)), "resets": int(total.group(5))
    }


class Sender:
    """Sends datagrams to a port of this machine, so many a second at most, and never `ahead` more than the
    node at the address `url` has counted: one that stands still misses nothing."""

    def __init__(self, port, rate=5000, host="127.0.0.1", url=None, ahead=96):
        self.url, self.ahead, self.counted = url, ahead, 0
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.to, self.rate, self.sent, self.begin = (host, port), rate, 0, None

    def send(self, packet):
        if self.begin is None:
            self.begin = time.monotonic()
        while self.url is not None and self.sent >= self.counted + self.ahead:
            self.counted = wires_common.packets(self.url)
            if self.sent >= self.counted + self.ahead // 2:  # asking costs more than what is asked for
                time.sleep(0.01)
        self.sent += 1
        ahead = self.begin + self.sent / self.rate - time.monotonic()
        if ahead > 0.002:
            time.sleep(ahead)
        self.socket.sendto(packet, self.to)


def ip_udp(payload, fragment=0, protocol=17):
    udp = struct.pack(">HHHH", 4000, 5000, 8 + len(payload), 0) + payload
    return struct.pack(">BBHHHBBHII", 0x45, 0, 20 + len(udp), 1, fragment, 64, protocol, 0, 0x7F000001,
                       0x7F000001) + udp


LINKS = {"ethernet": (1, lambda ip: bytes(12) + b"\x08\x00" + ip),
         "vlan": (1, lambda ip: bytes(12) + b"\x81\x00\x00\x05\x08\x00" + ip),
         "cooked": (113, lambda ip: bytes(14) + b"\x08\x00" + ip), "raw": (101, lambda ip: ip)}


def write_pcap(path, link, frames, when=None, keep=262144):
    """when: seconds of Unix time of each packet; keep: the snap length."""
    with open(path, "wb") as f:
        f.write(struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, keep, link))
        for k, frame in enumerate(frames):
            s, us = (1700000000, k) if when is None else divmod(int(when[k] * 1e6), 1000000)
            f.write(struct.pack("<IIII", s, us, min(keep, len(frame)), len(frame)) + frame[:keep])


def write_pcapng(path, link, frames):
    def block(kind, body):
        body += bytes(-len(body) % 4)
        return struct.pack("<II", kind, 12 + len(body)) + body + struct.pack("<I", 12 + len(body))
    with open(path, "wb") as f:
        f.write(
            block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)) +
            block(1, struct.pack("<HHI", link, 0, 0)))
        for k, frame in enumerate(frames):
            f.write(block(6, struct.pack("<IIIII", 0, 0, k, len(frame), len(frame)) + frame))


def in_namespaces(script, cases, prepare=lambda: None):
    """Runs each of `cases` {name: (function, arguments...)} in a network namespace of its own, six at a time
    (they mostly wait), or those that are named on the command line; 77 where that is not permitted."""
    if sys.argv[1:2] == ["inside"]:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        prepare()
        function, *arguments = cases[sys.argv[2]]
        function(*arguments)
        return 0
    if os.geteuid() != 0 or subprocess.run(["unshare", "-n", "ip", "link", "set", "lo", "up"],
                                           capture_output=True).returncode != 0:
        print("skipped: no network namespaces here")
        return 77
    names = sys.argv[1:] or list(cases)

    def run(name):
        return subprocess.call(["unshare", "-n", sys.executable, os.path.abspath(script), "inside", name])
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        status = dict(zip(names, pool.map(run, names)))
    failed = any(status.values())
    print(*(f"{'FAIL' if status[name] else 'ok  '} {name}\n" for name in names), sep="")
    return 1 if failed else 0
