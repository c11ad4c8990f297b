"""Updates of frb_grid: before and after the stated sample what comes out is that of two pipelines with fixed
values, bit for bit, whatever the frames, in all zones from one block on, in several stages at once. Mistakes
in updates of frb_beams are here too; updates_beams has the rest of them."""
import os

import h5py
import numpy as np

import harness
from control_common import Node
from small import STREAM, TELESCOPE, record_field
from updates import SAMPLES, at, joined

STEP = 48  # base samples of an output step
UP = "stage: upchannelize, name: up, in: field, out: fine, {}"
GRID = "stage: frb_grid, name: grid, in: fine, out: image, integrate: 48, {}"


def outputs(directory, prefix):
    """{0: (base samples of a step, number of the first one, bytes and validity [step][...])}, for joined."""
    (name,) = [n for n in os.listdir(directory) if n.startswith(prefix) and n.endswith(".dada")]
    data, first, keys, _ = harness.read_frames(os.path.join(directory, name))
    data = np.moveaxis(data, keys["AXES"].split(",").index("time"), 0)
    return {0: (int(keys["DOWNSAMPLE"]), first, data.reshape(len(data), -1).view(np.uint8))}


def gaps(directory, prefix):
    """Base samples of the first output, in a list of what is missing there."""
    return sorted(line for n in os.listdir(directory) if n.startswith(prefix) and n.endswith(".gaps")
                  for line in open(os.path.join(directory, n)))


def run(d, name, stages, updates="", frame=1024, status=0):
    os.mkdir(os.path.join(d, name))
    text = TELESCOPE + (f"updates: [{updates}]\n" if updates else "") + f"""
pipeline:
  - {{stage: replay, files: field*.dada, out: field, frame_samples: {frame}}}
"""
    outs = []
    for stage in stages:
        text += f"  - {{{stage}}}\n"
        outs.append(stage.split("out: ")[1].split(",")[0].split("}")[0].strip())
    text += f"  - {{stage: record, in: {outs[-1]}, directory: {name}, prefix: out}}\n"
    result = harness.run(d, text, status=status)
    return outputs(os.path.join(d, name), "out") if status == 0 else result


def write_gains(path, rng, channels, size=1.0, value=None):
    gain = size * np.exp(2j * np.pi * rng.random((channels, 2, 12)))
    if value is not None:
        gain[-1, -1, -1] = value
    with h5py.File(path, "w") as f:
        f["gain"] = gain.astype(np.complex64)


def some(cuts):
    """On a device, where a run takes its time to begin, fewer."""
    return cuts if harness.DEVICE == "cpu" else cuts[1::3]


CUTS = some(((0, 1024), (4801, 1024), (4800, 1024), (4799, 480), (7001, 4992), (4992, 20000), (19999, 1024),
             (90000, 1024)))


def joined_at(d, a, b, stages, cuts, text, name="c"):
    """With an update of the grid at each cut, the stages make what `a` has before it, and what `b` has
    behind."""
    for i, (sample, frame) in enumerate(cuts):
        joined(a, b, run(d, f"{name}{i}", stages, at(sample, text, "grid"), frame=frame), sample)


