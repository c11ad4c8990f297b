"""kotekan's frames of beams and of the upchannelized field, from files and from the network: into the streams
that our stages take, and through these stages."""
import os
import socket
import struct
import sys

import numpy as np

import harness
from files_common import write
from small import DISHES, SPACING, TELESCOPE, one
from wires_common import BEAMS, CONFIG, free_port, head, Running, turned_away

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import recordings as other  # noqa: E402

EPOCH = 1700000000000000000
STREAM = f"stream: {{sample_ns: 5120, epoch_ns: {EPOCH}}}\n"
COARSE = [2048, 2049, 3000]
WIDTH = 1e3 / 5120


def fine(coarse, u):
    return [WIDTH * (c + (i - (u - 1) / 2) / u) for c in coarse for i in range(u)]


def record(d, pattern, extra="", stream=STREAM, status=0):
    for name in ("out_000000.dada", "out_000000.dada.gaps"):
        if os.path.exists(os.path.join(d, name)):
            os.remove(os.path.join(d, name))
    return harness.run(d, stream + f"""
pipeline:
  - {{stage: replay, files: "{pattern}", out: x{extra}}}
  - {{stage: record, in: x, directory: ., prefix: out}}
""", status=status)


def stored(d, axes, down, name="out_000000.dada"):
    """The recording's array and validity, [time][freq] or as the axes are ordered, and its first step and
    keys."""
    path = os.path.join(d, name)
    keys, size = harness.header(path)
    assert keys["AXES"] == axes, keys["AXES"]
    if axes.startswith("time"):
        shape = [int(x) for x in keys["SHAPE"].split(",")]
        data, first = np.fromfile(path, np.uint8,
                                  offset=size).reshape(-1, *shape[1:]), int(keys["SAMPLE0"]) // down
    else:
        data, first, keys, _ = harness.read_frames(path)
    if keys["DTYPE"] == "int4x2":
        data = harness.unpack(data)
    t = axes.split(",").index("time")
    nfreq = data.shape[axes.split(",").index("freq")]
    return data, harness.read_gaps(path, first, data.shape[t], nfreq, down) == 255, first, keys


def arrays():
    """(dims, axes, kind, array over 40 steps, upchannelization, samples of a step)."""
    rng = np.random.default_rng(1)
    return [("TFPD", "time,freq,pol,dish", "int4p4", other.noise((40, 12, 2, 5), 1), 4, 4),
            ("BFPT", "beam,freq,pol,time", "int4p4", other.noise((7, 3, 2, 40), 2), 1, 1),
            (["F", "T",
              "B"], "freq,time,beam", "float16", rng.normal(size=(6, 40, 9)).astype(np.float16), 2, 6),
            (["F", "Tbar",
              "B"], "freq,time,beam", "float32", rng.normal(size=(3, 40, 4)).astype(np.float32), 1, 3),
            (["F", "Tbar", "beamP", "beamQ"], "freq,time,gridp,gridq", "float16",
             rng.normal(size=(3, 40, 4, 6)).astype(np.float16), 1, 12)]


def test_replay():
    """Frames of ten steps, one of them lost, two overlapping and one repeated at the end: in any
    length of our frames, and in loops."""
    for dims, axes, kind, array, u, down in arrays():
        t = axes.split(",").index("time")
        take = lambda a, b: array[tuple(slice(a, b) if i == t else slice(None) for i in range(array.ndim))]
        first = 700 * down
        with harness.scratch() as d:
            for n, (a, b) in enumerate([(0, 10), (20, 30), (27, 40), (38, 40)]):
                half = down - 1  # a step's centre
                write(
                    d, f"k_{n:07}.raw",
                    other.kotekan_array(take(a, b), dims, COARSE, 700 + a, kind, upchan=u, downsampling=down,
                                        half=half))
            known = np.ones(40, bool)
            known[10:20] = False
            for extra in ("", f", frame_samples: {7 * down}", f", frame_samples: {64 * down}"):
                result = record(d, "k_*.raw", extra)
                got, valid, at, keys = stored(d, axes, down)
                assert at == 700 and got.shape == array.shape and int(keys["EPOCH_NS"]) == EPOCH, (at,
                                                                                                   got.shape)
                mask = valid.all(axis=1)
                assert np.array_equal(mask, known) and np.array_equal(valid.any(axis=1), known)
                shape = [40 if i == t else 1 for i in range(array.ndim)]
                assert np.array_equal(np.where(known.reshape(shape), got, 0),
                                      np.where(known.reshape(shape), array, 0)), axes
                low, step, count = (keys["FREQ_MHZ"].split(":") +
                                    ["", ""])[:3] if ":" in keys["FREQ_MHZ"] else (None, ) * 3
                mhz = [float(low) + float(step) * i for i in range(int(count))
                       ] if low else [float(x) for x in keys["FREQ_MHZ"].split(",")]
                assert np.allclose(mhz, fine(COARSE, u), rtol=0, atol=1e-9), mhz
                assert "duplicate" in result.out and "balance: every" in result.out, result
            info = harness.beamring("info", "k_0000000.raw", cwd=d)
            what = {
                "dish": "the electric field", "time": "voltages of beams", "beam": "intensities of beams",
                "gridq": "intensities on the grid"
            }
            assert what[axes.split(",")[-1]] in info.out, info
            record(d, "k_*.raw", f", loop: 3, frame_samples: {16 * down}")
            got, valid, at, _ = stored(d, axes, down)
            assert got.shape[t] == 120 and np.array_equal(valid.all(axis=1), np.tile(known, 3))
            for k in range(3):
                part = got[tuple(
                    slice(40 * k + 20, 40 * k + 40) if i == t else slice(None) for i in range(got.ndim))]
                assert np.array_equal(part, take(20, 40))
            assert first == at * down


