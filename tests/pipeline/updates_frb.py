"""Updates of the FRB stages: before and after the stated sample what comes out is that of two pipelines with
fixed values, bit for bit, whatever the frames, in all zones from one block on, in several stages at once."""
import os

import h5py
import numpy as np

import fused
import harness
from sameness import same
from small import TELESCOPE, record_field
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


def test_gains():
    with harness.scratch() as d:
        rng = np.random.default_rng(3)
        record_field(d, samples=SAMPLES)
        write_gains(os.path.join(d, "one.h5"), rng, 1)
        write_gains(os.path.join(d, "two.h5"), rng, 20)
        stages = [UP.format("factor: 4"), GRID.format("gains: one.h5")]
        a = run(d, "a", stages)
        b = run(d, "b", [stages[0], GRID.format("gains: two.h5")])
        for i, (sample, frame) in enumerate(CUTS):
            got = run(d, f"c{i}", stages, at(sample, "gains: {file: two.h5}", "grid"), frame=frame)
            joined(a, b, got, sample)
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
        for i, (sample, frame) in enumerate(
            some(((4800, 1024), (4801, 1024), (4813, 2048), (0, 1024), (1011, 1024), (9999, 480)))):
            got = run(d, f"c{i}", stages, at(sample, "gains: two.h5", "grid"), frame=frame)
            joined(a, b, got, sample)


def test_threshold():
    with harness.scratch() as d:
        record_field(d, samples=SAMPLES, missing="[" + ", ".join(
            f"{{first: {first}, count: 31}}" for first in range(1000, 19000, 200)) + "]")
        stages = [UP.format("factor: 4, taps: 1"), GRID.format("threshold: 0.9")]
        a = run(d, "a", stages)
        b = run(d, "b", [stages[0], GRID.format("threshold: 0.1")])
        for i, (sample, frame) in enumerate(CUTS[:6]):
            got = run(d, f"c{i}", stages, at(sample, "threshold: 0.1", "grid"), frame=frame)
            joined(a, b, got, sample)
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


def test_beams():
    with harness.scratch() as d:
        record_field(d, samples=SAMPLES)
        for k, (before, after) in enumerate(TILES):
            a, b = run(d, f"a{k}", beams_of(before)), run(d, f"b{k}", beams_of(after))
            for i, (sample, frame) in enumerate(CUTS):
                got = run(d, f"c{k}{i}", beams_of(before), at(sample, f"beams: {after}"), frame=frame)
                joined(a, b, got, sample)
            # there and back, within a frame, and twice for one step
            many = ", ".join(at(sample, f"beams: {beams}") for sample, beams in (
                (3000, after), (3100, before), (3190, after), (3200, before), (3250, after)))
            got = run(d, f"d{k}", beams_of(before), many, frame=8192)[0][2]
            want = a[0][2].copy()
            want[63:65], want[68:] = b[0][2][63:65], b[0][2][68:]
            assert np.array_equal(got, want)
            for precision in ("float16", "float32"):
                more = f", precision: {precision}"
                joined(run(d, f"e{k}{precision}", beams_of(before, more)),
                       run(d, f"f{k}{precision}", beams_of(after, more)),
                       run(d, f"g{k}{precision}", beams_of(before, more), at(4801, f"beams: {after}")), 4801)


def test_steered():
    """A list of steerings that is updated, and beams under one that steers later."""
    with harness.scratch() as d:
        record_field(d, samples=SAMPLES)
        for k, (before, after) in enumerate(TILES):
            a, b = run(d, f"a{k}", beams_of(before))[0][2], run(d, f"b{k}", beams_of(after))[0][2]
            steer = f", steer: [{{sample: 9600, beams: {before}}}]"
            got = run(d, f"c{k}", beams_of(before, steer), at(4801, f"beams: {after}"), frame=2000)[0][2]
            want = a.copy()
            want[101:200] = b[101:200]
            assert np.array_equal(got, want), k
            values = f"steer: [{{sample: 100, beams: {after}}}, {{sample: 12000, beams: {before}}}]"
            got = run(d, f"d{k}", beams_of(before), at(4801, values))[0][2]
            want = a.copy()
            want[101:250] = b[101:250]
            assert np.array_equal(got, want), k
            got = run(d, f"e{k}", beams_of(before, f", steer: [{{sample: 0, beams: {after}}}]"),
                      at(4801, f"steer: [{{sample: 90000, beams: {after}}}]"))[0][2]
            assert np.array_equal(got[:101], b[:101]) and np.array_equal(got[101:], a[101:]), k


