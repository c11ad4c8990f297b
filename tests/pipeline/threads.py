"""The products of a pipeline are the same, bit for bit, whatever `threads:` says: levels, intensities and
voltages of a field with holes, and the simulated field itself."""
import os

import harness
from sameness import same
from small import TELESCOPE, one, record_field

PIPELINE = TELESCOPE + """
threads: THREADS
pipeline:
  - {stage: replay, files: field*.dada, out: field, frame_samples: 1500}
  - {stage: upchannelize, in: field, out: fine, factor: 4}
  - {stage: frb_grid, in: fine, out: grid, integrate: 12}
  - {stage: frb_beams, in: grid, out: beams, beams: {grid: [4, 6], spacing_deg: 1}}
  - {stage: quantize, in: beams, out: levels, bits: 8, block: 64}
  - {stage: filterbank, in: levels, directory: DIRECTORY}
  - {stage: filterbank, name: intensities, in: beams, directory: DIRECTORY, prefix: intensity}
  - {stage: quantize, name: quantize4, in: beams, out: levels4, bits: 4, block: 256}
  - {stage: record, name: record4, in: levels4, directory: DIRECTORY, prefix: levels}
  - {stage: baseband_beamform, in: field, out: voltage, beams: {grid: [1, 3], spacing_deg: 2}}
  - {stage: record, in: voltage, directory: DIRECTORY, prefix: voltage}
  - {stage: power_beams, in: field, out: power, integrate: 100, beams: {grid: [1, 3], spacing_deg: 2}}
  - {stage: record, name: record_power, in: power, directory: DIRECTORY, prefix: power}
"""
SIMULATE = TELESCOPE + """
threads: THREADS
stream:
  sample_ns: 5120
  freq_mhz: {first: 600, step: 0.1953125, count: 3}
  epoch_ns: 0
pipeline:
  - {stage: simulate, samples: 3000, seed: 7, frame_samples: 700, out: field, missing: [{first: 900,
       count: 33}],
     sources: [{x_deg: 1, y_deg: 2, flux: 0.1}],
     bursts: [{x_deg: 0, y_deg: 1, dm: 1, arrival_s: 0.005, width_s: 0.001, flux: 1}]}
  - {stage: record, in: field, directory: DIRECTORY, prefix: field}
"""


def products(d, text, threads):
    out = os.path.join(d, f"threads{threads}")
    os.mkdir(out)
    harness.run(d, text.replace("THREADS", str(threads)).replace("DIRECTORY", out))
    return out


COUNTS = (2, 3, 8, 16)


def field(directory):
    """The samples of a recorded field, without the header."""
    path = one(directory, "field*.dada")
    with open(path, "rb") as f:
        return f.read()[harness.header(path)[1]:]


def test_beams():
    with harness.scratch() as d:
        record_field(d, samples=40000, missing="[{first: 1000, count: 37}, {first: 20000, count: 7000}]")
        alone = products(d, PIPELINE, 1)
        for threads in COUNTS:
            same(alone, products(d, PIPELINE, threads))


def test_simulated_field():
    with harness.scratch() as d:
        alone = field(products(d, SIMULATE, 1))
        assert len(alone) == 3000 * 3 * 2 * 12 and len(set(alone)) > 200
        for threads in COUNTS:
            assert field(products(d, SIMULATE, threads)) == alone, threads


def test_mistakes():
    with harness.scratch() as d:
        for value, what in (("-1", "threads"), ("257", "threads"), ("two", "threads")):
            wrong = harness.run(d, SIMULATE.replace("THREADS", value).replace("DIRECTORY", "."), status=2)
            assert what in wrong.err and "pipeline.yaml:" in wrong.err, wrong


if __name__ == "__main__":
    harness.main([test_beams, test_simulated_field, test_mistakes])
