"""Beams that are steered are those of two pipelines with fixed beams, joined at the sample, whatever the
frames; and what is wrong in `steer` is said."""
import os

import harness
from small import TELESCOPE, record_field

STEP = 48  # base samples of an output step
GRID = "{grid: [3, 4], spacing_deg: 1}"
MOVED = "{grid: [3, 4], spacing_deg: 1, center: [0.4, -0.3]}"
LIST = "{directions: [[0, 0], [0.01, 0.02], [-0.1, 0.03]]}"
ELSEWHERE = "{directions: [[0, 0.1], [0.02, 0.01], [-0.2, 0.05]]}"


def pipeline(directory, beams, more="", frame=1024):
    return TELESCOPE + f"""
pipeline:
  - {{stage: replay, files: field*.dada, out: field, frame_samples: {frame}}}
  - {{stage: upchannelize, in: field, out: fine, factor: 4}}
  - {{stage: frb_grid, in: fine, out: grid, integrate: {STEP}}}
  - {{stage: frb_beams, in: grid, out: beams, beams: {beams}{more}}}
  - {{stage: record, in: beams, directory: {directory}, prefix: beams}}
"""


def steps(directory):
    """Output steps as bytes, by number: {step: {channel: bytes}}."""
    result = {}
    for name in sorted(n for n in os.listdir(directory) if n.endswith(".dada")):
        path = os.path.join(directory, name)
        head, size = harness.header(path)
        data = open(path, "rb").read()[size:]
        channels, _, beams = (int(x) for x in head["SHAPE"].split(","))
        frame = int(head["FRAME_SAMPLES"]) // int(head["DOWNSAMPLE"])
        row, at, count = 2 * beams, 0, 0
        first = len(result)
        while at < len(data):
            n = min(frame, (len(data) - at) // (channels * row))
            for f in range(channels):
                for t in range(n):
                    result.setdefault(first + count + t,
                                      {})[f] = data[at + (f * n + t) * row:at + (f * n + t + 1) * row]
            at += channels * n * row
            count += n
    return result


def run(d, name, *args, **kwargs):
    out = os.path.join(d, name)
    os.mkdir(out)
    harness.run(d, pipeline(name, *args, **kwargs))
    return steps(out)


def test_joined():
    with harness.scratch() as d:
        record_field(d, samples=20000)
        for i, (before, after) in enumerate(((GRID, MOVED), (LIST, ELSEWHERE))):
            a, b = run(d, f"a{i}", before), run(d, f"b{i}", after)
            assert a.keys() == b.keys() and len(a) > 300 and a != b
            for j, (sample, frame) in enumerate(
                ((0, 1024), (4800, 1024), (4801, 1024), (4799, 480), (7000, 20000), (90000, 1024))):
                got = run(d, f"c{i}{j}", before, f", steer: [{{sample: {sample}, beams: {after}}}]",
                          frame=frame)
                assert got.keys() == a.keys()
                for step in a:
                    assert got[step] == (b if step * STEP >= sample else a)[step], (i, sample, frame, step)
            there_and_back = f", steer: [{{sample: 3000, beams: {after}}}, {{sample: 9000, beams: {before}}}]"
            got = run(d, f"d{i}", before, there_and_back)
            for step in a:
                assert got[step] == (b if 3000 <= step * STEP < 9000 else a)[step], (i, step)
            # several within a frame, two of them for one step
            more = ", ".join(f"{{sample: {sample}, beams: {beams}}}" for sample, beams in (
                (3000, after), (3100, before), (3190, after), (3200, before), (3250, after)))
            got = run(d, f"e{i}", before, f", steer: [{more}]", frame=8192)
            for step in a:
                sample = step * STEP
                assert got[step] == (b if 3000 <= sample < 3100 or sample >= 3250 else a)[step], (i, step)


def test_mistakes():
    with harness.scratch() as d:
        record_field(d, samples=2000)
        for more, words in ((f"steer: [{{sample: 5, beams: {LIST}}}]", "expected 12 (3 x 4)"),
                            (f"steer: [{{sample: 6, beams: {MOVED}}}, {{sample: 5, beams: {GRID}}}]",
                             "sample 5 follows sample 6"), (f"steer: [{{sample: -5, beams: {MOVED}}}]", "-5"),
                            (f"steer: [{{beams: {MOVED}}}]", "sample"), ("precision: float8", "float32")):
            result = harness.run(d, pipeline(".", GRID, f", {more}"), status=2)
            assert words in result.err, result


if __name__ == "__main__":
    harness.main([test_joined, test_mistakes])