def test_all():
    """Filterbank, grid and beams from one block on."""
    with harness.scratch() as d:
        record_field(d, samples=SAMPLES)
        rng = np.random.default_rng(8)
        write_gains(os.path.join(d, "one.h5"), rng, 1)
        write_gains(os.path.join(d, "two.h5"), rng, 5)
        for k, (before, after) in enumerate(TILES):
            stages = [UP.format("factor: 8, gain: 3"), GRID.format("gains: one.h5"), BEAMS.format(before, "")]
            a = run(d, f"a{k}", stages)
            b = run(d, f"b{k}", [UP.format("factor: 8, gain: 2"), GRID.format("gains: two.h5"),
                                 BEAMS.format(after, "")])
            for i, (sample, frame) in enumerate(some(((4800, 1024), (7200, 20000)))):
                update = at(sample, "gain: 2", "up")[:-2]
                update += f", grid: {{gains: two.h5}}, s: {{beams: {after}}}}}}}"
                joined(a, b, run(d, f"c{k}{i}", stages, update, frame=frame), sample)


def test_fused():
    """Beams that are quantized in the same kernel (on a GPU): the same files as by the two stages apart."""
    moved = "{grid: [4, 6], spacing_deg: 1, center: [0.7, -0.5]}"
    back = "{grid: [4, 6], spacing_deg: 1}"
    block = fused.BLOCK
    cuts = [(3 * block + 700, moved), (3 * block + 1300, back), (5 * block, moved), (6 * block + 5, back),
            (9 * block - 5, moved), (10 * block + 600, back)]
    updates = ", ".join(at(sample, f"beams: {beams}", "frb_beams") for sample, beams in cuts)
    with harness.scratch() as d:
        record_field(d, samples=12 * block + 1000, missing=f"[{{first: 1000, count: 37}}, "
                     f"{{first: {7 * block + 99}, count: 2000}}]")

        def whole(name, **options):
            out = os.path.join(d, name)
            os.mkdir(out)
            result = harness.run(d, f"updates: [{updates}]\n" + fused.pipeline(name, **options))
            assert ("done by 'quantize'" in result.out) == (fused.ON_GPU and
                                                            options.get("fuse", "true") == "true"), result
            return out

        for bits in (4, 8):
            apart = whole(f"apart{bits}", fuse="false", bits=bits)
            same(apart, whole(f"fused{bits}", bits=bits))
            same(apart, whole(f"one{bits}", bits=bits, frame=block))
        still = os.path.join(d, "still")
        os.mkdir(still)
        harness.run(d, fused.pipeline("still", bits=8))
        (name,) = [n for n in os.listdir(still) if n.endswith(".dada")]
        moving = open(os.path.join(d, "fused8", name), "rb").read()
        assert open(os.path.join(still, name), "rb").read() != moving
        result = harness.run(
            d, f"updates: [{at(5000, 'steer: [{sample: 9000, beams: ' + moved + '}]', 'frb_beams')}]\n" +
            fused.pipeline("."), command="check", status=2 if fused.ON_GPU else 0)
        assert not fused.ON_GPU or "'quantize' does its work in one kernel" in result.err, result


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
    harness.main([test_gains, test_zones, test_threshold, test_together, test_beams, test_steered, test_all,
                  test_fused, test_mistakes])