def test_stages():
    """Upchannelized field -> grid -> beams; the grid -> beams; beams -> levels -> filterbank."""
    rng = np.random.default_rng(5)
    with harness.scratch() as d:
        e = other.noise((96, 12, 2, 12), 3)
        write(d, "e.raw",
              other.kotekan_array(e, "TFPD", COARSE, 480, "int4p4", upchan=4, downsampling=4, half=3))
        beams = np.array([[0, 0], [0.02, -0.03]])
        harness.run(d, TELESCOPE + STREAM + f"""
pipeline:
  - {{stage: replay, files: e.raw, out: e}}
  - {{stage: frb_grid, in: e, out: grid, downsample: 24}}
  - {{stage: frb_beams, in: grid, out: j, beams: {{directions: {beams.tolist()}}}}}
  - {{stage: record, in: grid, directory: ., prefix: grid}}
  - {{stage: record, name: r2, in: j, directory: ., prefix: j}}
""")
        want, _ = harness.beam_intensity(e, np.ones((96, 12), bool), DISHES, SPACING, fine(COARSE, 4), beams,
                                         24, 480)
        got, first, keys, _ = harness.read_frames(one(d, "j*.dada"))
        got = got.astype(float) * float(keys["SCALE"])
        scale = np.sqrt((want ** 2).mean())
        assert first == 20 and abs(got - want).max() < 2e-2 * scale
        grid, first, keys, _ = harness.read_frames(one(d, "grid*.dada"))
        write(
            d, "grid.raw",
            other.kotekan_array(grid, ["F", "Tbar", "beamP", "beamQ"], COARSE, first, "float16", upchan=4,
                                downsampling=96, half=95))
        harness.run(d, TELESCOPE + STREAM + f"""
pipeline:
  - {{stage: replay, files: grid.raw, out: grid}}
  - {{stage: frb_beams, in: grid, out: j, beams: {{directions: {beams.tolist()}}}}}
  - {{stage: record, in: j, directory: ., prefix: again}}
""")
        again, at, keys2, _ = harness.read_frames(one(d, "again*.dada"))
        assert at == first and np.array_equal(again.astype(float) * float(keys["SCALE"]),
                                              got), "the same beams of the same grid"
        j = (100 + 10 * rng.normal(size=(3, 128, 4))).astype(np.float16)
        write(
            d, "j.raw",
            other.kotekan_array(j, ["F", "T", "B"], [2048, 2049, 2050], 1000, "float16", downsampling=192,
                                half=191))
        harness.run(d, STREAM + """
pipeline:
  - {stage: replay, files: j.raw, out: j}
  - {stage: filterbank, in: j, directory: fil, prefix: b}
""")
        data = open(os.path.join(d, "fil", "b0002.fil"), "rb").read()
        rows = np.frombuffer(data, np.float32, offset=len(data) - 4 * j[:, :, 2].size).reshape(128, 3)
        assert np.array_equal(rows, j[::-1, :, 2].T.astype(np.float32))


def on_the_wire(data):
    """A frame of a file as bufferSend sends it."""
    return data[:4] + struct.pack("<I", len(data) - 4 - 21120) + data[4:]


RECEIVED = {
    "TFPD": "field, factor: 4", "BFPT": "voltages, nbeams: 7",
    "FTB": "intensities, nbeams: 9, factor: 2, downsample: 6", "FTbarbeamPbeamQ": "grid, downsample: 12"
}


