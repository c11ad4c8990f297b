"""The spectral kurtosis that int4 noise has: its bias and its spread, for kernels/flag/table.c and table7.c.

Of M samples with powers P = |E|^2, S1 = sum P, S2 = sum P^2, the estimator is

    SK = (M+1)/(M-1) (M S2/S1^2 - 1)

and 1 on average for complex Gaussian noise, whatever its power. Components that are rounded and clipped to
[-8, 7], or to [-7, 7] (table7.c), make it depend on the power. P then takes a few values only, with
probabilities that are sums over all levels, and the joint moments E[S2^k; S1 = s] are coefficients of powers
of generating functions: all that follows is exact but for rounding. With w = P^2 - a P - d, uncorrelated with
P and of mean 0,

    SK = u(s) sum w + g(s),   u = (M+1)/(M-1) M/s^2,   g = (M+1)/(M-1) (M (a s + d M)/s^2 - 1).

The power is known as S1/M only. So b(p), linear between nodes of p, is made such that R = SK - b(S1/M) has
mean 0 for noise of every power, and the spread is that of R: its cumulants k2, k3, k4, times M, M^2, M^3.

usage: flag_table.py --write TABLE      makes kernels/flag/table.c or table7.c (a minute)
       flag_table.py TABLE              compares some of its numbers with the equations
"""
import os
import re
import sys
from math import comb, erf, sqrt

import numpy as np

FIRST, FINE, LAST = 1.0, 4.0, 76.0  # nodes of the mean power: by 1/4 up to FINE, then by 1
SAMPLES = (16, 24, 32, 64, 128, 256, 1024, 4096)  # nodes of M; behind them that of infinitely many
P = np.arange(129, dtype=float)
LEAST = -7 if os.path.basename(sys.argv[-1]) == "table7.c" else -8  # of the levels; the most is 7


def powers(sigma):
    """Probability of each |E|^2 for components of a standard deviation `sigma` before rounding."""
    edge = np.array([0.5 * (1 + erf((k - 0.5) / sigma / sqrt(2))) for k in range(LEAST + 1, 8)])
    level = np.diff(np.concatenate([[0.0], edge, [1.0]]))
    k = np.arange(LEAST, 8)
    f = np.zeros(129)
    np.add.at(f, (k[:, None]**2 + k[None, :]**2).ravel(), np.outer(level, level).ravel())
    return f


def noise(mean):
    """The same by the mean power."""
    low, high = 0.05, 200.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if powers(middle) @ P < mean else (low, middle)
    return powers(low)


