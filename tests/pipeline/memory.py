"""Memory: what `beamring check` prints for queues and stages, by place; a run has no more resident, but for
64 MiB of the program and its libraries, and on a GPU a stage holds what it said."""
import json
import os
import re
import subprocess
import time

import harness
from small import STREAM, TELESCOPE

# A pathfinder-sized field (64 dishes would do; 12 with more channels moves as many bytes) through every
# stage.
PIPELINE = TELESCOPE + STREAM.replace("count: 5", "count: 64") + """
pipeline:
  - {stage: simulate, samples: 65536, seed: 1, out: field}
  - {stage: upchannelize, in: field, out: fine, factor: 16}
  - {stage: frb_grid, in: fine, out: grid, integrate: 192}
  - {stage: frb_beams, in: grid, out: beams, beams: {grid: [16, 16], spacing_deg: 0.25}}
  - {stage: quantize, in: beams, out: levels, bits: 8}
  - {stage: filterbank, in: levels, directory: fil}
  - {stage: baseband_beamform, in: field, out: voltage, beams: {grid: [2, 2], spacing_deg: 1}}
  - {stage: record, in: voltage, directory: ., prefix: voltage}
  - {stage: power_beams, in: field, out: power, integrate: 64, beams: {grid: [2, 2], spacing_deg: 1}}
  - {stage: record, name: r, in: power, directory: ., prefix: power}
"""


def test_resident_memory():
    if harness.DEVICE != "cpu":
        return  # CUDA has hundreds of MiB of its own resident
    with harness.scratch() as d:
        os.mkdir(os.path.join(d, "fil"))
        promised, resident = harness.promised_and_resident(d, PIPELINE)
        print(f"promised {promised / 2**20:.1f} MiB, resident {resident / 2**20:.1f} MiB")
        assert resident <= promised + 64 * 2**20


def test_stages_say_what_they_hold():
    """Every stage with kernels has a line of its own, and the sum is the sum; larger parameters need more."""
    with harness.scratch() as d:
        os.mkdir(os.path.join(d, "fil"))
        text = PIPELINE.replace("factor: 16", "factor: 16, taps: 4")
        rows = harness.memory_of(d, PIPELINE)
        assert {
            "upchannelize", "frb_grid", "frb_beams", "quantize", "baseband_beamform", "power_beams", "queues",
            "together"
        } <= set(rows), rows
        for column in range(3):
            parts = sum(row[column] for name, row in rows.items() if name != "together")
            assert abs(parts - rows["together"][column]) <= 0.06 * parts + 2**16, (column, rows
                                                                                   )  # printed with one digit
        more = harness.memory_of(d, text.replace("taps: 4", "taps: 8"))
        assert sum(more["upchannelize"]) > sum(harness.memory_of(d, text)["upchannelize"]), (rows, more)


WIRES = {
    "chime-l0": STREAM + """pipeline:
  - {stage: receive, name: wire, format: chime-l0, address: "127.0.0.1:0", beams: {first: 0, count: 256},
     channels: {first: 0, count: 64}, window: WINDOW, out: q}
  - {stage: record, in: q, directory: ., prefix: r, overwrite: true}
""",
    "frb-node": """pipeline:
  - {stage: receive, name: wire, format: frb-node, address: "127.0.0.1:0", document: d.yaml, window: WINDOW,
     out: q}
  - {stage: record, in: q, directory: ., prefix: r, overwrite: true}
""",
}
DOCUMENT = TELESCOPE + STREAM.replace("count: 5", "count: 64") + """
pipeline:
  - {stage: simulate, samples: 4096, frame_samples: 4096, seed: 1, out: field}
  - {stage: frb_grid, in: field, out: grid, integrate: 16}
  - {stage: frb_beams, in: grid, out: beams, beams: {grid: [16, 16], spacing_deg: 0.25}}
  - {stage: quantize, in: beams, out: q, bits: 4, block: 256}
  - {stage: packetize, in: q, format: frb-node, document: d.yaml, connect_s: 0, idle_s: 0.1,
     site: {coelev_deg: 1.5}, destinations: [{address: "127.0.0.1:9"}]}
"""


