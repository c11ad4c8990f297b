"""The program of the package: `beamring` on the command line."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def beside(*names):
    """A file or folder of the tree that holds this package: a wheel's package itself, or an installation,
    wherever it was moved to. None if it is not there."""
    roots = [HERE]
    if HERE.endswith(os.path.join("beamring", "python", "beamring")):  # PREFIX/lib or PREFIX/lib/ARCH
        roots += [os.path.normpath(os.path.join(HERE, *[".."] * up)) for up in (4, 5)]
    return next((p for root in roots if os.path.exists(p := os.path.join(root, *names))), None)


def path():
    """Where the program is, or None."""
    for program in (os.environ.get("BEAMRING"), beside("bin", "beamring")):
        if program and os.access(program, os.X_OK):
            return program
    return None


def main():
    program = path()
    if program is None:
        sys.exit("beamring: the program is not in this package; install it whole (pip install .)")
    os.environ.setdefault("BEAMRING_PYTHON", sys.executable)
    os.execv(program, [program] + sys.argv[1:])
