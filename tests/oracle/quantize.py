"""The quantizer's definition in NumPy, against what dump_quantize wrote.

usage: quantize.py DUMP_PROGRAM
"""
import numpy as np

from cases import check_cases

NEAR_TIE = 1e-3  # of a level: where float32 may round to the other side


def unpack(out, bits):
    """Stored bytes [B][F][T bits/8] -> levels [B][F][T], and where they say "missing"."""
    if bits == 8:
        return out.astype(int) - 128, out == 0
    codes = np.stack([out & 15, out >> 4], axis=-1).reshape(out.shape[:2] + (-1,)).astype(int)
    return (codes ^ 8) - 8, codes == 8


def check(path):
    def load(name):
        return np.load(f'{path}_{name}.npy')

    (bits, clamped), levels_rms = load('numbers'), float(load('levels_rms'))
    levels, said_missing = unpack(load('out'), bits)
    beams, channels, steps = levels.shape
    most = 127 if bits == 8 else 7
    values = load('in')[:, :steps].astype(np.float64).transpose(2, 0, 1)
    valid = np.broadcast_to(load('valid')[:, :steps] != 0, (beams, channels, steps))
    np.testing.assert_array_equal(said_missing, ~valid)
    values = np.where(valid, values, 0)

    count = valid.sum(axis=-1)
    some = np.maximum(count, 1)
    offset = values.sum(axis=-1) / some
    deviation = np.where(valid, values - offset[..., None], 0)
    scale = np.sqrt((deviation ** 2).sum(axis=-1) / some) / levels_rms
    side = load('side').astype(np.float64)
    np.testing.assert_allclose(side[..., 0], scale, rtol=1e-5, atol=0)
    assert (np.abs(side[..., 1] - offset) <= 1e-5 * scale * levels_rms + 1e-7 * np.abs(offset)).all()
    assert (side[count == 0] == 0).all()

    divisor = np.where(scale > 0, scale, 1)[..., None]
    exact = deviation / divisor
    low, high = np.rint(exact - NEAR_TIE), np.rint(exact + NEAR_TIE)
    fits = (np.clip(low, -most, most) <= levels) & (levels <= np.clip(high, -most, most))
    assert fits[valid].all()
    surely = (np.abs(low) > most) & (np.abs(high) > most) & valid
    maybe = ((np.abs(low) > most) | (np.abs(high) > most)) & valid
    assert surely.sum() <= clamped <= maybe.sum(), (surely.sum(), clamped, maybe.sum())
    differ = (levels != np.clip(np.rint(exact), -most, most)) & valid
    missing = (~valid).sum()
    return f'{levels.size} levels, {clamped} clamped, {missing} missing, {differ.sum()} ties fell otherwise'


if __name__ == '__main__':
    check_cases(check, 16)
