"""Values that are updated while a pipeline runs: before and after the stated sample its output is that of two
pipelines with fixed values, bit for bit, whatever the frames, in several stages and zones."""
import os

import h5py
import numpy as np

import harness
from small import at, TELESCOPE, record_field

SAMPLES = 20000



def run(d, name, stages, updates="", frame=1024, top=""):
    """The stages, each writing its output `out` to files name/out*.dada; arrays by the name of the output."""
    os.mkdir(os.path.join(d, name))
    text = TELESCOPE + top + (f"updates: [{updates}]\n" if updates else "") + f"""
pipeline:
  - {{stage: replay, files: field*.dada, out: field, frame_samples: {frame}}}
"""
    outs = []
    for stage in stages:
        text += f"  - {{{stage}}}\n"
        out = stage.split("out: ")[1].split(",")[0].split("}")[0].strip()
        outs.append(out)
        text += f"  - {{stage: record, name: r_{out}, in: {out}, directory: {name}, prefix: {out}}}\n"
    harness.run(d, text)
    return {out: steps(os.path.join(d, name), out) for out in outs}


def steps(directory, prefix):
    """For each zone of a recording: (base samples of a step, number of the first one, bytes [step][...])."""
    (name,) = [n for n in os.listdir(directory) if n.startswith(prefix) and n.endswith(".dada")]
    path = os.path.join(directory, name)
    keys, size = harness.header(path)
    if int(keys.get("NZONES", 1)) == 1:
        data, first, _, _ = harness.read_frames(path)
        data = np.moveaxis(data, keys["AXES"].split(",").index("time"), 0)
        return {0: (int(keys.get("DOWNSAMPLE", 1)), first, data.reshape(data.shape[0], -1))}
    raw, frame, at = np.fromfile(path, np.uint8, offset=size), int(keys["FRAME_SAMPLES"]), 0
    each = np.prod([int(n) for n in keys["SHAPE"].split(",")[2:]])  # bytes of a channel
    zones = [[int(v) for v in keys[f"ZONE_{z}"].split(",")] for z in range(int(keys["NZONES"]))]
    parts = [[] for _ in zones]
    for begin in range(0, SAMPLES, frame):
        for z, (_, channels, _, down, _) in enumerate(zones):
            count = -(-min(frame, SAMPLES - begin) // down)
            parts[z].append(raw[at:at + count * channels * each].reshape(count, -1))
            at += count * channels * each
    assert at == raw.size
    return {z: (zone[3], 0, np.concatenate(parts[z])) for z, zone in enumerate(zones)}


def joined(a, b, got, sample):
    """Whether every step that begins at or after the sample is b's, and every one before a's."""
    assert a.keys() == b.keys() == got.keys() and len(a) > 0
    for label in a:
        down, first, before = a[label]
        after, mixed = b[label][2], got[label][2]
        assert before.shape == after.shape == mixed.shape and len(before) > 100
        cut = max(0, -(-sample // down) - first)
        assert np.array_equal(mixed[:cut], before[:cut]), (label, sample)
        assert np.array_equal(mixed[cut:], after[cut:]), (label, sample)
        assert cut >= len(before) or not np.array_equal(before[cut:], after[cut:])


def test_gain():
    with harness.scratch() as d:
        record_field(d, samples=SAMPLES)
        up = "stage: upchannelize, name: s, in: field, out: fine, factor: 16, gain: {}"
        a, b = run(d, "a", [up.format("4")])["fine"], run(d, "b", [up.format("2.5")])["fine"]
        for i, (sample, frame) in enumerate(
            ((0, 1024), (4800, 1024), (4801, 1024), (1024, 1024), (1023, 1024), (1009, 1024), (7000, 32768),
             (19999, 1024), (90000, 1024))):
            got = run(d, f"c{i}", [up.format("4")], at(sample, "gain: 2.5"), frame=frame)["fine"]
            joined(a, b, got, sample)


def test_zones():
    with harness.scratch() as d:
        record_field(d, samples=SAMPLES)
        up = "stage: upchannelize, name: s, in: field, out: fine, zones: [{{channels: 2, factor: 16}}, " \
             "{{channels: 3, factor: 4}}], gain: {}"
        a, b = run(d, "a", [up.format("4")])["fine"], run(d, "b", [up.format("2")])["fine"]
        for i, (sample, frame) in enumerate(
            ((4801, 1024), (4805, 1024), (4813, 2048), (1021, 1024), (16, 1024))):
            joined(a, b,
                   run(d, f"c{i}", [up.format("4")], at(sample, "gain: 2"), frame=frame)["fine"], sample)


def write_weights(path, rng, channels, pols, beams, dishes, shift):
    with h5py.File(path, "w") as f:
        f["weights"] = rng.integers(-127, 128, (channels, pols, beams, dishes, 2)).astype(np.int8)
        f["shift"] = np.full((channels, pols, beams), shift, np.int32)


def test_weights():
    with harness.scratch() as d:
        rng = np.random.default_rng(7)
        record_field(d, samples=SAMPLES)
        keys, _ = harness.header(os.path.join(d, next(n for n in os.listdir(d) if n.endswith(".dada"))))
        _, channels, pols, dishes = (int(x) for x in keys["SHAPE"].split(","))
        write_weights(os.path.join(d, "one.h5"), rng, 1, pols, 5, dishes, 8)
        write_weights(os.path.join(d, "two.h5"), rng, channels, pols, 5, dishes, 9)
        bb = "stage: baseband_beamform, name: s, in: field, out: beams, weights: {}"
        a, b = run(d, "a", [bb.format("one.h5")])["beams"], run(d, "b", [bb.format("two.h5")])["beams"]
        for i, (sample, frame) in enumerate(((0, 1024), (4800, 1024), (4801, 1024), (1023, 1024),
                                             (1024, 1024), (7001, 32768), (19999, 1024), (90000, 1024))):
            got = run(d, f"c{i}", [bb.format("one.h5")], at(sample, "weights: {file: two.h5}"),
                      frame=frame)["beams"]
            joined(a, b, got, sample)
        # there and back again within one frame, and then only the shifts
        three = ", ".join((at(2100, "weights: two.h5"), at(2101,
                                                           "weights: one.h5"), at(2500, "weights: two.h5")))
        got = run(d, "d", [bb.format("one.h5")], three, frame=8192)["beams"]
        for label in a:
            want = a[label][2].copy()
            want[2100:2101], want[2500:] = b[label][2][2100:2101], b[label][2][2500:]
            assert np.array_equal(got[label][2], want)
        c = run(d, "e", [bb.format("two.h5") + ", shift: 6"])["beams"]
        got = run(d, "f", [bb.format("one.h5")],
                  at(5000, "shift: 6") + ", " + at(3001, "weights: two.h5"))["beams"]
        for label in a:
            want = a[label][2].copy()
            want[3001:], want[5000:] = b[label][2][3001:], c[label][2][5000:]
            assert np.array_equal(got[label][2], want)


def test_together():
    """Gains of the filterbank and weights behind it, at one sample: one beam before, another one behind."""
    with harness.scratch() as d:
        record_field(d, samples=SAMPLES)
        stages = [
            "stage: upchannelize, name: up, in: field, out: fine, factor: 8, gain: {}",
            "stage: baseband_beamform, name: bb, in: fine, out: beams, beams: {{directions: [[0, {}]]}}, "
            "shift: 9"
        ]

        def both(gain, y):
            return [stages[0].format(gain), stages[1].format(y)]

        a, b = run(d, "a", both(3, 0)), run(d, "b", both(2, 0.1))
        for i, (sample, frame) in enumerate(((4800, 1024), (4803, 1024), (5119, 1024), (4805, 32768))):
            update = at(sample, "gain: 2", "up")[:-2] + ", bb: {beams: {directions: [[0, 0.1]]}}}}"
            got = run(d, f"c{i}", both(3, 0), update, frame=frame)
            joined(a["fine"], b["fine"], got["fine"], sample)
            # Beams that are formed of both kinds of levels do not occur: the beamformer has no memory.
            joined(a["beams"], b["beams"], got["beams"], sample)


def test_alike():
    """The same request to nodes with other frames, by time: all cut at the same sample."""
    with harness.scratch() as d:
        record_field(d, samples=SAMPLES)
        keys, _ = harness.header(os.path.join(d, "field_000000.dada"))
        num, den = (int(x) for x in keys["SAMPLE_NS"].split("/"))
        time_ns = int(keys["EPOCH_NS"]) + (4805 * num + den - 1) // den
        update = f"{{at: {{time_ns: {time_ns}}}, stages: {{s: {{shift: 6}}}}}}"
        bb = "stage: baseband_beamform, name: s, in: field, out: beams, " \
            "beams: {{directions: [[0, 0]]}}, shift: {}"
        a, b = (run(d, name, [bb.format(shift)])["beams"] for name, shift in (("a", 9), ("b", 6)))
        for i, frame in enumerate((100, 1024, 4805, 7001, 32768)):
            joined(a, b, run(d, f"c{i}", [bb.format(9)], update, frame=frame)["beams"], 4805)


def test_journal():
    """A second run with the journal of the first: what held last holds from its first sample on."""
    with harness.scratch() as d:
        record_field(d, samples=SAMPLES)
        up = "stage: upchannelize, name: s, in: field, out: fine, factor: 16, gain: {}"
        a, b = run(d, "a", [up.format("4")])["fine"], run(d, "b", [up.format("2.5")])["fine"]
        update = "journal: kept.yaml\n" + "updates: [" + at(4801, "gain: 2.5") + "]\n"
        joined(a, b, run(d, "c", [up.format("4")], top=update)["fine"], 4801)
        joined(a, b, run(d, "e", [up.format("4")], top=update)["fine"], 0)
        joined(a, b, run(d, "f", [up.format("4")], top="journal: kept.yaml\n")["fine"], 0)
        joined(b, a, run(d, "g", [up.format("4")])["fine"], 0)


def test_mistakes():
    with harness.scratch() as d:
        record_field(d, samples=2000)
        text = TELESCOPE + """
updates: [%s]
pipeline:
  - {stage: replay, files: field*.dada, out: field}
  - {stage: upchannelize, in: field, out: fine, factor: 4}
  - {stage: record, in: fine, directory: ., prefix: fine}
"""
        for update, words in ((at(5, "gain: x", "upchannelize"),
                               "gain: 'x' is not a number"), (at(5, "gian: 2",
                                                              "upchannelize"), "did you mean 'gain'?"),
                              (at(5, "factor: 8",
                                  "upchannelize"), "'factor' cannot be changed while it runs"),
                              (at(5, "gain: [1, 2]",
                                  "upchannelize"), "it has 2 values"), (at(5, "gain: 2", "upchanelize"),
                                                                        "did you mean 'upchannelize'?"),
                              (at(5, "gain: 2",
                                  "record"), "takes no updates"), (at(-5, "gain: 2", "upchannelize"), "-5"),
                              ("{at: soon, stages: {upchannelize: {gain: 2}}}", "expected now, {sample"),
                              ("{at: {sample: 5, time_ns: 6}, stages: {upchannelize: {gain: 2}}}",
                               "expected now"), ("{at: now}",
                                                 "expected a map of stages"), ("7", "expected a map")):
            result = harness.run(d, text % update, command="check", status=2)
            assert words in result.err and "pipeline.yaml:" in result.err, (update, result)


if __name__ == "__main__":
    harness.main([test_gain, test_zones, test_weights, test_together, test_alike, test_journal,
                  test_mistakes])
