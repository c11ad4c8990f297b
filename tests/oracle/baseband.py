"""The baseband beamformer's equation in NumPy integers, against what dump_baseband wrote.

usage: baseband.py DUMP_PROGRAM
"""
import numpy as np

from cases import check_cases


def unpack(byte):
    """int4+4, real part in the low nibble, two's complement."""
    byte = byte.astype(np.int64)
    return ((byte & 15) ^ 8) - 8, ((byte >> 4) ^ 8) - 8


def form_beams(e, weights, shift):
    """e [T][F][P][D] bytes -> re, im [B][F][P][T], rounded and not yet clamped."""
    re, im = unpack(e)
    channels = e.shape[1]
    weights = np.broadcast_to(weights.astype(np.int64), (channels,) + weights.shape[1:])
    shift = np.broadcast_to(shift.astype(np.int64), (channels,) + shift.shape[1:])
    a, b = weights[..., 0], weights[..., 1]
    product = 'fpbd,tfpd->bfpt'
    sum_re = np.einsum(product, a, re) - np.einsum(product, b, im)
    sum_im = np.einsum(product, a, im) + np.einsum(product, b, re)
    shift = shift.transpose(2, 0, 1)[..., None]
    half = np.where(shift > 0, 1 << np.maximum(shift - 1, 0), 0)
    return (sum_re + half) >> shift, (sum_im + half) >> shift


def check(path):
    def load(name):
        return np.load(f'{path}_{name}.npy')

    e, valid, out = load('e'), load('valid') != 0, load('out')
    level = np.stack(form_beams(e, load('weights'), load('shift')))
    good = np.broadcast_to(valid.T[None, :, None, :], out.shape)
    got = np.stack(unpack(out))
    np.testing.assert_array_equal(got, np.where(good, np.clip(level, -7, 7), -8))
    clamped = (np.abs(level) > 7) & good
    np.testing.assert_array_equal(load('saturated'), clamped.sum(axis=(0, 2, 3, 4)))
    np.testing.assert_array_equal(load('out_valid'), load('valid').T)
    return f'{out.size} beam samples, {clamped.sum()} components clamped'


if __name__ == '__main__':
    check_cases(check, 10)
