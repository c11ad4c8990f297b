"""The demo's report on filterbank files made here: it finds the burst where it is, and fails when the truth
says otherwise, when there is no burst, and when a file is missing."""
import os
import re
import struct
import subprocess
import sys

import numpy as np

import harness

REPORT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "plots",
                      "demo_report.py")
GRID, SPACING = (6, 5), 0.3
CHANNELS, STEPS, TSAMP = 64, 360, 1e-3
FCH1, FOFF = 403.0, -0.05
EPOCH_NS = 1700000000000000000
TRUTH = dict(x_deg=0.22, y_deg=-0.35, dm=180.0, arrival_s=0.1205, at_mhz=403.5, width_s=0.003, flux=0.15)

SIMULATION = """
telescope: {{dishes: [[0, 0]]}}
stream: {{freq_mhz: {{first: 400, step: 0.2, count: 16}}, epoch_ns: {epoch}}}
pipeline:
  - {{stage: simulate, samples: 1000, bursts: [{burst}], out: field}}
  - {{stage: record, in: field}}
"""
PIPELINE = f"""
pipeline:
  - {{stage: replay, files: none, out: field}}
  - {{stage: frb_beams, in: grid, out: beams, beams: {{grid: {list(GRID)}, spacing_deg: {SPACING}}}}}
  - {{stage: filterbank, in: beams}}
"""


def write_filterbank(path, data, start_s):
    def text(s):
        return struct.pack("<i", len(s)) + s.encode()

    head = text("HEADER_START") + text("source_name") + text("test")
    for key, value in (("machine_id", 0), ("telescope_id", 0), ("data_type", 1), ("nchans", CHANNELS),
                       ("nbits", 8), ("nifs", 1)):
        head += text(key) + struct.pack("<i", value)
    mjd = 40587 + (EPOCH_NS * 1e-9 + start_s) / 86400
    for key, value in (("fch1", FCH1), ("foff", FOFF), ("tstart", mjd), ("tsamp", TSAMP)):
        head += text(key) + struct.pack("<d", value)
    with open(path, "wb") as f:
        f.write(head + text("HEADER_END") + data.astype(np.uint8).tobytes())


def make(directory, amplitude=1.5, start_s=-0.0003):
    """One file per beam: noise of 16 levels and a burst of `amplitude` sigma in every channel at the centre
    of its beam."""
    rng = np.random.default_rng(11)
    os.mkdir(os.path.join(directory, "filterbank"))
    freq = FCH1 + FOFF * np.arange(CHANNELS)
    delay = TRUTH["dm"] / 2.41e-4 * (freq ** -2.0 - TRUTH["at_mhz"] ** -2.0)
    time = start_s + (np.arange(STEPS) + 0.5) * TSAMP
    profile = np.exp(-4 * np.log(2) * ((time[:, None] - TRUTH["arrival_s"] - delay) / TRUTH["width_s"]) ** 2)
    for i in range(GRID[0]):
        for j in range(GRID[1]):
            x, y = ((k - (n - 1) / 2) * SPACING for k, n in zip((i, j), GRID))
            gain = np.exp(-4 * np.log(2) * ((x - TRUTH["x_deg"]) ** 2 + (y - TRUTH["y_deg"]) ** 2) / 0.7 ** 2)
            levels = 128 + 16 * (amplitude * gain * profile + rng.standard_normal((STEPS, CHANNELS)))
            write_filterbank(os.path.join(directory, "filterbank", f"beam{i * GRID[1] + j:04d}.fil"),
                             np.clip(np.round(levels), 1, 255), start_s)


def report(directory, status, *expected, **changed):
    truth = ", ".join(f"{k}: {v}" for k, v in {**TRUTH, **changed}.items())
    for name, content in (("simulation.yaml", SIMULATION.format(burst=f"{{{truth}}}", epoch=EPOCH_NS)),
                          ("pipeline.yaml", PIPELINE)):
        with open(os.path.join(directory, name), "w") as f:
            f.write(content)
    done = subprocess.run([
        sys.executable, REPORT, "--simulation", "simulation.yaml", "--pipeline", "pipeline.yaml",
        "--directory", "."
    ], cwd=directory, capture_output=True, text=True, timeout=100)
    assert done.returncode == status, f"exit {done.returncode} for {status}\n{done.stdout}\n{done.stderr}"
    for words in expected:
        assert words in done.stdout + done.stderr, f"'{words}' not in:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_truth_and_lies():
    with harness.scratch() as d:
        make(d)
        out = report(d, 0, "demo.png")
        assert "WRONG" not in out
        with open(os.path.join(d, "demo.png"), "rb") as f:
            assert f.read(8) == b"\x89PNG\r\n\x1a\n"
        # much better than the limit: the search does not depend on luck
        for name, scale, tolerance in (("position x", TRUTH["x_deg"], 0.06), ("position y", TRUTH["y_deg"],
                                                                              0.06), ("DM", TRUTH["dm"], 1.0),
                                       ("arrival", 1e3 * TRUTH["arrival_s"], 0.3)):
            line = next(l for l in out.splitlines() if l.startswith(name))
            recovered = float(re.findall(r"-?\d+\.\d+", line)[1])
            assert abs(recovered - scale) < tolerance, line
        report(d, 1, "WRONG: position x", x_deg=TRUTH["x_deg"] + 1.2 * SPACING)
        report(d, 1, "WRONG: position y", y_deg=TRUTH["y_deg"] - 1.2 * SPACING)
        report(d, 1, "WRONG: arrival", arrival_s=TRUTH["arrival_s"] + 1.3 * TSAMP)
        report(d, 1, "WRONG: arrival", arrival_s=TRUTH["arrival_s"] - 1.3 * TSAMP)
        report(d, 1, "WRONG: DM", dm=TRUTH["dm"] + 8)
        # A burst of 1.5 in a channel and sample is 0.15 of the noise of 2 x 50 kHz x 1 ms.
        kept = float(re.search(r"([0-9.]+) of it", out).group(1))
        assert 0.95 < kept < 1.1, out
        report(d, 1, "WRONG: signal to noise", flux=1.1 * TRUTH["flux"] * kept / 0.95)


def test_no_burst():
    with harness.scratch() as d:
        make(d, amplitude=0)
        report(d, 1, "no burst was found")


def test_files():
    with harness.scratch() as d:
        report(d, 2, "there are no filterbank files")
        make(d)
        os.remove(os.path.join(d, "filterbank", "beam0003.fil"))
        report(d, 2, "29 filterbank files")
        with open(os.path.join(d, "filterbank", "beam0003.fil"), "wb") as f:
            f.write(b"HEADER")
        report(d, 2, "beam0003.fil")


if __name__ == "__main__":
    harness.main([test_truth_and_lies, test_no_burst, test_files])
