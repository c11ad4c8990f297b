"""Packets to the electric field in NumPy, against what dump_unpack wrote.

A payload is an array by the axes of its description; the sources bring inputs one after the other, the
streams channels, and channels are sorted by the F-engine's number. A nibble is value + 8 or two's complement.

usage: unpack.py DUMP_PROGRAM
"""
import numpy as np

from cases import check_cases


def field(data, axes, lengths, sources, streams, stream_first, step):
    """Bytes [time][channel][input], input = source, then what the payload has besides time and freq, as
    [input][pol]."""
    blocks = data.shape[0]
    payload = data.reshape((blocks, sources, streams) + tuple(lengths))
    letters = 'BSK' + axes
    for letter in 'tfip':
        if letter not in axes:
            payload, letters = payload[..., None], letters + letter
    order = [letters.index(letter) for letter in 'BtKfSip']
    payload = payload.transpose(order)
    _, times, _, channels, _, inputs, pols = payload.shape
    number = (stream_first[:, None] + step * np.arange(channels)).ravel()
    out = payload.reshape(blocks * times, streams * channels, sources * inputs * pols)[:, np.argsort(number)]
    stream = np.repeat(np.arange(streams), channels)[np.argsort(number)]
    return out, stream, times, inputs * pols


def component(nibble, offset_binary):
    nibble = nibble.astype(np.int64)
    return nibble - 8 if offset_binary else (nibble ^ 8) - 8


def check(path):
    def load(name):
        return np.load(f'{path}_{name}.npy')

    sources, streams, positions, step, offset_binary, real_high, sum_samples, lossy = (
        int(v) for v in load('numbers'))
    data, position = load('in'), load('position')
    byte, stream, times, per_source = field(data,
                                            bytes(load('axes')).decode(), load('lengths'), sources, streams,
                                            load('streams'), step)
    came = np.ones((len(data), sources * streams), bool)
    if lossy:
        came = np.unpackbits(load('receipt'), axis=1, bitorder='little')[:, :sources * streams] != 0
    came = came.reshape(len(data), sources, streams).repeat(times, axis=0)[:, :, stream].transpose(0, 2, 1)
    came = came.repeat(per_source, axis=2)
    high, low = component(byte >> 4, offset_binary), component(byte & 15, offset_binary)
    sample = (high + 1j * low if real_high else low + 1j * high) * came

    expected = np.zeros(byte.shape[:2] + (positions,), complex)
    expected[..., position] = sample
    there = np.zeros(expected.shape, bool)
    there[..., position] = came
    out = load('out')
    got = component(out & 15, False) + 1j * component(out >> 4, False)
    np.testing.assert_array_equal(got, expected)

    if sum_samples:
        power = np.rint(np.abs(expected) ** 2).astype(np.int64)
        starts = np.arange(0, len(power), sum_samples)
        sums = np.stack(
            [np.add.reduceat(x, starts, axis=0) for x in (there.astype(np.int64), power, power**2)], axis=2)
        np.testing.assert_array_equal(load('sums'), sums)
    return f'{out.size} samples, {(~there).mean():.1%} missing, sums over {sum_samples}'


if __name__ == '__main__':
    check_cases(check, 38, '_numbers.npy')
