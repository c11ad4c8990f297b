"""The stage `flag`: what is missing behind it, whatever the frames, is what the equations say; bad inputs,
new rules from a stated sample on; what it cannot do it refuses."""
import json
import os
import sys

import h5py
import numpy as np

import harness
from small import TELESCOPE, one, record_field

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../oracle"))
import flag as oracle  # noqa: E402

SAMPLES, BLOCK, LONG, INPUTS = 9000, 128, 8, 24
RULES = f"block: {BLOCK}, long_block: {LONG}, threshold_sigma: [4, 4.5]"


def disturb(path):
    """Pulses in all inputs of channel 1 for a while, in input 9 of channel 3 all the time; input 5 is dead,
    and input 20 is too strong in channel 0 in the second half; of channel 2 half of the inputs are lost for a
    while. Returns the bytes [time][freq][input]."""
    _, size = harness.header(path)
    e = np.fromfile(path, np.uint8, offset=size).reshape(SAMPLES, 5, INPUTS)
    t = np.arange(SAMPLES)
    pulse = t % 50 < 5
    e[np.ix_(np.flatnonzero(pulse & (t >= 2560) & (t < 3072)), [1])] = 0x57
    e[np.ix_(np.flatnonzero(pulse), [3], [9])] = 0x77
    e[:, :, 5] = 0
    e[np.ix_(np.flatnonzero((t >= 4500) & (t % 3 > 0)), [0], [20])] = 0x87
    e[6100:6500, 2, 3:15] = 0
    with open(path, "r+b") as f:
        f.seek(size)
        f.write(e.tobytes())
    return e


def pipeline(directory, more=RULES, frame=1024, head="", before="", source="field", kurtosis=False):
    out = "[clean, sk]" if kurtosis else "clean"
    return TELESCOPE + head + f"""
pipeline:
  - {{stage: replay, files: field*.dada, out: field, frame_samples: {frame}}}
{before}
  - {{stage: flag, name: s, in: {source}, out: {out}, {more}}}
  - {{stage: record, in: clean, directory: {directory}, prefix: clean}}
""" + (f"  - {{stage: record, name: r, in: sk, directory: {directory}, prefix: sk}}\n" if kurtosis else "")


def run(d, name, *args, **more):
    """Bytes and validity [time][freq]; the recording of SK."""
    os.mkdir(os.path.join(d, name))
    result = harness.run(d, pipeline(name, **more), *args)
    path = one(os.path.join(d, name), "clean*.dada")
    keys, size = harness.header(path)
    down = int(keys.get("DOWNSAMPLE", 1))
    e = np.fromfile(path, np.uint8, offset=size).reshape(-1, int(keys["SHAPE"].split(",")[1]), INPUTS)
    first = int(keys["SAMPLE0"]) // down
    return e, harness.read_gaps(path, first, len(e), e.shape[1], down), result


