"""The pipelines of config/ run as they are: each passes `beamring check`, and runs on a short field."""
import glob
import json
import os
import sys

import numpy as np

import harness

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "plots"))
import demo_report  # noqa: E402

OUT = {"DEMO_OUT": "out", "OUT": "out"}  # the demo's pipelines find the same recording
SHORT = {"DURATION": "0.02", **OUT}


def path(name):
    return os.path.join(harness.CONFIG, name)


def in_scratch(name, command, env=SHORT):
    """Runs a pipeline of config/ in a directory where the pipelines that replay a recording find one; returns
    what it wrote."""
    with harness.scratch() as d:
        if name != "simulate_and_record.yaml":
            made = harness.beamring("run", path("simulate_and_record.yaml"), cwd=d, env=SHORT)
            assert made.status == 0, made
        before = set(os.listdir(os.path.join(d, "out"))) if os.path.isdir(os.path.join(d, "out")) else set()
        result = harness.beamring(command, path(name), cwd=d, env=env)
        assert result.status == 0, f"{command} {name}: {result}"
        after = os.path.join(d, "out")
        return {n: os.path.getsize(os.path.join(after, n))
                for n in set(os.listdir(after)) - before} if os.path.isdir(after) else {}


def test_check():
    names = sorted(os.path.basename(p) for p in glob.glob(path("*.yaml")))
    assert len(names) >= 6, names
    for name in names:
        wrote = in_scratch(name, "check", env=OUT)
        assert not wrote, f"check {name} wrote {wrote}"


def test_run():
    want = {"simulate_and_record.yaml": ["field_000000.dada"],
            "replay_to_filterbank.yaml": ["beam0000.fil", "beam0255.fil"],
            "baseband_beams.yaml": ["voltage_000000.dada"]}
    for t in ("chord", "pathfinder", "hirax"):
        bands = ["_band0", "_band1"] if t == "chord" else [""]
        want[f"{t}_node.yaml"] = [f"{t}_levels_000000.dada", f"{t}_voltage_000000.dada",
                                  *(f"{t}_beam0001{b}.fil" for b in bands)]
    for name, files in want.items():
        wrote = in_scratch(name, "run")
        for f in files:
            assert wrote.get(f, 0) > 0, f"{name} did not write {f}: {sorted(wrote)}"


def test_any_array():
    """Arrays without a grid pass `check`; on the smallest one the beam on the source is the brighter one."""
    for telescope, mhz in (("lwa_like", "60"), ("dsa_like", "1420")):
        in_scratch("any_array.yaml", "check", env={**SHORT, "TELESCOPE": telescope, "FREQ_MHZ": mhz})
    with harness.scratch() as d:
        result = harness.beamring("run", path("any_array.yaml"), cwd=d, env=SHORT)
        assert result.status == 0 and "clamped" not in result.err, result
        raw, _, _, _ = harness.read_frames(os.path.join(d, "out", "array_voltage_000000.dada"))
    power = (raw.view(np.int8).astype(float) ** 2).reshape(len(raw), -1).mean(1)
    assert power[1] > 5 * power[0], power


def test_few_voltages_clamp():
    """Less than one in a hundred components of the nodes' baseband beams is clamped, and they are not
    all but zero either."""
    for t in ("chord", "pathfinder", "hirax"):
        with harness.scratch() as d:
            result = harness.beamring("run", path(f"{t}_node.yaml"), "--stats", "stats.json", cwd=d,
                                      env=SHORT)
            assert result.status == 0, result
            stages = {s["name"]: s for s in json.load(open(os.path.join(d, "stats.json")))["stages"]}
            raw, _, _, _ = harness.read_frames(os.path.join(d, "out", f"{t}_voltage_000000.dada"))
            share = stages["baseband_beamform"]["saturated"] / (2 * raw.size)
            assert share < 0.01, f"{t}: {share:.2%} of the components are clamped"
            rms = np.sqrt((abs(harness.unpack(raw)) ** 2).mean() / 2)
            assert 1 < rms < 3, f"{t}: rms {rms:.2f} levels"


def test_array():
    """config/array, shortened: the beam that follows keeps its power, the other one loses the source; the
    burst is brightest in the middle beam, which looks at the source."""
    env = {"ARRAY_OUT": "out", "FOLLOW": "150000", "SAMPLES": "32768"}
    with harness.scratch() as d:
        for name in ("follow", "burst"):
            result = harness.beamring("run", path(f"array/{name}.yaml"), cwd=d, env=env)
            assert result.status == 0, result
        total = [demo_report.read_filterbank(os.path.join(d, f"out/{n}0000.fil"))[1].mean(axis=1)
                 for n in ("followed", "still")]
        start = total[0][:5].mean()
        assert len(total[0]) == 50 and np.abs(total[0] / start - 1).max() < 0.05, total[0]
        assert total[1][-5:].mean() < 0.5 * start, total[1]
        header, freq, data = demo_report.read_beams(os.path.join(d, "out/burst"))
        series = demo_report.dedisperse(data, demo_report.delay_s(300, freq, 403) / header["tsamp"])
        at = int(0.1 / header["tsamp"])
        levels = series[:, at - 2:at + 3].sum(axis=1) / demo_report.noise_of(series)
        assert levels.argmax() == 40 and levels[40] > 20, levels
        header, _ = demo_report.read_filterbank(os.path.join(d, "out/burst/beam0040.fil"))
        assert abs(header["src_raj"] - 53431.9) < 0.1 and abs(header["src_dej"] - 220052) < 1, header


if __name__ == "__main__":
    harness.main([test_check, test_run, test_any_array, test_array, test_few_voltages_clamp])
