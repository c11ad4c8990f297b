"""The same bits: run twice, with other frame sizes, cut at every connection and resumed from the file."""
import filecmp
import os

import harness
from small import TELESCOPE, one, record_field

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


if __name__ == "__main__":
    harness.main([test_two_runs, test_frame_sizes, test_cuts, test_record_replay])
