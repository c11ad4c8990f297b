#!/usr/bin/env python3
"""Several replays at once, each from the page cache to a GPU of its own: the sum of their rates, in the same
run with as many bare copies from locked memory, and with copies from caches while the host's threads read as
much from the page cache: a replay must do both.

    tools/bench/replays.py PROGRAM PLUGINS HOST_COPIES [--gpus 1,2,4] [--one-process]

PLUGINS is a folder with bench_sink.so; recordings of 0.4 GB a GPU are made in /dev/shm."""
import argparse
import os
import re
import subprocess
import sys
import tempfile

CHANNELS, DISHES, SAMPLES, FRAMES = 48, 512, 4096, 2
BYTES = SAMPLES * CHANNELS * 2 * DISHES  # of a frame

HEADER = f"""HDR_VERSION 1.0
HDR_SIZE 4096
FILE_SIZE {BYTES * FRAMES}
FILE_NUMBER 0
OBS_OFFSET 0
DTYPE int4x2
AXES time,freq,pol,dish
SHAPE 0,{CHANNELS},2,{DISHES}
SAMPLE0 0
SAMPLES {SAMPLES * FRAMES}
FRAME_SAMPLES {SAMPLES}
SAMPLE_NS 5120/1
EPOCH_NS 1700000000000000000
FREQ_MHZ 600:0.1953125:{CHANNELS}
"""


def make_recordings(directory, count):
    noise = os.urandom(1 << 22).replace(b"\0", b"\1")
    paths = []
    for k in range(count):
        paths.append(os.path.join(directory, f"field{k}_000000.dada"))
        with open(paths[-1], "wb") as f:
            f.write(HEADER.encode().ljust(4096, b"\0"))
            for _ in range(BYTES * FRAMES // len(noise)):
                f.write(noise)
            f.write(noise[:BYTES * FRAMES % len(noise)])
    return paths


def stages(path, k, a):
    return f"""  - {{stage: replay, name: field{k}, files: {path}, loop: {a.loops}, readers: {a.readers},
     out: f{k}}}
  - {{stage: bench_sink, name: end{k}, in: f{k}, device: "cuda:{k}"}}
"""


def replay(a, directory, paths):
    """GB/s of each of the replays that run at once."""
    texts = ["".join(stages(p, k, a) for k, p in enumerate(paths))] if a.one_process else [
        stages(p, k, a) for k, p in enumerate(paths)]
    jobs = []
    for k, text in enumerate(texts):
        path = os.path.join(directory, f"replay{k}.yaml")
        with open(path, "w") as f:
            f.write(f"device: auto\nthreads: {a.threads}\npipeline:\n" + text)
        jobs.append(subprocess.Popen([a.program, "run", path], stderr=subprocess.PIPE,
                                     stdout=subprocess.DEVNULL, text=True,
                                     env={**os.environ, "BEAMRING_PLUGIN_PATH": a.plugins}))
    said = [job.communicate(timeout=120)[1] for job in jobs]
    found = [float(x) for text in said for x in re.findall(r"([0-9.]+) us a frame", text)]
    if len(found) != len(paths) or any(job.returncode for job in jobs):
        sys.exit(f"the pipeline failed: {said}")
    return [BYTES / us * 1e-3 for us in found]


def bare(a, *words):
    done = subprocess.run([a.copies, *map(str, words)], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[0])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("plugins")
    p.add_argument("copies", metavar="HOST_COPIES")
    p.add_argument("--gpus", default="1,2,4")
    p.add_argument("--loops", type=int, default=150)
    p.add_argument("--readers", type=int, default=0, help="`replay: readers`, of each")
    p.add_argument("--threads", type=int, default=0, help="`threads`, of each program; 0: its own choice")
    p.add_argument("--one-process", action="store_true", help="one pipeline file with all of them")
    p.add_argument("--no-reads", action="store_true", help="without the host's reads")
    a = p.parse_args()
    a.program, a.plugins, a.copies = (os.path.abspath(x) for x in (a.program, a.plugins, a.copies))
    counts = [int(x) for x in a.gpus.split(",")]
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="beamring-") as d:
        paths = make_recordings(d, max(counts))
        for threads in () if a.no_reads else (8, 16, 32, os.cpu_count()):
            rate = bare(a, 0, threads, *paths)
            print(f"  {threads:3} threads read {rate:6.1f} GB/s from the page cache", flush=True)
        print("  GPUs  bare copies    replays, GB/s: sum (each)")
        for n in counts:
            copies, rates = bare(a, n), replay(a, d, paths[:n])
            both = max(bare(a, n, threads * n, *paths[:n]) for threads in (4, 8, 16))
            each = ", ".join(f"{r:.1f}" for r in rates)
            print(f"  {n:4}  {copies:6.1f} GB/s  {sum(rates):6.1f} ({each}): {sum(rates) / copies:.2f} of "
                  f"the copies, {sum(rates) / both:.2f} of {both:.1f} GB/s that bare threads read and "
                  "copy at once", flush=True)


if __name__ == "__main__":
    main()
