"""Every array that kotekan's GPU stages have, both ways: what packetize sends is what such a stage asserts;
what it took comes back through receive, and from raw files through replay, bit for bit."""
import os
import socket
import struct

import numpy as np

import harness
from wires_common import CONFIG, free_port, Running, turned_away
import kotekan  # noqa: E402

EPOCH, STEPS, FIRST = 1700000000000000000, 1024, 4096
NFREQ, U, T, TAPS = 2, 8, 4, 4
D = U * T
HEAD = f"""
include: {CONFIG}/telescopes/pathfinder.yaml
stream: {{epoch_ns: {EPOCH}, sample_ns: 5120, freq_mhz: {{first: 600.09765625, step: 0.1953125,
  count: {NFREQ}}},
  sample0: {FIRST}}}
"""
FINE = (f"{{epoch_ns: {EPOCH}, sample_ns: 5120, freq_mhz: {{first: {600.09765625 - 3.5 * 0.1953125 / U}, "
        f"step: {0.1953125 / U}, count: {NFREQ * U}}}}}")
COARSE_STREAM = (f"{{epoch_ns: {EPOCH}, sample_ns: 5120, freq_mhz: {{first: 600.09765625, step: 0.1953125, "
                 f"count: {NFREQ}}}}}")
# Array: the queue, how ours becomes theirs, what receive is told, the stream's frequencies, a step.
ARRAYS = {
    "E": ("e", (0, 1, 2, 3), "field", COARSE_STREAM, 1),
    "Ebar": ("fine", (0, 1, 2, 3), f"field, factor: {U}", FINE, U),
    "I": ("grid", (1, 0, 3, 2), f"grid, factor: {U}, downsample: {D}", FINE, D),
    "I2": ("beams", (2, 0, 1), f"intensities, nbeams: 6, factor: {U}, downsample: {D}", FINE, D),
    "J": ("voltage", (0, 1, 2, 3), "voltages, nbeams: 3", COARSE_STREAM, 1),
}


def peers():
    dishes = {"P": 2, "D": 64}
    half = TAPS - 1
    return {
        "E": kotekan.Peer("E", dishes, NFREQ),
        "Ebar": kotekan.Peer("Ebar", dishes, NFREQ, U, U, U, half),
        "I": kotekan.Peer("I", {"beamQ": 24, "beamP": 16}, NFREQ, U, D, D, half),
        "I2": kotekan.Peer("I2", {"R": 6}, NFREQ, U, D, D, half),
        "J": kotekan.Peer("J", {"B": 3, "P": 2}, NFREQ),
    }


def stored(path):
    """(numbers in the order of our axes, zero where they are missing; first step, header) of a recording."""
    keys, size = harness.header(path)
    if keys["AXES"].startswith("time"):
        shape = [int(x) for x in keys["SHAPE"].split(",")]
        down = int(keys.get("DOWNSAMPLE", 1))
        data = harness.unpack(np.fromfile(path, np.uint8, offset=size).reshape(-1, *shape[1:]))
        first = int(keys["SAMPLE0"]) // down
        valid = harness.read_gaps(path, first, *data.shape[:2], down) == 255
        return data * valid[:, :, None, None], first, keys
    data, first, keys, _ = harness.read_frames(path)
    return harness.unpack(data) if keys["DTYPE"] == "int4x2" else data, first, keys


def record_all(d, prefix):
    """{array: (numbers, first step, header)} of PREFIX_ARRAY_000000.dada."""
    return {a: stored(os.path.join(d, f"{prefix}_{a}_000000.dada")) for a in ARRAYS}


def frequencies(keys):
    """FREQ_MHZ of a recording, all channels."""
    text = keys["FREQ_MHZ"]
    if ":" in text:
        first, step, count = text.split(":")
        return [float(first) + float(step) * i for i in range(int(count))]
    return [float(x) for x in text.split(",")]


def pipeline():
    return HEAD + f"""
pipeline:
  - {{stage: simulate, out: e, seed: 7, noise: 2.5, frame_samples: {STEPS},
       duration_s: {6 * STEPS * 5120e-9}}}
  - {{stage: upchannelize, in: e, out: fine, factor: {U}, taps: {TAPS}}}
  - {{stage: frb_grid, in: fine, out: grid, downsample: {T}}}
  - {{stage: frb_beams, in: grid, out: beams, beams: {{grid: [2, 3], spacing_deg: 0.3}}}}
  - {{stage: baseband_beamform, in: e, out: voltage, beams: {{grid: [1, 3], spacing_deg: 1}}}}
"""


