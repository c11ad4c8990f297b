"""The polyphase filterbank's equation in NumPy, against what dump_upchannelize wrote.

usage: upchannelize.py DUMP_PROGRAM
"""
import numpy as np

from cases import check_cases


def unpack(byte):
    """int4+4, real part in the low nibble, two's complement."""
    byte = byte.astype(np.int64)
    return ((byte & 15) ^ 8) - 8, ((byte >> 4) ^ 8) - 8


def default_window(factor, taps):
    length = taps * factor
    y = (np.arange(length) - (length - 1) / 2) / (length + 1)
    return np.cos(np.pi * y) ** 2 * np.sinc(taps * y) / factor


def upchannelize(e, window, gain):
    """e complex [T][F][X] -> unrounded [T/U - (M-1)][F][U][X]: outputs from the first that has its whole
    window."""
    factor, length = len(gain), len(window)
    s, u = np.arange(length), np.arange(factor)[:, None]
    kernel = (gain[:, None] * window * np.exp(1j * np.pi * s * (factor - 1) / factor)
              * np.exp(-2j * np.pi * u * s / factor))
    starts = range(0, len(e) - length + 1, factor)
    return np.array([np.einsum('us,sfx->fux', kernel, e[t:t + length]) for t in starts])


def check(path):
    def load(name):
        return np.load(f'{path}_{name}.npy')

    e, valid, out, out_valid, taps = load('e'), load('valid'), load('out'), load('out_valid'), int(
        load('taps'))
    blocks, nchannels, factor, nspectators = out.shape
    exact = path.endswith('reference')
    mixed = (out_valid[taps - 1:] != 255).any()  # else no validity was given
    re, im = unpack(e)
    out_re, out_im = unpack(out)

    if factor == 1:
        np.testing.assert_array_equal(out[:, :, 0], e)
        np.testing.assert_array_equal(out_valid[:, :, 0], valid if mixed else 255)
        return 'copied'

    window, gain = load('window'), load('gain')
    if len(window) == 0:
        window, gain = default_window(factor, taps), np.full(factor, np.sqrt(factor))
    value = upchannelize(re + 1j * im, window, gain)
    square = window ** 2
    share = np.zeros((blocks, nchannels), int)
    for block in range(taps - 1, blocks):
        given = valid[(block - taps + 1) * factor:(block + 1) * factor].astype(int)
        if not mixed:
            given[:] = 255
        parts = given.reshape(-1, min(factor, 16), nchannels).mean(axis=1)
        least, weight = given.min(axis=0), (square / square.sum()).reshape(len(parts), -1).sum(axis=1)
        mean = np.floor(weight @ parts + 0.5).astype(int)
        share[block] = np.where(least == 0, 0, np.where(least == 255, 255, np.clip(mean, 1, 254)))
    good = share > 0
    assert (abs(out_valid - share[:, :, None]) <= 1).all()  # the weights are rounded
    for special in (0, 255):
        same = (share == special)[:, :, None] * np.ones(factor, bool)
        np.testing.assert_array_equal(out_valid == special, same)
    assert (out[~good] == 0x88).all(), 'missing outputs must be (-8, -8)'
    assert good.any()

    good = good[taps - 1:]
    wanted = np.stack([value.real, value.imag])[:, good]
    got = np.stack([out_re, out_im])[:, taps - 1:][:, good]
    rounded = np.rint(wanted)
    tie = np.abs(wanted - np.floor(wanted) - 0.5) < (1e-9 if exact else 1e-4)
    wrong = (got != np.clip(rounded, -7, 7)) & ~tie
    assert not wrong.any(), f'{wrong.sum()} of {wrong.size} levels differ, first at {np.argwhere(wrong)[0]}'
    assert (np.abs(got - np.clip(wanted, -7, 7)) < 0.5 + 1e-3).all(), 'a tie went to neither neighbour'
    clamped = int((np.abs(rounded) > 7).sum())
    assert abs(clamped -
               int(load('clamped'))) <= tie.sum(), f"{int(load('clamped'))} clamped, expected {clamped}"
    return f'{wrong.size} levels, {tie.sum()} near a tie, {clamped} clamped'


if __name__ == '__main__':
    check_cases(check, 16)
