"""Shared by the tests of the package: recordings of every kind, made once by pipelines in this process."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import beamring as br

EPOCH_NS = 1790000000000000000
TELESCOPE = """
telescope: {name: toy, grid: {m: 2, n: 3}, spacing_m: {m: 8.5, n: 6.3}, dishes: [[0, 0], [0, 1],
            [0, 2], [1, 0], [1, 1], [1, 2]], latitude_deg: 49.3, longitude_deg: -119.6}
"""
HEAD = TELESCOPE + f"""
stream: {{sample_ns: 2560, epoch_ns: {EPOCH_NS}, freq_mhz: [400, 401, 402, 403], sideband: upper}}
"""
MAKE = HEAD + """
pipeline:
  - stage: simulate
    out: field
    samples: 20000
    seed: 3
    frame_samples: 4096
    missing: [{first: 5000, count: 300}, {first: 9000, count: 10}]
  - {stage: record, in: field, prefix: field, file_bytes: 400000}
  - {stage: frb_grid, in: field, out: grid, downsample: 256}
  - {stage: frb_beams, in: grid, out: beams, beams: {grid: [2, 2], spacing_deg: 0.5}}
  - {stage: record, name: record_beams, in: beams, prefix: beams}
  - {stage: quantize, in: beams, out: levels, bits: 4}
  - {stage: record, name: record_levels, in: levels, prefix: levels}
  - {stage: filterbank, in: beams, directory: fil}
  - {stage: correlate, in: field, out: vis, integrate: 4096}
  - {stage: record, name: record_vis, in: vis, prefix: vis}
  - {stage: uvh5, in: vis, directory: uv}
  - {stage: upchannelize, in: field, out: fine, zones: [{channels: 1, factor: 16}, {channels: 3, factor: 4}]}
  - {stage: record, name: record_fine, in: fine, prefix: fine}
"""
SOURCE = HEAD + """
pipeline:
  - {stage: simulate, out: field, samples: 20000, seed: 3, frame_samples: 4096,
     missing: [{first: 5000, count: 300}]}
"""


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """The folder, and what the pipeline handed to this process."""
    folder = tmp_path_factory.mktemp("made")
    before = os.getcwd()
    os.chdir(folder)
    try:
        result = br.Pipeline(MAKE).run(collect=["field", "beams", "levels", "vis", "fine"])
    finally:
        os.chdir(before)
    assert result.balanced
    return folder, result


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def program_env():
    """So that stages in Python of the program are run by this Python."""
    site = str(pathlib.Path(br.__file__).resolve().parent.parent)
    paths = os.pathsep.join([os.path.dirname(os.path.dirname(br.__file__)), site])
    return {**os.environ, "BEAMRING_PYTHON": sys.executable, "PYTHONPATH": paths}


def program(*args, env=None, cwd=None, timeout=60):
    return subprocess.run(
        [br.program(), *args],
        text=True,
        capture_output=True,
        timeout=timeout,
        cwd=cwd,
        env={**program_env(), **(env or {})},
    )


def same(a, b):
    return np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True)