def send(d, to, more=None):
    more, text = more or {}, pipeline()
    for a, (queue, *_) in ARRAYS.items():
        text += f"  - {{stage: record, name: r_{a}, in: {queue}, directory: ., prefix: ours_{a}}}\n"
        text += (f"  - {{stage: packetize, name: p_{a}, in: {queue}, format: kotekan, idle_s: 0.1, "
                 f"{more.get(a, '')}destinations: [{{address: \"{to[a]}\"}}]}}\n")
    return harness.run(d, text)


def joined(peer, order):
    """The frames of a peer in our order, and the first step."""
    data = [x for _, x in peer.finish()]
    t = next(i for i, n in enumerate(peer.dims) if n[0] == "T")
    whole = np.concatenate(data, axis=t)
    return whole.transpose(np.argsort(order)), peer.got[0][0]["offset"]


def same(name, axes, ours, first, theirs, at):
    """Theirs has ours from its first step on, and zeros around it."""
    t = axes.split(",").index("time")
    cut = [slice(None)] * ours.ndim
    cut[t] = slice(first - at, first - at + ours.shape[t])
    assert first >= at and theirs[tuple(cut)].shape == ours.shape, (name, first, at, theirs.shape, ours.shape)
    wrong = np.argwhere(theirs[tuple(cut)] != ours)
    assert len(wrong) == 0, (name, len(wrong), wrong[0], theirs[tuple(cut)][tuple(wrong[0])],
                             ours[tuple(wrong[0])])
    rest = theirs.copy()
    rest[tuple(cut)] = 0
    assert not rest.any(), name


def test_both_ways():
    with harness.scratch() as d:
        to = peers()
        send(d, {a: p.address for a, p in to.items()})
        ours = record_all(d, "ours")
        for a, (_, order, *_) in ARRAYS.items():
            data, first, keys = ours[a]
            assert np.count_nonzero(data) > data.size // 2, a
            theirs, at = joined(to[a], order)
            same(a, keys["AXES"], data, first, theirs, at)
            assert to[a].got[0][0]["coarse"] == (3073, 3074)
        # A peer sends the frames that it took, and writes raw files.
        for a, (_, order, array, stream, step) in ARRAYS.items():
            port = free_port()
            steps = to[a].got[0][1].shape[next(i for i, n in enumerate(to[a].dims) if n[0] == "T")]
            run = Running(
                d, f"""
include: {CONFIG}/telescopes/pathfinder.yaml
stream: {stream}
pipeline:
  - {{stage: receive, format: kotekan, address: "127.0.0.1:{port}", array: {array},
       frame_samples: {steps * step},
       until_closed: true, out: x}}
  - {{stage: record, in: x, directory: ., prefix: wire_{a}}}
""", f"receive_{a}.yaml")
            with socket.create_connection(("127.0.0.1", port)) as s:
                for n, (m, data) in enumerate(to[a].raw):
                    s.sendall(struct.pack("<II", len(m), len(data)) + m + data)
                    with open(os.path.join(d, f"raw_{a}_{n:07}.raw"), "wb") as f:
                        f.write(struct.pack("<I", len(m)) + m + data)
            run.finish()
            harness.run(d, f"""
include: {CONFIG}/telescopes/pathfinder.yaml
stream: {stream}
pipeline:
  - {{stage: replay, files: "raw_{a}_*.raw", out: x}}
  - {{stage: record, in: x, directory: ., prefix: file_{a}}}
""")
            data, first, keys = ours[a]
            for prefix in ("wire", "file"):
                got, at, back = stored(os.path.join(d, f"{prefix}_{a}_000000.dada"))
                assert back["AXES"] == keys["AXES"] and back["DTYPE"] == keys["DTYPE"], (a, prefix)
                assert back.get("DOWNSAMPLE") == keys.get("DOWNSAMPLE"), (a, prefix)
                same((a, prefix), keys["AXES"], data, first, got, at)
            zone = [int(x) for x in back["ZONE_0"].split(",")]
            assert zone[2] == (U if step > 1 else 1) and zone[4] == ((TAPS - 1) * U //
                                                                     2 if step > 1 else 0), (a, zone)


def test_int4p4():
    """The electric field in our coding, for others than kotekan's GPU stages."""
    with harness.scratch() as d:
        to = peers()
        for a in ("E", "Ebar"):
            to[a].type = kotekan.INT4P4
        send(d, {a: p.address for a, p in to.items()}, {a: "coding: int4p4, " for a in ("E", "Ebar")})
        ours = record_all(d, "ours")
        for a in ("E", "Ebar"):
            data, first, keys = ours[a]
            same(a, keys["AXES"], data, first, *joined(to[a], ARRAYS[a][1]))


