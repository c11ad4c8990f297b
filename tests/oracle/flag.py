"""Flags in NumPy, against what dump_flag wrote: sums, spectral kurtosis, who is flagged and why.

The statistics of noise (flag_table.py) are taken from kernels/flag/table.c, which a test of its own compares
with the equations.

usage: flag.py DUMP_PROGRAM
"""
import glob
import math
import os
import subprocess
import sys
import tempfile

import numpy as np

import flag_table

TABLE = {least: flag_table.read(os.path.join(os.path.dirname(__file__), "../../kernels/flag", name))
         for least, name in ((-8, "table.c"), (-7, "table7.c"))}
RUN = 16
KEPT, KURTOSIS, POWER, FEW = range(4)


def power(e):
    low, high = (e & 15).astype(np.int64), (e >> 4).astype(np.int64)
    return (low - 16 * (low > 7))**2 + (high - 16 * (high > 7))**2


def kurtosis(s0, s1, s2):
    with np.errstate(all="ignore"):
        return (s0 + 1) / (s0 - 1) * (s0 * s2 / s1**2 - 1)


def noise(p, M, least=-8):
    """b and the cumulants k2, k3, k4 of SK - b for mean powers p and M samples: linear in p and in 1/M."""
    x = np.array([1 / m for m in flag_table.SAMPLES] + [0.0])
    rows = np.array([[np.interp(p, flag_table.nodes(), row[:, j]) for j in range(4)]
                     for row in TABLE[least]])  # [row][4][p]
    i = min(max(int(np.searchsorted(-x, -1 / M, side="right")) - 1, 0), len(x) - 2)
    u = (x[i] - 1 / M) / (x[i] - x[i + 1])
    k = (1 - u) * rows[i] + u * rows[i + 1]
    return k[0], k[1] / M, k[2] / M**2, k[3] / M**3


def stands_out(r, k2, k3, k4, s):
    """Whether r is beyond the quantiles that belong to s sigma, and how close it is to one of them."""
    z, skew, tail = r / np.sqrt(k2), k3 / k2**1.5, k4 / k2**2
    skew, tail = np.clip(skew, -1.5 / s, 1.5 / s), np.clip(tail, -4.5 / s**2, 4.5 / s**2)
    high, low = (a + skew * (s**2 - 1) / 6 + tail * (a**3 - 3 * a) / 24 - skew**2 * (2 * a**3 - 5 * a) / 36
                 for a in (s, -s))
    return z > high or z < low, min(abs(z - high), abs(z - low))


def judge(s0, s1, s2, usable, expected, low, high, s, steps=0, least=-8):
    """The verdict on all inputs together, which have s0 samples each, of `steps`: reason, and how close it
    was."""
    s0 = np.broadcast_to(s0, s1.shape)
    with np.errstate(all="ignore"):
        mean = s1 / s0
    part = usable & (s1 > 0) & (mean >= low) & (mean <= high) & (s0 >= 16) & (s0 >= 0.1 * steps)
    if not part.any() or 4 * part.sum() < expected:
        return POWER, 9
    total = np.zeros(4)  # SK - b, k2, k3, k4
    for m in np.unique(s0[part]):
        mine = part & (s0 == m)
        b, *k = noise(mean[mine], m, least)
        total += [x.sum() for x in (kurtosis(m, s1[mine], s2[mine]) - b, *k)]
    out, close = stands_out(*total, s)
    return (KURTOSIS if out else KEPT), close


def there(e, valid, run):
    """For each sample, channel and input, whether it counts; `run` numbers the runs in which that is decided.
    Of a run those samples count that most inputs have. Where equally many are missing in all of them, inputs
    with nothing but zeros have lost them."""
    counts = np.zeros(e.shape, bool)
    for r in np.unique(run):
        at = np.flatnonzero(run == r)
        most = valid[at].max(axis=0)
        counts[at] = ((valid[at] == most) & (valid[at] > 0))[:, :, None]
        gaps = (len(at) == RUN) & (valid[at] == most).all(axis=0) & (most > 0) & (most < 255)
        counts[at] &= ~(gaps[:, None] & ~e[at].any(axis=0))
    return counts


