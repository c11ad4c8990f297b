"""Counters that begin again: the stream goes on at the true time, as soon as somebody knows it. And a node
that is killed: the list of who was missing is complete up to its last frame."""
import glob
import os
import re
import socket
import time

import numpy as np

import harness
from capture_common import capture, counters, free_port, packets, recorded, Sender
from capture_edges import Controller, crs_field, FS, time_of_sample_0
from small import TELESCOPE


def reset_run(d, on_reset, until, status=0):
    """Three frames, and then from sample 0 on, until the run has said `until`, and 15 frames more. An
    integration of `correlate` bridges the time between."""
    fengine, first = packets.ChordCrs(), 1 << 30
    port, raw = free_port(socket.SOCK_DGRAM), crs_field(3)
    run = capture(d, fengine, port, FS,
                  f"start_sample: {first}, on_reset: {on_reset}, reset_samples: {8 * FS}",
                  "sample_ns: 5120", control=TELESCOPE, extra="""
  - {stage: unpack, in: packets, out: e}
  - {stage: correlate, in: e, out: v, integrate: 8388608}
  - {stage: record, name: sums, in: v, prefix: v}""")
    sender, frames = Sender(port, 3000), 0
    for *_, packet in fengine.packets(raw, first):
        sender.send(packet)
    more, give_up = 15, time.monotonic() + 60
    try:
        while more > 0 and time.monotonic() < give_up:
            more -= until in run.text()
            for *_, packet in fengine.packets(crs_field(1, frames), frames * FS):
                sender.send(packet)
            frames += 1
    except OSError:
        pass  # the run has ended, and nobody listens
    if status == 0:
        run.finish_after(sender.sent)
    else:
        run.finish(status)
    return run, first, sender.sent


def test_counters_begin_again():
    per_frame = FS // 16 * 6
    with harness.scratch() as d:
        run, *_ = reset_run(d, "stop", "most sources jumped", status=1)
        assert "most sources jumped" in run.text() and "on_reset: restart" in run.text(), run.text()
    with harness.scratch() as d:
        run, first, sent = reset_run(d, "restart", "began again")
        _, total = counters(run.text())
        assert total["resets"] == 1 and total["late"] == 0 and total["packets"] == sent, (sent, run.text())
        # The frame in which the run said so and the next may be cut; then nothing is missing.
        assert total["accepted"] >= (3 + 13) * per_frame, (per_frame, run.text())
        # By our count the time goes on: the second part lies behind the first by the pause, more or less.
        keys = [harness.header(p)[0] for p in sorted(glob.glob(os.path.join(d, "raw*.dada")))]
        last = max(int(k["SAMPLE0"]) + int(k["SAMPLES"]) for k in keys)
        assert first + 15 * FS < last < first + 60e9 / 5120, (first, last)


class Wrapping(packets.ChordCrs):
    """Slow CRS boards with a counter of 24 bits, which starts again after 2.4 hours."""
    name, sample_ns = "./wraps.yaml", 512000

    @classmethod
    def describe(cls, d):
        with open(os.path.join(harness.CONFIG, "packets", "chord-crs.yaml")) as f:
            text = f.read()
        for old, new in (("{fields: seq}", "{fields: seq, bits: 24}"),
                         ("sample_ns: 5120", "sample_ns: 512000")):
            assert old in text
            text = text.replace(old, new)
        with open(os.path.join(d, "wraps.yaml"), "w") as f:
            f.write(text)


def frames_in_time(fengine, sender, epoch_ns, done):
    """Sends what boards send that have begun at epoch_ns, frame after frame, until `done` and 16 more:
    where the count was ahead by four frames, the first that is exact may lie ten behind."""
    frame, more, give_up = 0, 16, time.monotonic() + 60
    while more > 0 and time.monotonic() < give_up:
        more -= done()
        now = (time.time_ns() - epoch_ns) / (FS * fengine.sample_ns)
        if frame + 1 > now:
            time.sleep((frame + 1 - now) * FS * fengine.sample_ns * 1e-9)
        frame = max(frame + 1, int(now))
        for *_, packet in fengine.packets(crs_field(1, frame % 32), frame * FS % 2**24):
            sender.send(packet)
    return frame


