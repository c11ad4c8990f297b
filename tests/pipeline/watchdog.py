"""Stages that never come back: named, left behind when the user asks twice, and nothing of what others took
in is lost."""
import json
import os
import signal
import subprocess
import time

import harness

HANGS = """watchdog_s: 0.5
pipeline:
  - {stage: t_source, samples: 100000000000, frame_samples: 4096, out: bytes}
  - {stage: t_sink, name: stuck, hang_at: 40960, in: {from: bytes, policy: drop}}
  - {stage: t_sink, name: second, in: bytes}
  - {stage: record, in: bytes, directory: ., prefix: bytes}
"""


def start(directory, text):
    with open(os.path.join(directory, "pipeline.yaml"), "w") as f:
        f.write(text)
    return subprocess.Popen(
        [os.path.abspath(harness.PROGRAM), "run", "pipeline.yaml", "--stats", "stats.json"], cwd=directory,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def interrupt(process, times):
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)


def test_a_host_stage_hangs():
    with harness.scratch() as d:
        process = start(d, HANGS)
        time.sleep(1.5)
        begin = time.time()
        interrupt(process, 2)
        out, err = process.communicate(timeout=20)
        seconds = time.time() - begin
        print(f"{seconds:.1f} s after the first Ctrl-C\n{err}")
        assert process.returncode == 1 and seconds < 8, (process.returncode, seconds)
        assert err.count("stuck: warning: process has not come back for") == 1, err
        assert "stuck: error: process has not come back for" in err and "second: " not in err, err
        assert "balance: every sample is accounted for" in out, out
        assert "4096 samples of 'bytes' are with 'stuck', which has not come back" in out, out
        stats = json.load(open(os.path.join(d, "stats.json")))
        assert stats["exit"] == 1 and stats["balanced"], stats
        readers = {r["stage"]: r for r in stats["queues"][0]["readers"]}
        assert readers["stuck"]["held_samples"] == 4096 and readers["second"]["held_samples"] == 0, readers
        files = [os.path.join(d, name) for name in os.listdir(d) if name.endswith(".dada")]
        size = sum(os.path.getsize(f) - harness.header(f)[1] for f in files)
        assert files and size == readers["record"]["delivered_samples"], (files, size, readers)


def test_a_third_interrupt_does_not_wait():
    with harness.scratch() as d:
        process = start(d, HANGS)
        time.sleep(1)
        begin = time.time()
        for _ in range(3):
            process.send_signal(signal.SIGINT)
            time.sleep(0.05)
        process.communicate(timeout=20)
        assert process.returncode == 1 and time.time() - begin < 1.8, (process.returncode,
                                                                       time.time() - begin)


def test_sleeping_and_waiting_are_no_hangs():
    """A stage that sleeps as it should, and stages that wait for it, are not warned of; nor is anybody with
    watchdog_s: 0."""
    sleeps = HANGS.replace("hang_at: 40960", "pause_us: 1500000").replace(", policy: drop",
                                                                          "").replace("100000000000", "4096")
    never = HANGS.replace("watchdog_s: 0.5", "watchdog_s: 0")
    for text, status in ((sleeps, 0), (never, 1)):
        with harness.scratch() as d:
            process = start(d, text)
            time.sleep(2)
            if status == 1:
                interrupt(process, 3)
            out, err = process.communicate(timeout=20)
            assert process.returncode == status, (process.returncode, err)
            assert "warning" not in err.replace("Interrupt again", "") or status == 1, err
            assert "warning: process has not" not in err, err


def test_bad_values():
    for value in ("-1", "soon"):
        with harness.scratch() as d:
            result = harness.run(d, HANGS.replace("0.5", value), status=2)
            assert "pipeline.yaml:1:" in result.err and "watchdog_s" in result.err, result


if __name__ == "__main__":
    harness.main([
        test_a_host_stage_hangs, test_a_third_interrupt_does_not_wait, test_sleeping_and_waiting_are_no_hangs,
        test_bad_values
    ])
