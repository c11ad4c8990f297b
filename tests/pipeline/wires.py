"""Beams onto the network and back: `packetize` against receivers written from the formats' descriptions, `receive` against senders
written from them, and one against the other. Levels, masks, scales and times are compared exactly."""
import math
import os
import sys

import numpy as np

import harness

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import chime_l0  # noqa: E402
import frb_node  # noqa: E402

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


if __name__ == "__main__":
    harness.main([test_frb_node_values, test_chime_l0_values])
