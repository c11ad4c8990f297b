"""Bursts keep their S/N in 8-bit filterbank files: beside float32 intensities of the same run, for S/N of 8
to 500 and widths of 1 to 64 samples. The S/N is a boxcar's over the sum of all channels; a burst of S/N s and
width w raises each of F channels by s sigma / sqrt(F w). Gains that drift leave no trace, noise has no
burst."""
import glob
import json
import os
import sys

import numpy as np

import harness

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "plots"))
from demo_report import read_filterbank  # noqa: E402

CHANNELS, STEPS, BEAMS, AVERAGED = 256, 12288, 8, 24
STEP_S, BLOCK = 983040e-9, 64
WIDTHS = (1, 2, 4, 16, 32, 64)
SNR = (8, 12, 20, 50, 100, 200, 500)
EVERY = 768  # steps from burst to burst

CHAIN = """
pipeline:
  - {stage: replay, files: j.dada, out: j}
  - {stage: filterbank, name: whole, in: j, directory: whole}
  - {stage: quantize, in: j, out: levels, bits: 8%s}
  - {stage: filterbank, in: levels, directory: levels}
"""


def plan():
    """[beam] -> [(first step, width, S/N)], the faint ones first, at all places within a block: what wide
    bright ones leave in the mean is theirs, not a later one's."""
    rng = np.random.default_rng(8)
    kinds = [(s, w) for s in SNR for w in WIDTHS for _ in range(4 if s <= 12 else 2)]
    beams = [[] for _ in range(BEAMS)]
    for i, (s, w) in enumerate(kinds):
        beams[i % BEAMS].append((1100 + i // BEAMS * EVERY + int(rng.integers(0, 64)), w, s))
    assert max(first + w for of in beams for first, w, _ in of) < STEPS - 100
    return beams


def intensities(beams, steps=STEPS, gain=None):
    """J[freq][time][beam]: means of AVERAGED squares of noise and burst, which is noise too."""
    rng = np.random.default_rng(7)
    x = rng.standard_gamma(AVERAGED, (CHANNELS, steps, BEAMS), dtype=np.float32) / AVERAGED
    for b, bursts in enumerate(beams):
        for first, width, snr in bursts:
            x[:, first:first + width, b] *= 1 + snr * AVERAGED ** -0.5 / np.sqrt(CHANNELS * width)
    if gain is not None:
        x *= gain[None, :, None].astype(np.float32)
    return x


def write_recording(directory, x, **more):
    down = more.get("DOWNSAMPLE", 1)
    keys = {
        "HEADER": "DADA", "HDR_SIZE": 4096, "DTYPE": "f16", "AXES": "freq,time,beam",
        "SHAPE": f"{CHANNELS},0,{x.shape[2]}", "FRAME_SAMPLES": 256 * down, "SAMPLE0": 0,
        "SAMPLE_NS": 983040,
        "EPOCH_NS": 10 ** 18, "FREQ_MHZ": f"400:0.012:{CHANNELS}", "WIDTH_MHZ": 0.012, "NZONES": 1,
        "ZONE_0": f"0,{CHANNELS},1,{down},0", "SCALE": 1, **more
    }
    with open(os.path.join(directory, "j.dada"), "wb") as f:
        f.write("".join(f"{k} {v}\n" for k, v in keys.items()).encode().ljust(4096, b"\0"))
        for at in range(0, x.shape[1], 256):
            f.write(np.ascontiguousarray(x[:, at:at + 256]).astype(np.float16).tobytes())


def through(x, options="", chain=CHAIN, gaps=""):
    """Sums over channels [beam][time] of the intensities and of the levels, and the counters."""
    with harness.scratch() as d:
        write_recording(d, x)
        if gaps:
            with open(os.path.join(d, "j.dada.gaps"), "w") as f:
                f.write(gaps)
        harness.run(d, chain % options, "--stats", "stats.json")
        with open(os.path.join(d, "stats.json")) as f:
            stages = {s["name"]: s for s in json.load(f)["stages"]}
        series = [np.stack([read_filterbank(p)[1].sum(axis=1, dtype=np.float64)
                            for p in sorted(glob.glob(os.path.join(d, name, "*.fil")))])
                  for name in ("whole", "levels")]
    return (*series, stages)


def noise_of(series):
    """Standard deviation of a sample, from the quartiles of differences: neither bursts nor drifts raise
    it."""
    return np.subtract(*np.percentile(np.diff(series, axis=-1), (75, 25), axis=-1)) / 1.349 / np.sqrt(2)


def measured(series, beams):
    """[(width, S/N put in, measured)]: against the noise, and the mean of the 512 steps before."""
    found = []
    for one, bursts in zip(series, beams):
        sigma = noise_of(one)
        for first, width, snr in bursts:
            mean = one[max(first - 512, 0):first].mean() if first > BLOCK else one[BLOCK:512].mean()
            found.append((width, snr, (one[first:first + width] - mean).sum() / sigma / np.sqrt(width)))
    return np.array(found)


def boxcars(series):
    """The highest S/N of any boxcar."""
    sigma = noise_of(series)
    series = series - np.median(series, axis=1, keepdims=True)
    total = np.cumsum(np.pad(series, ((0, 0), (1, 0))), axis=1)
    return max(((total[:, w:] - total[:, :-w]) / np.sqrt(w) / sigma[:, None]).max() for w in WIDTHS)


def test_ratio():
    beams = plan()
    whole, levels, _ = through(intensities(beams))
    whole, levels = measured(whole, beams), measured(levels, beams)
    least = (2,)
    for w in WIDTHS:
        for s in SNR:
            at = (whole[:, 0] == w) & (whole[:, 1] == s)
            assert at.sum() >= 2
            want, got = whole[at, 2].mean(), levels[at, 2].mean()
            # the oracle itself: the noise of each burst, which is its own too
            noise = 1 + s * AVERAGED ** -0.5 / np.sqrt(CHANNELS * w)
            assert abs(want - s) < 4 * noise / np.sqrt(at.sum()) + 0.02 * s, (w, s, want)
            assert got > 0.97 * want, (w, s, want, got)
            least = min(least, (got / want, w, s))
    print(f"least S/N in levels: {least[0]:.3f} of that in intensities, at width {least[1]}, S/N {least[2]}")


def test_own_statistics_lose_it():
    """The reason for the default: each block's own statistics would lower wide and bright bursts."""
    beams = [[(1111, 64, 100), (2222, 1, 200)] for _ in range(BEAMS)]
    x = intensities(beams, 4096)
    for options, low, high in (("", 0.95, 1.05), (", statistics: block", 0.1, 0.8)):
        whole, levels, _ = through(x, options)
        ratio = measured(levels, beams)[:, 2] / measured(whole, beams)[:, 2]
        assert (low < ratio).all() and (ratio < high).all(), (options, ratio)


def test_four_bits():
    """Their files hold what levels and scales stand for, with room for the brightest."""
    beams = [[(1600 + b, (1, 16)[b % 2], (20, 50, 100, 500)[b // 2])] for b in range(BEAMS)]
    four = CHAIN.replace("bits: 8", "bits: 4, block: 256")
    whole, levels, _ = through(intensities(beams, 4096), "", four)
    ratio = measured(levels, beams)[:, 2] / measured(whole, beams)[:, 2]
    assert (ratio > 0.95).all() and (ratio < 1.05).all(), ratio
    whole, levels, _ = through(intensities(beams, 4096), "",
                               four.replace("in: levels,", "in: levels, values: levels,"))
    ratio = measured(levels, beams)[:, 2] / measured(whole, beams)[:, 2]
    assert ratio[-1] < 0.7, ratio  # what they are not to be searched for


def test_drift_and_noise():
    t = STEP_S * np.arange(STEPS)
    for gain in (np.ones(5120), 1 + 0.01 * t, 1 - 0.1 * np.clip(t - 1, 0, 10) / 10):
        whole, levels, _ = through(intensities([], gain.size, gain))
        drift = np.ptp(gain) > 0
        assert boxcars(levels) < 8, boxcars(levels)
        assert boxcars(whole) > 20 if drift else boxcars(whole) < 6
        # All second long means, in standard deviations of one sample and channel.
        sigma = levels[:, 1024:].std() / np.sqrt(CHANNELS)
        means = levels.reshape(BEAMS, -1, 1024).mean(axis=2) / CHANNELS - 128
        assert abs(means).max() < 0.05 * sigma, abs(means).max() / sigma


def test_first_block():
    """A burst in the first block, whose statistics are medians over its parts."""
    beams = [[(5 + 6 * b, 3, 100)] for b in range(BEAMS)]
    whole, levels, _ = through(intensities(beams, 4096))
    # noise and mean of later blocks hold for the first one within what 64 samples tell of them
    ratio = measured(levels, beams)[:, 2] / measured(whole, beams)[:, 2]
    assert (abs(ratio - 1) < 0.15).all(), ratio


def test_another_gain_is_believed():
    gain = np.where(np.arange(STEPS) < 4000, 1, 3)
    _, levels, stages = through(intensities([], gain=gain), ", calibration_s: 1")
    mean = levels.reshape(BEAMS, -1, 1024).mean(axis=2) / CHANNELS - 128
    spread = levels.reshape(BEAMS, -1, 1024).std(axis=2)
    assert (mean[:, 4] > 5).all() and (abs(mean[:, 6:]) < 0.3).all()
    assert (abs(spread[:, 6:] / spread[:, 1:2] - 1) < 0.15).all()


def test_another_gain_behind_a_hole():
    """After so long nothing is known of the mean: the levels are right at once."""
    gain = np.where(np.arange(8192) < 4500, 1, 3)
    _, levels, _ = through(intensities([], 8192, gain), gaps="3000 3016\n")
    mean = levels[:, 6016:].reshape(BEAMS, -1, 64).mean(axis=2) / CHANNELS - 128
    assert (abs(mean) < 0.3).all(), abs(mean).max()


def test_bright_ones_clamp():
    beams = [[(2000, 1, 6000)] for b in range(BEAMS)]
    _, levels, stages = through(intensities(beams, 4096))
    assert (levels[:, 2000] == 255 * CHANNELS).all()
    assert stages["quantize"]["saturated"] == CHANNELS * BEAMS
    after = levels[:, 2064:].mean(axis=1) / CHANNELS - 128
    assert (abs(after) < 0.05).all()


def test_mistakes():
    with harness.scratch() as d:
        write_recording(d, intensities([], 256))
        for options, want in ((", calibration_s: 0.2", "3.2 blocks of 64 steps; expected at least 4"),
                              (", calibration_s: 5, statistics: block", "this is for `statistics: slow`"),
                              (", statistics: fast", "slow")):
            result = harness.run(d, CHAIN % options, command="check", status=2)
            assert want in result.err, result


if __name__ == "__main__":
    harness.main([
        test_ratio, test_own_statistics_lose_it, test_four_bits, test_drift_and_noise, test_first_block,
        test_another_gain_is_believed, test_another_gain_behind_a_hole, test_bright_ones_clamp, test_mistakes
    ])
