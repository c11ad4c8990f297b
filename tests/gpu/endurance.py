"""Runs a whole pipeline on a GPU for a long time and watches its memory: host and device must not grow, the
balance must be exact.

    python3 tests/gpu/endurance.py [SECONDS]     600 by default; BEAMRING names the program,
    BEAMRING_PLUGIN_PATH the test plugins,
                                                 BEAMRING_TEST_DEVICE a GPU other than cuda:0
"""
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pipeline"))
import harness  # noqa: E402

# A pathfinder's worth of dishes, enough channels to keep the GPU busy; the recording is played over and over
# from memory.
STREAM = """
telescope:
  name: endurance
  grid: {m: 8, n: 12}
  spacing_m: {m: 8.5, n: 6.3}
  dishes: [%s]
stream: {freq_mhz: {first: 400, step: 0.1953125, count: 64}, sample_ns: 5120, epoch_ns: 1700000000000000000}
""" % ", ".join(f"[{i // 12}, {i % 12}]" for i in range(64))
RECORD = STREAM + """
pipeline:
  - {stage: simulate, samples: 49152, seed: 1, frame_samples: 12288, out: field, missing: [{first: 20000,
       count: 300}]}
  - {stage: record, in: field, directory: ., prefix: field}
"""
DEVICE = os.environ.get("BEAMRING_TEST_DEVICE", "cuda:0")
PLAY = f"device: {DEVICE}\n" + STREAM + """
pipeline:
  - {stage: replay, files: field*.dada, loop: 0, frame_samples: 12288, out: field}
  - {stage: upchannelize, in: field, out: fine, factor: 16}
  - {stage: frb_grid, in: fine, out: grid, integrate: 192}
  - {stage: frb_beams, in: grid, out: beams, beams: {grid: [32, 32], spacing_deg: 0.25}}
  - {stage: quantize, in: beams, out: levels, bits: 4}
  - {stage: t_sink, check: false, in: levels}
  - {stage: baseband_beamform, in: field, out: voltage, beams: {grid: [4, 4], spacing_deg: 0.5}}
  - {stage: t_sink, name: voltages, check: false, in: voltage}
"""


def resident_mib(pid):
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0


def device_mib():
    out = subprocess.run([
        "nvidia-smi", "-i",
        DEVICE.split(":")[1], "--query-gpu=memory.used", "--format=csv,noheader,nounits"
    ], capture_output=True, text=True)
    return float(out.stdout.split()[0])


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 600
    with harness.scratch() as base:
        d = os.path.join("/dev/shm", os.path.basename(base)) if os.path.isdir("/dev/shm") else base
        os.makedirs(d, exist_ok=True)
        try:
            if not harness.has_device(DEVICE):
                print("no GPU: skipped")
                return 77
            harness.run(d, RECORD, name="record.yaml")
            with open(os.path.join(d, "pipeline.yaml"), "w") as f:
                f.write(PLAY)
            program = subprocess.Popen(
                [os.path.abspath(harness.PROGRAM), "run", "pipeline.yaml", "--stats", "stats.json"], cwd=d,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            samples, begin = [], time.time()
            while time.time() - begin < seconds and program.poll() is None:
                time.sleep(min(10, seconds / 10))
                if program.poll() is None:
                    samples.append((time.time() - begin, resident_mib(program.pid), device_mib()))
            program.send_signal(signal.SIGINT)
            out, err = program.communicate(timeout=30)
            stats = json.load(open(os.path.join(d, "stats.json")))
        finally:
            subprocess.run(["rm", "-rf", d], check=False)
    settled = [s for s in samples if s[0] > seconds / 10] or samples
    host, device = settled[-1][1] - settled[0][1], settled[-1][2] - settled[0][2]
    gigabytes = next(s for s in stats["stages"] if s["stage"] == "replay")["out_samples"] * 64 * 2 * 64 / 1e9
    print(
        f"{stats['wall_s']:.0f} s, {stats['stream_s']:.0f} s of telescope time, {gigabytes:.0f} GB of field, "
        f"{gigabytes / stats['wall_s']:.2f} GB/s; host {settled[0][1]:.0f} MiB {host:+.1f}, device "
        f"{settled[0][2]:.0f} MiB "
        f"{device:+.1f}; exit {program.returncode}, balanced {stats['balanced']}")
    for s in stats["stages"]:
        frames = max(s["in_frames"], s["out_frames"], 1)
        print(
            f"  {s['name']:20s} {frames:8d} frames, processor time {1e6 * s['cpu_s'] / frames:8.1f} us a "
            f"frame, GPU "
            f"{1e6 * s.get('gpu_s', 0) / frames:8.1f} us")
    good = program.returncode == 130 and stats["balanced"] and host < 4 and device < 4
    if not good:
        print(out[-3000:], err[-3000:])
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
