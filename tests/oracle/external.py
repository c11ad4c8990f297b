"""Runs a test with the Python that has other people's readers, BEAMRING_READERS_PYTHON."""
import importlib
import os
import subprocess
import sys

SKIP = 77
HERE = os.path.dirname(os.path.abspath(__file__))


def run_with(package, compare):
    """The exit status: of compare(), called in a Python that has the package; 77 where there is none."""
    python = os.environ.get("BEAMRING_READERS_PYTHON")
    if not python:
        print(f"skipped: BEAMRING_READERS_PYTHON does not name a Python that has the package {package}")
        return SKIP
    if os.environ.get("BEAMRING_INSIDE") != "1":
        return subprocess.run([python, os.path.abspath(sys.argv[0])], check=False,
                              env={**os.environ, "BEAMRING_INSIDE": "1"}).returncode
    # This folder has a baseband.py of its own.
    sys.path = [p for p in sys.path if os.path.abspath(p) != HERE]
    try:
        importlib.import_module(package)
    except ImportError as error:
        print(f"skipped: {python}: {error}")
        return SKIP
    compare()
    return 0
