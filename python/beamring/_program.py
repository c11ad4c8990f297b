"""The program of the package: `beamring` on the command line."""

import os
import sys


def path():
    """Where the program is, or None."""
    here = os.path.dirname(os.path.abspath(__file__))
    beside = os.path.join(here, "bin", "beamring")
    installed = os.path.normpath(os.path.join(here, "..", "..", "..", "..", "bin", "beamring"))
    for program in (os.environ.get("BEAMRING"), beside, installed):
        if program and os.access(program, os.X_OK):
            return program
    return None


def main():
    program = path()
    if program is None:
        sys.exit("beamring: the program is not in this package; install it whole (pip install .)")
    os.environ.setdefault("BEAMRING_PYTHON", sys.executable)
    os.execv(program, [program] + sys.argv[1:])
