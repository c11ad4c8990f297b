#!/usr/bin/env python3
"""The corner turn between GPUs against a bare all-to-all (ncclSend and ncclRecv) of the same bytes, one after
the other, and whether it hides behind computing on the GPUs.

    tools/bench/exchange_gpu.py PROGRAM PLUGINS NCCL_ALL [--gpus 2,4] [--rounds 3]

PLUGINS is a folder with bench_beams.so and bench_sink.so. A rank is a process with a GPU of its own; ranks
meet by `--join`. The computing is bare matrix products that take about as long as the exchange."""
import argparse
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile

STEPS, BEAMS = 32, 512  # beams of each rank

SOURCE = """
device: "cuda:${{LOCAL_RANK}}"
pipeline:
  - {{stage: bench_beams, out: part, channels: {channels}, steps: 32, beams: {beams}, frames: {frames},
     products: {products}}}
"""
EXCHANGE = SOURCE + """  - {{stage: exchange, in: part, out: all}}
  - {{stage: bench_sink, in: all}}
"""
COMPUTING = SOURCE + "  - {{stage: bench_sink, in: part}}\n"


def pipeline(a, n, text, directory, **values):
    """Microseconds a frame takes the slowest rank."""
    path = os.path.join(directory, "exchange.yaml")
    with open(path, "w") as f:
        f.write(text.format(beams=BEAMS * n, **values))
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = {**os.environ, "BEAMRING_PLUGIN_PATH": a.plugins, "NCCL_NVLS_ENABLE": "0", "RANKS": str(n)}
    jobs = [
        subprocess.Popen([a.program, "run", "--join", f"127.0.0.1:{port}", path], stderr=subprocess.PIPE,
                         stdout=None if a.verbose and r == 0 else subprocess.DEVNULL, text=True,
                         env={**env, "RANK": str(r), "LOCAL_RANK": str(r)}) for r in range(n)
    ]
    texts = [job.communicate(timeout=100)[1] for job in jobs]
    found = [float(x) for text in texts for x in re.findall(r"([0-9.]+) us a frame", text)]
    if len(found) != n or any(job.returncode for job in jobs):
        sys.exit(f"the pipeline failed: {texts}")
    return max(found)


def frames(channels):
    """Enough for half a second."""
    return 800 if channels > 1000 else 5000


def bare(a, n, size):
    done = subprocess.run([a.nccl_all, str(n), str(size), "400"], capture_output=True, text=True,
                          check=True, env={**os.environ, "NCCL_NVLS_ENABLE": "0"})
    return float(re.search(r"([0-9.]+) us", done.stdout)[1])


def computing(a, n, directory, channels, wanted):
    """So many products that they take about so long, and how long they take."""
    some = {"channels": channels, "frames": frames(channels)}
    few, many = (pipeline(a, n, COMPUTING, directory, products=p, **some) for p in (20, 120))
    products = max(1, round(wanted / ((many - few) / 100)))
    return products, pipeline(a, n, COMPUTING, directory, products=products, **some)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("plugins")
    p.add_argument("nccl_all")
    p.add_argument("--gpus", default="2,4")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--channels", default="32,256,2048", help="of a rank: 32 are 1.05 MB a pair")
    p.add_argument("--verbose", action="store_true", help="with rank 0's counters")
    p.add_argument("--no-computing", action="store_true")
    a = p.parse_args()
    a.program, a.plugins, a.nccl_all = (os.path.abspath(x) for x in (a.program, a.plugins, a.nccl_all))
    print("  GPUs  MB a pair  all-to-all   exchange   share   computing   with it   / the longer")
    with tempfile.TemporaryDirectory() as d:
        for n in map(int, a.gpus.split(",")):
            for channels in map(int, a.channels.split(",")):
                size = channels * STEPS * BEAMS * 2
                some = {"channels": channels, "frames": frames(channels)}
                alone, ours = [], []
                for _ in range(a.rounds):
                    alone.append(bare(a, n, size))
                    ours.append(pipeline(a, n, EXCHANGE, d, products=0, **some))
                x, y = statistics.median(alone), statistics.median(ours)
                print(f"  {n:4}  {size / 1e6:9.2f}  {x:7.1f} us  {y:6.1f} us  {x / y:6.2f}", end="",
                      flush=True)
                if not a.no_computing:
                    products, compute = computing(a, n, d, channels, y)
                    both = statistics.median(
                        pipeline(a, n, EXCHANGE, d, products=products, **some) for _ in range(a.rounds))
                    print(f"  {compute:7.1f} us  {both:6.1f} us   {both / max(compute, y):6.2f}", end="")
                print(flush=True)


if __name__ == "__main__":
    main()
