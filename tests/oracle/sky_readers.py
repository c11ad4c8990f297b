"""UVH5 files of a source of tests/oracle/fengine.py as pyuvdata reads and phases them, for Nyquist zones 1 to
4: coherent where the source stands, by astropy.

Needs BEAMRING (the program) and BEAMRING_READERS_PYTHON (an interpreter that has pyuvdata and astropy); skips
without."""
import os
import sys

from external import HERE, run_with

sys.path.insert(0, os.path.join(HERE, "..", "pipeline"))


def compare():
    import sky_phases
    sky_phases.uvh5()


if __name__ == "__main__":
    sys.exit(run_with("pyuvdata", compare))