def receiver(d, port, array, nfreq, frame, more="until_closed: true"):
    return Running(
        d, f"""
telescope: {{name: t, grid: {{m: 2, n: 3}}, spacing_m: {{m: 1, n: 1}}, dishes: [[0, 0], [0, 1], [0, 2], [1,
  0], [1, 2]],
  latitude_deg: 0, longitude_deg: 0}}
stream: {{epoch_ns: {EPOCH}, sample_ns: 5120, freq_mhz: {{first: 600, step: 0.1, count: {nfreq}}}}}
pipeline:
  - {{stage: receive, format: kotekan, address: "127.0.0.1:{port}", array: {array}, frame_samples: {frame},
       {more}, out: e}}
  - {{stage: record, in: e, directory: ., prefix: out, overwrite: true}}
""")


def test_receive():
    """Each array: frames of ten steps, one lost, one twice, an overlap; peers with other arrays are refused
    and the good one goes on."""
    everything = arrays()
    for dims, axes, kind, array, u, down in everything:
        t = axes.split(",").index("time")
        if kind == "float32":  # no stage takes it from the network
            continue
        nfreq = array.shape[axes.split(",").index("freq")]
        frame = lambda a, b: on_the_wire(
            other.kotekan_array(
                array[tuple(slice(a, b) if i == t else slice(None) for i in range(array.ndim))], dims,
                COARSE[:nfreq // u], 700 + a, kind, upchan=u, downsampling=down, half=down - 1))
        with harness.scratch() as d:
            port = free_port()
            run = receiver(d, port, RECEIVED["".join(dims)], nfreq, 8 * down)
            with socket.create_connection(("127.0.0.1", port)) as s:
                s.sendall(frame(0, 10))
                refused = 0
                for odims, _, okind, oarray, ou, odown in everything:
                    if odims != dims:
                        data = on_the_wire(
                            other.kotekan_array(oarray, odims, COARSE, 700, okind, upchan=ou,
                                                downsampling=odown, half=odown - 1))
                        refused += 1
                        turned_away(port, data)
                for a, b in ((20, 30), (20, 30), (27, 40)):
                    s.sendall(frame(a, b))
            run.finish()
            # Whole frames of 8 steps; a frame of which nothing came is a hole, behind which a recording goes
            # on in another file.
            names = sorted(n for n in os.listdir(d) if n.endswith(".dada"))
            parts = [stored(d, axes, down, n) for n in names]
            first = parts[0][2]
            got = np.zeros([48 if i == t else n for i, n in enumerate(array.shape)], array.dtype)
            valid = np.zeros((48, nfreq), bool)
            for data, ok, at, _ in parts:
                assert (at - first) % 8 == 0 and data.shape[t] % 8 == 0, (at, data.shape)
                rows = slice(at - first, at - first + data.shape[t])
                got[tuple(rows if i == t else slice(None) for i in range(array.ndim))] = data
                valid[rows] = ok
            assert first == 696
            known = np.zeros(48, bool)
            known[4:14] = known[24:44] = True
            assert np.array_equal(valid.all(axis=1), known) and np.array_equal(valid.any(axis=1), known)
            want = np.zeros(got.shape, array.dtype)
            place = lambda a, b: tuple(slice(a, b) if i == t else slice(None) for i in range(array.ndim))
            want[place(4, 44)] = array
            shape = [48 if i == t else 1 for i in range(array.ndim)]
            assert np.array_equal(np.where(known.reshape(shape), got, 0),
                                  np.where(known.reshape(shape), want, 0)), axes
            counts = run.counts()
            assert counts["malformed"] == refused and \
                counts["received"] == 4 and counts["duplicate"] + counts["late"] == 1, counts


def test_from_packetize():
    """Streams that packetize sends, also beams, come back."""
    with harness.scratch() as d:
        port = free_port()
        run = Running(
            d, f"""
include: {CONFIG}/telescopes/pathfinder.yaml
stream: {{epoch_ns: {EPOCH}, sample_ns: 5120, freq_mhz: {{first: 600.09765625, step: 0.1953125, count: 3}}}}
pipeline:
  - {{stage: receive, format: kotekan, address: "127.0.0.1:{port}", array: intensities, nbeams: {BEAMS},
       downsample: 4, until_closed: true, out: j}}
  - {{stage: record, in: j, directory: ., prefix: got}}
""")
        harness.run(d, head(2048, 0.03) + f"""
  - {{stage: record, in: j, directory: ., prefix: sent}}
  - {{stage: packetize, in: j, format: kotekan, idle_s: 0.1, destinations: [{{address: "127.0.0.1:{port}"}}]}}
""")
        run.finish()
        sent, a, keys, _ = harness.read_frames(os.path.join(d, "sent_000000.dada"))
        got, b, back, _ = harness.read_frames(os.path.join(d, "got_000000.dada"))
        at = a - b
        assert np.array_equal(got[:, at:at + sent.shape[1]],
                              sent) and keys["FREQ_MHZ"] == back["FREQ_MHZ"], (a, b, got.shape, sent.shape)


def test_receive_refused():
    with harness.scratch() as d:
        for array, word in (("intensities", "nbeams"), ("field, nbeams: 3", "nbeams"),
                            ("grid, nbeams: 3", "nbeams"), ("field, factor: 5", "factor"),
                            ("field, downsample: 2", "downsample"), ("grid, downsample: 3",
                                                                     "multiple of the 3"), ("beams", "array"),
                            ("grid, coding: chime", "coding"), ("voltages, nbeams: 2, factor: 0", "factor")):
            result = harness.run(
                d, f"""
telescope: {{name: t, grid: {{m: 2, n: 3}}, spacing_m: {{m: 1, n: 1}}, dishes: [[0, 0]], latitude_deg: 0,
  longitude_deg: 0}}
stream: {{epoch_ns: {EPOCH}, sample_ns: 5120, freq_mhz: [600, 601]}}
pipeline:
  - {{stage: receive, format: kotekan, address: "127.0.0.1:1", out: e, array: {array}}}
  - {{stage: record, in: e, directory: ., prefix: out}}
""", status=2)
            assert word in result.err, (word, result)


def test_refused():
    j = np.ones((3, 10, 4), np.float16)
    dims = ["F", "T", "B"]
    good = other.kotekan_array(j, dims, COARSE, 100, "float16", downsampling=6, half=5)
    cases = [(other.kotekan_array(j, ["F", "T", "X"], COARSE, 100, "float16"), "[F 3][T 10][X 4]"),
             (other.kotekan_array(j, ["F", "B", "B"], COARSE, 100, "float16"), "[F 3][B 10][B 4]"),
             (other.kotekan_array(j.astype(np.float64), dims, COARSE, 100, "float64"), "float64"),
             (other.kotekan_array(j.astype(np.int8), dims, COARSE, 100, "int8"), "int8"),
             (other.kotekan_array(j[0], ["T", "B"], COARSE, 100, "float16"), "[T 10][B 4]"),
             (other.kotekan_array(j, dims, COARSE[:2], 100, "float16"), "nfreq 2"),
             (other.kotekan_array(j, dims, COARSE, 100, "float16", upchan=2), "upchannelized by 2"),
             (other.kotekan_array(j, dims, COARSE, 100, "float16", downsampling=6,
                                  half=384), "half_fpga_sample0 384"),
             (other.kotekan_array(other.noise((8, 6, 2, 3), 1), "TFPD", COARSE, 100, "int4p4", upchan=2,
                                  downsampling=4, half=3), "time_downsampling"),
             (other.kotekan_array(j, dims, [0, 1, 2], 100, "float16"), "freq_mhz"),
             (other.kotekan_array(j, dims, [], 100, "float16"), "freq_mhz"),
             (good + other.kotekan_array(j, dims, [1, 2, 3], 110, "float16", downsampling=6, half=5),
              "other channels"),
             (good + other.kotekan_array(j[:, :, :3], dims, COARSE, 110, "float16", downsampling=6, half=5),
              "other lengths"),
             (good + other.kotekan_array(j, dims, COARSE, 110, "float16"), "other upchannelization"),
             (good + other.kotekan_array(j, dims, COARSE, 10**9, "float16", downsampling=6, half=5),
              "max_gap_s"), (good[:-1], "no whole frame")]
    with harness.scratch() as d:
        for data, word in cases:
            write(d, "x.raw", data)
            result = record(d, "x.raw", status=2)
            assert word in result.err and "x.raw" in result.err, (word, result)
        write(d, "x.raw", cases[0][0])
        assert "nothing that can be replayed" in harness.beamring("info", "x.raw", cwd=d).out
        write(d, "x.raw", good)
        for stream, extra, word in (
            ("", "", "sample_ns"), ("stream: {sample_ns: 5120}\n", "", "epoch_ns"),
            (STREAM, ", frame_samples: 7", "multiple of the 6"), (STREAM, ", coding: chime", "coding"),
            (f"stream: {{sample_ns: 5120, epoch_ns: {EPOCH}, freq_mhz: [400, 401]}}\n", "", "3 channels")):
            assert word in record(d, "x.raw", extra, stream, 2).err, word
        write(d, "x.raw", good + good[:-1])
        assert "truncated" in record(d, "x.raw").err
        write(d, "x.raw", good + good[:700])
        assert "truncated" in record(d, "x.raw").err


if __name__ == "__main__":
    harness.main([f for name, f in sorted(globals().items()) if name.startswith("test_")])
