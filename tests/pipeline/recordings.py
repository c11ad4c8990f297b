"""The reader that docs/recordings.md prints reads every kind of file that `record` writes: flat and framed,
zoned, with a side array, with short first and last frames. Its output is compared with the harness's
reader and with what the stages promise."""
import os
import re
import sys

import numpy as np

import harness
from small import TELESCOPE, record_field

sys.dont_write_bytecode = True
PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "recordings.md")

PIPELINE = TELESCOPE + """
pipeline:
  - {stage: replay, files: field*.dada, out: field, frame_samples: 768}
  - {stage: upchannelize, in: field, out: fine, factor: 4}
  - {stage: frb_grid, in: fine, out: grid, integrate: 48}
  - {stage: frb_beams, in: grid, out: beams, beams: {grid: [3, 4], spacing_deg: 1}}
  - {stage: quantize, in: beams, out: levels8, bits: 8, block: 8}
  - {stage: quantize, name: four, in: beams, out: levels4, bits: 4, block: 8}
  - {stage: baseband_beamform, in: field, out: voltage, beams: {grid: [1, 3], spacing_deg: 1}}
  - {stage: record, name: r1, in: fine, directory: out, prefix: fine}
  - {stage: record, name: r2, in: grid, directory: out, prefix: grid}
  - {stage: record, name: r3, in: beams, directory: out, prefix: beams}
  - {stage: record, name: r4, in: levels8, directory: out, prefix: levels8}
  - {stage: record, name: r5, in: levels4, directory: out, prefix: levels4}
  - {stage: record, name: r6, in: voltage, directory: out, prefix: voltage}
"""


def reader():
    if not os.path.exists(PAGE):
        print("skipped: docs/recordings.md is not here")
        sys.exit(77)
    code = re.search(r"```python\n(.*?)```", open(PAGE).read(), re.S).group(1)
    assert len(code.strip().split("\n")) <= 50, "the reader has grown"
    names = {}
    exec(compile(code, PAGE, "exec"), names)  # pylint: disable=exec-used
    return names["read"]


def one(directory, prefix):
    names = sorted(n for n in os.listdir(os.path.join(directory, "out"))
                   if n.startswith(prefix + "_") and n.endswith(".dada"))
    assert len(names) == 1, names
    return os.path.join(directory, "out", names[0])


def joined(frames, axis):
    return np.concatenate([parts[0] for _, parts, _ in frames], axis)


def test_every_kind():
    read = reader()
    with harness.scratch() as directory:
        record_field(directory)
        harness.run(directory, PIPELINE)
        field = next(
            os.path.join(directory, n) for n in sorted(os.listdir(directory))
            if n.startswith("field") and n.endswith(".dada"))
        for path in (field, one(directory, "fine")):
            header, frames = read(path)
            expected = harness.read_e(path)
            assert np.array_equal(joined(frames, 0) * expected[1][:, :, None, None], expected[0]), path
            assert header["AXES"] == "time,freq,pol,dish"
        kinds = {
            prefix: read(one(directory, prefix))
            for prefix in ("grid", "beams", "levels8", "levels4", "voltage")
        }
        for prefix, (header, frames) in kinds.items():
            assert frames[0][0] == int(header["SAMPLE0"]), prefix
            payload = os.path.getsize(one(directory, prefix)) - int(header["HDR_SIZE"])
            assert payload == int(header["FILE_SIZE"]), prefix
        beams = joined(kinds["beams"][1], 1).astype(np.float64)  # [freq][time][beam]
        assert beams.shape[2] == 12
        assert joined(kinds["grid"][1], 1).shape[1] == beams.shape[1]
        assert np.abs(joined(kinds["voltage"][1], 3).real).max() <= 8
        # value = scale level + offset, within half a level of the beams, in both widths
        for prefix, zero, least in (("levels8", 128, -127), ("levels4", 0, -7)):
            step, inside_all = 0, 0
            for _, (levels,), side in kinds[prefix][1]:
                n = levels.shape[2]
                level = levels.astype(np.float64) - zero
                value = side[:, :, :1] * level + side[:, :, 1:]
                wanted = beams[:, step:step + n].transpose(2, 0, 1)
                inside = (level > least) & (level < -least)
                inside_all += inside.sum()
                assert (np.abs(value - wanted)
                        <= 0.51 * side[:, :, :1] + 1e-3 * np.abs(wanted))[inside].all(), prefix
                step += n
            assert step == beams.shape[
                1] and inside_all > 0.7 * beams.size, prefix  # the rest is missing or clamped


def test_zones():
    read = reader()
    with harness.scratch() as directory:
        record_field(directory)
        field = next(n for n in sorted(os.listdir(directory))
                     if n.startswith("field") and n.endswith(".dada"))
        channels = harness.read_e(os.path.join(directory, field))[0].shape[1]
        assert channels >= 2
        zoned = f"zones: [{{channels: 1, factor: 4}}, {{channels: {channels - 1}, factor: 2}}]"
        harness.run(directory, TELESCOPE + f"""
pipeline:
  - {{stage: replay, files: field*.dada, out: field}}
  - {{stage: upchannelize, in: field, out: fine, {zoned}}}
  - {{stage: upchannelize, name: four, in: field, out: fine4, factor: 4}}
  - {{stage: record, name: r1, in: fine, directory: out, prefix: zoned}}
  - {{stage: record, name: r2, in: fine4, directory: out, prefix: four}}
""")
        _, zones = read(one(directory, "zoned"))
        _, four = read(one(directory, "four"))
        assert all(len(parts) == 2 for _, parts, _ in zones)
        assert np.array_equal(joined(zones, 0), joined(four, 0)[:, :4])
        assert np.concatenate([parts[1] for _, parts, _ in zones]).shape[1] == 2 * (channels - 1)


if __name__ == "__main__":
    harness.main([test_every_kind, test_zones])
