"""Beams onto the network and back: `packetize` against receivers written from the formats' descriptions, `receive` against senders
written from them, and one against the other. Levels, masks, scales and times are compared exactly."""
import json
import math
import os
import socket
import struct
import subprocess
import sys
import threading
import time

import numpy as np

import harness

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import chime_l0  # noqa: E402
import frb_node  # noqa: E402
import kotekan  # noqa: E402

CONFIG = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "config")
HEAD = f"""
include: {CONFIG}/telescopes/pathfinder.yaml
stream: {{epoch_ns: 1700000000000000000, freq_mhz: {{first: 600.09765625, step: 0.1953125, count: 3}}, sample0: FIRST}}
pipeline:
  - {{stage: simulate, out: e, seed: 7, frame_samples: 2048, duration_s: DURATION}}
  - {{stage: frb_grid, in: e, out: i, integrate: 4}}
  - {{stage: frb_beams, in: i, out: j, beams: {{grid: [2, 4], spacing_deg: 0.3}}}}
"""
INTEGRATE, BEAMS, CHANNELS = 4, 8, 3


def head(first=0, duration=0.03):
    return HEAD.replace("FIRST", str(first)).replace("DURATION", str(duration))


def recorded_levels(path):
    """[(first base sample, levels [beam][freq][steps], side f32 [beam][freq][2])] of a recording of quantized beams."""
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
            levels = np.stack([((packed & 15).astype(np.int8) ^ 8) - 8, ((packed >> 4).astype(np.int8) ^ 8) - 8], -1).reshape(-1)[:n]
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


def levels_variance(rms):
    edge = lambda x: math.erfc(x / (rms * math.sqrt(2)))
    return sum(x * x * (edge(x - 0.5) - (edge(x + 0.5) if x < 7 else 0)) for x in range(1, 8))


class Calibration:
    """Baseline and noise of each (beam, channel), followed with weight max(1/n, 1 - exp(-t/tau))."""

    def __init__(self, noise_variance, rms, minichunk_s, tau):
        self.n = 0
        self.noise, self.x2 = np.float32(noise_variance), np.float32(levels_variance(rms))
        self.follow = 1 - math.exp(-minichunk_s / tau) if tau > 0 else 1

    def __call__(self, side):
        scale, offset = side[..., 0].astype(float), side[..., 1].astype(float)
        own = scale ** 2 * self.x2
        if self.n == 0:
            self.mean, self.var, self.count = np.zeros_like(own), np.zeros_like(own), np.zeros(own.shape, int)
            self.n = 1
        own = np.where(self.count >= 8, np.minimum(own, 4 * self.var), own)
        w = np.maximum(1 / (self.count + 1), self.follow) * (scale > 0)
        self.var += w * (own - self.var)
        self.mean += w * (offset - self.mean)
        self.count += scale > 0
        k = np.divide(np.sqrt(self.noise), np.sqrt(self.var), where=self.var > 0, out=np.zeros_like(own))
        return np.stack([scale * k, np.where(scale > 0, (offset - self.mean) * k, 0)], axis=-1)


