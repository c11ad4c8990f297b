"""Visibilities in NumPy, against what dump_correlate wrote.

V[f][i][j] = sum of E[t][f][i] conj(E[t][f][j]) over the samples that are there, i <= j, baselines row after
row of the upper triangle.

usage: correlate.py DUMP_PROGRAM
"""
import glob
import os
import subprocess
import sys
import tempfile

import numpy as np


def field(e):
    low, high = (e & 15).astype(np.int64), (e >> 4).astype(np.int64)
    return (low - 16 * (low > 7)) + 1j * (high - 16 * (high > 7))


def check(path):
    autos, = np.load(f"{path}_numbers.npy")
    e, valid, v = (np.load(f"{path}_{name}.npy") for name in ("e", "valid", "v"))
    E = field(e)
    if len(valid):
        E = E * (valid != 0)[:, :, None]
    for f in range(E.shape[1]):
        # float64 holds these sums exactly: they stay far below 2^53
        V = E[:, f].T @ E[:, f].conj()
        wanted = np.diag(V) if autos else V[np.triu_indices(E.shape[2])]
        got = v[f, :, 0] + 1j * v[f, :, 1]
        assert np.array_equal(got, wanted), (path, f)


def main():
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([sys.argv[1], directory], check=True)
        paths = [p[:-len("_numbers.npy")] for p in glob.glob(os.path.join(directory, "*_numbers.npy"))]
        assert len(paths) >= 20, paths
        for path in paths:
            check(path)
        print(f"{len(paths)} cases agree with the equation")


main()
