"""The same bits: run twice, with other frame sizes, cut at every connection and resumed from the file."""
import filecmp
import os

import numpy as np

import harness
from small import TELESCOPE, one, record_field
from wires_common import recorded_levels

STAGES = {
    "field": "{stage: replay, files: field*.dada, out: field, frame_samples: 1024}",
    "fine": "{stage: upchannelize, in: field, out: fine, zones: [{channels: 2, factor: 16}, {channels: 3, "
            "factor: 4}]}",
    "grid": "{stage: frb_grid, in: fine, out: grid, integrate: 48}",
    "beams": "{stage: frb_beams, in: grid, out: beams, beams: {grid: [3, 4], spacing_deg: 1}}",
    "levels": "{stage: quantize, in: beams, out: levels, bits: 8, block: 32}",
}
ORDER = list(STAGES)


def pipeline(first, last, directory, replace=None):
    """Stages from `first` (replayed from cut*.dada unless it is the field) to `last`, recorded and written as
    filterbank."""
    lines = [STAGES[q] for q in ORDER[ORDER.index(first) + 1:ORDER.index(last) + 1]]
    source = STAGES[
        "field"] if first == "field" else f"{{stage: replay, files: cut_{first}*.dada, out: {first}}}"
    lines = [source, *lines, f"{{stage: record, in: {last}, directory: {directory}, prefix: cut_{last}}}"]
    if last == "levels":
        lines.append(f"{{stage: filterbank, in: levels, directory: {directory}}}")
    text = TELESCOPE + "pipeline:\n" + "".join(f"  - {line}\n" for line in lines)
    for a, b in (replace or {}).items():
        assert a in text, a
        text = text.replace(a, b)
    return text


def same(a, b, patterns=(".fil", ".gaps")):
    """Products are equal byte for byte; recordings are compared by payload, since headers carry file names
    and frame sizes."""
    names = sorted(n for n in os.listdir(a))
    assert names == sorted(os.listdir(b)), (names, sorted(os.listdir(b)))
    assert any(n.endswith(".fil") for n in names)
    for name in names:
        x, y = os.path.join(a, name), os.path.join(b, name)
        if name.endswith(".dada"):
            sx, sy = harness.header(x)[1], harness.header(y)[1]
            assert open(x, "rb").read()[sx:] == open(y, "rb").read()[sy:], f"{name} differs"
        else:
            assert filecmp.cmp(x, y, shallow=False), f"{name} differs"


def whole(d, name, **more):
    out = os.path.join(d, name)
    os.mkdir(out)
    harness.run(d, pipeline("field", "levels", name, **more))
    return out


def test_two_runs():
    with harness.scratch() as d:
        record_field(d, samples=20000)
        same(whole(d, "a"), whole(d, "b"))


def test_frame_sizes():
    with harness.scratch() as d:
        record_field(d, samples=20000)
        a = whole(d, "a")
        for frame in (256, 4096, 32768):
            same(a, whole(d, f"f{frame}", replace={"frame_samples: 1024": f"frame_samples: {frame}"}))


def test_cuts():
    with harness.scratch() as d:
        record_field(d, samples=20000)
        a = whole(d, "a")
        for edge in ("fine", "grid", "beams"):
            harness.run(d, pipeline("field", edge, "."))
            one(d, f"cut_{edge}*.dada")
            out = os.path.join(d, f"cut_at_{edge}")
            os.mkdir(out)
            harness.run(d, pipeline(edge, "levels", f"cut_at_{edge}"))
            same(a, out)


def test_record_replay():
    """Field -> file -> field is the identity on payload and gaps, and so is a cut behind the quantizer."""
    with harness.scratch() as d:
        path = record_field(d, samples=5000)
        for edge, source in (("field", "field*.dada"), ("levels", "cut_levels*.dada")):
            if edge == "levels":
                harness.run(d, pipeline("field", "levels", "."))
            os.mkdir(os.path.join(d, "again" + edge))
            harness.run(d, TELESCOPE + f"""
pipeline:
  - {{stage: replay, files: {source}, out: x}}
  - {{stage: record, in: x, directory: again{edge}, prefix: {source[:-6]}}}
""")
            old, new = one(d, source), one(os.path.join(d, "again" + edge), source)
            so, sn = harness.header(old)[1], harness.header(new)[1]
            assert open(old, "rb").read()[so:] == open(new, "rb").read()[sn:], edge
            assert open(old + ".gaps").read() == open(new + ".gaps").read(), edge
        assert path


def test_levels_where_a_recording_begins():
    """Quantized blocks lie on multiples of their length: a recording that begins within one has the levels of
    a recording that lacks what is before, and 4-bit levels are moved to where a short frame begins."""
    steps, integrate = 5, 48
    with harness.scratch() as d:
        path = record_field(d, samples=6000, missing="[]")
        keys, size = harness.header(path)
        data = open(path, "rb").read()
        row = (len(data) - size) // int(keys["SAMPLES"])
        text = data[:size].decode()
        for key, value in (("SAMPLE0", integrate * steps), ("OBS_OFFSET", row * integrate * steps),
                           ("SAMPLES", int(keys["SAMPLES"]) - integrate * steps),
                           ("FILE_SIZE", len(data) - size - row * integrate * steps)):
            text = "\n".join(f"{key} {value}" if line.split()[:1] == [key] else line
                             for line in text.split("\n"))
        text = text.rstrip("\0").ljust(size, "\0")[:size]
        os.mkdir(os.path.join(d, "late"))
        with open(os.path.join(d, "late", "field_000000.dada"), "wb") as f:
            f.write(text.encode() + data[size + row * integrate * steps:])
        with open(path + ".gaps", "w") as f:
            f.write(f"0 {integrate * steps}\n")
        for bits in (4, 8):
            levels = []
            for files in ("field_*.dada", "late/field_*.dada"):
                harness.run(d, TELESCOPE + f"""
pipeline:
  - {{stage: replay, files: "{files}", out: field}}
  - {{stage: frb_grid, in: field, out: grid, integrate: {integrate}}}
  - {{stage: frb_beams, in: grid, out: beams, beams: {{grid: [3, 3], spacing_deg: 1}}}}
  - {{stage: quantize, in: beams, out: levels, bits: {bits}, block: 16}}
  - {{stage: record, in: levels, directory: ., prefix: levels, overwrite: true}}
""")
                levels.append(recorded_levels(one(d, "levels*.dada")))
            whole, late = (np.concatenate([x for _, x, _ in part], axis=2) for part in levels)
            assert whole.shape[2] == 125 and late.shape[2] == 120, (whole.shape, late.shape)
            assert (whole[..., :steps] == (-8 if bits == 4 else 0)).all()
            assert np.array_equal(whole[..., steps:], late) and np.unique(late).size > 10


if __name__ == "__main__":
    harness.main([test_two_runs, test_frame_sizes, test_cuts, test_record_replay,
                  test_levels_where_a_recording_begins])
