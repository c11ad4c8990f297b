"""The incoherent sum as a beam of frb_beams' output, and taken off the others: against the direct sum over E,
with samples and inputs missing, gains, and its place in tables, files and packets."""
import csv
import os

import h5py
import numpy as np

import harness
from small import TELESCOPE, one, record_field

STEP, BEAMS = 48, "{grid: [3, 4], spacing_deg: 1}"


def pipeline(directory, incoherent, more="", gains="", flag=False, beams=BEAMS):
    return TELESCOPE + f"""
pipeline:
  - {{stage: replay, files: field*.dada, out: field}}
""" + ("  - {stage: flag, in: field, out: clean, block: 48, long_block: 20, bad_inputs: [3, 17], "
       "threshold_sigma: 100, power: [1, 70]}\n" if flag else "") + f"""
  - {{stage: frb_grid, in: {"clean" if flag else "field"}, out: grid, integrate: {STEP}{gains}}}
  - {{stage: frb_beams, in: grid, out: beams, beams: {beams}, incoherent: {incoherent}}}
  - {{stage: record, in: beams, directory: {directory}, prefix: beams}}
{more}"""


def run(d, name, *args, **kwargs):
    """J[freq][step][beam] in units of |E|^2, its validity, and the folder."""
    out = os.path.join(d, name)
    os.mkdir(out)
    harness.run(d, pipeline(name, *args, **kwargs))
    J, _, keys, _ = harness.read_frames(one(out, "beams*.dada"))
    return J.astype(float) * float(keys["SCALE"]), out


def direct(E, valid, weight):
    """sum over dishes, polarisations and the samples of a step of |W E|^2, times (samples / valid ones)."""
    power = (np.abs(E * weight)**2).sum(axis=(2, 3)) * valid
    steps = -(-len(E) // STEP)
    out = np.zeros((E.shape[1], steps))
    for k in range(steps):
        at = slice(k * STEP, (k + 1) * STEP)
        good = valid[at].sum(axis=0)
        keep = good / STEP >= 0.5
        out[keep, k] = power[at].sum(axis=0)[keep] * STEP / good[keep]
    return out


def compare(got, want):
    assert got.shape == want.shape and (want > 0).mean() > 0.7
    assert np.array_equal(got == 0, want == 0)
    error = np.abs(got - want)[want > 0] / want[want > 0]
    assert error.max() < (2e-2 if harness.DEVICE != "cpu" else 2e-3), error.max()


def test_a_beam_more():
    with harness.scratch() as d:
        E, valid, _, _ = harness.read_e(record_field(d, samples=9000))
        none, _ = run(d, "none", "none")
        append, out = run(d, "append", "append")
        assert none.shape[2] == 12 and append.shape[2] == 13
        assert np.array_equal(append[..., :12], none)
        compare(append[..., 12], direct(E, valid, 1))
        rows = [r for r in csv.reader(open(one(out, "*beams.csv"))) if r and r[0].isdigit()]
        assert len(rows) == 13 and rows[12][0] == "12" and [float(x) for x in rows[12][1:3]] == [0, 0], rows


def test_it_is_subtracted():
    """Noise keeps only its fluctuations; a level that all share disappears."""
    with harness.scratch() as d:
        record_field(d, samples=9000)
        append, _ = run(d, "append", "append")
        subtract, _ = run(d, "subtract", "subtract")
        assert subtract.shape[2] == 12
        want = append[..., :12] - append[..., 12:]
        assert np.abs(subtract - want).max() < 2e-3 * append.max()
        assert abs(subtract.mean()) < 0.1 * append.mean()


def test_gains():
    """They are in it as they are in the beams: |g|^2 of each input."""
    with harness.scratch() as d:
        E, valid, _, _ = harness.read_e(record_field(d, samples=9000))
        rng = np.random.default_rng(3)
        gain = (rng.normal(size=(1, 2, 12)) + 1j * rng.normal(size=(1, 2, 12))).astype(np.complex64)
        with h5py.File(os.path.join(d, "gains.h5"), "w") as f:
            f["gain"] = gain
        got, _ = run(d, "gains", "append", gains=", gains: gains.h5")
        compare(got[..., 12], direct(E, valid, gain[0]))


def test_bad_inputs():
    """Zeros behind `flag` add nothing."""
    with harness.scratch() as d:
        E, valid, _, _ = harness.read_e(record_field(d, samples=9000, missing="[]"))
        weight = np.ones((2, 12))
        weight.ravel()[[3, 17]] = 0
        got, _ = run(d, "bad", "append", flag=True)
        compare(got[:, :-1, 12], direct(E, valid, weight)[:, :-1])


def test_products():
    """Filterbank files and quantized beams have one beam more."""
    with harness.scratch() as d:
        record_field(d, samples=9000)
        more = "  - {stage: filterbank, in: beams, directory: fil}\n"
        more += "  - {stage: quantize, in: beams, out: levels, bits: 8, block: 32}\n"
        more += "  - {stage: record, name: r, in: levels, directory: levels, prefix: levels}\n"
        beams = "{directions: [[0, 0.1], [0.02, 0.01]]}"
        run(d, "list", "append", beams=beams, more=more)
        files = [n for n in os.listdir(os.path.join(d, "fil")) if n.endswith(".fil")]
        assert len(files) == 3, files
        keys, _ = harness.header(one(os.path.join(d, "levels"), "levels*.dada"))
        assert keys["SHAPE"].startswith("3,"), keys
        assert [float(x) for x in keys["BEAMS_XY"].split(",")] == [0, 0.1, 0.02, 0.01, 0, 0], keys


if __name__ == "__main__":
    harness.main([test_a_beam_more, test_it_is_subtracted, test_gains, test_bad_inputs, test_products])
