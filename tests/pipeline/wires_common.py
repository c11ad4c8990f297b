"""Shared by the tests of the network formats: pipelines in the background, recordings, streams to send."""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import numpy as np
import yaml

import harness
from harness import free_port  # noqa: F401

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import chime_l0  # noqa: E402

CONFIG = harness.CONFIG

HEAD = f"""
include: {CONFIG}/telescopes/pathfinder.yaml
stream: {{epoch_ns: 1700000000000000000, sample_ns: 5120, sample0: FIRST,
  freq_mhz: {{first: 600.09765625, step: 0.1953125, count: 3}}}}
pipeline:
  - {{stage: simulate, out: e, seed: 7, frame_samples: 2048, duration_s: DURATION}}
  - {{stage: frb_grid, in: e, out: i, integrate: 4}}
  - {{stage: frb_beams, in: i, out: j, beams: {{grid: [2, 4], spacing_deg: 0.3}}}}
"""

# Behind head(): 4-bit levels, also in a recording.
QUANTIZED = """
  - {stage: quantize, in: j, out: q, bits: 4, block: 256}
  - {stage: record, in: q, directory: ., prefix: q}
"""

INTEGRATE, BEAMS, CHANNELS = 4, 8, 3


def head(first=0, duration=0.03):
    return HEAD.replace("FIRST", str(first)).replace("DURATION", str(duration))


def turned_away(port, data, then_ends=False, name=""):
    """Sends what the receiver must not take: it closes the connection without a word."""
    with socket.create_connection(("127.0.0.1", port)) as s:
        try:
            s.sendall(data)
            if then_ends:
                s.shutdown(socket.SHUT_WR)
            assert s.recv(1) == b"", name or data[:50]
        except ConnectionError:
            pass


