"""The notebooks of the documents: they run, and print what they show."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
NOTEBOOKS = sorted((HERE.parents[1] / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook(path, tmp_path):
    pytest.importorskip("matplotlib")
    shutil.copy(path, tmp_path)
    env = {
        **os.environ,
        "MPLBACKEND": "agg",
        "BEAMRING_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    done = subprocess.run(
        [sys.executable, HERE / "notebooks.py", path.name],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=120,
        env=env,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_three():
    assert len(NOTEBOOKS) == 3
