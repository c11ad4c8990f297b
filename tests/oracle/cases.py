"""Shared by the oracles of the kernels: the cases that a dump program writes, and the errors allowed."""
import glob
import os
import subprocess
import sys
import tempfile

import numpy as np


def check_cases(check, count, ending='_out.npy'):
    """Has the program sys.argv[1] write its cases, and prints what check(path without ending) returns."""
    with tempfile.TemporaryDirectory(prefix='beamring_oracle_') as directory:
        subprocess.run([sys.argv[1], directory], check=True)
        cases = sorted(name[:-len(ending)] for name in glob.glob(os.path.join(directory, '*' + ending)))
        assert len(cases) == count, cases
        for case in cases:
            print(os.path.basename(case), check(case))


def float16_error(out, expected):
    """The rms and the largest difference, in units of the expected rms; both within what float16 allows."""
    rms = np.sqrt((expected ** 2).mean())
    error = out.astype(np.float64) - expected
    relative, worst = np.sqrt((error ** 2).mean()) / rms, np.abs(error).max() / rms
    assert relative <= 2e-3 and worst <= 0.02, (relative, worst)
    return relative, worst