def reset_in_time(d, reset, before=False, passed=2000 * FS + 48):
    """Boards begin again, perhaps before the run does; `reset` has the controller say so, and tells when it
    has been heard. The recording then has their packets at the samples that the new epoch gives them."""
    fengine = Wrapping()
    fengine.describe(d)
    epoch = time.time_ns() - 20 * 2**24 * fengine.sample_ns // 3  # six periods and two thirds ago
    controller = Controller(time_of_sample_0(epoch))
    port = free_port(socket.SOCK_DGRAM)
    run = capture(d, fengine, port, FS, f'wait_s: 60, epoch_url: "{controller.url}"', "sample_ns: 512000")
    sender = Sender(port, 4000)
    # `passed`: the samples of the first epoch that have passed at the second: whole packets, no whole frames
    if not before:
        frames_in_time(fengine, sender, epoch, lambda: "begins with" in run.text())
        passed = (time.time_ns() - epoch) // (FS * fengine.sample_ns) * FS + 48
    then = epoch + passed * fengine.sample_ns
    last = frames_in_time(fengine, sender, then, reset(run, controller, then))
    run.finish_after(sender.sent)
    controller.close()
    # where the count was ahead, frames of it lie behind the first that is exact
    ahead = max([-int(n) + 5 * FS for n in re.findall(r"off by (-\d+) samples", run.text())], default=0)
    since = int(re.findall(r"at sample (\d+) by our count", run.text())[-1]) + ahead
    checked = 0
    files = len(glob.glob(os.path.join(d, "raw*.dada")))
    for number in range(files):
        got, there, _, first = recorded(d, fengine, FS, files, number)
        for frame in range(max(0, (since - passed) // FS + 1), last):
            at = passed + frame * FS - first
            if 0 <= at < len(got) - FS:
                same = got[at:at + FS] == crs_field(1, frame % 32)
                assert same[there[at:at + FS]].all(), (frame, at, run.text())
                checked += there[at:at + FS].sum()
    assert checked > 0, run.text()


def test_the_time_after_a_reset_is_exact():
    """When the controller knows it at once; when it says so later; when it says so to a run that has begun
    with the new counters and the old epoch."""
    def at_once(run, controller, epoch):
        controller.answer = time_of_sample_0(epoch)
        return lambda: "began again" in run.text()

    def later(run, controller, epoch):
        def done():
            if "until the controller says" in run.text():
                controller.answer = time_of_sample_0(epoch)
            return "the count was off by" in run.text()
        return done

    def to_a_run_that_has_begun(run, controller, epoch):
        def done():
            if "begins with" in run.text():
                controller.answer = time_of_sample_0(epoch)
            return "the count was off by" in run.text()
        return done

    for reset in (at_once, later, to_a_run_that_has_begun):
        with harness.scratch() as d:
            reset_in_time(d, reset, before=reset is to_a_run_that_has_begun)
    # The same when the counters would have started again a second later: they fit both epochs, one better.
    with harness.scratch() as d:
        reset_in_time(d, to_a_run_that_has_begun, before=True, passed=6 * 2**24 - 2000)


def test_a_list_of_who_was_missing_survives_a_kill():
    """Up to the frame that it says, and with the board that was silent then."""
    fengine, last = packets.ChordCrs(), 6 * FS
    with harness.scratch() as d:
        port = free_port(socket.SOCK_DGRAM)
        run = capture(d, fengine, port, FS, "start_sample: 0", record=False,
                      extra="\n  - {stage: record, name: l, in: packets, format: sources, prefix: lacking}")
        sender, path = Sender(port), os.path.join(d, "lacking_0000000.sources")
        for source, stream, sample, packet in fengine.packets(crs_field(6)):
            if source != 2 or sample < FS:
                sender.send(packet)
        lines, until = [""], time.monotonic() + 60
        while not lines[-1].startswith("# samples 0") or int(lines[-1].split()[-1]) < last - 2 * FS:
            assert time.monotonic() < until and run.process.poll() is None, (lines, run.text())
            time.sleep(0.05)
            if os.path.exists(path):
                with open(path) as f:
                    lines = f.read().splitlines() or [""]
        run.process.kill()
        run.process.wait()
        with open(path) as f:
            lines = f.read().splitlines()
        reach = int(lines[-1].split()[-1])
        assert f"{FS} {reach - FS} 2" in lines and reach >= last - 2 * FS, lines


if __name__ == "__main__":
    harness.main([test_counters_begin_again, test_the_time_after_a_reset_is_exact,
                  test_a_list_of_who_was_missing_survives_a_kill])
