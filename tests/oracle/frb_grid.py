"""FRB stage 1 from its equation in NumPy, against what dump_frb_grid wrote.

usage: frb_grid.py DUMP_PROGRAM
"""
import numpy as np

from cases import check_cases, float16_error


def unpack(byte):
    """int4+4, real part in the low nibble, two's complement."""
    byte = byte.astype(np.int64)
    return (((byte & 15) ^ 8) - 8) + 1j * (((byte >> 4) ^ 8) - 8)


def directions(position, n):
    """exp(+2 pi i m p / 2M) for every dish and p: [D][2M]."""
    return np.exp(2j * np.pi * np.outer(position, np.arange(2 * n)) / (2 * n))


def intensity(e, weights, cell, grid):
    """|sum_d W E exp(...)|^2 summed over polarisation: e [T][F][P][D] -> [T][F][2M][2N]."""
    field = e * weights[None]
    a, b = directions(cell[:, 0], grid[0]), directions(cell[:, 1], grid[1])
    beams = np.einsum('tfkd,dp,dq->tfkpq', field, a, b, optimize=True)
    return (np.abs(beams) ** 2).sum(axis=2)


def log2_scale(weights, npol, downsample):
    bound = npol * downsample * 128 * np.abs(weights.astype(np.complex128)).sum(axis=-1).max() ** 2 / 65504
    return int(np.ceil(np.log2(bound)))


def check(path):
    def load(name):
        return np.load(f'{path}_{name}.npy')

    e, valid, cell, grid, weights, out, out_valid = (
        load(name) for name in ('e', 'valid', 'cell', 'grid', 'weights', 'out', 'out_valid'))
    downsample, phase, scale, threshold = load('numbers')
    steps, channels, npol, dishes = e.shape
    if weights.size == 0:
        weights = np.ones((1, npol, dishes))
    assert scale == log2_scale(weights, npol, downsample), scale
    every = intensity(unpack(e), weights.astype(np.complex128), cell.astype(int), grid)
    every[valid == 0] = 0

    expected = np.zeros(out.shape)
    expected_valid = np.zeros(out_valid.shape, int)
    block = (np.arange(steps) + phase) // downsample
    for b in range(out.shape[1]):
        for f in range(channels):
            good = valid[block == b, f].sum(dtype=np.int64) / 255
            if good == 0 or good / downsample < threshold / 1000:
                continue
            expected[f, b] = every[block == b, f].sum(axis=0) * downsample / good / 2.0 ** scale
            partly = np.clip(round(255 * good / downsample), 1, 254)
            expected_valid[f, b] = 255 if good == downsample else partly
    assert (np.abs(expected_valid - out_valid.astype(int)) <= 1).all()
    for special in (0, 255):
        np.testing.assert_array_equal(out_valid == special, expected_valid == special)
    assert (out.view(np.uint16)[out_valid == 0] == 0).all()
    assert np.isfinite(out).all()
    relative, worst = float16_error(out, expected)
    masked = np.count_nonzero(out_valid == 0)
    return f'{out.size} intensities, {masked} blocks masked, rms error {relative:.1e}, worst {worst:.1e}'


if __name__ == '__main__':
    check_cases(check, 16)
