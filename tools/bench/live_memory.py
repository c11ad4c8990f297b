#!/usr/bin/env python3
"""Several nodes on one host, each with a GPU of its own, live: packets at their real rate out of memory ->
unpack -> both beam chains. Nothing may be lost.

    tools/bench/live_memory.py PROGRAM PLUGINS CONFIG [--gpus 1,2,4] [--seconds 10] [--one-process]

PLUGINS is a folder with bench_packets.so and bench_sink.so. A node of CHORD is 48 channels of 512 dishes:
1.5625 million packets a second, 9.6 GB/s. A node is a program of its own, or (--one-process) all are in one
pipeline file, each stage on its node's `device`."""
import argparse
import os
import re
import subprocess
import sys
import tempfile

from live_rate import NODES


def node(a, k):
    boards, streams, _, frame, side, voltages = NODES[a.node]
    spacing = "0.12" if a.node == "chord" else "0.25"
    on = f'device: "{a.device}{k if a.device == "cuda:" else ""}"'
    return f"""
  - {{stage: bench_packets, name: packets{k}, sources: {list(range(boards))}, streams: {streams},
     frame_samples: {frame}, seconds: {a.seconds}, threads: {a.threads}, buffer_ms: {a.buffer_ms}, out: p{k}}}
  - {{stage: unpack, name: unpack{k}, in: p{k}, out: field{k}, {on}}}
  - {{stage: upchannelize, name: fine{k}, in: field{k}, out: fine{k}, factor: 16, {on}}}
  - {{stage: frb_grid, name: grid{k}, in: fine{k}, out: grid{k}, integrate: 192, {on}}}
  - {{stage: frb_beams, name: beams{k}, in: grid{k}, out: beams{k},
     beams: {{grid: [{side}, {side}], spacing_deg: {spacing}}}, {on}}}
  - {{stage: quantize, name: levels{k}, in: beams{k}, out: levels{k}, bits: 4, block: 256, {on}}}
  - {{stage: bench_sink, name: levels_end{k}, in: levels{k}, device: cpu}}
  - {{stage: baseband_beamform, name: voltage{k}, in: field{k}, out: voltage{k},
     beams: {{grid: {voltages}, spacing_deg: 0.1}}, {on}}}
  - {{stage: bench_sink, name: voltage_end{k}, in: voltage{k}, device: cpu}}
"""


def run(a, n, directory):
    """What the sources and the programs say in the end."""
    nodes = [node(a, k) for k in range(n)]
    telescope = os.path.join(a.config, "telescopes", NODES[a.node][2] + ".yaml")
    jobs = []
    for k, text in enumerate(["".join(nodes)] if a.one_process else nodes):
        path = os.path.join(directory, f"node{k}.yaml")
        with open(path, "w") as f:
            f.write(f"include: {telescope}\nstream: {{epoch_ns: 1700000000000000000}}\ndevice: auto\n"
                    "pipeline:" + text)
        jobs.append(subprocess.Popen([a.program, "run", path], stderr=subprocess.STDOUT,
                                     stdout=subprocess.PIPE, text=True,
                                     env={**os.environ, "BEAMRING_PLUGIN_PATH": a.plugins}))
    said = [job.communicate(timeout=120 + 10 * a.seconds)[0] for job in jobs]
    found = [(int(x), int(y)) for text in said for x, y in
             re.findall(r"(\d+) packets accepted, (\d+) lost", text)]
    if len(found) != n or any(job.returncode for job in jobs):
        sys.exit(f"exit statuses {[job.returncode for job in jobs]}:\n" +
                 "\n".join(line for text in said for line in text.splitlines() if "beamring:" in line))
    return found, said


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("plugins")
    p.add_argument("config")
    p.add_argument("--gpus", default="1,2,4")
    p.add_argument("--node", choices=NODES, default="chord")
    p.add_argument("--device", default="cuda:", help="cpu: without a GPU")
    p.add_argument("--seconds", type=float, default=10)
    p.add_argument("--threads", type=int, default=10, help="that fill a node's frames")
    p.add_argument("--buffer-ms", type=float, default=100, help="of packets that may wait, as in the kernel")
    p.add_argument("--one-process", action="store_true")
    a = p.parse_args()
    a.program, a.plugins, a.config = (os.path.abspath(x) for x in (a.program, a.plugins, a.config))
    lost = 0
    with tempfile.TemporaryDirectory(prefix="beamring-") as d:
        for n in map(int, a.gpus.split(",")):
            found, said = run(a, n, d)
            lost += sum(y for _, y in found)
            print(f"  {n} nodes, {'one process' if a.one_process else f'{n} processes'}, {a.seconds:g} s: " +
                  ", ".join(f"{y} of {x + y} packets lost" for x, y in found), flush=True)
            any_lost = any(y for _, y in found)
            print("\n".join(line for text in said for line in text.splitlines()
                            if "accepted" in line or any_lost and re.match(r"  [a-z]+\d ", line)))
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
