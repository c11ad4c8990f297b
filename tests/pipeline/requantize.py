"""8 + 8 bits as 4 + 4: a GUPPI recording through `requantize` against rounding in NumPy, and on to beams
against direct sums."""
import json
import os
import sys

import numpy as np

import harness
from files_common import write
from small import DISHES, SPACING, TELESCOPE, one

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import recordings as other  # noqa: E402

SIGMA = np.array([[3.0, 9.0], [20.0, 33.0], [1.2, 60.0], [0.0, 14.0]])  # [channel][pol], in 8-bit levels


def field(ntime, ndish, seed=3, sigma=SIGMA):
    rng = np.random.default_rng(seed)
    shape = (ntime, len(sigma), 2, ndish)
    e = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    e = e * sigma[None, :, :, None]
    return np.clip(np.rint(e.real), -128, 127) + 1j * np.clip(np.rint(e.imag), -128, 127)


def levels(e, scale):
    """e[time][freq][pol][dish], scale[freq][pol]."""
    s = scale[None, :, :, None].astype(np.float32)
    re, im = np.rint(e.real.astype(np.float32) * s), np.rint(e.imag.astype(np.float32) * s)
    clamped = (abs(re) > 7).sum(axis=(2, 3)) + (abs(im) > 7).sum(axis=(2, 3))
    return np.clip(re, -7, 7) + 1j * np.clip(im, -7, 7), clamped


def measured(e, valid, n, rms=2.5):
    """Scale by the rms of each component over the valid ones of the first n samples; 1 where there is
    nothing."""
    out = np.ones(e.shape[1:3])
    for c in range(e.shape[1]):
        v = e[:n][valid[:n, c]][:, c].transpose(1, 0, 2).reshape(2, -1)
        for p in range(2):
            total = (v[p].real ** 2 + v[p].imag ** 2).sum()
            if total > 0:
                out[c, p] = rms / np.sqrt(total / (2 * v.shape[1]))
    return out


def run(d, requantize, replay="", status=0):
    for name in ("out_000000.dada", "out_000000.dada.gaps"):
        if os.path.exists(os.path.join(d, name)):
            os.remove(os.path.join(d, name))
    return harness.run(d, f"""
pipeline:
  - {{stage: replay, files: "g*.raw", out: wide{replay}}}
  - {{stage: requantize, in: wide, out: e{requantize}}}
  - {{stage: record, in: e, directory: ., prefix: out}}
""", "--stats", "stats.json", status=status)


def check(d, e, valid, scale):
    got, gvalid, first, keys = harness.read_e(os.path.join(d, "out_000000.dada"))
    want, clamped = levels(e, scale)
    assert first == 480 and np.array_equal(gvalid, valid)
    assert np.array_equal(got, want * valid[:, :, None, None]), np.argwhere(got != want *
                                                                            valid[:, :, None, None])[:5]
    stats = json.load(open(os.path.join(d, "stats.json")))
    (stage,) = [s for s in stats["stages"] if s["name"] == "requantize"]
    assert stage["saturated"] == (clamped * valid).sum() and stats["balanced"], (stage,
                                                                                 (clamped * valid).sum())
    return stage["saturated"]


def test_updates():
    """New scales from a sample on, whether the ones before were given or measured and held back for it."""
    with harness.scratch() as d:
        e = field(540, 3)
        write(d, "g.0.raw", b"".join(other.guppi_blocks(e, 60, first_packet=480)))
        valid = np.ones((540, 4), bool)
        text = """updates: [{at: {sample: %d}, stages: {requantize: {scale: %s}}}]
pipeline:
  - {stage: replay, files: "g*.raw", out: wide, frame_samples: %d}
  - {stage: requantize, in: wide, out: e%s}
  - {stage: record, in: e, directory: ., prefix: out, overwrite: true}
"""
        scales = [[0.05 + 0.01 * i, 0.2] for i in range(4)]
        for before, first in ((", scale: 0.4", np.full((4, 2), 0.4)),
                              (", measure: 100, rms: 2, save: s.yaml, overwrite: true",
                               measured(e, valid, 100, 2))):
            for sample, frame in ((480, 64), (481, 64), (512, 64), (555, 37), (700, 540), (1019, 100),
                                  (5000, 64)):
                flat = str([x for row in scales for x in row])
                harness.run(d, text % (sample, flat, frame, before))
                got, gvalid, begin, _ = harness.read_e(os.path.join(d, "out_000000.dada"))
                cut = min(540, sample - 480)
                want = np.concatenate((levels(e[:cut], first)[0], levels(e[cut:], np.array(scales))[0]))
                assert begin == 480 and gvalid.all() and np.array_equal(got, want), (before, sample, frame)
        for values, words in (("[1, 2]", "it has 2 values"), (".nan", "scale"), ("-1", "scale"),
                              ("x", "scale")):
            result = harness.run(d, text % (500, values, 64, ", scale: 0.4"), command="check", status=2)
            assert words in result.err and "pipeline.yaml:1:" in result.err, (values, result.err)


