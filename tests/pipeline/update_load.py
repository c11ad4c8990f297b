"""Updates of 1 MB of weights, ten a second, in a pipeline that runs as fast as it can, against times without
any in the same run: no sample is lost and every update holds. Prints how long frames took with and without,
and how long answers took.

    update_load.py [--seconds 60]

The suite runs it for a few seconds, on machines that do other things as well: there only what must hold on
any machine is asked for. BEAMRING_TEST_DEVICE=cuda:0 does the same on a GPU."""
import argparse
import json
import os
import sys
import time

import h5py
import numpy as np

import harness
from control_common import Node

DISHES, CHANNELS, BEAMS, FRAME = 64, 64, 64, 64  # weights int8 [channel][pol][beam][dish][2]: 1 MiB
RATE, PIECE_S = 10.0, 1.0                         # updates a second; with and without take turns

TELESCOPE = f"""
telescope: {{name: load, grid: {{m: 8, n: 8}}, spacing_m: {{m: 8, n: 8}},
            dishes: [{", ".join(f"[{i // 8}, {i % 8}]" for i in range(DISHES))}]}}
"""
MAKE = TELESCOPE + f"""
stream: {{freq_mhz: {{first: 400, step: 0.2, count: {CHANNELS}}}, sample_ns: 5120, epoch_ns: 0}}
pipeline:
  - {{stage: simulate, samples: {64 * FRAME}, seed: 1, frame_samples: {FRAME}, out: field}}
  - {{stage: record, in: field, prefix: field}}
"""
RUN = TELESCOPE + f"""
device: "{harness.DEVICE}"
pipeline:
  - {{stage: replay, files: field_000000.dada, loop: 0, frame_samples: {FRAME}, out: field}}
  - {{stage: baseband_beamform, name: bb, in: field, out: beams, weights: w0.h5, shift: 9}}
  - {{stage: t_times, in: beams, file: times}}
"""


def write_weights(path, seed):
    rng = np.random.default_rng(seed)
    with h5py.File(path, "w") as f:
        f["weights"] = rng.integers(-127, 128, (CHANNELS, 2, BEAMS, DISHES, 2)).astype(np.int8)
        f["shift"] = np.full((CHANNELS, 2, BEAMS), 9, np.int32)


def post(n, i):
    begin = time.monotonic()
    body = {"id": f"u{i}", "stages": {"bb": {"weights": f"w{i % 2}.h5"}}}
    answer = n.post("/v1/update", json.dumps(body))
    assert answer.code == 202, answer.text
    return time.monotonic() - begin


def load(n, seconds):
    """Updates in every other piece of time, at least one for each second: number, times of the answers,
    pieces (with, begin, end)."""
    count, answers, pieces = 0, [], []
    end = time.monotonic() + seconds
    while time.monotonic() < end or (count < seconds and time.monotonic() < end + 60):
        for busy in (False, True):
            begin, sent = time.monotonic(), 0
            if not busy:
                time.sleep(PIECE_S)
            while busy and time.monotonic() < begin + PIECE_S:
                answers.append(post(n, count))
                count += 1
                sent += 1
                time.sleep(max(0, begin + sent / RATE - time.monotonic()))
            pieces.append((busy, begin, time.monotonic()))
    return count, np.array(answers), pieces


def wait_for_all(n, count):
    end = time.time() + 60
    while True:
        states = n.status()["updates"]["states"]
        if states["scheduled"] == 0:
            break
        assert time.time() < end, states
        time.sleep(0.05)
    assert states["rejected"] == 0 and states["applied"] + states["superseded"] >= min(count, 256), states
    return states


def frame_times(path, pieces):
    at = np.fromfile(path, np.uint64).astype(np.float64) * 1e-9
    took, middle = np.diff(at), at[1:]
    found = {True: [], False: []}
    for busy, begin, end in pieces:
        found[busy].append(took[(middle > begin) & (middle < end)])
    return {busy: np.concatenate(parts) for busy, parts in found.items()}


def measure(seconds):
    with harness.scratch() as d:
        harness.run(d, MAKE, name="make.yaml")
        for i in range(2):
            write_weights(os.path.join(d, f"w{i}.h5"), i)
        n = Node(d, RUN)
        try:
            n.wait_until(lambda s: s["state"] == "running")
            time.sleep(0.5)
            count, answers, pieces = load(n, seconds)
            states = wait_for_all(n, count)
            stages = n.get("/v1/stages?now").json["stages"]
            assert all(not any(s["lost"].values()) for s in stages), stages
            n.end()  # the balance of samples is part of its exit status
        finally:
            n.process.kill()
        took = frame_times(os.path.join(d, "times"), pieces)
    return count, answers, states, took


def say(count, answers, states, took):
    print(f"{count} updates of {CHANNELS * 2 * BEAMS * DISHES * 2 / 2**20:g} MiB: {states}, no sample lost")
    tails = {}
    for busy, times in took.items():
        tails[busy] = np.percentile(times, 99.9)
        print(f"{'with' if busy else 'without':8s}{len(times)} frames, in ms: "
              f"median {1e3 * np.median(times):.3f}, mean {1e3 * times.mean():.3f}, "
              f"99.9 % {1e3 * tails[busy]:.3f}, most {1e3 * times.max():.3f}")
    print(f"99.9th percentile with / without: {tails[True] / tails[False]:.3f} (wanted: at most 1.05)")
    print(f"answers, in ms: median {1e3 * np.median(answers):.1f}, "
          f"99 % {1e3 * np.percentile(answers, 99):.1f} (wanted: at most 50)")


def test_load():
    count, answers, states, took = measure(SECONDS)
    say(count, answers, states, took)
    assert count >= SECONDS and all(len(times) > 10 for times in took.values())
    assert np.median(answers) < 5, answers  # the pipeline is not in its way


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    known, sys.argv[1:] = parser.parse_known_args()
    SECONDS = known.seconds
    harness.main([test_load])
