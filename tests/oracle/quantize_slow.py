"""The quantizer's slow statistics in NumPy, from the equations at the top of kernels/quantize/follow.h,
against what dump_slow wrote.

usage: quantize_slow.py DUMP_PROGRAM
"""
import numpy as np

from cases import check_cases
from quantize import NEAR_TIE, unpack


def median(values, there):
    """Over the first axis, of those that are there; 0 where none is."""
    found = np.zeros(values.shape[1:])
    for at in np.ndindex(found.shape):
        some = values[(slice(None), *at)][there[(slice(None), *at)]]
        if some.size:
            found[at] = np.median(some)
    return found


class Series:
    """The state of each (beam, channel)."""

    def __init__(self, shape, steps, constant):
        self.steps, self.constant = steps, constant
        self.expected, self.mean, self.trend, self.variance, self.away, self.seen, self.idle = \
            np.zeros((7, *shape))

    def begin(self, x, valid):
        """Medians over at most 8 parts of at least 8 steps."""
        parts = max(1, min(8, self.steps // 8))
        of = np.arange(self.steps) * parts // self.steps
        n = np.stack([valid[..., of == p].sum(-1) for p in range(parts)])
        mean = np.stack([x[..., of == p].sum(-1) for p in range(parts)]) / np.maximum(n, 1)
        square = np.stack([(valid[..., of == p] * (x[..., of == p] - mean[p][..., None]) ** 2).sum(-1)
                           for p in range(parts)])
        free = np.maximum(n - 1, 1)
        return median(mean, n > 0), median(square / free / (1 - 2 / (9 * free)) ** 3, n > 1)

    def block(self, x, valid):
        """x, valid [beam][freq][step]; 0 where missing. Offset and deviation of the block."""
        n = valid.sum(-1)
        some = np.maximum(n, 1)
        m = x.sum(-1) / some
        square = (valid * (x - m[..., None]) ** 2).sum(-1) / some
        self.idle = np.where(n > 0, 0, self.idle + self.steps)
        self.seen = np.where(self.idle > self.constant, 0, self.seen)
        v = np.where(n > 1, square * some / np.maximum(n - 1, 1), 0)
        first = (self.seen == 0) & (n >= (16 if self.steps >= 32 else (self.steps + 1) // 2))
        at_start = self.begin(x, valid) if first.any() else (0, 0)
        for name, value in (("mean", at_start[0]), ("expected", at_start[0]), ("variance", at_start[1]),
                            ("trend", 0), ("away", 0)):
            setattr(self, name, np.where(first, value, getattr(self, name)))
        known = self.variance > 0
        offset = np.where(known, self.expected, m)
        deviation = np.sqrt(np.where(known, self.variance, square))
        self.follow(n, some, m, v, first)
        return np.where(n > 0, offset, 0), np.where(n > 0, deviation, 0)

    def follow(self, n, some, m, v, first):
        counts = (n > 0) & ((self.seen > 0) | first)
        e = self.mean + self.trend
        near = np.where((self.away > 0) & (self.seen >= self.constant), 4, 16)
        near = near * (1 / some + 2 / np.maximum(self.seen, some))
        out = ((m - e) ** 2 > near * self.variance) | (v > self.variance * (1 + 6 * np.sqrt(2 / some)))
        x = np.exp(-n / self.constant)
        a = np.maximum(1 - x ** 2, n / np.maximum(self.seen + n, 1))
        b = np.where(self.seen >= self.constant, 2 * (1 - x) ** 2, 0)
        away = np.where(out & ~first, self.away + n / self.constant, 0)
        anew = counts & (~(self.variance > 0) | (away >= 1))
        coast = counts & ~anew & (away > 0)
        normal = counts & ~anew & ~coast & ~first
        old = self.trend.copy(), self.variance.copy()
        self.expected = np.where(anew, m, np.where(counts, e + old[0], self.expected))
        self.mean = np.where(anew, m, np.where(normal, e + a * (m - e), np.where(coast, e, self.mean)))
        self.trend = np.where(anew, 0, np.where(normal, old[0] + b * (m - e), old[0]))
        self.variance = np.where(anew, v, np.where(normal & (n > 1), old[1] + a * (v - old[1]), old[1]))
        self.away = np.where(anew, 0, np.where(counts, away, self.away))
        self.seen = np.where(counts, np.minimum(self.seen + n, 4 * self.constant), self.seen)


def check(path):
    def load(name):
        return np.load(f'{path}_{name}.npy')

    bits, levels_rms, clamped = int(load('bits')[0]), float(load('levels_rms')), load('clamped')
    out, side = load('out'), load('side').astype(np.float64)
    most = 127 if bits == 8 else 7
    steps = out.shape[-1] * 8 // bits
    series = Series(side.shape[1:3], steps, float(load('follow')))
    ties = wide = 0
    for k, (raw, there) in enumerate(zip(load('in'), load('valid'))):
        levels, said_missing = unpack(out[k], bits)
        x = raw[:, :steps].astype(np.float64).transpose(2, 0, 1)
        valid = np.broadcast_to(there[:, :steps] != 0, x.shape)
        np.testing.assert_array_equal(said_missing, ~valid)
        x = np.where(valid, x, 0)
        offset, deviation = series.block(x, valid)
        scale = deviation / levels_rms
        if bits == 4:
            top = np.where(valid, x, -np.inf).max(-1)
            room = np.where(scale > 0, np.maximum(scale, (top - offset) / 7), 0)
            wide += (room > scale).sum()
            scale = np.where(valid.any(-1), room, 0)
        np.testing.assert_allclose(side[k, ..., 0], scale, rtol=1e-5, atol=0)
        assert (abs(side[k, ..., 1] - offset) <= 1e-5 * scale * levels_rms + 1e-6 * abs(offset)).all(), k
        exact = (x - offset[..., None]) / np.where(scale > 0, scale, 1)[..., None]
        exact = np.where((scale > 0)[..., None], exact, 0)
        # float32 of the mean, beside the tie
        slack = NEAR_TIE + 1e-6 * (abs(offset) / np.where(scale > 0, scale, 1))[..., None] + 1e-5 * abs(exact)
        low, high = np.rint(exact - slack), np.rint(exact + slack)
        fits = (np.clip(low, -most, most) <= levels) & (levels <= np.clip(high, -most, most))
        assert fits[valid].all(), (k, np.argwhere(valid & ~fits)[:5])
        surely = ((abs(low) > most) & (abs(high) > most) & valid).sum()
        maybe = (((abs(low) > most) | (abs(high) > most)) & valid).sum()
        assert surely <= clamped[k] <= maybe, (k, surely, clamped[k], maybe)
        ties += ((levels != np.clip(np.rint(exact), -most, most)) & valid).sum()
    assert bits == 8 or wide > 0
    return f'{out.shape[0]} blocks, {clamped.sum()} clamped, {ties} ties fell otherwise, {wide} wider scales'


if __name__ == '__main__':
    check_cases(check, 12)