class Sums:
    """S1 and sum w of M samples of noise: weight[k][s] = E[(sum w)^k; S1 = s], for s in self.s."""

    def __init__(self, mean, M):
        f = noise(mean)
        self.M, m, spread = M, f @ P, sqrt(f @ P**2 - (f @ P)**2)
        a = (f @ P**3 - m * (f @ P**2)) / spread**2
        d = f @ P**2 - a * m
        n = 1 << int(np.ceil(np.log2(min(128 * M + 1, 26 * spread * sqrt(M) + 512))))
        w = P**2 - a * P - d
        A = [np.fft.rfft(f * w**k, n) if n > 128 else None for k in range(5)]
        F = {q: A[0]**(M - q) for q in range(1, 5)}
        two, three, four = M * (M - 1), M * (M - 1) * (M - 2), M * (M - 1) * (M - 2) * (M - 3)
        E = [A[0]**M, M * A[1] * F[1], M * A[2] * F[1] + two * A[1]**2 * F[2],
             M * A[3] * F[1] + 3 * two * A[2] * A[1] * F[2] + three * A[1]**3 * F[3],
             M * A[4] * F[1] + two * (4 * A[3] * A[1] + 3 * A[2]**2) * F[2] +
             6 * three * A[2] * A[1]**2 * F[3] + four * A[1]**4 * F[4]]
        low = max(0, int(M * m) - n // 2)
        s = low + (np.arange(n) - low) % n  # a sum s stands at place s modulo n
        weight = [np.fft.irfft(e, n) for e in E]
        # weights below that are rounding
        keep = (s > 0) & (s <= 128 * M) & (weight[0] > 1e-12 * weight[0].max())
        self.s, self.weight = s[keep].astype(float), [x[keep] for x in weight]
        c = (M + 1) / (M - 1)
        self.u, self.g = c * M / self.s**2, c * (M * (a * self.s + d * M) / self.s**2 - 1)

    def moments(self, bias):
        """E[R^k] for k = 0 to 4, R = SK - bias(S1/M)."""
        h = self.g - bias(self.s / self.M)
        return [sum(comb(k, j) * (self.u**j * h**(k - j)) @ self.weight[j] for j in range(k + 1))
                for k in range(5)]


def cumulants(moments):
    n, a, b, c, d = moments
    a, b, c, d = a / n, b / n, c / n, d / n
    return a, b - a * a, c - 3 * a * b + 2 * a**3, d - 4 * a * c - 3 * b * b + 12 * a * a * b - 6 * a**4


def nodes():
    return np.concatenate([np.arange(FIRST, FINE, 0.25), np.arange(FINE, LAST + 1)])


def solve(M, grid):
    """b, M k2, M^2 k3, M^3 k4 at the nodes."""
    more = np.concatenate([[FIRST / 2, FIRST - 0.25], grid, [LAST + 1, LAST + 2, LAST + 4]])
    sums = [Sums(m, M) for m in more]
    b = np.zeros(len(more))
    for _ in range(4 if M < 128 else 6):
        b = b + [cumulants(x.moments(lambda p: np.interp(p, more, b)))[0] for x in sums]
    k = np.array([cumulants(x.moments(lambda p: np.interp(p, more, b))) for x in sums])
    rows = np.stack([b, M * k[:, 1], M**2 * k[:, 2], M**3 * k[:, 3]], axis=1)
    return rows[2:2 + len(grid)]


def table():
    rows = [solve(M, nodes()) for M in SAMPLES]
    x, y = 1 / SAMPLES[-2], 1 / SAMPLES[-1]
    rows.append(rows[-1] - (rows[-2] - rows[-1]) * y / (x - y))
    return np.array(rows)


def source(rows):
    """The file of the table."""
    text = """/* NAME - the spectral kurtosis of int4 noise of levels LEAST to 7: made by
 * tests/oracle/flag_table.py, which derives it.
 *
 *   {b, M k2, M^2 k3, M^3 k4} for M = BR_FLAG_TABLE_SAMPLES samples
 *   and, in the last row, infinitely many, and for mean powers 1, 1.25 ... 4, 5, 6 ... 76 */
#include "kernels/flag/decide.h"

const float br_flag_TABLE[FLAG_ROWS][FLAG_POWERS][4] = {
"""
    for row in rows:
        lines, line = [], "       "
        for cell in row:
            one = " {" + ", ".join(f"{x:.6g}" for x in cell) + "},"
            if len(line) + len(one) > 108:
                lines.append(line)
                line = "       "
            line += one
        text += "    {\n" + "\n".join(lines + [line]) + "\n    },\n"
    for word, value in (("BR_FLAG_TABLE_SAMPLES", ", ".join(map(str, SAMPLES))), ("LEAST", str(LEAST)),
                        ("NAME", "table7.c" if LEAST == -7 else "table.c"),
                        ("TABLE", "table7" if LEAST == -7 else "table")):
        text = text.replace(word, value)
    return text + "};\n"


def read(path):
    text = open(path).read()
    numbers = re.findall(r"-?[0-9.]+(?:e[-+]?[0-9]+)?", text[text.index("] = {") + 5:])
    return np.array(numbers, dtype=float).reshape(len(SAMPLES) + 1, -1, 4)


def check(path):
    """The numbers against the equations, and what they are for: noise of powers between the nodes has mean 0
    and the spread that the table says."""
    rows, grid = read(path), nodes()
    assert rows.shape[1] == len(grid), rows.shape
    for i, M in enumerate(SAMPLES):
        for m in (2.0, 2.4, 3.1, 7.5, 10.0, 24.3, 37.0, 50.0):
            k = cumulants(Sums(m, M).moments(lambda p: np.interp(p, grid, rows[i][:, 0])))
            want = [np.interp(m, grid, rows[i][:, j]) / M**max(j, 0) for j in range(4)]
            # the mean in standard deviations of the average of 1000 inputs
            off = abs(k[0]) / sqrt(k[1] / 1000)
            assert off < (0.4 if M < 128 else 0.15 if LEAST == -8 else 0.25), (M, m, off)
            assert abs(k[1] / want[1] - 1) < 0.03, (M, m, k[1], want[1])
            assert abs(k[2] - want[2]) / k[1]**1.5 < 0.1, (M, m, k[2], want[2])
    print(f"{len(SAMPLES) * 8} cases agree with the equations")


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        open(sys.argv[2], "w").write(source(table()))
    else:
        check(sys.argv[1])
