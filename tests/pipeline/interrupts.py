"""Interrupts at any moment: as soon as a run has begun, it ends with its report and its balance."""
import os
import signal
import subprocess
import time

import harness
from small import STREAM, TELESCOPE

PIPELINE = """
pipeline:
  - {stage: simulate, samples: 40000, frame_samples: 1000, out: field}
  - {stage: record, in: field, directory: ., prefix: x, overwrite: true}
"""


def run_and_interrupt(d, most, pause_s):
    """A run that is interrupted up to `most` times, from its first file on, every `pause_s`; status and
    output."""
    with open(os.path.join(d, "pipeline.yaml"), "w") as f:
        f.write(TELESCOPE + STREAM + PIPELINE)
    path = os.path.join(d, "x_000000.dada")
    if os.path.exists(path):
        os.unlink(path)
    process = subprocess.Popen([os.path.abspath(harness.PROGRAM), "run", "pipeline.yaml"], cwd=d,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not os.path.exists(path) and process.poll() is None:
        time.sleep(0.0005)
    sent = 0
    while process.poll() is None and sent < most:
        process.send_signal(signal.SIGINT)
        sent += 1
        time.sleep(pause_s)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_every_two_milliseconds():
    """The report is there however often Ctrl-C comes while the run ends; what comes after it may end the
    process."""
    with harness.scratch() as d:
        for _ in range(30):
            status, out, err = run_and_interrupt(d, 1000, 0.002)
            assert "balance: every sample is accounted for" in out, (status, out, err)
            assert status in (0, 1, 130, -signal.SIGINT), (status, err)


def test_once_drains():
    with harness.scratch() as d:
        for _ in range(10):
            status, out, err = run_and_interrupt(d, 1, 0)
            assert status in (0, 130) and "balance: every sample is accounted for" in out, (status, out, err)


if __name__ == "__main__":
    harness.main([test_every_two_milliseconds, test_once_drains])