def test_raw_files():
    """record writes each array as kotekan has it, in files that replay reads; and as the peers got it."""
    with harness.scratch() as d:
        text = pipeline().replace("600.09765625", "600")  # a multiple of the channel width
        for a, (queue, *_) in ARRAYS.items():
            text += f"  - {{stage: record, name: r_{a}, in: {queue}, directory: ., prefix: ours_{a}}}\n"
            text += (
                f"  - {{stage: record, name: k_{a}, in: {queue}, directory: raw, prefix: {a}, "
                f"format: kotekan, lossy: {str(a != 'E').lower()}}}\n")
        harness.run(d, text)
        for a, (_, order, _, stream, step) in ARRAYS.items():
            type_, dims = kotekan.STAGES[a]
            data, first, keys = stored(os.path.join(d, f"ours_{a}_000000.dada"))
            parts, at = [], None
            for name in sorted(n for n in os.listdir(os.path.join(d, "raw")) if n.startswith(a + "_")):
                raw = open(os.path.join(d, "raw", name), "rb").read()
                assert raw[:4] == struct.pack("<I", kotekan.SIZE)
                m = kotekan.parse(raw[4:4 + kotekan.SIZE])
                assert m["type"] == type_ and [n for n, _ in m["dims"]] == dims.split(), m
                at = m["offset"] if at is None else at
                parts.append(kotekan.values(type_, raw[4 + kotekan.SIZE:], [n for _, n in m["dims"]]))
            t = next(i for i, n in enumerate(dims.split()) if n[0] == "T")
            same(a, keys["AXES"], np.concatenate(parts, axis=t).transpose(np.argsort(order)), at, data, first)
            harness.run(d, f"""
include: {CONFIG}/telescopes/pathfinder.yaml
stream: {{epoch_ns: {EPOCH}, sample_ns: 5120}}
pipeline:
  - {{stage: replay, files: "raw/{a}_*.raw", out: x}}
  - {{stage: record, in: x, directory: ., prefix: back_{a}}}
""")
            got, at, back = stored(os.path.join(d, f"back_{a}_000000.dada"))
            same(a, keys["AXES"], got, at, data, first)
            assert np.allclose(frequencies(back), frequencies(keys), rtol=0, atol=1e-9), a


def test_too_many_channels():
    """A frame of kotekan has fewer than 1024 channels: refused before anything starts."""
    with harness.scratch() as d:
        for count, status in ((1023, 0), (1024, 2)):
            path = os.path.join(d, "p.yaml")
            with open(path, "w") as f:
                f.write(f"""
telescope: {{name: t, grid: {{m: 1, n: 1}}, spacing_m: {{m: 1, n: 1}}, dishes: [[0, 0]], latitude_deg: 0,
  longitude_deg: 0}}
stream: {{epoch_ns: {EPOCH}, sample_ns: 5120, freq_mhz: {{first: 400, step: 0.1953125, count: {count}}}}}
pipeline:
  - {{stage: simulate, out: e, frame_samples: 16, samples: 64}}
  - {{stage: packetize, in: e, format: kotekan, destinations: [{{address: "127.0.0.1:9"}}]}}
""")
            result = harness.beamring("check", path, cwd=d)
            assert result.status == status, result
            words = "1024 coarse channels; kotekan's stages take at most 1023"
            assert status == 0 or words in result.err, result


def test_strangers():
    """Frames of a newer kotekan are refused with its name: by the size of its metadata, the tag of a frame
    descriptor, or the word that stands before the metadata."""
    m = kotekan.metadata("E", kotekan.INT4P4, [("T", 16), ("F", 2), ("P", 2), ("D", 64)], 0, 2)
    body = bytes(16 * 2 * 2 * 64)
    heads = {
        "2026": struct.pack("<II", 12680, len(body)) + m[:12680],
        "frame descriptor": struct.pack("<II", 1, 7),
        "the tag of a frame descriptor": struct.pack("<II", 2, 7),
        "use_config_tracker: false": struct.pack("<III", len(m), len(body), 1) + m[:-4],
    }
    with harness.scratch() as d:
        for words, data in heads.items():
            port = free_port()
            run = Running(d, f"""
include: {CONFIG}/telescopes/pathfinder.yaml
stream: {COARSE_STREAM}
pipeline:
  - {{stage: receive, format: kotekan, address: "127.0.0.1:{port}", until_closed: true, out: x}}
  - {{stage: record, in: x, directory: ., prefix: r}}
""")
            turned_away(port, data)
            run.finish()
            assert words in run.text() and run.counts()["malformed"] == 1, (words, run.text())
        with open(os.path.join(d, "x.raw"), "wb") as f:
            f.write(struct.pack("<I", 12680) + m[:12680] + body)
        result = harness.run(d, f"""
stream: {COARSE_STREAM}
pipeline:
  - {{stage: replay, files: x.raw, out: x}}
  - {{stage: record, in: x, directory: ., prefix: r}}
""", status=2)
        assert "2026" in result.err and "x.raw" in result.err, result


if __name__ == "__main__":
    harness.main([f for name, f in sorted(globals().items()) if name.startswith("test_")])
