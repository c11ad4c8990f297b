"""The FRB chain from recorded field to beams, end to end, against direct per-beam sums; the baseband
beamformer against the exact integer sum. Both run the program on a recording and read what it wrote with code
of their own."""
import os

import numpy as np

import harness
from small import DISHES, SPACING, TELESCOPE, one, record_field

BEAMS = np.array([[0, 0], [0.02, -0.03], [-0.041, 0.013], [0.0333, 0.0501], [0.005, 0.1]])


def chain(zones, frame):
    return TELESCOPE + f"""
pipeline:
  - {{stage: replay, files: field*.dada, out: field, frame_samples: {frame}}}
  - {{stage: upchannelize, in: field, out: fine, {zones}}}
  - {{stage: frb_grid, in: fine, out: grid, integrate: 48}}
  - {{stage: frb_beams, in: grid, out: beams, beams: {{directions: {BEAMS.tolist()}}}}}
  - {{stage: record, in: beams, directory: ., prefix: beams}}
  - {{stage: record, name: record_fine, in: fine, directory: ., prefix: fine}}
"""


def expected(path, factors):
    """Per zone: quantized fine channels by the equation, then direct beam sums. Concatenated over all fine
    channels."""
    e, valid, first, keys = harness.read_e(path)
    assert first == 0
    coarse = 400 + 0.1953125 * np.arange(5)
    out, fraction, at = [], [], 0
    for channels, u in factors:
        here = slice(at, at + channels)
        if u > 1:
            steps = -(-len(e) // u) * u
            pad = np.zeros((steps, channels) + e.shape[2:], complex)
            pad[:len(e)] = e[:, here]
            ok = np.zeros((steps, channels), bool)
            ok[:len(e)] = valid[:, here]
            fine, ok, _ = harness.upchannelize(pad, ok, u, 4)
        else:
            fine, ok = e[:, here], valid[:, here]
        freq = (coarse[here][:, None] + (np.arange(u) - (u - 1) / 2) / u * 0.1953125).ravel()
        j, w = harness.beam_intensity(fine * ok[:, :, None, None], ok, DISHES, SPACING, freq, BEAMS, 48 // u,
                                      0)
        out.append(j)
        fraction.append(w)
        at += channels
    return np.concatenate(out), np.concatenate(fraction)


def compare(directory, path, factors):
    want, fraction = expected(path, factors)
    file = one(directory, "beams*.dada")
    got, first, keys, _ = harness.read_frames(file)
    assert first == 0 and got.shape == want.shape, (got.shape, want.shape)
    got = got.astype(float) * float(keys["SCALE"])
    scale = np.sqrt((want ** 2).mean())
    error = np.sqrt(((got - want) ** 2).mean()) / scale
    worst = abs(got - want).max() / scale
    assert error < 2e-3, f"relative rms error {error:.2e}"
    assert worst < 2e-2, f"one element is off by {worst:.2e} of the rms"
    valid = harness.read_gaps(file, 0, want.shape[1], want.shape[0], 48).T
    masked = fraction < 0.5
    assert masked.any() and not masked.all()
    assert ((
        valid == 0) == masked).all(), "masked where less than half of the input is valid, and nowhere else"
    inside = ~masked
    assert (abs(valid[inside] / 255 - fraction[inside])
            <= 1 / 255).all(), "each output carries its valid fraction"


def test_frb_chain():
    with harness.scratch() as d:
        path = record_field(d)
        harness.run(d, chain("factor: 8", 2048))
        compare(d, path, [(5, 8)])


def test_frb_chain_zoned():
    with harness.scratch() as d:
        path = record_field(d)
        harness.run(
            d,
            chain("zones: [{channels: 2, factor: 16}, {channels: 2, factor: 4}, {channels: 1, factor: 1}]",
                  1024))
        compare(d, path, [(2, 16), (2, 4), (1, 1)])


def test_fine_channels():
    """The recording of the upchannelized field equals the equation except at ties."""
    with harness.scratch() as d:
        path = record_field(d, samples=5990)  # the last step is covered in part
        harness.run(d, chain("factor: 16", 512))
        e, valid, _, _ = harness.read_e(path)
        want, ok, tie = harness.upchannelize(e[:5984], valid[:5984], 16, 4)
        got, got_ok, first, keys = harness.read_e(one(d, "fine*.dada"))
        assert first == 0 and (got_ok[:len(ok)] == ok).all() and not got_ok[len(ok):].any()
        wrong = (got[:len(want)] != want) & ok[:, :, None, None] & ~tie
        assert not wrong.any(), f"{wrong.sum()} of {wrong.size} values differ"
        assert tie.mean() < 1e-3


def test_baseband():
    """Weights and shifts from HDF5, exact integer sums, missing samples marked."""
    import h5py
    rng = np.random.default_rng(5)
    with harness.scratch() as d:
        path = record_field(d, samples=3000)
        a = rng.integers(-127, 128, (5, 2, 7, 12, 2)).astype(np.int8)
        s = rng.integers(0, 12, (5, 2, 7)).astype(np.int32)
        with h5py.File(os.path.join(d, "weights.h5"), "w") as f:
            f["weights"], f["shift"] = a, s
        harness.run(d, TELESCOPE + """
pipeline:
  - {stage: replay, files: field*.dada, out: field, frame_samples: 1024}
  - {stage: baseband_beamform, in: field, out: beams, weights: weights.h5}
  - {stage: record, in: beams, directory: ., prefix: beams}
""")
        e, valid, _, _ = harness.read_e(path)
        want = exact_beams(e, valid, a[..., 0].astype(np.int64) + 1j * a[..., 1], s)
        got, _, _, _ = harness.read_frames(one(d, "beams*.dada"))
        assert got.shape == want.shape, (got.shape, want.shape)
        assert (harness.unpack(got) == want).all()
        assert (abs(want.real) == 7).mean() > 0.1, "the clamp is exercised"


def exact_beams(e, valid, a, s):
    """J = clamp((sum over dishes of A E + 2^(s-1)) >> s, -7, 7); -8 where the input is missing."""
    z = np.einsum("fpbd,tfpd->bfpt", a, e)
    shift = np.transpose(s, (2, 0, 1))[..., None].astype(np.int64)
    half = np.where(shift > 0, 1 << np.maximum(shift - 1, 0), 0)
    parts = [np.clip((np.round(x).astype(np.int64) + half) >> shift, -7, 7) for x in (z.real, z.imag)]
    return np.where(valid.T[None, :, None, :], parts[0] + 1j * parts[1], -8 - 8j)


def test_baseband_directions():
    """Weights computed from directions and gains: A = round(127 g / max|g| exp(-2 pi i theta)), s the integer
    nearest to log2 sqrt(sum |A|^2)."""
    import h5py
    rng = np.random.default_rng(6)
    gain = (rng.normal(size=(5, 2, 12)) + 1j * rng.normal(size=(5, 2, 12))).astype(np.complex64)
    gain[:, :, 3] = 0
    freq = 400 + 0.1953125 * np.arange(5)
    place = np.array(DISHES) * SPACING
    with harness.scratch() as d:
        path = record_field(d, samples=2000)
        e, valid, _, _ = harness.read_e(path)
        with h5py.File(os.path.join(d, "gains.h5"), "w") as f:
            f["gain"] = gain
        for g, more in ((np.ones((5, 2, 12)), ""), (gain, ", gains: gains.h5")):
            harness.run(d, TELESCOPE + f"""
pipeline:
  - {{stage: replay, files: field*.dada, out: field}}
  - {{stage: baseband_beamform, in: field, out: beams, beams: {{directions: {BEAMS.tolist()}}}{more}}}
  - {{stage: record, in: beams, directory: ., prefix: beams, overwrite: true}}
""")
            theta = np.einsum("f,dk,bk->fbd", freq * 1e6 / 299792458, place, BEAMS)
            a = 127 * g[:, :, None] / abs(g).max() * np.exp(-2j * np.pi * theta)[:, None]
            a = np.floor(a.real + 0.5) + 1j * np.floor(a.imag + 0.5)
            s = np.floor(0.5 * np.log2((abs(a)**2).sum(-1)) + 0.5).astype(int)
            got, _, _, _ = harness.read_frames(one(d, "beams*.dada"))
            assert (harness.unpack(got) == exact_beams(e, valid, a, s)).all(), more


if __name__ == "__main__":
    harness.main([
        test_frb_chain, test_frb_chain_zoned, test_fine_channels, test_baseband, test_baseband_directions
    ])