def test_values():
    """Measured and given scales, whatever the frames; blocks that are missing remain so and are not
    measured."""
    with harness.scratch() as d:
        e = field(9 * 60, 3)
        blocks = other.guppi_blocks(e, 60, first_packet=480, skip={1, 5})
        write(d, "g.0.raw", b"".join(blocks))
        valid = np.ones((540, 4), bool)
        valid[60:120] = valid[300:360] = False
        for n, frames in ((100, (0, 37, 41)), (4096, (0, 37)), (1, (100,)), (540, (64,))):
            scale = measured(e, valid, n)
            for frame in frames:
                result = run(d, f", measure: {n}, save: scales.yaml, overwrite: true" if n != 4096 else "",
                             f", frame_samples: {frame}")
                assert check(d, e, valid, scale) > 0
                assert "1 of 8 channels and polarisations have nothing but zeros" in result.err, result
        run(d, ", measure: 100, rms: 1.5, save: scales.yaml, overwrite: true")
        scale = measured(e, valid, 100, 1.5)
        check(d, e, valid, scale)
        saved = open(os.path.join(d, "scales.yaml")).read()
        assert np.array_equal(np.array(json.loads(saved)).reshape(4, 2), scale)
        run(d, ", scale: " + saved.replace("\n", ""), ", frame_samples: 50")
        check(d, e, valid, scale)
        run(d, ", scale: 1000")
        check(d, e, valid, np.full((4, 2), 1000.0))
        run(d, ", scale: 0.25")  # many halves: to the even level
        check(d, e, valid, np.full((4, 2), 0.25))


def test_beams():
    """From a GUPPI file of 12 antennas to intensity beams."""
    beams = np.array([[0, 0], [0.02, -0.03], [-0.041, 0.013]])
    with harness.scratch() as d:
        ntime = 960
        noise = field(ntime, len(DISHES), 5, np.array([[12.0, 15.0], [10.0, 30.0], [18.0, 9.0], [11.0,
                                                                                                 13.0]]))
        mhz = 1400.0 + 0.390625 * (np.arange(4) + 0.5 - 2)
        rng = np.random.default_rng(6)
        for c in range(4):  # a source, with another amplitude in each polarisation
            path = (np.array(DISHES) * SPACING) @ beams[1]
            wave = (rng.normal(size=(ntime, 2)) +
                    1j * rng.normal(size=(ntime, 2))) * noise[:, c].std(axis=(0, 2))
            noise[:,
                  c] += 0.7 * wave[:, :, None] * np.exp(2j * np.pi * path * mhz[c] * 1e6 / harness.C_M_PER_S)
        e = np.clip(np.rint(noise.real), -128, 127) + 1j * np.clip(np.rint(noise.imag), -128, 127)
        write(d, "g.raw", b"".join(other.guppi_blocks(e, 96, first_packet=480)))
        harness.run(d, TELESCOPE + f"""
pipeline:
  - {{stage: replay, files: g.raw, out: wide}}
  - {{stage: requantize, in: wide, out: e, measure: 500}}
  - {{stage: frb_grid, in: e, out: grid, downsample: 48}}
  - {{stage: frb_beams, in: grid, out: j, beams: {{directions: {beams.tolist()}}}}}
  - {{stage: record, in: j, directory: ., prefix: j}}
""")
        whole = np.ones((ntime, 4), bool)
        quantized, _ = levels(e, measured(e, whole, 500))
        want, _ = harness.beam_intensity(quantized, whole, DISHES, SPACING, mhz, beams, 48, 480)
        got, first, keys, _ = harness.read_frames(one(d, "j*.dada"))
        got = got.astype(float) * float(keys["SCALE"])
        assert first == 480 // 48 and got.shape == want.shape, (first, got.shape, want.shape)
        scale = np.sqrt((want ** 2).mean())
        assert np.sqrt(((got - want) ** 2).mean()) < 2e-3 * scale and abs(got - want).max() < 2e-2 * scale
        assert want[:, :, 1].mean() > 2 * want[:, :, 0].mean(), "the source stands out"


def test_refused():
    with harness.scratch() as d:
        write(d, "g.raw", b"".join(other.guppi_blocks(field(120, 3), 60, first_packet=480)))
        for text, word in ((", scale: [1, 2, 3]", "3 values"), (", scale: 0", "scale"),
                           (", scale: -1", "scale"), (", scale: 1, rms: 2", "rms"),
                           (", scale: 1, measure: 2", "measure"), (", rms: 9", "rms"), (", measure: 0",
                                                                                        "measure")):
            assert word in run(d, text, status=2).err, text
        assert "no-such" in run(d, ", save: no-such/scales", status=1).err
        for text, word in (("{stage: upchannelize, in: wide, out: e, factor: 4}", "the stage requantize"), (
                "{stage: requantize, in: wide, out: n}\n  - {stage: requantize, name: again, in: n, out: e}",
                "int8x2")):
            result = harness.run(d, f"pipeline:\n  - {{stage: replay, files: g.raw, out: wide}}\n  - {text}\n"
                                 "  - {stage: record, in: e, directory: ., prefix: r}\n", status=2)
            assert word in result.err, result


if __name__ == "__main__":
    harness.main([test_values, test_beams, test_refused, test_updates])
