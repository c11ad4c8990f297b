"""Beams that move: in every interval what comes out is, bit for bit, that of a pipeline whose beams stand
still where the moving ones are in its middle, whatever the frames; moving beams are updated like others."""
import os

import h5py
import numpy as np

import harness
from small import TELESCOPE, record_field
from updates import SAMPLES, at
from updates_frb import some

SAMPLE_S = 5120e-9
EPOCH_NS = 1700000000000000000
EVERY = 6250  # base samples
REFERENCE_NS = EPOCH_NS + 40000000
RATES = [[1.1, -0.4], [0, 2], [-0.3, 0]]
THERE = [[0, 0], [0.01, 0.02], [-0.1, 0.03]]
FINE = "stage: upchannelize, in: field, out: fine, factor: 16"
BASEBAND = (1, ["stage: baseband_beamform, name: s, in: field, out: beams, shift: 9, beams: {}"])
ON_FINE = (16, [FINE, "stage: baseband_beamform, name: s, in: fine, out: beams, shift: 9, beams: {}"])
FRB = (48, [
    FINE, "stage: frb_grid, in: fine, out: image, integrate: 48",
    "stage: frb_beams, name: s, in: image, out: beams, beams: {}"
])


def run(d, name, stages, beams, updates="", frame=1024, status=0):
    os.mkdir(os.path.join(d, name))
    text = TELESCOPE + (f"updates: [{updates}]\n" if updates else "") + f"""
pipeline:
  - {{stage: replay, files: field*.dada, out: field, frame_samples: {frame}}}
"""
    for stage in stages[:-1]:
        text += f"  - {{{stage}}}\n"
    text += f"  - {{{stages[-1].format(beams)}}}\n"
    text += f"  - {{stage: record, in: beams, directory: {name}, prefix: out}}\n"
    result = harness.run(d, text, status=status)
    if status != 0:
        return result
    (path,) = [n for n in os.listdir(os.path.join(d, name)) if n.endswith(".dada")]
    data, _, keys, _ = harness.read_frames(os.path.join(d, name, path))
    data = np.moveaxis(data, keys["AXES"].split(",").index("time"), 0)
    return data.reshape(len(data), -1)


def moving(there=THERE, rates=RATES, reference=REFERENCE_NS):
    return (f"{{directions: {there}, rates: {rates}, reference_ns: {reference}, "
            f"every_s: {EVERY * SAMPLE_S:.9f}}}")


def still(interval, there=THERE, rates=RATES, reference=REFERENCE_NS):
    """Where they are in the middle of an interval."""
    t = (interval + 0.5) * EVERY * SAMPLE_S - (reference - EPOCH_NS) * 1e-9
    return "{directions: %s}" % [[float(x + v * t) for x, v in zip(*pair)] for pair in zip(there, rates)]