def test_gains():
    with harness.scratch() as d:
        rng = np.random.default_rng(3)
        record_field(d, samples=SAMPLES)
        write_gains(os.path.join(d, "one.h5"), rng, 1)
        write_gains(os.path.join(d, "two.h5"), rng, 20)
        stages = [UP.format("factor: 4"), GRID.format("gains: one.h5")]
        a = run(d, "a", stages)
        b = run(d, "b", [stages[0], GRID.format("gains: two.h5")])
        joined_at(d, a, b, stages, CUTS, "gains: {file: two.h5}")
        plain = [stages[0], GRID.format("threshold: 0.5")]  # no gains before
        joined_at(d, run(d, "p", plain), b, plain, ((4801, 1024), ), "gains: two.h5", "q")
        # there and back within a frame, twice for one block, and long blocks
        three = ", ".join((at(2100, "gains: two.h5", "grid"), at(2350, "gains: one.h5", "grid"),
                           at(2351, "gains: two.h5", "grid"), at(2500, "gains: one.h5", "grid")))
        got = run(d, "d", stages, three, frame=8192)[0][2]
        want = a[0][2].copy()
        want[44:53] = b[0][2][44:53]
        assert np.array_equal(got, want)
        stages[1] = GRID.format("gains: one.h5").replace("48", "4096")
        a = run(d, "e", stages)
        b = run(d, "f", [stages[0], stages[1].replace("one", "two")])
        for i, sample in enumerate(some((8192, 8193, 5000))):
            got = run(d, f"g{i}", stages, at(sample, "gains: two.h5", "grid"))
            cut = -(-sample // 4096)
            assert np.array_equal(got[0][2][:cut], a[0][2][:cut]), sample
            assert np.array_equal(got[0][2][cut:], b[0][2][cut:]), sample
            assert not np.array_equal(a[0][2][cut:], b[0][2][cut:])


def test_zones():
    with harness.scratch() as d:
        rng = np.random.default_rng(4)
        record_field(d, samples=SAMPLES, sample0=1008)
        write_gains(os.path.join(d, "one.h5"), rng, 5)
        write_gains(os.path.join(d, "two.h5"), rng, 2 * 16 + 3 * 4)
        stages = [
            UP.format("zones: [{channels: 2, factor: 16}, {channels: 3, factor: 4}]"),
            GRID.format("gains: one.h5")
        ]
        a = run(d, "a", stages)
        b = run(d, "b", [stages[0], GRID.format("gains: two.h5")])
        cuts = some(((4800, 1024), (4801, 1024), (4813, 2048), (0, 1024), (1011, 1024), (9999, 480)))
        joined_at(d, a, b, stages, cuts, "gains: two.h5")


def test_threshold():
    with harness.scratch() as d:
        record_field(d, samples=SAMPLES, missing="[" + ", ".join(
            f"{{first: {first}, count: 31}}" for first in range(1000, 19000, 200)) + "]")
        stages = [UP.format("factor: 4, taps: 1"), GRID.format("threshold: 0.9")]
        a = run(d, "a", stages)
        b = run(d, "b", [stages[0], GRID.format("threshold: 0.1")])
        joined_at(d, a, b, stages, CUTS[:6], "threshold: 0.1")
        assert gaps(os.path.join(d, "a"), "out") != gaps(os.path.join(d, "b"), "out")


def test_together():
    """Gains of the filterbank and of the grid, from one block on."""
    with harness.scratch() as d:
        rng = np.random.default_rng(5)
        record_field(d, samples=SAMPLES)
        write_gains(os.path.join(d, "one.h5"), rng, 1)
        write_gains(os.path.join(d, "two.h5"), rng, 5)
        stages = [UP.format("factor: 8, gain: 3"), GRID.format("gains: one.h5")]
        a = run(d, "a", stages)
        b = run(d, "b", [UP.format("factor: 8, gain: 2"), GRID.format("gains: two.h5")])
        for i, (sample, frame) in enumerate(some(((4800, 1024), (5040, 4992), (7200, 20000)))):
            update = at(sample, "gain: 2", "up")[:-2] + ", grid: {gains: two.h5}}}"
            joined(a, b, run(d, f"c{i}", stages, update, frame=frame), sample)


BEAMS = "stage: frb_beams, name: s, in: image, out: beams, beams: {}{}"
TILES = [("{grid: [3, 4], spacing_deg: 1}", "{grid: [3, 4], spacing_deg: 1, center: [0.4, -0.3]}"),
         ("{directions: [[0, 0], [0.01, 0.02], [-0.1, 0.03]]}",
          "{directions: [[0, 0.1], [0.02, 0.01], [-0.2, 0]]}")]


def beams_of(first, more=""):
    return [UP.format("factor: 4"), GRID.format("threshold: 0.3"), BEAMS.format(first, more)]


def test_posted():
    """To a node: what is wrong is answered with 400 and its place, and what held before goes on to hold."""
    text = f"""device: {harness.DEVICE}
{TELESCOPE}{STREAM}
pipeline:
  - {{stage: simulate, samples: 1000000000, out: field}}
"""
    for stage in beams_of(TILES[0][0]):
        text += f"  - {{{stage}}}\n"
    text += "  - {stage: record, in: beams, directory: ., prefix: out}\n"
    with harness.scratch() as d:
        rng = np.random.default_rng(9)
        write_gains(os.path.join(d, "good.h5"), rng, 5)
        write_gains(os.path.join(d, "many.h5"), rng, 7)
        n = Node(d, text)
        try:
            n.wait_until(lambda s: s["state"] == "running")
            for stages, words in (
                ("grid: {gains: {file: many.h5}}", "expected freq 1, 5 (coarse) or 20 (fine)"),
                ("grid: {gains: none.h5}", "none.h5"), ("grid: {threshold: NaN}", "threshold"),
                ("grid: {gian: 1}", "did you mean 'gains'?"),
                ("grid: {gains: good.h5}, s: {beams: {directions: [[0, 0]]}}", "would change"),
                ("s: {beams: {grid: [3, 4], spacing_deg: 1, rates: [[0, NaN]]}}", "rates")):
                answer = n.post("/v1/update", f"{{at: now, stages: {{{stages}}}}}")
                assert answer.code == 400 and words in answer.json["error"], (stages, answer.text)
                assert "request:1:" in answer.json["error"], answer.text
            assert all(u["state"] == "rejected" for u in n.get("/v1/updates").json["updates"])
            good = f"grid: {{gains: {{file: good.h5}}}}, s: {{beams: {TILES[0][1]}}}, up: {{gain: 2}}"
            answer = n.post("/v1/update", f"{{id: good, at: now, stages: {{{good}}}}}")
            assert answer.code == 202, answer.text
            n.wait_for_line("update 'good' (grid, s, up) holds from sample")
        finally:
            n.process.kill()
            n.process.wait()


def test_mistakes():
    with harness.scratch() as d:
        rng = np.random.default_rng(6)
        record_field(d, samples=2000)
        write_gains(os.path.join(d, "good.h5"), rng, 5)
        write_gains(os.path.join(d, "many.h5"), rng, 7)
        write_gains(os.path.join(d, "nan.h5"), rng, 5, value=np.nan)
        write_gains(os.path.join(d, "large.h5"), rng, 5, size=3)
        write_gains(os.path.join(d, "room.h5"), rng, 5, size=1.9)
        stages = [UP.format("factor: 4"), GRID.format("gains: good.h5, headroom: 2")]
        for i, (values, words) in enumerate((
            ("gains: many.h5", "expected freq 1, 5 (coarse) or 20 (fine)"), ("gains: nan.h5", "nan"),
            ("gains: none.h5", "none.h5"), ("gains: large.h5", "restart with `headroom: 3`"),
            ("threshold: 2", "threshold"), ("threshold: .nan", "threshold"), ("gain: good.h5", "'gains'"),
            ("integrate: 96", "'integrate' cannot be changed while it runs"))):
            result = run(d, f"m{i}", stages, at(500, values, "grid"), status=2)
            assert words in result.err and "pipeline.yaml:" in result.err, (values, result.err)
        run(d, "room", stages, at(500, "gains: room.h5", "grid"))
        with h5py.File(os.path.join(d, "bad.h5"), "w") as f:
            f["beams"], f["rates"] = np.zeros((12, 2)), np.full((12, 2), np.nan)
        with h5py.File(os.path.join(d, "few.h5"), "w") as f:
            f["beams"], f["rates"] = np.zeros((12, 2)), np.zeros((11, 2))
        for i, (values, words) in enumerate((
            ("beams: {directions: [[0, 0]]}", "would change"), ("beams: {file: none.h5}", "none.h5"),
            ("beams: {grid: [4, 3], spacing_deg: 1}", "another grid of beams"),
            ("beams: {directions: [[0, .nan]]}", "directions"), ("beams: {file: bad.h5}", "/rates[0][0]"),
            ("beams: {file: few.h5}", "/rates is for 11 beams, /beams for 12"),
            ("beams: {grid: [3, 4], spacing_deg: 1, rates: [[0, 1], [1, 0]]}", "so that they stay a grid"),
            ("beams: {grid: [3, 4], spacing_deg: 1, rates: [[0, 1, 2]]}", "rates"),
            ("beams: {grid: [3, 4], spacing_deg: 1, every_s: 2}", "go with rates"),
            ("steer: [{sample: 5, beams: {directions: [[0, 0]]}}]", "expected 12 (3 x 4)"),
            ("precision: float32", "'precision' cannot be changed while it runs"))):
            result = run(d, f"n{i}", beams_of(TILES[0][0]), at(500, values), status=2)
            assert words in result.err and "pipeline.yaml:" in result.err, (values, result.err)


if __name__ == "__main__":
    harness.main([test_gains, test_zones, test_threshold, test_together, test_posted, test_mistakes])
