"""Receivers' gains in NumPy, against what dump_calibrate wrote.

With V_ij = g_i conj(g_j) S + noise and R_ij = V_ij / sqrt(V_ii V_jj), r minimises the sum over pairs i < j of
n_ij |R_ij - r_i conj(r_j)|^2. Here that is Gauss and Newton's way to least squares, over real and imaginary
parts, from the truth on; nothing of the C's iteration. Gains are 1 / (r_i sqrt(V_ii)), their mean amplitude
being 1, the reference's phase 0. The error of a component of r is noise sqrt(1 / sum_j n_ij |r_j|^2 + 1 / n /
(1 - |r|^2)): independent pairs, and an input's own noise beside a source that all see, whose visibilities
are not independent; the pipeline's test has real fields.

usage: calibrate.py DUMP_PROGRAM
"""
import glob
import os
import subprocess
import sys
import tempfile

import numpy as np


def least_squares(R, w, r):
    """r at the minimum, and the inverse of the normal equations over (re, im) of all."""
    n = len(r)
    i, j = np.triu_indices(n, 1)
    keep = w[i, j] > 0
    i, j = i[keep], j[keep]
    s = np.sqrt(w[i, j])
    rows = np.arange(len(i))
    for _ in range(60):
        off = s * (R[i, j] - r[i] * r[j].conj())
        J = np.zeros((len(i), 2 * n), complex)
        J[rows, i] += s * r[j].conj()
        J[rows, j] += s * r[i]
        J[rows, n + i] += 1j * s * r[j].conj()
        J[rows, n + j] += -1j * s * r[i]
        A = np.concatenate([J.real, J.imag])
        step = np.linalg.lstsq(A, np.concatenate([off.real, off.imag]), rcond=1e-10)[0]
        r = r + step[:n] + 1j * step[n:]
        if abs(step).max() < 1e-14:
            break
    off = s * (R[i, j] - r[i] * r[j].conj())
    return r, off, i, j, np.linalg.pinv(A.T @ A, rcond=1e-10)


def check(path):
    names = ("numbers", "sum", "samples", "truth", "gain", "snr", "misfit", "flag")
    numbers, total, samples, truth, gain, snr, misfit, flag = (np.load(f"{path}_{k}.npy") for k in names)
    reference, typical, residual, noisy = numbers
    n, name = len(flag), os.path.basename(path)
    i, j = np.triu_indices(n)
    w, V = np.zeros((n, n)), np.zeros((n, n), complex)
    w[i, j] = w[j, i] = samples
    mean = (total[:, 0] + 1j * total[:, 1]) / np.maximum(samples, 1)
    V[i, j], V[j, i] = mean, mean.conj()
    power = np.diag(V).real
    assert (flag == 0).all(), (name, flag)
    R = V / np.sqrt(np.outer(power, power))
    g = truth[:, 0] + 1j * truth[:, 1]
    start = g / abs(g) * np.sqrt(abs(R[~np.eye(n, dtype=bool)]).mean())
    r, off, a, b, covariance = least_squares(R, w, start)
    want = 1 / (r * np.sqrt(power))
    want = want * abs(want[int(reference)]) / want[int(reference)] / abs(want).mean()
    got = gain[:, 0] + 1j * gain[:, 1]
    assert abs(got - want).max() < 1e-7, (name, abs(got - want).max())
    assert got[int(reference)].imag == 0 and got[int(reference)].real > 0
    # against the truth, up to one phase and one scale
    ratio = got * g
    ratio = ratio / (ratio / abs(ratio)).mean()
    if noisy == 0:
        assert abs(ratio / abs(ratio).mean() - 1).max() < 1e-6, (name, ratio)
        assert typical > 1e6 and (snr > 1e6).all()
        return
    phase = np.angle(ratio)
    noise = np.sqrt((abs(off) ** 2).sum() / (2 * len(a) - 2 * n))
    off_diagonal = w * (1 - np.eye(n))
    r_error = noise / np.sqrt((off_diagonal * (abs(r) ** 2)[None]).sum(axis=1))
    shared = noise ** 2 * (off_diagonal > 0).sum(axis=1) / off_diagonal.sum(axis=1)
    shared = shared / (1 - abs(r) ** 2)
    assert abs(snr * np.sqrt(r_error ** 2 + shared) / abs(r) - 1).max() < 1e-6, name
    # The first part of the error is that of the covariance, up to what the common phase takes.
    proper = noise * np.sqrt((covariance.diagonal()[:n] + covariance.diagonal()[n:]) / 2)
    assert abs(np.median(proper / r_error) - 1) < 0.3, (name, np.median(proper / r_error))
    assert np.sqrt((phase ** 2 * snr ** 2).mean()) < 1.5, (name, "phases are as good as their S/N says")
    each = np.zeros(n)
    count = np.zeros(n)
    for k in (a, b):
        np.add.at(each, k, abs(off) ** 2)
        np.add.at(count, k, 1)
    assert abs(misfit - np.sqrt(each / count)).max() < 1e-6, name
    assert abs(residual - np.sqrt(2) * noise) < 1e-6 and abs(residual - 1) < 0.6, (name, residual)
    pairs = abs(np.outer(r, r))[~np.eye(n, dtype=bool)].mean()
    assert abs(typical - pairs * np.sqrt(w[~np.eye(n, dtype=bool)].mean()) / noise) < 1e-5 * typical, name


def main():
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([sys.argv[1], directory], check=True)
        paths = [p[:-len("_numbers.npy")] for p in glob.glob(os.path.join(directory, "*_numbers.npy"))]
        assert len(paths) == 7, paths
        for path in paths:
            check(path)
        print(f"{len(paths)} cases agree with the equation")


main()
