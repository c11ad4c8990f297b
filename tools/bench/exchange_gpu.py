#!/usr/bin/env python3
"""The corner turn between two GPUs against bare ncclSend and ncclRecv of the same bytes, one after the other.

    tools/bench/exchange_gpu.py PROGRAM PLUGINS NCCL_PAIR     with bench_beams.so and bench_sink.so in PLUGINS
"""
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile

PIPELINE = """
device: "cuda:${{LOCAL_RANK}}"
pipeline:
  - {{stage: bench_beams, out: part, channels: {channels}, steps: 32, beams: {beams}, frames: {frames}}}
  - {{stage: exchange, in: part, out: all}}
  - {{stage: bench_sink, in: all}}
"""


def pipeline(program, plugins, directory, **values):
    path = os.path.join(directory, "exchange.yaml")
    with open(path, "w") as f:
        f.write(PIPELINE.format(**values))
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = {**os.environ, "BEAMRING_PLUGIN_PATH": plugins, "NCCL_NVLS_ENABLE": "0", "RANKS": "2"}
    jobs = [
        subprocess.Popen([program, "run", "--join", f"127.0.0.1:{port}", path], stderr=subprocess.PIPE,
                         stdout=subprocess.DEVNULL, text=True,
                         env={**env, "RANK": str(r), "LOCAL_RANK": str(r)}) for r in range(2)
    ]
    texts = [job.communicate(timeout=100)[1] for job in jobs]
    found = [float(x) for text in texts for x in re.findall(r"([0-9.]+) us a frame", text)]
    if len(found) != 2 or any(job.returncode for job in jobs):
        sys.exit(f"the pipeline failed: {texts}")
    return max(found)


def main():
    program, plugins, pair = (os.path.abspath(x) for x in sys.argv[1:4])
    print("  MB each way  ncclSend/Recv   exchange    share")
    with tempfile.TemporaryDirectory() as d:
        for channels, beams in ((64, 1024), (512, 1024), (1024, 4096)):
            size = channels * 32 * beams * 2 // 2
            bare, ours = [], []
            for _ in range(3):
                done = subprocess.run([pair, str(size), "200"], capture_output=True, text=True, check=True,
                                      env={**os.environ, "NCCL_NVLS_ENABLE": "0"})
                bare.append(float(done.stdout.split()[0]))
                ours.append(pipeline(program, plugins, d, channels=channels, beams=beams, frames=400))
            a, b = statistics.median(bare), statistics.median(ours)
            print(f"  {size / 1e6:11.1f}  {a:10.1f} us  {b:8.1f} us  {a / b:6.2f}", flush=True)


if __name__ == "__main__":
    main()