def expected(d, name, step, stages, interval_beams, count):
    """From each interval's pipeline, the steps that begin in the interval."""
    out = None
    for k in range(-(-SAMPLES // EVERY)):
        one = run(d, f"{name}{k}", stages, interval_beams(k))
        sample = np.arange(len(one)) * step
        out = one.copy() if out is None else out
        out[sample // EVERY == k] = one[sample // EVERY == k]
    assert len(out) >= count
    return out


def test_intervals():
    with harness.scratch() as d:
        record_field(d, samples=SAMPLES)
        for i, (step, stages) in enumerate((BASEBAND, ON_FINE, FRB)):
            want = expected(d, f"w{i}", step, stages, still, SAMPLES // step)
            for j, frame in enumerate(some((1024, 4800, 20000))):
                got = run(d, f"g{i}{j}", stages, moving(), frame=frame)
                assert np.array_equal(got, want), (stages[-1], frame)
            assert not np.array_equal(want, run(d, f"s{i}", stages, still(0)))


def test_late():
    """A stream that begins far behind sample 0: the same directions as if it had begun there."""
    with harness.scratch() as d:
        record_field(d, samples=6000, sample0=9 * EVERY - 2000, missing="[{first: 3200, count: 40}]")
        for i, (step, stages) in enumerate((BASEBAND, FRB)):
            got = run(d, f"g{i}", stages, moving())
            first = (9 * EVERY - 2000) // step
            sample = (first + np.arange(len(got))) * step
            for k in (8, 9, 10):
                one = run(d, f"w{i}{k}", stages, still(k))
                assert np.array_equal(got[sample // EVERY == k], one[sample // EVERY == k]), (i, k)


def test_grid():
    """A grid that moves stays one; rates of a file."""
    grid = "{grid: [3, 4], spacing_deg: 1"
    with harness.scratch() as d:
        record_field(d, samples=SAMPLES)
        step, stages = FRB
        got = run(d, "g", stages, f"{grid}, rates: [[0.5, 1]], every_s: {EVERY * SAMPLE_S:.9f}}}")
        fixed = run(d, "f", stages, grid + "}")
        assert got.shape == fixed.shape and not np.array_equal(got, fixed)
        assert np.array_equal(run(d, "z", stages, f"{grid}, rates: [[0, 0]]}}"), fixed)
        with h5py.File(os.path.join(d, "moving.h5"), "w") as f:
            f["beams"], f["rates"] = np.array(THERE), np.array(RATES)
        more = f", reference_ns: {REFERENCE_NS}, every_s: {EVERY * SAMPLE_S:.9f}}}"
        for i, (_, stages) in enumerate((BASEBAND, FRB)):
            assert np.array_equal(run(d, f"h{i}", stages, "{file: moving.h5" + more),
                                  run(d, f"y{i}", stages, moving())), i


def test_smooth():
    """A beam on a source that moves away loses its power, beginning with what one that stands still has."""
    with harness.scratch() as d:
        record_field(d, samples=SAMPLES, missing="[]")
        step, stages = BASEBAND
        source = [float(np.sin(np.radians(1.1))), float(np.sin(np.radians(-1.7)))]
        away = run(d, "a", stages, f"{{directions: [{source}], rates: [[0.5, 0]], every_s: 0.001}}")
        stays = run(d, "s", stages, f"{{directions: [{source}]}}")

        def power(levels):
            value = levels.astype(np.int16)
            real, imag = ((value & 15) ^ 8) - 8, ((value >> 4) ^ 8) - 8
            return (real**2 + imag**2).mean(axis=1)

        away, stays = power(away), power(stays)
        assert abs(away[:500].mean() / stays[:500].mean() - 1) < 0.03
        assert away[-2000:].mean() < 0.95 * stays[-2000:].mean(), (away[-2000:].mean(), stays[-2000:].mean())


def test_updates():
    other = [[-2, 0.1], [0, -1], [0.7, 0.7]]
    with harness.scratch() as d:
        record_field(d, samples=SAMPLES)
        for i, (step, stages) in enumerate((BASEBAND, ON_FINE, FRB)):
            one = run(d, f"a{i}", stages, moving())
            two = run(d, f"b{i}", stages, moving(rates=other))
            fixed = run(d, f"f{i}", stages, still(2))
            for j, (sample, frame) in enumerate(some(((4800, 1024), (6251, 4800), (9376, 20000)))):
                cut = -(-sample // step)
                for name, (before, a), (after, b) in (("c", (moving(), one), (moving(rates=other), two)),
                                                      ("d", (moving(), one), (still(2), fixed)),
                                                      ("e", (still(2), fixed), (moving(), one))):
                    update = at(sample, f"beams: {after}")
                    got = run(d, f"{name}{i}{j}", stages, before, update, frame=frame)
                    assert np.array_equal(got[:cut], a[:cut]), (name, i, sample)
                    assert np.array_equal(got[cut:], b[cut:]), (name, i, sample)


def test_mistakes():
    with harness.scratch() as d:
        record_field(d, samples=2000)
        for i, (beams, words) in enumerate((
            ("{directions: [[0, 0], [0, 0.1]], rates: [[1, 0], [0, 0], [0, 1]]}", "or for each"),
            ("{directions: [[0, 0]], rates: [[1, .inf]]}", "rates"),
            ("{directions: [[0, 0]], every_s: 0.5}", "go with rates"),
            ("{directions: [[0, 0]], rates: [[1, 0]], every_s: 0}", "every_s"),
            ("{directions: [[0, 0]], rates: [[1, 0]], reference_ns: -5}", "reference_ns"))):
            result = run(d, f"m{i}", BASEBAND[1], beams, status=2)
            assert words in result.err and "pipeline.yaml:" in result.err, (beams, result.err)


if __name__ == "__main__":
    harness.main([test_intervals, test_late, test_grid, test_smooth, test_updates, test_mistakes])