def recorded_levels(path):
    """[(first base sample, levels [beam][freq][steps], side f32 [beam][freq][2])] of a recording of quantized
    beams."""
    keys, size = harness.header(path)
    assert keys["AXES"] == "beam,freq,time"
    beams, freq, _ = map(int, keys["SHAPE"].split(","))
    per, down, at = int(keys["FRAME_SAMPLES"]), int(keys.get("DOWNSAMPLE", 1)), int(keys["SAMPLE0"])
    end = at + int(keys["SAMPLES"])
    raw = np.fromfile(path, np.uint8, offset=size)
    frames, pos = [], 0
    while at < end:
        stop = min((at // per + 1) * per, end)
        steps = -(-stop // down) - at // down
        n = beams * freq * steps
        if keys["DTYPE"] == "int4":
            packed = raw[pos:pos + (n + 1) // 2]
            levels = np.stack([((packed & 15).astype(np.int8) ^ 8) - 8,
                               ((packed >> 4).astype(np.int8) ^ 8) - 8], -1).reshape(-1)[:n]
            pos += (n + 1) // 2
        else:
            levels = raw[pos:pos + n]
            pos += n
        side = raw[pos:pos + beams * freq * 8].view(np.float32).reshape(beams, freq, 2)
        pos += beams * freq * 8
        frames.append((at, levels.reshape(beams, freq, steps), side))
        at = stop
    assert pos == raw.size, (pos, raw.size)
    return frames

L0_HEAD = f"""
include: {CONFIG}/telescopes/pathfinder.yaml
stream:
  epoch_ns: 1600000000000000000
  sample_ns: 2560
  sample0: FIRST
  freq_mhz: {{first: {800 - 12 * 0.390625}, step: 0.390625, count: 5}}
pipeline:
  - {{stage: simulate, out: e, seed: 7, frame_samples: 1000, duration_s: DURATION}}
  - {{stage: upchannelize, in: e, out: fine, factor: 4}}
  - {{stage: frb_grid, in: fine, out: i, integrate: 12}}
  - {{stage: frb_beams, in: i, out: j, beams: {{grid: [3, 3], spacing_deg: 0.3}}}}
"""


def l0_head(first=0, duration=0.02):
    return L0_HEAD.replace("FIRST", str(first)).replace("DURATION", str(duration))


def ask(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()


def counted(url):
    """Asks for the counters of a node's `capture`, by source or interface: {reason: n}."""
    stages = json.loads(ask(url + "/v1/stages?now"))["stages"]
    return next(s["counted"] for s in stages if s["stage"] == "capture")


def packets(url, reasons=None):
    """How many packets it has counted so far, as whatever or for these reasons."""
    return sum(n for source in counted(url).values() for reason, n in source.items()
               if reason in (reasons or REASONS))


REASONS = ("accepted", "late", "duplicate", "foreign", "malformed", "flagged", "stray", "no_frame", "behind",
           "early")


class Running:
    """A pipeline in the background, which has begun to listen."""

    def __init__(self, directory, text, name="receiver.yaml"):
        path = os.path.join(directory, name)
        with open(path, "w") as f:
            f.write(text)
        self.log = open(path + ".err", "w+")
        self.stats = path + ".json"
        self.process = subprocess.Popen(
            [os.path.abspath(harness.PROGRAM), "run", name, "--stats", self.stats, "--control",
             "127.0.0.1:0"], cwd=directory,
            stdout=subprocess.DEVNULL, stderr=self.log)
        until = time.time() + 20
        while "listening on port" not in self.text():
            assert time.time() < until and self.process.poll() is None, self.text()
            time.sleep(0.01)

    def text(self):
        return open(self.log.name).read()

    @property
    def url(self):
        return re.search(r"control: (http://[0-9.:]+)/", self.text()).group(1)

    def counted(self):
        return counted(self.url)

    def packets(self, reasons=REASONS):
        return packets(self.url, reasons)

    def finish_after(self, packets):
        """Ends it once it has counted so many packets, however long they take: nobody's silence ends it."""
        until = time.time() + 60
        while (n := self.packets()) < packets:
            assert time.time() < until, f"{n} of {packets} packets came: {self.text()}"
            time.sleep(0.01)
        self.process.send_signal(signal.SIGINT)
        return self.finish(130)

    def finish(self, status=0, timeout=60):
        assert self.process.wait(timeout) == status, self.text()
        self.log.close()
        return {s["name"]: s for s in json.load(open(self.stats))["stages"]}

    def counts(self):
        """{'received': n, 'late': n, ...} of the note at the end."""
        line = next(x for x in self.text().splitlines() if " received, " in x)
        words = line.replace(";", "").replace(",", "").split()
        names = ("received", "late", "duplicate", "missing", "malformed", "connections", "refused", "broken",
                 "silent")
        return {n: int(words[words.index(n) - 1]) for n in names}


def document(beams=2, channels=(0, 1, 2), **more):
    d = {
        "version": 2, "zone_nfreq": [4,
                                     2], "zone_freq_edges": [400.0, 401.0, 402.0
                                                             ], "freq_channels": list(channels), "beamset": 1,
        "beam_ids": list(range(10, 10 + beams)), "beam_positions_x": [0.01 * b for b in range(beams)],
        "beam_positions_y": [-0.01 * b for b in range(beams)], "unix_ns_at_seq_0": 1500000000000000000,
        "dt_ns_per_seq": 5120, "seq_per_frb_time_sample": 4, "tel_origin_itrs_lat_deg": 49.5,
        "tel_origin_itrs_lon_deg": -119.5, "tel_grid_x_axis": [1.0, 0.0,
                                                               0.0], "tel_grid_y_axis": [0.0, 1.0, 0.0],
        "tel_dish_elev_axis": [1.0, 0.0, 0.0], "tel_dish_vert_axis": [0.0, 0.0,
                                                                      1.0], "tel_dish_coelev_deg": 1.5,
        "tel_dish_separation_x_m": 6.3, "tel_dish_separation_y_m": 8.5, "noise_variance": [1.0, 2.0]
    }
    d.update(more)
    return {k: v for k, v in d.items() if v is not None}


def frb_receiver(directory, port, d, more="until_closed: true, hold_s: 30", name="receiver.yaml"):
    with open(os.path.join(directory, "expected.yaml"), "w") as f:
        yaml.safe_dump(d, f, default_flow_style=None)
    return Running(directory, f"""
pipeline:
  - {{stage: receive, format: frb-node, address: "127.0.0.1:{port}", document: expected.yaml, out: q, {more}}}
  - {{stage: record, in: q, directory: ., prefix: r, overwrite: true}}
""", name)


def recordings(directory, prefix="r"):
    """All frames of a recording, over its files."""
    frames = []
    for name in sorted(n for n in os.listdir(directory)
                       if n.startswith(prefix + "_") and n.endswith(".dada")):
        frames += recorded_levels(os.path.join(directory, name))
    return frames


def random_minichunks(rng, n, beams, channels, masked=0.02):
    levels = rng.integers(-7, 8, (n, beams, channels, 256)).astype(np.int8)
    levels[rng.random(levels.shape) < masked] = -8
    side = rng.normal(0, 2, (n, beams, channels, 2)).astype(np.float16)
    return levels, side

STEP = 4 * 256

EPOCH = 1600000000000000000


def l0_packets(rng, blocks, first=1000):
    """[(block, beam index, coarse index, packet)], and levels [block][beam][coarse][up][time], scale, offset
    [block][beam][coarse]."""
    data = rng.integers(0, 256, (blocks, 4, 6, 2, 16)).astype(np.uint8)
    scale = rng.random((blocks, 4, 6)).astype(np.float32)
    offset = rng.normal(0, 5, (blocks, 4, 6)).astype(np.float32)
    packets = []
    for n in range(blocks):
        for b in (0, 2):
            for c in (0, 3):
                cut = np.s_[n, b:b + 2, c:c + 3]
                packets.append((n, b, c,
                                chime_l0.encode(2, 384, EPOCH,
                                                (first + n) * 384 * 16, range(100 + b, 102 + b),
                                                range(20 + c, 23 + c), scale[cut], offset[cut], data[cut])))
    return packets, data, scale, offset


def check_l0(directory, arrived, data, scale, offset, first=1000):
    """`arrived` holds (block, beam, coarse) of the packets that are to be in the recording; all else must be
    missing."""
    got = {at // (384 * 16) - first: (x, y) for at, x, y in recordings(directory)}
    assert set(got) <= set(range(len(data))), sorted(set(got) - set(range(len(data))))
    assert {n for n, _, _ in arrived} <= set(got), "a block that came in part is not there"
    for n, (x, y) in got.items():
        want, side = np.zeros((4, 6, 2, 16), np.uint8), np.zeros((4, 6, 2, 2), np.float32)
        for b in (0, 2):
            for c in (0, 3):
                if (n, b, c) in arrived:
                    cut = np.s_[b:b + 2, c:c + 3]
                    want[cut] = np.where(data[n][cut] == 255, 0, data[n][cut])
                    side[cut + (slice(None), 0)] = scale[n][cut][..., None]
                    side[cut + (slice(None), 1)] = (offset[n][cut] + np.float32(128) * scale[n][cut])[...,
                                                                                                      None]
        assert np.array_equal(x, want.reshape(4, 12, 16)) and np.array_equal(y, side.reshape(4, 12, 2)), n


def receive_tool(d, *args):
    process = subprocess.Popen([os.path.abspath(harness.PROGRAM), "receive", *map(str, args)], cwd=d,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "listening on port" in process.stderr.readline()
    return process