def check_minichunks(chunks, frames, beams, tau=30, noise=1.0):
    """What arrived against what was recorded in front of the sender."""
    calibration = Calibration(noise, 2.5, 256 * INTEGRATE * 5120e-9, tau)
    assert [seq for seq, _, _ in chunks] == [first // (256 * INTEGRATE) * 256 * INTEGRATE for first, _, _ in frames]
    for (seq, side, levels), (first, want, scales) in zip(chunks, frames):
        whole = np.full((BEAMS, CHANNELS, 256), -8, np.int8)
        at = (first - seq) // INTEGRATE
        whole[..., at:at + want.shape[2]] = want
        assert np.array_equal(levels, whole[beams])
        expected = calibration(scales)[beams]
        got = side.astype(float)
        assert np.all(abs(got - expected) <= 1e-3 * abs(expected) + 1e-3 * abs(expected[..., :1])), np.max(abs(got - expected))


def test_frb_node_values():
    with harness.scratch() as d:
        first, second = frb_node.Receiver(), frb_node.Receiver()
        result = harness.run(d, head(1000) + f"""
  - {{stage: quantize, in: j, out: q, bits: 4, block: 256}}
  - {{stage: record, in: q, directory: ., prefix: q}}
  - stage: packetize
    in: q
    format: frb-node
    acks: true
    beamset: 3
    first_beam_id: 100
    document: sent.yaml
    destinations: [{{address: "{first.address}", beams: 5}}, {{address: "{second.address}", first_beam: 5, beams: 3}}]
""")
        (doc, flags, chunks), = first.finish()
        (doc2, _, chunks2), = second.finish()
        frames = recorded_levels(os.path.join(d, "q_000000.dada"))
        assert len(frames) > 4 and frames[0][1].shape[2] < 256, "a stream that begins within a minichunk"
        check_minichunks(chunks, frames, slice(0, 5))
        check_minichunks(chunks2, frames, slice(5, 8))
        assert flags == 1 and doc["beamset"] == 3
        assert doc["beam_ids"] == list(range(100, 105)) and doc2["beam_ids"] == [105, 106, 107]
        assert np.allclose(frb_node.frequencies(doc), 600.09765625 + 0.1953125 * np.arange(3), atol=1e-9)
        assert doc["dt_ns_per_seq"] == 5120 and doc["seq_per_frb_time_sample"] == INTEGRATE
        assert doc["unix_ns_at_seq_0"] == 1700000000000000000
        # beams are x (along m, north) slow, y (along n, east) fast; the wire's x is east
        angle = np.radians(0.3)
        north = np.sin((np.arange(2) - 0.5) * angle).repeat(4)
        east = np.tile(np.sin((np.arange(4) - 1.5) * angle), 2)
        assert np.allclose(doc["beam_positions_x"], east[:5], atol=1e-12)
        assert np.allclose(doc["beam_positions_y"], north[:5], atol=1e-12)
        assert doc["tel_grid_x_axis"] == [1, 0, 0] and doc["tel_grid_y_axis"] == [0, 1, 0]
        assert (doc["tel_dish_separation_x_m"], doc["tel_dish_separation_y_m"]) == (6.3, 8.5)
        assert abs(doc["tel_origin_itrs_lat_deg"] - 49.32075144444) < 1e-12
        import yaml
        assert yaml.safe_load(open(os.path.join(d, "sent.yaml"))) == doc
        assert f"{len(chunks)} assembled and 0 dropped there" in result.err, result.err



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


def recorded_intensities(path):
    """J f32 [freq][step][beam] in physical units, valid [freq][step], number of the first step."""
    j, first, keys, _ = harness.read_frames(path)
    valid = harness.read_gaps(path, first, j.shape[1], j.shape[0], int(keys["DOWNSAMPLE"])).T > 0
    return j.astype(np.float32) * np.float32(float(keys.get("SCALE", 1))), valid, first


def check_packets(packets, j, valid, first, steps, beams, version=2):
    """Every packet against the quantizer's definition, applied to what was recorded; and all of them are there."""
    F, nsteps, _ = j.shape
    nup, ids = 4, np.arange(12, 7, -1)  # coarse channels in the order of the stream
    seen = set()
    blocks = range(first // steps, (first + nsteps - 1) // steps + 1)
    for p in packets:
        assert (p["version"], p["counts"], p["data"].shape[2:]) == (version, 12, (nup, steps))
        assert p["frame0_ns"] == (1600000000000000000 if version == 2 else None)
        number = p["count"] // (12 * steps)
        for b, beam in enumerate(p["beams"]):
            for f, coarse in enumerate(p["coarse"]):
                assert (number, beam, coarse) not in seen
                seen.add((number, beam, coarse))
                x, ok = np.zeros((nup, steps), np.float32), np.zeros((nup, steps), bool)
                k = int(np.flatnonzero(ids == coarse)[0])
                rows = slice(k * nup, (k + 1) * nup)
                lo, hi = max(number * steps, first), min((number + 1) * steps, first + nsteps)
                at = slice(lo - number * steps, hi - number * steps)
                # fine channels ascend in the stream and descend on the wire
                x[:, at] = j[rows, lo - first:hi - first, beam - 200][::-1]
                ok[:, at] = valid[rows, lo - first:hi - first][::-1]
                data, scale, offset = chime_l0.quantize(x, ok)
                assert np.array_equal(p["data"][b, f], data), (number, beam, coarse)
                assert p["scale"][b, f] == scale and p["offset"][b, f] == offset
    assert seen == {(n, b + 200, c) for n in blocks for b in beams for c in ids}


def test_chime_l0_values():
    for version, steps, split in ((2, 16, "beams: 5"), (1, 32, "beams: 5")):
        with harness.scratch() as d:
            a, b = chime_l0.Receiver(), chime_l0.Receiver()
            harness.run(d, l0_head(12 * 1000 + 7) + f"""
  - {{stage: record, in: j, directory: ., prefix: j}}
  - stage: packetize
    in: j
    format: chime-l0
    version: {version}
    steps: {steps}
    packet_beams: 2
    packet_channels: 3
    first_beam_id: 200
    rate: 2e7
    destinations: [{{address: "{a.address}", beams: 5}}, {{address: "{b.address}", first_beam: 5, beams: 4}}]
""")
            j, valid, first = recorded_intensities(os.path.join(d, "j_000000.dada"))
            assert not valid.all() and valid.any()
            check_packets(a.finish(), j, valid, first, steps, range(5), version)
            check_packets(b.finish(), j, valid, first, steps, range(5, 9), version)



# --- receive ---------------------------------------------------------------------------------------------------------------------


def free_port(kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_INET, kind) as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Running:
    """A pipeline in the background, which has begun to listen."""

    def __init__(self, directory, text, name="receiver.yaml"):
        path = os.path.join(directory, name)
        with open(path, "w") as f:
            f.write(text)
        self.log = open(path + ".err", "w+")
        self.stats = path + ".json"
        self.process = subprocess.Popen([os.path.abspath(harness.PROGRAM), "run", name, "--stats", self.stats], cwd=directory,
                                        stdout=subprocess.DEVNULL, stderr=self.log)
        until = time.time() + 20
        while "listening on port" not in self.text():
            assert time.time() < until and self.process.poll() is None, self.text()
            time.sleep(0.01)

    def text(self):
        return open(self.log.name).read()

    def finish(self, status=0, timeout=60):
        assert self.process.wait(timeout) == status, self.text()
        self.log.close()
        return {s["name"]: s for s in json.load(open(self.stats))["stages"]}

    def counts(self):
        """{'received': n, 'late': n, ...} of the note at the end."""
        line = next(x for x in self.text().splitlines() if " received, " in x)
        words = line.replace(";", "").replace(",", "").split()
        names = ("received", "late", "duplicate", "missing", "malformed", "connections", "broken", "silent")
        return {n: int(words[words.index(n) - 1]) for n in names}


def document(beams=2, channels=(0, 1, 2), **more):
    d = {"version": 2, "zone_nfreq": [4, 2], "zone_freq_edges": [400.0, 401.0, 402.0], "freq_channels": list(channels), "beamset": 1,
         "beam_ids": list(range(10, 10 + beams)), "beam_positions_x": [0.01 * b for b in range(beams)],
         "beam_positions_y": [-0.01 * b for b in range(beams)], "unix_ns_at_seq_0": 1500000000000000000, "dt_ns_per_seq": 5120,
         "seq_per_frb_time_sample": 4, "tel_origin_itrs_lat_deg": 49.5, "tel_origin_itrs_lon_deg": -119.5,
         "tel_grid_x_axis": [1.0, 0.0, 0.0], "tel_grid_y_axis": [0.0, 1.0, 0.0], "tel_dish_elev_axis": [1.0, 0.0, 0.0],
         "tel_dish_vert_axis": [0.0, 0.0, 1.0], "tel_dish_coelev_deg": 1.5, "tel_dish_separation_x_m": 6.3,
         "tel_dish_separation_y_m": 8.5, "noise_variance": [1.0, 2.0]}
    d.update(more)
    return {k: v for k, v in d.items() if v is not None}


def frb_receiver(directory, port, d, more="until_closed: true, hold_s: 30", name="receiver.yaml"):
    import yaml
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
    for name in sorted(n for n in os.listdir(directory) if n.startswith(prefix + "_") and n.endswith(".dada")):
        frames += recorded_levels(os.path.join(directory, name))
    return frames


def random_minichunks(rng, n, beams, channels, masked=0.02):
    levels = rng.integers(-7, 8, (n, beams, channels, 256)).astype(np.int8)
    levels[rng.random(levels.shape) < masked] = -8
    side = rng.normal(0, 2, (n, beams, channels, 2)).astype(np.float16)
    return levels, side


STEP = 4 * 256


def test_frb_node_receive():
    """Two senders with a part of the channels each, a gap, one ahead of the other; acknowledgements."""
    rng = np.random.default_rng(1)
    with harness.scratch() as d:
        port = free_port()
        levels, side = random_minichunks(rng, 20, 2, 5)
        run = frb_receiver(d, port, document(channels=(5, 0, 1, 2, 3)))
        own = [(5, 2), (1, 3, 0)]
        where = [[0, 3], [2, 4, 1]]  # in the receiver's order
        socks = [socket.create_connection(("127.0.0.1", port)) for _ in own]
        sent = [[n for n in range(20) if n not in (7, 8)], [n for n in range(20) if n != 9]]
        for s, ch in zip(socks, own):
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else one may lag by more than the window
            s.sendall(frb_node.hello(document(channels=ch), flags=1))
        for n in range(20):
            for s, w, mine in zip(socks, where, sent):
                if n in mine:
                    m = frb_node.minichunk((n + 3) * STEP, side[n][:, w], levels[n][:, w])
                    s.sendall(m[:100])
                    s.sendall(m[100:])
        for s, mine in zip(socks, sent):
            s.shutdown(socket.SHUT_WR)
            answers = b""
            while more := s.recv(100):
                answers += more
            assert answers == b"\1" * len(mine), (answers, len(mine))
            s.close()
        run.finish()
        got = recordings(d)
        assert [first for first, _, _ in got] == [(n + 3) * STEP for n in range(20)]
        for n, (_, x, y) in enumerate(got):
            want, scale = np.full((2, 5, 256), -8, np.int8), np.zeros((2, 5, 2), np.float32)
            for w, mine in zip(where, sent):
                if n in mine:
                    want[:, w], scale[:, w] = levels[n][:, w], side[n][:, w]
            assert np.array_equal(x, want) and np.array_equal(y, scale)
        assert run.counts() == {"received": 37, "late": 0, "duplicate": 0, "missing": 2 * 2 + 3, "malformed": 0, "connections": 2,
                                "broken": 0, "silent": 0}
        keys, _ = harness.header(os.path.join(d, "r_000000.dada"))
        assert int(keys["EPOCH_NS"]) == 1500000000000000000
        valid = harness.read_gaps(os.path.join(d, "r_000000.dada"), 3 * 256, 20 * 256, 5, 4)
        assert not valid[7 * 256:9 * 256, [0, 3]].any() and not valid[9 * 256:10 * 256, [1, 2, 4]].any()


def test_frb_node_there_and_back():
    """packetize into receive: the same levels, and the document that one wrote is what the other expects."""
    with harness.scratch() as d:
        port = free_port()
        sender = head(1000) + f"""
  - {{stage: quantize, in: j, out: q, bits: 4, block: 256}}
  - {{stage: record, in: q, directory: ., prefix: q, overwrite: true}}
  - {{stage: packetize, in: q, format: frb-node, document: d.yaml, connect_s: 0, idle_s: 0.2,
      destinations: [{{address: "127.0.0.1:{port}"}}]}}
"""
        first = harness.run(d, sender)  # nobody listens: all is missed, and the run goes on
        assert "0 minichunks sent" in first.err and "a destination was not there" in first.out, first
        import yaml
        run = frb_receiver(d, port, yaml.safe_load(open(os.path.join(d, "d.yaml"))))
        harness.run(d, sender.replace("connect_s: 0", "connect_s: 10"))
        run.finish()
        sent, got = recorded_levels(os.path.join(d, "q_000000.dada")), recordings(d)
        assert len(sent) == len(got) > 4
        for (a, x, _), (b, y, _) in zip(sent, got):
            at = (a - b) // INTEGRATE
            assert np.array_equal(y[..., at:at + x.shape[2]], x) and np.all(np.delete(y, np.s_[at:at + x.shape[2]], 2) == -8)


def frb_bad_peers():
    """Name, what is sent, which counter it must raise."""
    good = frb_node.hello(document())
    chunk = frb_node.minichunk(STEP, np.ones((2, 3, 2)), np.zeros((2, 3, 256), np.int8))
    prefix = lambda magic=frb_node.MAGIC, flags=0, length=10: struct.pack("<IIi", magic, flags, length)
    for name, head_ in (("magic", prefix(magic=0xf4bf4b01)), ("http", b"GET / HTTP/1.1\r\n\r\n"), ("flags", prefix(flags=2)),
                        ("length 0", prefix(length=0)), ("length -1", prefix(length=-1)), ("length 2^31 - 1", prefix(length=2**31 - 1)),
                        ("length 1 MiB + 1", prefix(length=(1 << 20) + 1)), ("no final zero", prefix(length=3) + b"a: ")):
        yield name, head_, "malformed"
    texts = {"not YAML": "{[", "a list": "[1, 2]", "a number": "3", "an alias": "a: &x 1\nb: *x", "a key twice": "version: 2\nversion: 2",
             "nested": "zone_nfreq: [[4]]", "a bomb": "a: " + "[" * 900, "zero byte": "version: \"\\0\""}
    for name, text in texts.items():
        yield name, frb_node.hello(text), "malformed"
    wrong = {"version": [1, 3, "x", 2**63, None], "zone_nfreq": [[], [0, 2], [4], [-1, 2], None], "unknown_key": [1],
             "zone_freq_edges": [[400.0, 401.0], [401.0, 400.0, 402.0], [0.0, 1.0, 2.0], [float("nan")] * 3],
             "freq_channels": [[], [0, 0], [6], [-1], [2**31], [2**63 - 1], [0.5], None, [0, 1, 5]], "beamset": [2, None],
             "beam_ids": [[10], [10, 10], [10, 11, 12], ["a", "b"]], "beam_positions_x": [[0.9, 0.9, 0.9], [2.0, 0.0], [0.0]],
             "beam_positions_y": [[0.0, 1.5]], "unix_ns_at_seq_0": [0, -1, 1.5, 2**63 - 1], "dt_ns_per_seq": [0, -5, 1.5, 5121],
             "seq_per_frb_time_sample": [0, -1, 2**31, 2**63 - 1], "tel_origin_itrs_lat_deg": [91.0, float("inf"), None],
             "tel_origin_itrs_lon_deg": [1e9], "tel_grid_x_axis": [[1.0, 0.0], [2.0, 0.0, 0.0], [0.0, 1.0, 0.0]],
             "tel_grid_y_axis": [[0.0, 0.0, 0.0]], "tel_dish_elev_axis": [[0.0, 0.0, 1.0]], "tel_dish_vert_axis": [[1.0, 0.0, 0.0]],
             "tel_dish_coelev_deg": [float("nan")], "tel_dish_separation_x_m": [0.0, -1.0], "tel_dish_separation_y_m": [0.0],
             "noise_variance": [0.0, -1.0, [1.0, 1.0, 1.0], []]}
    for key, values in wrong.items():
        for value in values:
            yield f"{key}: {value}", frb_node.hello(document(**{key: value})), "malformed"
    for name, seq in (("odd seq", STEP + 1), ("seq 2^63", 2**63), ("seq 2^64 - 1024", 2**64 - STEP)):
        yield name, good + frb_node.minichunk(seq, np.ones((2, 3, 2)), np.zeros((2, 3, 256), np.int8)), "malformed"
    yield "chunk's magic", good + b"\0" + chunk[1:], "malformed"
    yield "seq stands still", good + chunk + chunk, "malformed"
    yield "seq goes back", good + frb_node.minichunk(2 * STEP, np.ones((2, 3, 2)), np.zeros((2, 3, 256), np.int8)) + chunk, "malformed"
    whole = good + chunk
    for n in [*range(0, 12), 12, 13, len(good) // 2, len(good) - 1, *range(len(good) + 1, len(good) + 24), len(whole) - 1]:
        yield f"cut at {n}", whole[:n], "broken"


def test_frb_node_bad_peers():
    """Whatever peers do is counted, and a good sender beside them is received as if they were not there."""
    rng = np.random.default_rng(2)
    with harness.scratch() as d:
        port = free_port()
        run = frb_receiver(d, port, document(), "idle_s: 2.5, hold_s: 20, handshake_s: 1")
        silent = socket.create_connection(("127.0.0.1", port))
        levels, side = random_minichunks(rng, 120, 2, 3)
        good = socket.create_connection(("127.0.0.1", port))
        good.sendall(frb_node.hello(document()))
        deaf = socket.create_connection(("127.0.0.1", port))
        deaf.sendall(frb_node.hello(document(), flags=1))
        want = {"malformed": 0, "broken": 0}
        bad = list(frb_bad_peers())
        for n in range(120):
            good.sendall(frb_node.minichunk((1000 + n) * STEP, side[n], levels[n]))
            for name, data, counter in bad[2 * n:2 * n + 2]:
                want[counter] += 1
                with socket.create_connection(("127.0.0.1", port)) as s:
                    try:
                        s.sendall(data)
                        if counter == "broken":
                            s.shutdown(socket.SHUT_WR)
                        assert s.recv(1) == b"", name
                    except ConnectionError:
                        pass
        assert len(bad) <= 240
        reset = socket.create_connection(("127.0.0.1", port))
        reset.sendall(frb_node.hello(document()) + b"\x02\x4b")
        time.sleep(0.1)
        reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reset.close()
        good.close()
        stats = run.finish()
        counts = run.counts()
        assert counts["malformed"] == want["malformed"] and counts["broken"] == want["broken"] + 1, (counts, want)
        assert counts["silent"] == 1 and counts["connections"] == len(bad) + 4, counts
        assert stats["receive"]["lost"]["malformed"] == want["malformed"] * STEP
        got = [f for f in recordings(d) if f[0] >= 1000 * STEP]
        assert [f[0] for f in got] == [(1000 + n) * STEP for n in range(120)]
        for n, (_, x, y) in enumerate(got):
            assert np.array_equal(x, levels[n]) and np.array_equal(y, side[n].astype(np.float32))
        silent.close()
        deaf.close()



# --- packetize beside bad peers and bad configurations ----------------------------------------------------------------------------


def record_levels(d, duration=0.5, beams="[2, 4]"):
    harness.run(d, head(0, duration).replace("[2, 4]", beams) + """
  - {stage: quantize, in: j, out: q, bits: 4, block: 256}
  - {stage: record, in: q, directory: ., prefix: q}
""")
    return recorded_levels(os.path.join(d, "q_000000.dada"))


def replay_levels(more, realtime="true"):
    return f"""
include: {CONFIG}/telescopes/pathfinder.yaml
pipeline:
  - {{stage: replay, files: q_*.dada, realtime: {realtime}, out: q}}
  - {{stage: packetize, in: q, format: frb-node, idle_s: 0.2, {more}}}
"""


def test_frb_node_reconnect():
    """A receiver that resets the connection after a few minichunks: the sender comes back, and seq has a gap, but never goes back."""
    with harness.scratch() as d:
        frames = record_levels(d)
        receiver = frb_node.Receiver(connections=3, cut_after={0: 5, 1: 8})
        result = harness.run(d, replay_levels(f"""retry_s: 0.1, destinations: [{{address: "{receiver.address}"}}]"""))
        got = receiver.finish()
        parts = [chunks for _, _, chunks in got]
        assert len(parts) == 3 and len(parts[0]) == 5 and len(parts[1]) == 8 and len(parts[2]) > 10
        assert got[0][0] == got[1][0] == got[2][0]
        seqs = [seq for part in parts for seq, _, _ in part]
        assert all(b > a for a, b in zip(seqs, seqs[1:])) and len(seqs) < len(frames) and seqs[-1] == frames[-1][0]
        levels = {first: x for first, x, _ in frames}
        for part in parts:
            for seq, _, x in part:
                want = levels[seq]
                assert np.array_equal(x[..., :want.shape[2]], want) and np.all(x[..., want.shape[2]:] == -8)
        assert "a destination was not there" in result.out and "3 connections" in result.err, result
        receiver = frb_node.Receiver(connections=1, cut_after={0: 5})
        result = harness.run(d, replay_levels(f"""reconnect: false, destinations: [{{address: "{receiver.address}"}}]"""), status=1)
        assert "reconnect: true" in result.err and receiver.address in result.err, result


def stop_reading(receiver, sock, index):
    magic, flags, length = struct.unpack("<IIi", receiver.take(sock, 12))
    receiver.take(sock, length)
    time.sleep(2.5)


def test_frb_node_deaf_peers():
    """One that stops reading, one that says nothing and one that closes at once do not harm the one that works."""
    with harness.scratch() as d:
        frames = record_levels(d, 0.1, "[40, 60]")
        good = frb_node.Receiver()
        deaf = frb_node.Receiver(behave=stop_reading)
        deaf.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        closing = frb_node.Receiver(behave=lambda receiver, sock, index: None)
        result = harness.run(d, replay_levels(f"""stall_s: 0.3, retry_s: 100, connect_s: 1, destinations: [{{address: "{good.address}"}},
      {{address: "{deaf.address}"}}, {{address: "{closing.address}"}}]""", realtime="false"))
        (doc, _, chunks), = good.finish()
        deaf.finish()
        assert len(chunks) == len(frames) and len(doc["beam_ids"]) == 800
        for (_, _, x), (_, want, _) in zip(chunks, frames):
            assert np.array_equal(x[..., :want.shape[2]], want[:800])
        assert f"{deaf.address}: it stopped reading" in result.err and f"{closing.address}: " in result.err, result


def test_interrupt_while_blocked():
    """Ctrl-C while a receiver does not read: ends within seconds, and cleanly."""
    with harness.scratch() as d:
        record_levels(d, 0.1, "[40, 60]")
        deaf = frb_node.Receiver(behave=lambda receiver, sock, index: time.sleep(12))
        deaf.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with open(os.path.join(d, "p.yaml"), "w") as f:
            f.write(replay_levels(f"""stall_s: 1000, close_s: 1, destinations: [{{address: "{deaf.address}"}}]""", realtime="false"))
        process = subprocess.Popen([os.path.abspath(harness.PROGRAM), "run", "p.yaml"], cwd=d, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        time.sleep(1.5)
        assert process.poll() is None
        process.send_signal(2)
        began = time.time()
        assert process.wait(10) == 130, process.stderr.read()
        assert time.time() - began < 9


def test_refused():
    """Mistakes in the configuration, and addresses that cannot be used: each with a message that names it."""
    with harness.scratch() as d:
        levels = head() + """
  - {stage: quantize, in: j, out: q, bits: 4, block: BLOCK}
"""
        def refused(words, more, status=2, text=levels.replace("BLOCK", "256"), in_="q"):
            result = harness.run(d, text + f"\n  - {{stage: packetize, in: {in_}, {more}}}\n", status=status)
            assert words in result.err, (words, result)
        to = 'destinations: [{address: "127.0.0.1:9"}]'
        refused("bits: 4, block: 256", f"format: frb-node, {to}", text=levels.replace("BLOCK", "128"))
        refused("'nowhere' is no address", "format: frb-node, destinations: [{address: nowhere}]")
        refused("no address", 'format: frb-node, destinations: [{address: "a:70000"}]')
        refused("at most one per beam", "format: frb-node, destinations: [" +
                ", ".join(f'{{address: "127.0.0.1:{p}"}}' for p in range(5000, 5009)) + "]")
        refused("the stream has beams 0 to 7", 'format: frb-node, destinations: [{address: "127.0.0.1:9", first_beam: 6, beams: 3}]')
        refused("or none", 'format: frb-node, destinations: [{address: "127.0.0.1:9", beams: 3}, {address: "127.0.0.1:8"}]')
        refused("twice", 'format: frb-node, destinations: [{address: "127.0.0.1:9"}, {address: "127.0.0.1:9"}]')
        refused("is no channel of zone", f"format: frb-node, {to}, zones: {{nfreq: [5], edges_mhz: [600, 601]}}")
        refused("expected 2", f"format: frb-node, {to}, zones: {{nfreq: [5], edges_mhz: [600, 601, 602]}}")
        refused("expected one, or one per zone", f"format: frb-node, {to}, noise_variance: [1, 2, 3]")
        refused("orthogonal", f"format: frb-node, {to}, site: {{m_axis: [1, 0, 0]}}")
        refused("this is not for format frb-node", f"format: frb-node, {to}, rate: 5")
        refused("leave out", f"format: frb-node, {to}", text=levels.replace("BLOCK", "256").replace(
            "{first: 600.09765625, step: 0.1953125, count: 3}", "[600, 600.1953125, 601]"))
        refused("protocol allows 1048576", f"format: frb-node, {to}", text=levels.replace("BLOCK", "256").replace("[2, 4]", "[200, 150]"))
        refused("cannot resolve the host of 'no.such.host.invalid:1'", 'format: frb-node, destinations: [{address: "no.such.host.invalid:1"}]',
                status=1)
        refused("could not be reached within connect_s", f"format: frb-node, reconnect: false, connect_s: 0.3, {to}", status=1)
        refused("counts of chime-l0 last 2560 ns", f"format: chime-l0, {to}", in_="j", text=head())
        for words, more in (("power of two", "steps: 12"), ("at most 8910", "steps: 1024"), ("at least one packet", "rate: 1e6, burst: 100"),
                            ("16 bits", "first_beam_id: 65530")):
            refused(words, f"format: chime-l0, {to}, {more}", in_="j", text=l0_head())
        refused("is no part of the channels", f"format: chime-l0, {to}", in_="j", text=l0_head().replace("795.3125", "795.3"))
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            import yaml
            yaml.safe_dump(document(), open(os.path.join(d, "d.yaml"), "w"))
            result = harness.run(d, f"""
pipeline:
  - {{stage: receive, format: frb-node, address: "127.0.0.1:{port}", document: d.yaml, out: q}}
  - {{stage: record, in: q, directory: ., prefix: r}}
""", status=1)
            assert "cannot listen" in result.err and "in use" in result.err, result
        # two senders of the same channels to one receiver, in one pipeline
        receiver = frb_node.Receiver(connections=1)
        both = f'destinations: [{{address: "{receiver.address}"}}]'
        result = harness.run(d, levels.replace("BLOCK", "256") + f"""
  - {{stage: packetize, name: one, in: q, format: frb-node, {both}}}
  - {{stage: packetize, name: two, in: q, format: frb-node, {both.replace("127.0.0.1", "localhost")}}}
""", status=1)
        assert "another sender on this machine sends some of the channels 0 to 2" in result.err, result



# --- chime-l0 and kotekan, receiving -----------------------------------------------------------------------------------------------

EPOCH = 1600000000000000000


def l0_receiver(directory, port, more="idle_s: 1.5, hold_s: 1", window=8):
    return Running(directory, f"""
stream: {{epoch_ns: {EPOCH}}}
pipeline:
  - {{stage: receive, format: chime-l0, address: "127.0.0.1:{port}", beams: {{first: 100, count: 4}}, channels: {{first: 20, count: 6}},
      nupfreq: 2, steps: 16, window: {window}, {more}, out: q}}
  - {{stage: record, in: q, directory: ., prefix: r}}
""")


def l0_packets(rng, blocks, first=1000):
    """[(block, beam index, coarse index, packet)], and levels [block][beam][coarse][up][time], scale, offset [block][beam][coarse]."""
    data = rng.integers(0, 256, (blocks, 4, 6, 2, 16)).astype(np.uint8)
    scale = rng.random((blocks, 4, 6)).astype(np.float32)
    offset = rng.normal(0, 5, (blocks, 4, 6)).astype(np.float32)
    packets = []
    for n in range(blocks):
        for b in (0, 2):
            for c in (0, 3):
                cut = np.s_[n, b:b + 2, c:c + 3]
                packets.append((n, b, c, chime_l0.encode(2, 384, EPOCH, (first + n) * 384 * 16, range(100 + b, 102 + b), range(20 + c, 23 + c),
                                                         scale[cut], offset[cut], data[cut])))
    return packets, data, scale, offset


def check_l0(directory, arrived, data, scale, offset, first=1000):
    """`arrived` holds (block, beam, coarse) of the packets that are to be in the recording; all else must be missing."""
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
                    side[cut + (slice(None), 1)] = (offset[n][cut] + np.float32(128) * scale[n][cut])[..., None]
        assert np.array_equal(x, want.reshape(4, 12, 16)) and np.array_equal(y, side.reshape(4, 12, 2)), n


def expected_assembly(sent, window, blocks):
    """What a window of blocks makes of packets in this order: who arrives, and the counters."""
    arrived, tail, opened, counts = set(), None, {}, {"late": 0, "duplicate": 0, "received": 0}

    def hand_on():
        nonlocal tail
        tail = min(opened) + 1
        del opened[tail - 1]

    for key in sent:
        n = key[0]
        tail = n if tail is None else tail
        if n < tail:
            counts["late"] += 1
            continue
        while n - tail >= window and opened:
            hand_on()
        tail = max(tail, n - window + 1)
        if key in opened.setdefault(n, set()):
            counts["duplicate"] += 1
            continue
        opened[n].add(key)
        arrived.add(key)
        counts["received"] += 1
        while tail in opened and len(opened[tail]) == 4:
            hand_on()
    return arrived, counts


def test_chime_l0_sweep():
    """Loss, duplicates, reordering within the window and beyond, corrupt headers: what arrived is bit-identical, what did not is missing,
    and everything is counted."""
    blocks, window = 150, 8
    for k, rate in enumerate((0, 1e-4, 1e-2, 1e-1)):
        rng = np.random.default_rng(10 + k)
        with harness.scratch() as d:
            port = free_port(socket.SOCK_DGRAM)
            packets, data, scale, offset = l0_packets(rng, blocks)
            order = []  # (place, key, bytes)
            corrupt = 0
            for i, (n, b, c, packet) in enumerate(packets):
                if n > 0 and rng.random() < rate:  # lost
                    continue
                if n > 0 and rng.random() < rate:  # corrupt, so that it can be seen
                    bad = bytearray(packet)
                    at = int(rng.choice([0, 4, 6, 8, 23, 24, 26, 28, 30]))
                    bad[at] ^= 0x40
                    order.append((i, None, bytes(bad) if rng.random() < 0.5 else packet[:int(rng.integers(0, len(packet)))]))
                    corrupt += 1
                    continue
                late = int(rng.integers(1, 4 * 4)) if n > 0 and rng.random() < rate else 0       # within the window
                late += 4 * (window + 4) if n > 0 and rng.random() < rate / 4 else 0             # and beyond
                order.append((i + late + 0.5 * (late > 0), (n, b, c), packet))
                if rng.random() < rate:
                    order.append((i + int(rng.integers(0, 8)) + 0.7, (n, b, c), packet))
            order.sort(key=lambda x: x[0])
            run = l0_receiver(d, port, window=window)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                s.connect(("127.0.0.1", port))
                for i, (_, _, packet) in enumerate(order):
                    s.send(packet)
                    if i % 32 == 31:
                        time.sleep(0.002)
            run.finish()
            arrived, want = expected_assembly([key for _, key, _ in order if key], window, blocks)
            check_l0(d, arrived, data, scale, offset)
            counts = run.counts()
            last = max(n for n, _, _ in arrived)
            want |= {"malformed": corrupt, "missing": 24 * (last + 1) - 6 * len(arrived)}
            # what comes again after its block was complete is late or a duplicate, as the block was handed on or not
            assert counts["late"] + counts["duplicate"] == want["late"] + want["duplicate"], (rate, counts, want)
            assert all(counts[name] == want[name] for name in ("received", "malformed", "missing")), (rate, counts, want)
            assert rate < 1e-2 or (want["late"] > 0 or rate < 1e-1) and want["malformed"] > 0 and want["missing"] > 0, want


def test_chime_l0_bad_packets():
    """Every field wrong in turn, cut at every byte of the header, another epoch, beams and channels that nobody asked for, counts far off:
    counted, and the good packets between are all there."""
    rng = np.random.default_rng(3)
    with harness.scratch() as d:
        port = free_port(socket.SOCK_DGRAM)
        packets, data, scale, offset = l0_packets(rng, 60)
        good = packets[0][3]
        bad = [good[:n] for n in range(0, 33)] + [good[:-1], good + b"\0", b"", b"x" * 9000]
        for at, form, values in ((0, "<I", (0, 1, 3, 2**31, 2**32 - 1)), (4, "<h", (0, -1, 32767, -32768)), (6, "<H", (0, 1, 383, 65535)),
                                 (8, "<Q", (0, 1, 2**63, 2**64 - 1)), (16, "<Q", (1, 384, 2**31, 2**63 - 1, 2**64 - 1, 2**63)),
                                 (24, "<H", (0, 1, 3, 65535)), (26, "<H", (0, 2, 1025, 65535)), (28, "<H", (0, 1, 65, 65535)),
                                 (30, "<H", (0, 8, 15, 2048)), (32, "<H", (0, 99, 104, 65535)), (36, "<H", (0, 19, 26, 1023, 1024, 65535))):
            for value in values:
                one = bytearray(good)
                struct.pack_into(form, one, at, value)
                bad.append(bytes(one))
        far = bytearray(good)
        struct.pack_into("<Q", far, 16, 384 * 16 * 10**9)
        bad += [bytes(far)] * 3
        run = l0_receiver(d, port)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.connect(("127.0.0.1", port))
            for i, (n, b, c, packet) in enumerate(packets):
                s.send(packet)
                for x in bad[i::len(packets)]:
                    s.send(x)
                time.sleep(0.001)
        run.finish()
        check_l0(d, {p[:3] for p in packets}, data, scale, offset)
        counts = run.counts()
        assert counts["received"] == len(packets) and counts["malformed"] == len(bad) and counts["late"] == counts["missing"] == 0, (counts, len(bad))
    with harness.scratch() as d:  # the very first packet has a corrupt count: the rest is not late for ever
        port = free_port(socket.SOCK_DGRAM)
        run = l0_receiver(d, port)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.connect(("127.0.0.1", port))
            s.send(bytes(far))
            for i, p in enumerate(packets):
                s.send(p[3])
                time.sleep(0.0005)
        run.finish()
        counts = run.counts()
        assert counts["received"] > len(packets) - 10 and counts["late"] == 0, counts


def test_chime_l0_pacing():
    """The rate asked for within 2 %, and no burst above the one asked for, by the times of arrival."""
    with harness.scratch() as d:
        receiver = chime_l0.Receiver()
        rate, burst, stamps = 4e6, 60000, []
        take = receiver.sock.recv
        receiver.sock = type("Stamped", (), {"recv": lambda self, n: (take(n), stamps.append(time.monotonic()))[0],
                                             "settimeout": lambda self, t, s=receiver.sock: s.settimeout(t),
                                             "close": lambda self, s=receiver.sock: s.close()})()
        time.sleep(0.1)
        harness.run(d, l0_head(0, 0.25) + "  - {stage: record, in: j, directory: ., prefix: j}\n")
        harness.run(d, f"""
include: {CONFIG}/telescopes/pathfinder.yaml
pipeline:
  - {{stage: replay, files: j_*.dada, out: j}}
  - {{stage: packetize, in: j, format: chime-l0, rate: {rate}, burst: {burst}, destinations: [{{address: "{receiver.address}"}}]}}
""")
        packets = receiver.finish()
        sizes = np.array([len(p) for p in receiver.packets[-len(stamps):]])  # the first was waited for before the stamps began
        stamps = np.array(stamps[-len(sizes):])
        assert len(packets) > 500
        total = np.concatenate([[0], np.cumsum(sizes)])
        spent = stamps[-1] - stamps[0]
        got = (total[-2] - burst) / spent
        assert spent > 0.2 and abs(got / rate - 1) < 0.02, (got, spent)
        for i in range(0, len(stamps), 7):  # in any span: burst + rate x time, and what a late reader sees at once
            ahead = total[i + 1:1 + len(stamps)] - total[i] - burst - rate * (stamps[i:] - stamps[i])
            assert ahead.max() <= 0.02 * rate, (i, ahead.max())


FIELD = (3, 2, 64)  # channels, polarisations, dishes of the pathfinder


def kotekan_receiver(directory, port, more="until_closed: true", frame=256):
    return Running(directory, f"""
include: {CONFIG}/telescopes/pathfinder.yaml
stream: {{epoch_ns: {EPOCH}, freq_mhz: {{first: 600, step: 0.1953125, count: 3}}}}
pipeline:
  - {{stage: receive, format: kotekan, address: "127.0.0.1:{port}", frame_samples: {frame}, {more}, out: e}}
  - {{stage: record, in: e, directory: ., prefix: r, overwrite: true}}
""")


def field_metadata(first, steps, type_=kotekan.INT4P4, dims=None):
    dims = dims or [("T", steps), ("F", 3), ("P", 2), ("D", 64)]
    return kotekan.metadata("E", type_, dims, first, 3)


def test_kotekan_receive():
    """Frames of any length that begin anywhere, an overlap, a gap, one that comes twice, both codings, a whole missing CHIME cell."""
    rng = np.random.default_rng(5)
    with harness.scratch() as d:
        port = free_port()
        raw = rng.integers(0, 256, (2000, *FIELD)).astype(np.uint8)
        run = kotekan_receiver(d, port)
        known = np.zeros(2000, bool)
        with socket.create_connection(("127.0.0.1", port)) as s:
            for at, n in ((7, 300), (307, 100), (400, 120), (307, 50), (600, 500), (1100, 900)):
                s.sendall(kotekan.frame(field_metadata(10000 + at, n), raw[at:at + n]))
                known[at:at + n] = True
        run.finish()
        e, valid, first, keys = harness.read_e(os.path.join(d, "r_000000.dada"))
        assert first == 10007 and int(keys["EPOCH_NS"]) == EPOCH
        want = harness.unpack(raw[7:]) * known[7:, None, None, None]
        assert np.array_equal(valid.any(axis=1), known[7:]) and np.array_equal(e, want)
        assert run.counts()["duplicate"] + run.counts()["late"] == 1 and run.counts()["missing"] == 80, run.counts()
    with harness.scratch() as d:  # CHIME's coding: offset binary, real part high, 0 is missing
        port = free_port()
        chime = rng.integers(1, 256, (512, *FIELD)).astype(np.uint8)
        chime[100:110, 1] = 0
        run = kotekan_receiver(d, port)
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.sendall(kotekan.frame(field_metadata(256, 512, kotekan.INT4P4CHIME), chime))
        run.finish()
        e, valid, first, _ = harness.read_e(os.path.join(d, "r_000000.dada"))
        want = (chime >> 4).astype(int) - 8 + 1j * ((chime & 15).astype(int) - 8)
        missing = np.zeros((512, 3), bool)
        missing[100:110, 1] = True
        assert np.array_equal(valid == 0, missing) and np.array_equal(e, want * ~missing[:, :, None, None])


def test_kotekan_bad_peers():
    rng = np.random.default_rng(6)
    raw = rng.integers(0, 256, (40 * 64, *FIELD)).astype(np.uint8)
    good = field_metadata(0, 64)
    body = raw[:64].tobytes()
    bad = [(struct.pack("<II", a, b), "malformed") for a, b in ((0, 64 * 384), (21119, 64 * 384), (21121, 64 * 384), (2**31, 64 * 384),
           (2**32 - 1, 64 * 384), (21120, 0), (21120, 64 * 384 + 1), (21120, 2**31), (21120, 2**32 - 1), (21120, 384 * (2**32 // 384)))]
    for at, form, values in ((0, "<i", (9, -1, 2**31 - 1)), (4, "<i", (0,)), (8, "<i", (1023,)), (36, "<i", (-1, 0, 1, 12, 99)),
                             (40, "<i", (-1, 0, 3, 5, 11, 2**31 - 1)), (44, "<i", (0, -64, 63, 65, 2**31 - 1)), (48, "<i", (2, 4)),
                             (56, "<i", (63,)), (84, "<i", (0, 0x58)), (288, "<q", (0, 1, -1, 2**63 - 1)), (312, "<q", (2,)),
                             (368, "<q", (1, -1)), (624, "<q", (2**62, -2**62)), (632, "<i", (1025, 2**31 - 1)),
                             (4732, "<i", (0, -2)), (8832, "<q", (2**62, -2**63)), (17024, "<i", (0, -2, 2))):
        for value in values:
            m = bytearray(good)
            struct.pack_into(form, m, at, value)
            bad.append((struct.pack("<II", 21120, len(body)) + bytes(m), "malformed"))
    whole = kotekan.frame(good, raw[:64])
    bad += [(whole[:n], "broken") for n in (1, 7, 8, 9, 500, 8 + 21119, 8 + 21120, len(whole) - 1)]
    with harness.scratch() as d:
        port = free_port()
        run = kotekan_receiver(d, port, "idle_s: 2, handshake_s: 1, max_frame_bytes: 100000000")
        want = {"malformed": 0, "broken": 0}
        with socket.create_connection(("127.0.0.1", port)) as s, socket.create_connection(("127.0.0.1", port)) as slow:
            slow.sendall(whole[:1000])
            for n in range(40):
                s.sendall(kotekan.frame(field_metadata(64 * n, 64), raw[64 * n:64 * n + 64]))
                for data, counter in bad[n::40]:
                    want[counter] += 1
                    with socket.create_connection(("127.0.0.1", port)) as b:
                        try:
                            b.sendall(data)
                            if counter == "broken":
                                b.shutdown(socket.SHUT_WR)
                            assert b.recv(1) == b"", data[:50]
                        except ConnectionError:
                            pass
            time.sleep(1.2)
        run.finish()
        e, valid, first, _ = harness.read_e(os.path.join(d, "r_000000.dada"))
        assert first == 0 and valid.all() and np.array_equal(e, harness.unpack(raw))
        counts = run.counts()
        assert {k: counts[k] for k in want} == want and counts["silent"] == 1 and counts["received"] == 40, (counts, want)


def kotekan_listener():
    listener, frames = socket.create_server(("127.0.0.1", 0)), []

    def take():
        with listener.accept()[0] as s:
            frames.extend(kotekan.receive(s))
        listener.close()

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    return "127.0.0.1:%d" % listener.getsockname()[1], frames, thread


def test_kotekan_send():
    """E and intensity beams as kotekan gets them: whole frames only, zeros where the stream has nothing; and E back again."""
    with harness.scratch() as d:
        (to_e, frames_e, thread_e), (to_j, frames_j, thread_j) = kotekan_listener(), kotekan_listener()
        harness.run(d, head(1000, 0.03) + f"""
  - {{stage: record, name: rec_e, in: e, directory: ., prefix: e}}
  - {{stage: record, name: rec_j, in: j, directory: ., prefix: j}}
  - {{stage: packetize, name: send_e, in: e, format: kotekan, destinations: [{{address: "{to_e}"}}]}}
  - {{stage: packetize, name: send_j, in: j, format: kotekan, idle_s: 0.1, destinations: [{{address: "{to_j}"}}]}}
""")
        thread_e.join(10), thread_j.join(10)
        e, _, first, keys = harness.read_e(os.path.join(d, "e_000000.dada"))
        assert first == 1000 and [m["first"] for m, _ in frames_e] == [2048 * n for n in range(len(frames_e))]
        got = np.concatenate([harness.unpack(np.frombuffer(b, np.uint8).reshape(2048, *FIELD)) for _, b in frames_e])
        assert np.array_equal(got[1000:1000 + len(e)], e) and not got[:1000].any() and not got[1000 + len(e):].any()
        m = frames_e[1][0]
        assert m["name"] == "E" and m["type"] == kotekan.INT4P4 and m["counter"] == 1 and m["nfreq"] == 3 and m["downsample"] == 1
        assert m["dims"] == [("T", 2048), ("F", 3), ("P", 2), ("D", 64)] and m["strides"] == (384, 128, 64, 1)
        assert m["coarse"] == (3073, 3074, 3075), m["coarse"]
        j, first, keys, _ = harness.read_frames(os.path.join(d, "j_000000.dada"))
        m = frames_j[0][0]
        assert m["type"] == kotekan.FLOAT16 and m["downsample"] == 4 and [x for x, _ in m["dims"]] == ["F", "T", "B"], m
        steps = m["dims"][1][1]
        got = np.concatenate([np.frombuffer(b, np.float16).reshape(3, steps, BEAMS) for _, b in frames_j], axis=1)
        at = first - frames_j[0][0]["first"] // 4
        assert np.array_equal(got[:, at:at + j.shape[1]], j)
    with harness.scratch() as d:
        port = free_port()
        run = kotekan_receiver(d, port, frame=500)
        harness.run(d, head(1000, 0.03).split("  - {stage: frb_grid")[0] + f"""
  - {{stage: record, in: e, directory: ., prefix: e}}
  - {{stage: packetize, in: e, format: kotekan, idle_s: 0.1, destinations: [{{address: "127.0.0.1:{port}"}}]}}
""")
        run.finish()
        sent, _, a, _ = harness.read_e(os.path.join(d, "e_000000.dada"))
        got, _, b, _ = harness.read_e(os.path.join(d, "r_000000.dada"))
        assert (a, b) == (1000, 0) and np.array_equal(got[1000:1000 + len(sent)], sent)


# --- beamring receive --------------------------------------------------------------------------------------------------------------


def receive_tool(d, *args):
    process = subprocess.Popen([os.path.abspath(harness.PROGRAM), "receive", *map(str, args)], cwd=d, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    assert "listening on port" in process.stderr.readline()
    return process


def test_receive_tool():
    """The recorder: what two senders bring, or packets, as files that replay reads; the document; the counters."""
    import yaml
    rng = np.random.default_rng(8)
    with harness.scratch() as d:
        port = free_port()
        tool = receive_tool(d, "frb-node", f"127.0.0.1:{port}", "--directory", "out", "--senders", 2, "--until-closed")
        levels, side = random_minichunks(rng, 30, 2, 4)
        socks = []
        for channels in ((4, 1), (0, 5)):
            s = socket.create_connection(("127.0.0.1", port))
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            s.sendall(frb_node.hello(document(channels=channels), flags=1))
            socks.append(s)
        for n in range(30):
            for s, w in zip(socks, ([2, 1], [0, 3])):  # channels 0, 1, 4, 5 in the order of the recording
                if n not in (11, 12):
                    s.sendall(frb_node.minichunk(n * STEP, side[n][:, w], levels[n][:, w]))
                    assert s.recv(1) == b"\1"
        for s in socks:
            s.close()
        out, _ = tool.communicate(timeout=20)
        counts = json.loads(out)
        assert tool.returncode == 0 and counts["received"] == 56 and counts["missing"] == 8 and counts["blocks"] == 28, counts
        assert yaml.safe_load(open(os.path.join(d, "out", "document.yaml"))) == document(channels=(0, 1, 4, 5))
        got = recordings(os.path.join(d, "out"), "received")
        assert [f[0] for f in got] == [n * STEP for n in range(30) if n not in (11, 12)]
        for first, x, y in got:
            assert np.array_equal(x, levels[first // STEP]) and np.array_equal(y, side[first // STEP].astype(np.float32))
        harness.run(d, """
pipeline:
  - {stage: replay, files: out/received_*.dada, out: q}
  - {stage: filterbank, in: q, directory: fil, values: intensity}
""")
        info = harness.beamring("info", os.path.join(d, "out", "received_000000.dada"))
        assert info.status == 0 and "int4" in info.out, info
    with harness.scratch() as d:
        port = free_port(socket.SOCK_DGRAM)
        packets, data, scale, offset = l0_packets(rng, 40)
        tool = receive_tool(d, "chime-l0", f"127.0.0.1:{port}", "--directory", ".", "--beams", 4, "--first-beam", 100, "--channels", 6,
                            "--first-channel", 20, "--nupfreq", 2, "--epoch-ns", EPOCH, "--idle", 0.5)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.connect(("127.0.0.1", port))
            for i, p in enumerate(packets):
                if i != 50:
                    s.send(p[3])
                if i % 16 == 0:
                    time.sleep(0.001)
        out, _ = tool.communicate(timeout=20)
        counts = json.loads(out)
        assert tool.returncode == 0 and counts["received"] == 159 and counts["missing"] == 6, counts
        os.rename(os.path.join(d, "received_000000.dada"), os.path.join(d, "r_000000.dada"))
        check_l0(d, {p[:3] for i, p in enumerate(packets) if i != 50}, data, scale, offset)
    for args in (["frb-node"], ["udp", "*:1"], ["frb-node", "nowhere"], ["chime-l0", "*:1"], ["frb-node", "*:1", "--window", "x"],
                 ["frb-node", "*:1", "--window"], ["frb-node", "*:1", "--directory"]):
        assert harness.beamring("receive", *args).status == 2, args


if __name__ == "__main__":
    harness.main([test_frb_node_values, test_chime_l0_values, test_frb_node_receive, test_frb_node_there_and_back,
                  test_frb_node_bad_peers, test_frb_node_reconnect, test_frb_node_deaf_peers, test_interrupt_while_blocked, test_refused, test_chime_l0_sweep,
                  test_chime_l0_bad_packets, test_chime_l0_pacing, test_kotekan_receive,
                  test_kotekan_bad_peers, test_kotekan_send, test_receive_tool])
