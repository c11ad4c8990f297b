"""Interfaces for other programs: documents with --json, pipelines from the standard input, and `info` of
every kind of file that stages read or write."""
import json
import os
import subprocess

import harness

HEAD = """
telescope: {name: t, grid: {m: 1, n: 3}, spacing_m: {m: 8, n: 6}, dishes: [[0, 0], [0, 1], [0, 2]],
  latitude_deg: 49.3, longitude_deg: -119.6}
stream: {epoch_ns: 1700000000000000000, sample_ns: 5120, freq_mhz: {first: 400, step: 0.1953125, count: 4}}
"""
PIPELINE = HEAD + """pipeline:
  - {stage: simulate, samples: 8192, frame_samples: 1024, out: e}
  - {stage: record, in: e, prefix: e}
  - {stage: correlate, in: e, out: v, integrate: 1024}
  - {stage: uvh5, in: v, x_orientation: east}
"""


def given(text, *words, cwd=None, status=0):
    done = subprocess.run([os.path.abspath(harness.PROGRAM), *words], input=text, cwd=cwd, text=True,
                          capture_output=True, timeout=60)
    assert done.returncode == status, (words, done)
    return done


def test_check_and_graph():
    whole = json.loads(given(PIPELINE, "check", "--json", "-").stdout)
    assert whole["ok"] and whole["telescope"] == {"name": "t", "dishes": 3}, whole
    field, sums = whole["queues"]
    assert field["name"] == "e" and field["dtype"] == "int4x2" and field["channels"] == 4, field
    assert field["axes"] == [{"name": n, "length": l} for n, l in zip(("time", "freq", "pol", "dish"),
                                                                      (1024, 4, 2, 3))], field
    assert [r["stage"] for r in field["readers"]] == ["record", "correlate"] and sums["from"] == "correlate"
    assert field["epoch_ns"] == 1700000000000000000 and abs(field["step_s"] - 5.12e-6) < 1e-15, field
    assert abs(field["frame_s"] * field["bytes_per_s"] - 1024 * 24) < 1e-6, field
    assert whole["memory"]["host"] >= field["host_bytes"] + sums["host_bytes"] > 0, whole
    drawn = json.loads(given(PIPELINE, "graph", "--json", "-").stdout)
    assert drawn == {key: whole[key] for key in ("stages", "queues")}, drawn


def test_mistakes_have_places():
    wrong = PIPELINE.replace("integrate: 1024", "integrat: 1024").replace("prefix: e", "prefix: a/b")
    said = given(wrong, "check", "--json", "-", status=2)
    document = json.loads(said.stdout)
    assert document["ok"] is False and len(document["errors"]) == 2, document
    for error, line, words in zip(document["errors"], (7, 8), ("a/b", "did you mean 'integrate'")):
        assert error["file"] == "stdin" and error["line"] == line and words in error["message"], error
        assert f"stdin:{line}:{error['column']}: {error['message']}" in said.stderr, said


def test_standard_input():
    """Includes are relative to the working directory; what is wrong is at stdin:LINE."""
    head, rest = PIPELINE.split("pipeline:")
    with harness.scratch() as d:
        os.mkdir(os.path.join(d, "parts"))
        with open(os.path.join(d, "parts", "head.yaml"), "w") as f:
            f.write(head)
        text = "include: parts/head.yaml\npipeline:" + rest
        given(text, "run", "-", cwd=d)
        assert sorted(os.listdir(d)) == ["e_000000.dada", "e_000000.dada.gaps", "parts", "vis_000000.uvh5"], d
        assert "stdin:1:" in given(text, "check", "-", status=2).stderr  # from elsewhere
        assert "the file is empty" in given("", "check", "-", status=2).stderr
        assert "--ranks goes neither" in given(text, "check", "--ranks", "2", "-", status=2).stderr


def test_stages():
    every = json.loads(given("", "stages", "--json").stdout)
    names = [line.split()[0] for line in given("", "stages").stdout.splitlines()]
    assert [s["name"] for s in every] == names and "record" in names
    beams = json.loads(given("", "stages", "--json", "frb_beams").stdout)
    assert beams == every[names.index("frb_beams")]
    parameter = {p["name"]: p for p in beams["parameters"]}
    spacing = {p["name"]: p for p in parameter["beams"]["fields"]}["spacing_deg"]
    assert parameter["beams"]["type"] == "map" and spacing["type"] == "numbers" and \
        spacing["unit"] == "degrees", parameter
    assert beams["inputs"][0]["name"] == "in" and "beams" in beams["updates"], beams
    assert given("", "stages", "--json", "nothing", status=2).stdout == ""


