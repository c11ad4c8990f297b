"""Resident memory: what `beamring check` prints for the queues, plus at most 96 MiB."""
import os

import harness
from small import STREAM, TELESCOPE

# A pathfinder-sized field (64 dishes would do; 12 with more channels moves as many bytes) through every stage.
PIPELINE = TELESCOPE + STREAM.replace("count: 5", "count: 64") + """
pipeline:
  - {stage: simulate, samples: 65536, seed: 1, out: field}
  - {stage: upchannelize, in: field, out: fine, factor: 16}
  - {stage: frb_grid, in: fine, out: grid, integrate: 192}
  - {stage: frb_beams, in: grid, out: beams, beams: {grid: [16, 16], spacing_deg: 0.25}}
  - {stage: quantize, in: beams, out: levels, bits: 8}
  - {stage: filterbank, in: levels, directory: fil}
  - {stage: baseband_beamform, in: field, out: voltage, beams: {grid: [2, 2], spacing_deg: 1}}
  - {stage: record, in: voltage, directory: ., prefix: voltage}
"""


def test_resident_memory():
    with harness.scratch() as d:
        os.mkdir(os.path.join(d, "fil"))
        queues, resident = harness.queues_and_resident(d, PIPELINE)
        print(f"queues {queues / 2**20:.1f} MiB, resident {resident / 2**20:.1f} MiB")
        assert resident <= queues + 96 * 2**20


if __name__ == "__main__":
    harness.main([test_resident_memory])
