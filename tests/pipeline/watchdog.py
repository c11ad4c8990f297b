"""Stages that hang: they are named, and left behind when the user asks twice. Nothing that others took
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


def wait_for(process, words):
    """Reads up to the line that holds the words, and returns it all."""
    said = ""
    while words not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    return said


def interrupt(process, times, before=0):
    """One after the other has been taken: two at a time would be one."""
    said = ""
    for n in range(before, before + times):
        process.send_signal(signal.SIGINT)
        said += wait_for(process, "again: aborting" if n else "Interrupt: ")
    return said


def test_a_host_stage_hangs():
    with harness.scratch() as d:
        process = start(d, HANGS)
        err = wait_for(process, "has not returned") + interrupt(process, 2)
        out, rest = process.communicate(timeout=60)
        err += rest
        assert process.returncode == 1, (process.returncode, err)
        assert err.count("stuck: warning: process has not returned for") == 1, err
        assert "stuck: error: process has not returned for" in err and "second: " not in err, err
        assert "balance: every sample is accounted for" in out, out
        assert "and 'stuck', which hangs, holds 4096 samples of 'bytes'" in out, out
        stats = json.load(open(os.path.join(d, "stats.json")))
        assert stats["exit"] == 1 and stats["balanced"], stats
        readers = {r["stage"]: r for r in stats["queues"][0]["readers"]}
        assert readers["stuck"]["held_samples"] == 4096 and readers["second"]["held_samples"] == 0, readers
        files = [os.path.join(d, name) for name in os.listdir(d) if name.endswith(".dada")]
        size = sum(os.path.getsize(f) - harness.header(f)[1] for f in files)
        assert files and size == readers["record"]["delivered_samples"], (files, size, readers)


def test_a_third_interrupt_does_not_wait():
    took = []
    while not took or min(took) > 1.8:  # the second waits for 2 s, and a machine may be slow now and then
        assert len(took) < 10, took
        with harness.scratch() as d:
            process = start(d, HANGS)
            wait_for(process, "has not returned")
            interrupt(process, 1)
            begin = time.time()
            interrupt(process, 2, before=1)
            process.communicate(timeout=60)
            took.append(time.time() - begin)
            assert process.returncode == 1, process.returncode


def test_sleeping_and_waiting_are_no_hangs():
    """A stage that sleeps as it should, and stages that wait for it, are not warned of; nor is anybody with
    watchdog_s: 0."""
    sleeps = HANGS.replace("hang_at: 40960", "pause_us: 1500000").replace(", policy: drop",
                                                                          "").replace("100000000000", "4096")
    never = HANGS.replace("watchdog_s: 0.5", "watchdog_s: 0")
    for text, status in ((sleeps, 0), (never, 1)):
        with harness.scratch() as d:
            process = start(d, text)
            err = ""
            if status == 1:
                time.sleep(2)  # for a warning that must not come
                err = interrupt(process, 3)
            err += process.communicate(timeout=60)[1]
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
