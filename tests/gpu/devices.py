"""One pipeline on several GPUs: neighbours on different ones, a stage between them on the CPU, and the same
bits as on one."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pipeline"))
import harness  # noqa: E402
from sameness import same  # noqa: E402
from small import TELESCOPE, record_field  # noqa: E402


def products(d, name, fine, grid, beams, levels, voltage):
    """The folder of what a pipeline writes whose stages run on the devices named."""
    out = os.path.join(d, name)
    os.mkdir(out)
    harness.run(
        d, TELESCOPE + f"""
pipeline:
  - {{stage: replay, files: field*.dada, out: field, frame_samples: 1024}}
  - {{stage: upchannelize, device: {fine}, in: field, out: fine, zones: [{{channels: 2, factor: 16}},
       {{channels: 3, factor: 4}}]}}
  - {{stage: frb_grid, device: {grid}, in: fine, out: grid, integrate: 48}}
  - {{stage: frb_beams, device: {beams}, in: grid, out: beams, beams: {{grid: [3, 4], spacing_deg: 1}}}}
  - {{stage: quantize, device: {levels}, in: beams, out: levels, bits: 8, block: 32}}
  - {{stage: filterbank, in: levels, directory: {name}}}
  - {{stage: baseband_beamform, device: {voltage}, in: field, out: voltage, beams: {{grid: [2, 3],
       spacing_deg: 1}}}}
  - {{stage: record, in: voltage, directory: {name}, prefix: voltage}}
""")
    return out


def test_devices():
    with harness.scratch() as d:
        record_field(d, samples=20000)
        a, b = "cuda:0", "cuda:1"
        one = products(d, "one", a, a, a, a, a)
        same(one, products(d, "other", b, b, b, b, b))
        same(one, products(d, "alternating", a, b, a, b, b))
        same(one, products(d, "apart", b, b, a, b, "cpu"))  # integers: the same there


if __name__ == "__main__":
    if not harness.has_device("cuda:1"):
        print("no second GPU: skipped")
        sys.exit(77)
    harness.main([test_devices])
