"""Visibilities are the sums that their equation says, whatever the frames, with holes and after upchannelize;
what cannot be summed is refused."""
import os

import numpy as np

import harness
from small import TELESCOPE, one, record_field

INPUTS = 24


def pipeline(directory, more="integrate: 500", frame=1024, before=""):
    source = "fine" if before else "field"
    return TELESCOPE + f"""
pipeline:
  - {{stage: replay, files: field*.dada, out: field, frame_samples: {frame}}}
{before}
  - {{stage: correlate, in: {source}, out: v, {more}}}
  - {{stage: record, in: v, directory: {directory}, prefix: v}}
"""


def read_v(directory, samples):
    """V[integration][channel][baseline] of all integrations that a stream of so many base samples touches,
    and their validity."""
    keys, size = harness.header(one(directory, "v*.dada"))
    assert keys["DTYPE"] == "int32x2" and keys["AXES"] == "time,freq,baseline", keys
    shape, down = [int(x) for x in keys["SHAPE"].split(",")], int(keys["DOWNSAMPLE"])
    raw = np.fromfile(one(directory, "v*.dada"), "<i4", offset=size).reshape(-1, *shape[1:], 2)
    assert len(raw) == -(-samples // down)
    return raw[..., 0] + 1j * raw[..., 1], harness.read_gaps(one(directory, "v*.dada"), 0, len(raw), shape[1],
                                                             down)


def oracle(E, valid, steps):
    """From E[time][freq][pol][dish], zero where missing: sums over `steps` time steps, and shares in
    255ths."""
    E = E.reshape(*E.shape[:2], -1)
    sums, shares = [], []
    for t in range(0, len(E), steps):
        block = E[t:t + steps]
        V = np.einsum("tfi,tfj->fij", block, block.conj())
        sums.append(V[:, *np.triu_indices(E.shape[2])])
        shares.append(valid[t:t + steps].sum(axis=0) / steps)
    return np.array(sums), np.array(shares)


def run(d, name, **more):
    os.mkdir(os.path.join(d, name))
    harness.run(d, pipeline(name, **more))
    return os.path.join(d, name)


def same_shares(got, shares):
    """Whole and nothing are exact, all else is rounded."""
    assert np.array_equal(got == 255, shares == 1) and np.array_equal(got == 0, shares == 0)
    assert np.all(np.abs(got - 255 * shares) <= 1), np.abs(got - 255 * shares).max()


def test_sums():
    with harness.scratch() as d:
        E, valid, _, _ = harness.read_e(record_field(d))
        for i, (steps, frame) in enumerate(((500, 1024), (500, 64), (7, 1024), (6000, 512), (10000, 1024))):
            V, share = read_v(run(d, f"v{i}", more=f"integrate: {steps}", frame=frame), 6000)
            sums, shares = oracle(E, valid, steps)
            assert V.shape == sums.shape == (-(-6000 // steps), 5, INPUTS * (INPUTS + 1) // 2)
            assert np.array_equal(V, sums), (steps, frame)
            same_shares(share, shares)


def test_autocorrelations():
    with harness.scratch() as d:
        E, valid, _, _ = harness.read_e(record_field(d))
        V, _ = read_v(run(d, "v", more="integrate: 1500, autocorrelations: only"), 6000)
        sums, _ = oracle(E, valid, 1500)
        i = np.arange(INPUTS)
        assert np.array_equal(V, sums[:, :, i * INPUTS - i * (i + 1) // 2 + i]) and np.all(V.imag == 0)


def test_fine_channels():
    """Samples of upchannelized channels are longer; sums begin at the same base samples."""
    with harness.scratch() as d:
        record_field(d)
        fine = "  - {stage: upchannelize, in: field, out: fine, factor: 4}"
        os.mkdir(os.path.join(d, "fine"))
        harness.run(
            d, TELESCOPE + "pipeline:\n  - {stage: replay, files: field*.dada, out: field}\n" + fine +
            "\n  - {stage: record, in: fine, directory: fine, prefix: fine}\n")
        E, valid, first, _ = harness.read_e(one(os.path.join(d, "fine"), "fine*.dada"))
        assert first == 0
        V, _ = read_v(run(d, "v", more="integrate: 600", before=fine), 6000)
        assert np.array_equal(V, oracle(E, valid, 150)[0])


def test_a_recording_that_begins_late():
    """Integrations begin at multiples of their length from sample 0, not where the recording does."""
    with harness.scratch() as d:
        E, valid, first, _ = harness.read_e(record_field(d, samples=4300, sample0=1700))
        assert first == 1700
        out = run(d, "late")
        keys, size = harness.header(one(out, "v*.dada"))
        raw = np.fromfile(one(out, "v*.dada"), "<i4", offset=size).reshape(9, 5, -1, 2)
        before = np.zeros((1700, *E.shape[1:]))
        sums, _ = oracle(np.concatenate([before, E]), np.concatenate([before[:, :, 0, 0] > 0, valid]), 500)
        assert keys["SAMPLE0"] == "1700" and np.array_equal(raw[..., 0] + 1j * raw[..., 1], sums[3:])


def test_refused():
    with harness.scratch() as d:
        record_field(d, samples=100, missing="[]")
        for more, before, text in (
            ("integrate: 20000000", "", "pipeline.yaml:13:54: stage 'correlate': integrate: "),
            ("integrate: 20000000", "", "expected at most 16777215 base samples (85.9 s)"),
            ("integrate: 602", "  - {stage: upchannelize, in: field, out: fine, factor: 4}",
             "expected a multiple of 4"),
            ("autocorrelations: only", "", "integrate"),
            ("integrate: 602",
             "  - {stage: upchannelize, in: field, out: fine, zones: [{channels: 2, factor: 4}, "
             "{channels: 3, factor: 8}]}", "samples of different lengths"),
        ):
            result = harness.run(d, pipeline(".", more=more, before=before), status=2, command="check")
            assert text in result.err, (text, result)


if __name__ == "__main__":
    harness.main([
        test_sums, test_autocorrelations, test_fine_channels, test_a_recording_that_begins_late, test_refused
    ])
