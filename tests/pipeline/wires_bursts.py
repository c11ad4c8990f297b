"""What 4 bits leave of a bright burst, from the equations and through the program: with slow statistics all
of it, to half a level of the block's brightest value; with each block's own a part."""
import os

import numpy as np

import harness
from files_common import write
from wires_common import recorded_levels

STEPS, FIRST = 256, 4


def blocks():
    """[block][step]: noise of rms 1 with a burst in each block; the last one is noise alone."""
    noise = np.where(np.arange(STEPS) % 2 == 0, 1.0, -1.0)
    x = np.tile(noise, (6, 1))
    x[0, 100] = 10
    x[1, 100] = 100
    x[2, 100:129] = 1000
    x[3, 100:127] = 1000
    x[4, 100] = 2.5
    return x


def through(d, x, levels_rms, statistics):
    keys = {
        "HEADER": "DADA", "HDR_SIZE": 4096, "DTYPE": "f16", "AXES": "freq,time,beam", "SHAPE": "1,0,8",
        "FRAME_SAMPLES": STEPS, "SAMPLE0": FIRST * STEPS, "SAMPLE_NS": 5120, "EPOCH_NS": 10 ** 18,
        "FREQ_MHZ": 600, "WIDTH_MHZ": 0.1953125, "NZONES": 1, "ZONE_0": "0,1,1,1,0", "SCALE": 1
    }
    head = "".join(f"{k} {v}\n" for k, v in keys.items()).encode().ljust(4096, b"\0")
    write(d, "j.dada", head + np.repeat(x.reshape(-1, 1), 8, axis=1).astype(np.float16).tobytes())
    harness.run(
        d, f"""
pipeline:
  - {{stage: replay, files: j.dada, out: j}}
  - {{stage: quantize, in: j, out: q, bits: 4, block: 256, levels_rms: {levels_rms},
      statistics: {statistics}}}
  - {{stage: record, in: q, directory: ., prefix: q{levels_rms}, overwrite: true}}
""")
    frames = recorded_levels(os.path.join(d, f"q{levels_rms}_000000.dada"))
    return np.array([levels[0, 0] * side[0, 0, 0] + side[0, 0, 1] for _, levels, side in frames])


def test_bursts():
    x = blocks()
    with harness.scratch() as d:
        for levels_rms in (2.5, 1):
            got = through(d, x, levels_rms, "block")
            most = x.mean(axis=1) + 7 / levels_rms * x.std(axis=1)
            peak = x.max(axis=1)
            # to half a level, and float32 of the scale
            slack = (0.5 + 1e-3) * x.std(axis=1) / levels_rms
            assert np.all(abs(got.max(axis=1) - np.minimum(peak, most)) <= slack), (got.max(axis=1), most)
            if levels_rms == 1:
                assert abs(got[0].max() - 8.3) < 0.05
                continue
            assert abs(got[0].max() - 3.3) < 0.05 and abs(got[1].max() - 18) < 0.5
            assert most[2] > peak[2] and abs(got[2].max() / 1000 - 1) < 0.08  # 29 samples: half a level off
            assert most[3] < peak[3] and got[3].max() < 0.98 * 1000
            assert abs(got[4].max() - 2.5) <= slack[4]


def test_bursts_whole():
    """The first block is noise, of which all others are bursts: noise of rms 1 (of 255/256, as a sample's)
    whose mean has moved by what the burst before left, which is little."""
    x = np.concatenate([blocks()[-1:]] * 4 + [blocks()])
    with harness.scratch() as d:
        got = through(d, x, 2.5, "slow")
    peak = x.max(axis=1)
    step = np.maximum(peak / 7, 1 / 2.5)
    assert np.all(abs(got - x) <= (0.5 + 0.01) * step[:, None] + 0.01), (abs(got - x) /
                                                                         step[:, None]).max(axis=1)
    assert np.all(abs(got.max(axis=1) - peak) <= 0.01 * peak + 0.2), (got.max(axis=1), peak)


if __name__ == "__main__":
    harness.main([test_bursts, test_bursts_whole])
