"""Resident memory: what `beamring check` prints for the queues, plus at most 96 MiB."""
import os
import re
import subprocess
import sys

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

UNITS = {"B": 1, "KiB": 1024, "MiB": 1 << 20, "GiB": 1 << 30}


def test_resident_memory():
    with harness.scratch() as d:
        os.mkdir(os.path.join(d, "fil"))
        checked = harness.run(d, PIPELINE, command="check")
        total = re.search(r"total queue memory[: ]+([0-9.]+) (B|KiB|MiB|GiB)", checked.out)
        assert total, checked
        queues = float(total.group(1)) * UNITS[total.group(2)]
        child = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, "
                 "stderr=subprocess.DEVNULL); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
        out = subprocess.run([sys.executable, "-c", child, os.path.abspath(harness.PROGRAM), "run", "pipeline.yaml"], cwd=d,
                             capture_output=True, text=True, timeout=150, check=True)
        resident = int(out.stdout.split()[-1]) * 1024
        print(f"queues {queues / 2**20:.1f} MiB, resident {resident / 2**20:.1f} MiB")
        assert resident <= queues + 96 * 2**20


if __name__ == "__main__":
    harness.main([test_resident_memory])
