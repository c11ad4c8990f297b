"""FRB stage 2, Eqs. (6) and (7), in NumPy, against what dump_frb_beams wrote.

usage: frb_beams.py DUMP_PROGRAM
"""
import numpy as np

from cases import check_cases, float16_error

SPEED_OF_LIGHT = 299.792458  # m MHz


def weights(n, theta):
    """U_q^N(theta) as the cosine sum of Eq. (7): [B][2N]."""
    s = np.arange(n + 1)
    a = np.where((s == 0) | (s == n), 0.5, 1.0)
    argument = 2 * theta[:, None] - np.arange(2 * n)
    return (a * np.cos(np.pi * argument[..., None] * s / n)).sum(axis=-1) / n


def direct_beams(field, theta, theta2):
    """Eqs. (2), (3) for one sample: field [M][N] -> [B]."""
    m, n = field.shape
    phase = np.exp(2j * np.pi * (np.arange(m)[:, None] * theta[:, None, None] / m
                                 + np.arange(n) * theta2[:, None, None] / n))
    return np.abs((field * phase).sum(axis=(1, 2))) ** 2


def theorem():
    """Weights and half-integer directions must reproduce directly formed beams: else this oracle is wrong."""
    rng = np.random.default_rng(1)
    field = rng.normal(size=(4, 6)) + 1j * rng.normal(size=(4, 6))
    theta, theta2 = rng.uniform(-3, 3, (2, 20))
    grid = np.abs(np.fft.ifft2(field, (8, 12)) * 96) ** 2
    beams = np.einsum('bp,bq,pq->b', weights(4, theta), weights(6, theta2), grid)
    np.testing.assert_allclose(beams, direct_beams(field, theta, theta2), rtol=0, atol=1e-10)


def check(path):
    def load(name):
        return np.load(f'{path}_{name}.npy')

    grid, valid, freq, beam, spacing, out = (
        load(name) for name in ('in', 'valid', 'freq', 'beam', 'spacing', 'out'))
    missing = (valid == 0).any()
    expected = np.empty(out.shape)
    for f, mhz in enumerate(freq):
        n = [length // 2 for length in grid.shape[2:]]
        theta = [n[i] * beam[:, i] * spacing[i] * mhz / SPEED_OF_LIGHT for i in range(2)]
        image = grid[f].astype(np.float64)
        partly = np.einsum('tpq,bq->tpb', image, weights(n[1], theta[1]), optimize=True)
        expected[f] = np.einsum('tpb,bp->tb', partly, weights(n[0], theta[0]), optimize=True)
    expected[valid == 0] = 0
    assert (out.view(np.uint16)[valid == 0] == 0).all()
    assert np.isfinite(out).all()
    relative, worst = float16_error(out, expected)
    some = 'some' if missing else 'none'
    return f'{out.size} values, {some} missing, rms error {relative:.1e}, worst {worst:.1e}'


if __name__ == '__main__':
    theorem()
    check_cases(check, 16)
