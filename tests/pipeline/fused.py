"""Beams formed and quantized at once are those of the two stages apart, bit for bit: blocks that lie in one
frame, blocks beside holes and at the ends, and who may not be fused. Without a GPU nothing is fused, and the
results are the same all the same."""
import os

import harness
from sameness import same
from small import TELESCOPE, record_field

BLOCK = 256 * 12  # base samples
ON_GPU = harness.DEVICE != "cpu"


def pipeline(directory, frame=2 * BLOCK, fuse="true", bits=4, more=""):
    return TELESCOPE + f"""
pipeline:
  - {{stage: replay, files: field*.dada, out: field, frame_samples: {frame}}}
  - {{stage: upchannelize, in: field, out: fine, factor: 4}}
  - {{stage: frb_grid, in: fine, out: grid, integrate: 12}}
  - {{stage: frb_beams, in: grid, out: beams, beams: {{grid: [4, 6], spacing_deg: 1}}}}
  - {{stage: quantize, in: beams, out: levels, bits: {bits}, block: 256, fuse: {fuse}}}
  - {{stage: record, in: levels, directory: {directory}, prefix: levels}}
  - {{stage: filterbank, in: levels, directory: {directory}}}
{more}"""


def is_fused(d, text):
    graph = harness.run(d, text, command="graph")
    check = harness.run(d, text, command="check")
    fused = "does the work of 'frb_beams' too" in graph.out
    assert fused == ("(with 'frb_beams')" in check.out), (graph, check)
    assert fused == ("\nbeams:" not in check.out), check
    return fused


def whole(d, name, **options):
    out = os.path.join(d, name)
    os.mkdir(out)
    result = harness.run(d, pipeline(name, **options))
    assert ("done by 'quantize'" in result.out) == (ON_GPU and options.get("fuse", "true") == "true" and
                                                    options.get("frame", BLOCK) % BLOCK == 0), result
    return out


def test_same_bits():
    with harness.scratch() as d:
        # Two holes; the second one leaves whole frames out. The last block is not whole.
        record_field(d, samples=12 * BLOCK + 1000,
                     missing=f"[{{first: 1000, count: 37}}, {{first: {5 * BLOCK + 99}, count: {3 * BLOCK}}}]")
        for bits in (4, 8):
            apart = whole(d, f"apart{bits}", fuse="false", bits=bits)
            same(apart, whole(d, f"fused{bits}", bits=bits))
            same(apart, whole(d, f"one{bits}", frame=BLOCK, bits=bits))
            same(apart, whole(d, f"short{bits}", frame=1024, bits=bits))


def test_who_is_fused():
    with harness.scratch() as d:
        record_field(d, samples=3 * BLOCK)
        assert is_fused(d, pipeline(".")) == ON_GPU
        assert not is_fused(d, pipeline(".", fuse="false"))
        assert not is_fused(d, pipeline(".", fuse="auto"))  # so small a field: the two apart are faster
        assert not is_fused(d, pipeline(".", frame=1024))
        assert not is_fused(
            d, pipeline(".",
                        more="  - {stage: record, name: more, in: beams, directory: ., prefix: beams}\n"))
        assert not is_fused(d, pipeline(".").replace("in: beams,", "in: {from: beams, policy: drop},"))
        assert not is_fused(d, pipeline(".").replace("grid: [4, 6]", "grid: [1, 3]"))
        assert not is_fused(d, pipeline(".").replace("block: 256", "block: 128"))


if __name__ == "__main__":
    harness.main([test_same_bits, test_who_is_fused])