def info(path, status=0):
    return json.loads(given("", "info", "--json", path, status=status).stdout)


def test_info():
    import h5py
    import numpy as np
    with harness.scratch() as d:
        given(PIPELINE, "run", "-", cwd=d)
        ours = os.path.join(d, "vis_000000.uvh5")
        found, = info(ours)
        values = found["values"]
        assert found["kind"] == "visibilities (UVH5)" and values["antennas"] == 3, found
        assert values["integrations"] == 8 and values["baselines"] == 6 and values["telescope"] == "t", found
        assert values["channels"] == "4, centres 400 to 400.5859375 MHz", found
        assert values["polarisations"] == "xx yy xy yx" and values["sideband"] == "upper", found
        assert values["times"].startswith("2023-11-14-22:13:20"), found
        assert values["latitude"] == "49.3 degrees", found
        assert values["x points to"] == "east", found
        # As older files of others have it: one spectral window, texts of variable length, compressed data.
        theirs = os.path.join(d, "theirs.uvh5")
        with h5py.File(ours) as old, h5py.File(theirs, "w") as new:
            for name in ("Nants_data", "Ntimes", "Nbls", "latitude", "longitude", "time_array",
                         "integration_time", "polarization_array"):
                new["Header/" + name] = old["Header/" + name][()]
            new["Header/freq_array"] = old["Header/freq_array"][()][None]
            new["Header/telescope_name"] = "Elsewhere"
            data = old["Data/visdata"]
            new.create_dataset("Data/visdata", data=(data["r"] + 1j * data["i"])[:, None], compression="lzf")
        other, = info(theirs)
        assert other["values"]["telescope"] == "Elsewhere" and other["kind"] == found["kind"], other
        for key in ("channels", "times", "polarisations", "antennas"):
            assert other["values"][key] == values[key], (key, other)
        tables = {
            "gain": np.ones((4, 2, 3), np.complex64), "beams": np.array([[0.1, -0.2], [0, 0.3]]),
            "weights": np.ones((1, 2, 5, 3, 2), np.int8), "bad_inputs": np.array([[0, 1, 0], [0, 0, 7]])}
        words = {"gain": ("gains", "complex [freq 4][pol 2][dish 3]"),
                 "beams": ("beams", "2; direction cosines x 0 to 0.1, y -0.2 to 0.3"),
                 "weights": ("weights", "int8 [freq 1][pol 2][beam 5][dish 3][2]; /shift is missing"),
                 "bad_inputs": ("bad inputs", "2 of [pol 2][dish 3]: [0][1] [1][2]")}
        for name, table in tables.items():
            path = os.path.join(d, name + ".h5")
            with h5py.File(path, "w") as file:
                file[name] = table
                if name == "gain":
                    file["flag"] = np.array([[[0, 1, 4], [0, 0, 0]]] * 4, np.uint8)
                    file["freq_mhz"] = 400 + np.arange(4) / 8
                    file.attrs["sideband"] = "lower"
            found, = info(path)
            key, text = words[name]
            assert found["kind"] == "tables for stages (HDF5)" and found["values"][key] == text, found
        gains = info(os.path.join(d, "gain.h5"))[0]["values"]
        assert gains["dead"] == "4 of 24" and gains["no result"] == "4 of 24" and gains["good"] == "16 of 24"
        assert gains["sideband"] == "lower" and gains["channels"].startswith("4, centres 400 to 400.375")
        for path in (ours, os.path.join(d, "gain.h5")):  # a damaged file ends in a message, not in a crash
            for at in harness.damage_hdf5(path):
                said = harness.beamring("info", path)
                assert said.status == 0 or (said.status == 1 and path in said.err), (path, at, said)
        for way in harness.send_outside(os.path.join(d, "beams.h5"), "beams"):
            said = harness.beamring("info", os.path.join(d, "beams.h5"))
            assert said.status == 1 and "direction cosines" not in said.out, (way, said)
        recorded = info(os.path.join(d, "e_000000.dada"))[0]
        assert recorded["kind"] == "DADA" and recorded["values"]["sideband"] == "upper", recorded


if __name__ == "__main__":
    harness.main([test_check_and_graph, test_mistakes_have_places, test_standard_input, test_stages,
                  test_info])