def data_bytes(directory):
    """Memory that the program has asked for once it listens and all its threads have their stacks."""
    child = subprocess.Popen([os.path.abspath(harness.PROGRAM), "run", "pipeline.yaml"], cwd=directory,
                             stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        for line in child.stderr:
            if "listening" in line:
                break
        seen = []
        while len(seen) < 5 or len(set(seen[-5:])) > 1:
            assert len(seen) < 400, seen
            with open(f"/proc/{child.pid}/status") as status:
                seen.append(int(re.search(r"VmData:\s+(\d+)", status.read())[1]) * 1024)
            time.sleep(0.05)
    finally:
        child.kill()
        child.communicate()
    return seen[-1]


def test_received_frames_are_counted():
    """What 60 more frames in the window of a receiver take is what `check` says that they take."""
    for name, text in WIRES.items():
        with harness.scratch() as d:
            if name == "frb-node":
                harness.run(d, DOCUMENT)
            told, taken = [], []
            for window in (4, 64):
                told.append(harness.memory_of(d, text.replace("WINDOW", str(window)))["wire"][0])
                taken.append(data_bytes(d))
            more, really = told[1] - told[0], taken[1] - taken[0]
            print(f"{name}: {more / 2**20:.1f} MiB more said, {really / 2**20:.1f} MiB taken")
            assert more > 2**22 and 0.9 * really < more < 1.15 * really, (name, told, taken)


def test_held_on_a_gpu():
    if harness.DEVICE == "cpu":
        return
    with harness.scratch() as d:
        os.mkdir(os.path.join(d, "fil"))
        harness.run(d, PIPELINE, "--stats", "stats.json")
        stages = {s["name"]: s for s in json.load(open(os.path.join(d, "stats.json")))["stages"]}
        told = {name: s for name, s in stages.items() if "held" in s}
        assert {"upchannelize", "frb_grid"} <= set(told), stages
        for name, s in told.items():
            print(name, s["memory"], s["held"])
            assert s["held"]["locked"] == s["memory"]["locked"] > 0, (name, s)
            assert s["held"]["device"] <= s["memory"]["device"] + 16 * 2**20, (name, s)
            assert s["memory"]["device"] <= 2 * s["held"]["device"] + 16 * 2**20, (name, s)


def control_group():
    """A control group of our own with 192 MiB, or None where we may not make one."""
    name = f"beamring-test-{os.getpid()}"
    for mount, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup",
                                                                              "memory.max")):
        path = os.path.join(mount, name)
        try:
            os.mkdir(path)
        except OSError:
            continue
        try:
            with open(os.path.join(path, limit), "w") as f:
                f.write(str(192 << 20))
            return path
        except OSError:
            os.rmdir(path)
    return None


def test_in_a_control_group():
    """Queues of 512 MiB where a control group allows 192 MiB, on a machine that has them: a message, not the
    kernel's SIGKILL; and what fits runs."""
    group = control_group() if harness.DEVICE == "cpu" else None
    if group is None:
        print("no control group can be made here: not tried")
        return
    def enter():
        with open(os.path.join(group, "cgroup.procs"), "w") as f:
            f.write(str(os.getpid()))
    try:
        for depth, fits in ((64, False), (4, True)):
            with harness.scratch() as d:
                with open(os.path.join(d, "pipeline.yaml"), "w") as f:
                    f.write("device: cpu\n" + TELESCOPE + STREAM.replace("count: 5", "count: 64") + f"""
pipeline:
  - {{stage: simulate, samples: 16384, seed: 1, frame_samples: 5460, out: {{name: field, depth: {depth}}}}}
  - {{stage: record, in: field, directory: ., prefix: field}}
""")
                done = subprocess.run([os.path.abspath(harness.PROGRAM), "run", "pipeline.yaml"], cwd=d,
                                      capture_output=True, text=True, timeout=120, preexec_fn=enter)
            print(done.returncode, done.stderr.splitlines()[-1:])
            assert done.returncode == (0 if fits else 1), done
            assert fits or ("no memory for 64 frames" in done.stderr and
                            "the control group /" in done.stderr), done
    finally:
        os.rmdir(group)


if __name__ == "__main__":
    harness.main([
        test_resident_memory, test_stages_say_what_they_hold, test_received_frames_are_counted,
        test_held_on_a_gpu, test_in_a_control_group
    ])