def check(path):
    block, begin, end, block_s, input_s, low, high, expected, least = np.load(f"{path}_numbers.npy")
    block, begin, end = int(block), int(begin), int(end)
    e, valid, bad, out, sk, s0, sums, lost, reason, used, inputs, piece = (
        np.load(f"{path}_{x}.npy")
        for x in "e valid bad out sk s0 sums lost reason used input piece".split())
    F, N = e.shape[1:]
    t, good = np.arange(begin, end), bad == 0
    valid = valid if len(valid) else np.full(e.shape[:2], 255)
    run = (np.searchsorted(piece, t, "right") << 32) + (t // block << 16) + t % block // RUN
    counts = there(e, valid, run)
    P = power(e) * counts
    assert expected == good.sum()
    wanted = np.where(bad, 0, e)
    count = np.zeros((2, N), int)
    flagged = 0
    for f in range(F):
        kept, steps = [], end - begin
        for b in range(len(s0)):
            mine = t // block == b
            S0, S1, S2 = (x[mine, f].sum(axis=0) for x in (counts, P, P**2))
            assert np.array_equal(s0[b, f] - lost[b, f], S0) and np.array_equal(sums[b, f], [S1, S2]), path
            if len(sk) and mine.any():
                got, want = sk[b - begin // block, f], kurtosis(S0, S1, S2)
                none = (S1 == 0) | (S0 < 2)
                assert np.array_equal(np.isnan(got), none), path
                assert np.allclose(got[~none], want[~none], 1e-5, 1e-5), path
            if s0[b, f] < 16 or s0[b, f] < 0.1 * mine.sum():
                why, close = FEW, 9
            else:
                why, close = judge(S0, S1, S2, good, expected, low, high, block_s, mine.sum(), least)
            assert reason[b, f] == why, (path, b, f, reason[b, f], why, close)
            flagged += why == KURTOSIS
            if why == KEPT:
                kept.append((S0, S1, S2))
        S0, S1, S2 = (sum((x[i] for x in kept), np.zeros(N, int)) for i in range(3))
        for n in range(N):
            if S0[n] < 16 or S0[n] < 0.1 * steps:
                why = FEW
            else:
                why, _ = judge(S0[n:n + 1], S1[n:n + 1], S2[n:n + 1], np.array([True]), 1, low, high, input_s,
                               least=least)
            count[0 if why == KURTOSIS else 1, n] += why != KEPT
            if why != KEPT:
                wanted[:, f, n] = 0
            bad_now = why != KEPT or bad[n]
            used[f] -= not bad_now
    assert np.all(used == 0), path
    assert np.array_equal(inputs, count), path
    assert np.array_equal(out, wanted), path
    return flagged, lost.sum()


def shares(counts):
    """Noise is flagged as often as a normal deviate is beyond 2 and 3 sigma, whatever is lost."""
    for case, numbers in enumerate([*counts, counts.sum(axis=0)]):
        for s, flagged, of in ((2, *numbers[:2]), (3, *numbers[2:])):
            tail = math.erfc(s / math.sqrt(2))
            error = math.sqrt(tail * (1 - tail) / of)
            assert abs(flagged / of - tail) < 3 * error, (case, s, flagged, of, tail * of, error * of)


def main():
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([sys.argv[1], directory], check=True)
        paths = [p[:-len("_numbers.npy")] for p in glob.glob(os.path.join(directory, "*_numbers.npy"))]
        assert len(paths) >= 20, paths
        flagged, lost = np.sum([check(path) for path in paths], axis=0)
        assert flagged > 10 and lost > 1000, (flagged, lost)
        shares(np.load(os.path.join(directory, "shares_counts.npy")))
        print(f"{len(paths)} cases agree with the equations")


if __name__ == "__main__":
    main()
