"""Memory: what `beamring check` prints for queues and stages, by place; a run has no more resident, but for 64 MiB of the program
and its libraries, and on a GPU a stage holds what it said."""
import json
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
        promised, resident = harness.promised_and_resident(d, PIPELINE)
        print(f"promised {promised / 2**20:.1f} MiB, resident {resident / 2**20:.1f} MiB")
        assert resident <= promised + 64 * 2**20


def test_stages_say_what_they_hold():
    """Every stage with kernels has a line of its own, and the sum is the sum; larger parameters need more."""
    with harness.scratch() as d:
        os.mkdir(os.path.join(d, "fil"))
        text = PIPELINE.replace("factor: 16", "factor: 16, taps: 4")
        rows = harness.memory_of(d, PIPELINE)
        assert {"upchannelize", "frb_grid", "frb_beams", "quantize", "baseband_beamform", "queues", "together"} <= set(rows), rows
        for column in range(3):
            parts = sum(row[column] for name, row in rows.items() if name != "together")
            assert abs(parts - rows["together"][column]) <= 0.06 * parts + 2**16, (column, rows)  # printed with one digit
        more = harness.memory_of(d, text.replace("taps: 4", "taps: 8"))
        assert sum(more["upchannelize"]) > sum(harness.memory_of(d, text)["upchannelize"]), (rows, more)


def test_held_on_a_gpu():
    if harness.DEVICE == "cpu":
        return
    with harness.scratch() as d:
        os.mkdir(os.path.join(d, "fil"))
        harness.run(d, PIPELINE, "--stats", "stats.json")
        stages = {s["name"]: s for s in json.load(open(os.path.join(d, "stats.json")))["stages"]}
        told = {name: s for name, s in stages.items() if "held" in s}
        assert {"upchannelize", "frb_grid"} <= set(told), stages
        for name, s in told.items():
            print(name, s["memory"], s["held"])
            assert s["held"]["locked"] == s["memory"]["locked"] > 0, (name, s)
            assert s["held"]["device"] <= s["memory"]["device"] + 16 * 2**20, (name, s)
            assert s["memory"]["device"] <= 2 * s["held"]["device"] + 16 * 2**20, (name, s)


if __name__ == "__main__":
    harness.main([test_resident_memory, test_stages_say_what_they_hold, test_held_on_a_gpu])