def expected(e, valid, bad=(), sigma=(4, 4.5), low=2, high=50, first=0, least=-8):
    """The same by the equations."""
    e, out = e.copy(), e.copy()
    out[:, :, list(bad)] = 0
    share = np.zeros(valid.shape)
    good = np.ones(INPUTS, bool)
    good[list(bad)] = False
    t = first + np.arange(len(e))
    counts = oracle.there(e, valid, t // oracle.RUN)
    P = oracle.power(e) * counts
    for long in np.unique(t // (BLOCK * LONG)):
        mine = np.flatnonzero(t // (BLOCK * LONG) == long)
        for f in range(e.shape[1]):
            kept, total = [], np.zeros((3, INPUTS), int)
            for b in np.unique(t[mine] // BLOCK):
                at = np.flatnonzero(t // BLOCK == b)
                s0, s1, s2 = (x[at, f].sum(axis=0) for x in (counts, P, P**2))
                if s0.max() < 16 or s0.max() < 0.1 * len(at):
                    continue
                why, close = oracle.judge(s0, s1, s2, good, good.sum(), low, high, sigma[0], len(at),
                                          least)
                assert close > 1e-3, "choose other data: this decision hangs on rounding"
                if why == oracle.KEPT:
                    kept.append(at)
                    total += [s0, s1, s2]
            used = 0
            for n in range(INPUTS):
                why, _ = oracle.judge(*total[:, n:n + 1], np.array([True]), 1, low, high, sigma[1], len(mine),
                                      least)
                is_kept = why == oracle.KEPT
                used += is_kept and good[n]
                if not is_kept:
                    out[mine, f, n] = 0
            for at in kept:
                share[at, f] = valid[at, f] / 255 * used / good.sum()
    return out, share


def compare(got, valid, wanted, share):
    assert np.array_equal(got, wanted)
    assert np.array_equal(valid == 0, share == 0) and np.array_equal(valid == 255, share == 1)
    assert np.all(np.abs(valid - 255 * share) <= 1), np.abs(valid - 255 * share).max()


def recorded(d, **more):
    path = record_field(d, samples=SAMPLES, **more)
    e = disturb(path)
    with open(path + ".gaps", "a") as f:  # of channel 2 half of the inputs came for a while
        f.write("6100 400 2 1 128\n")
    return e, harness.read_gaps(path, int(harness.header(path)[0]["SAMPLE0"]), SAMPLES, 5, 1)


def test_flags():
    """And their bits do not depend on frames or threads."""
    with harness.scratch() as d:
        e, valid = recorded(d)
        wanted, share = expected(e, valid)
        assert (valid == 128).sum() == 400
        assert 0 < (share[2560:3072, 1] == 0).mean() and (share[5000:, 0] < 23 / 24).all()
        one_thread = ("--set", "threads=1")
        for i, (frame, more) in enumerate(((1024, ()), (64, ()), (16384, ()), (1000, one_thread), (640, ()))):
            got, bytes_valid, _ = run(d, f"v{i}", *more, frame=frame)
            compare(got, bytes_valid, wanted, share)


def test_a_recording_that_begins_late():
    """Blocks begin at multiples of their length from sample 0."""
    with harness.scratch() as d:
        e, valid = recorded(d, sample0=700)
        got, bytes_valid, _ = run(d, "v")
        compare(got, bytes_valid, *expected(e, valid, first=700))


def test_levels_without_the_least():
    """Other blocks of strong noise are flagged than if level -8 could come."""
    with harness.scratch() as d:
        path = record_field(d, samples=SAMPLES)
        level = np.clip(np.rint(np.random.default_rng(3).normal(0, 3, (2, SAMPLES, 5, INPUTS))), -7, 7)
        e = (level[0].astype(np.int8) & 15 | level[1].astype(np.int8) << 4).astype(np.uint8)
        with open(path, "r+b") as f:
            f.seek(harness.header(path)[1])
            f.write(e.tobytes())
        valid = np.full(e.shape[:2], 255)
        wanted, share = expected(e, valid, sigma=(2, 3), least=-7)
        assert not np.array_equal(share, expected(e, valid, sigma=(2, 3))[1])
        more = f"block: {BLOCK}, long_block: {LONG}, threshold_sigma: [2, 3], least_level: -7"
        got, bytes_valid, result = run(d, "v", more=more)
        compare(got, bytes_valid, wanted, share)
        assert "least_level" not in result.err, result
        result = run(d, "most", more="block: 1024, threshold_sigma: [1, 100]")[2]
        assert "most samples are flagged for their kurtosis" in result.err, result
        assert "(least_level: -7)" in result.err, result


def test_bad_inputs():
    """From a list and from a file; they are not expected, and the counters go on."""
    with harness.scratch() as d:
        e, valid = recorded(d)
        wanted, share = expected(e, valid, bad=(5, 9, 20))
        got, bytes_valid, result = run(d, "list", "--stats", "stats.json",
                                       more=RULES + ", bad_inputs: [20, 5, 9]")
        compare(got, bytes_valid, wanted, share)
        bad = np.zeros((2, 12), np.int8)
        bad.ravel()[[5, 9, 20]] = 1
        with h5py.File(os.path.join(d, "bad.h5"), "w") as f:
            f["bad_inputs"] = bad
        got, bytes_valid, _ = run(d, "file", more=RULES + ", bad_inputs_file: bad.h5")
        compare(got, bytes_valid, wanted, share)
        stats = json.load(open(os.path.join(d, "stats.json")))
        (stage,) = [s for s in stats["stages"] if s["name"] == "s"]
        text = json.dumps(stage)
        assert '"input 5"' in text and '"input 23"' in text, text
        assert "flagged" in result.err and "5 (100 %)" in result.err, result


def test_kurtosis():
    """The second output."""
    with harness.scratch() as d:
        e, valid = recorded(d)
        _, _, _ = run(d, "v", kurtosis=True)
        path = one(os.path.join(d, "v"), "sk*.dada")
        keys, size = harness.header(path)
        assert keys["DTYPE"] == "f32" and keys["DOWNSAMPLE"] == str(BLOCK), keys
        sk = np.fromfile(path, "<f4", offset=size).reshape(-1, 5, INPUTS)
        assert len(sk) == -(-SAMPLES // BLOCK)
        counts = oracle.there(e, valid, np.arange(SAMPLES) // oracle.RUN)
        P = oracle.power(e) * counts
        for b in range(len(sk)):
            at = slice(b * BLOCK, (b + 1) * BLOCK)
            s0, s1, s2 = (x[at].sum(axis=0) for x in (counts, P, P**2))
            want = oracle.kurtosis(s0, s1, s2)
            none = (s0 < 2) | (s1 == 0)
            assert np.array_equal(np.isnan(sk[b]), none)
            assert np.allclose(sk[b][~none], want[~none], 1e-5, 1e-5)


def test_updates():
    """New rules hold from the first long block on that begins at or after the sample."""
    with harness.scratch() as d:
        e, valid = recorded(d)
        a, b = run(d, "a")[:2], run(d, "b", more=RULES + ", bad_inputs: [1, 2], power: [3, 30]")[:2]
        cases = ((0, 0), (3000, 3072), (3072, 3072), (3073, 4096), (50000, SAMPLES))
        for i, (sample, cut) in enumerate(cases):
            new = "{s: {bad_inputs: [1, 2], power: [3, 30]}}"
            update = f"updates: [{{at: {{sample: {sample}}}, stages: {new}}}]"
            for frame in (1024, 500, 8192):
                got = run(d, f"c{i}{frame}", head=update, frame=frame)[:2]
                for x in range(2):
                    assert np.array_equal(got[x][:cut], a[x][:cut]), (sample, frame)
                    assert np.array_equal(got[x][cut:], b[x][cut:]), (sample, frame)


def test_nothing_is_left():
    """Everything missing, all inputs outside of the limits, one dish: an end without an error."""
    with harness.scratch() as d:
        e, _ = recorded(d, missing="[]")
        got, valid, _ = run(d, "strong", more=RULES + ", power: [70, 75]")
        assert not valid.any() and not got.any()
    with harness.scratch() as d:
        recorded(d, missing=f"[{{first: 0, count: {SAMPLES}}}]")
        _, valid, _ = run(d, "missing")
        assert not valid.any()
    with harness.scratch() as d:
        harness.run(d, """
telescope: {name: one, grid: {m: 1, n: 1}, spacing_m: {m: 5, n: 5}, dishes: [[0, 0]]}
stream: {freq_mhz: {first: 400, step: 1, count: 2}, sample_ns: 1000, epoch_ns: 0}
pipeline:
  - {stage: simulate, samples: 5000, seed: 3, out: field}
  - {stage: flag, in: field, out: clean, block: 100, long_block: 3}
  - {stage: record, in: clean, directory: ., prefix: clean}
""")
        path = one(d, "clean*.dada")
        assert harness.read_gaps(path, 0, 5000, 2, 1).mean() > 250


def test_upchannelized():
    """Samples of four base samples each; zones are refused."""
    with harness.scratch() as d:
        recorded(d)
        fine = "  - {stage: upchannelize, in: field, out: fine, factor: 4}"
        got, valid, _ = run(d, "v", before=fine, source="fine",
                            more="block: 512, long_block: 4, power: [1, 70]")
        assert len(got) == SAMPLES // 4 and got.shape[1] == 20 and valid.any()


def test_refused():
    with harness.scratch() as d:
        record_field(d, samples=100, missing="[]")
        zones = "  - {stage: upchannelize, in: field, out: fine, zones: [{channels: 2, factor: 4}, " \
                "{channels: 3, factor: 8}]}"
        four = "  - {stage: upchannelize, in: field, out: fine, factor: 4}"
        with h5py.File(os.path.join(d, "bad.h5"), "w") as f:
            f["bad_inputs"] = np.zeros((2, 11), np.int8)
        for more, before, text in (
            ("bad_inputs: [3, 24]", "", "pipeline.yaml:13:63: stage 's': bad_inputs: there is no input 24; "
             "expected 0 to 23"),
            ("bad_inputs: [3, 4, 3]", "", "input 3 is listed twice"),
            ("bad_inputs: [-1]", "", "bad_inputs"),
            (f"bad_inputs: {list(range(24))}", "", "all 24 inputs are bad: nothing would be left"),
            ("bad_inputs_file: bad.h5", "", "/bad_inputs is [2][11]; expected pol 2, dish 12"),
            ("bad_inputs_file: none.h5", "", "none.h5"),
            ("bad_inputs: [1], bad_inputs_file: bad.h5", "", "bad_inputs is given too"),
            ("power: [20, 10]", "", "20 to 10 are not limits; expected [least, most]"),
            ("power: [20]", "", "power"),
            ("threshold_sigma: 0", "", "threshold_sigma"),
            ("block: 15", "", "block"),
            ("block: 32769", "", "expected 16 to 32768 base samples"),
            ("block: 32768, long_block: 1000", "", "expected at most 16777216"),
            ("block: 130", four, "expected a multiple of 4"),
            ("block: 60", four, "15 samples; expected 64 to"),
            (RULES, zones, "samples of different lengths"),
        ):
            source = "fine" if before else "field"
            text_of = pipeline(".", more=more, before=before, source=source)
            result = harness.run(d, text_of, status=2, command="check")
            assert text in result.err, (text, result)


if __name__ == "__main__":
    harness.main([
        test_flags, test_a_recording_that_begins_late, test_bad_inputs, test_kurtosis, test_updates,
        test_nothing_is_left, test_upchannelized, test_refused
    ])
