"""Updates of frb_beams: before and after the stated sample what comes out is that of two pipelines with fixed
values, bit for bit, whatever the frames, also where beams are steered."""
import os

import numpy as np

import harness
from small import record_field
from updates import SAMPLES, at, joined
from updates_frb import CUTS, GRID, TILES, UP, BEAMS, beams_of, run, some, write_gains


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
            if harness.DEVICE == "cpu":
                continue  # where it is always float32
            more = ", precision: float32"
            joined(run(d, f"e{k}", beams_of(before, more)), run(d, f"f{k}", beams_of(after, more)),
                   run(d, f"g{k}", beams_of(before, more), at(4801, f"beams: {after}")), 4801)


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


if __name__ == "__main__":
    harness.main([test_beams, test_steered, test_all])
