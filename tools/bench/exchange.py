#!/usr/bin/env python3
"""The corner turn in host memory against a bare MPI_Alltoall of the same bytes and ranks, by turns on the
same machine; and whether it hides behind computing.

    tools/bench/exchange.py build [--ranks 2,4] [--transport vader,tcp] [--channels 64] [--beams 512]
    tools/bench/exchange.py build --minutes 10     does memory grow at the full rate?
    tools/bench/exchange.py build --headers        frames' headers without their data; also --transport join
"""
import argparse
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

PIPELINE = """
threads: 1
device: cpu
pipeline:
  - {{stage: bench_beams, out: part, channels: {channels}, steps: 32, beams: {beams}, frames: {frames},
     compute_us: {compute}}}
  - {{stage: exchange, in: part, out: all}}
  - {{stage: bench_sink, in: all}}
"""


def mpirun(n, transport):
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(n),
            "--mca", "btl", f"self,{transport}", "--mca", "btl_tcp_if_include", "lo"]


def pipeline(build, n, transport, directory, **values):
    path = os.path.join(directory, "exchange.yaml")
    with open(path, "w") as f:
        f.write(PIPELINE.format(**values))
    return run(build, n, transport, path)


def run(build, n, transport, path):
    """Microseconds a frame takes the slowest rank."""
    command = [os.path.join(build, "tools", "beamring"), "run", "--mpi", path]
    if transport == "join":  # mpirun only starts the ranks
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{s.getsockname()[1]}"
        join = f'RANK=$OMPI_COMM_WORLD_RANK RANKS={n} exec "$0" run --join {address} "$3"'
        command = ["sh", "-c", join, *command]
    done = subprocess.run([*mpirun(n, "self" if transport == "join" else transport), *command],
                          capture_output=True, text=True, timeout=300,
                          env={**os.environ, "BEAMRING_PLUGIN_PATH": os.path.join(build, "tools", "bench")})
    found = re.findall(r"([0-9.]+) us a frame", done.stderr)
    if done.returncode != 0 or len(found) != n:
        sys.exit(f"the pipeline failed: {done.stderr}")
    return max(map(float, found))


def headers(build, n, transport, directory, frames):
    """Microseconds in which each rank tells all others of a frame."""
    path = os.path.join(directory, "headers.yaml")
    with open(path, "w") as f:
        f.write(f"""
threads: 1
device: cpu
pipeline:
  - {{stage: bench_beams, out: part, channels: 1, beams: 1, frames: {frames}, headers: true}}
  - {{stage: bench_sink, in: part}}
""")
    return run(build, n, transport, path)


def resident_mib(job):
    """The resident MiB of each rank, in any order: the children of mpirun that are beamring."""
    found = []
    for child in subprocess.run(["pgrep", "-P", str(job.pid), "beamring"], capture_output=True,
                                text=True).stdout.split():
        try:
            with open(f"/proc/{child}/status") as f:
                found.append(int(re.search(r"VmRSS:\s+(\d+)", f.read())[1]) / 1024)
        except (OSError, TypeError):
            pass  # it has ended
    return found


def endure(build, n, transport, directory, minutes, **values):
    """Frames as fast as the ranks exchange them, for so long: resident memory by the minute."""
    values["frames"] = 1 << 30
    path = os.path.join(directory, "exchange.yaml")
    with open(path, "w") as f:
        f.write(PIPELINE.format(compute=0, **values))
    program = os.path.join(build, "tools", "beamring")
    env = {**os.environ, "BEAMRING_PLUGIN_PATH": os.path.join(build, "tools", "bench")}
    said = subprocess.run([program, "check", "--ranks", str(n), path], capture_output=True, text=True,
                          env=env)
    print("  check: " + re.search(r"together +(\S+ \S+)", said.stdout)[1] + " a rank, besides the program")
    begun = time.time()
    job = subprocess.Popen([*mpirun(n, transport), program, "run", "--mpi", path], env=env,
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    next_look = begun + 30
    while job.poll() is None and time.time() < begun + 60 * minutes + 1:
        time.sleep(0.2)
        if time.time() >= next_look:
            print(f"  after {next_look - begun:4.0f} s: " +
                  ", ".join(f"{mib:.1f}" for mib in sorted(resident_mib(job))) + " MiB resident", flush=True)
            next_look += 30 if next_look < begun + 60 else 60
    job.send_signal(signal.SIGINT)
    _, err = job.communicate(timeout=60)
    found = re.findall(r"([0-9.]+) us a frame", err)
    if len(found) != n:
        sys.exit(f"the pipeline failed: {err}")
    print(f"  {n} ranks, {transport}: {max(map(float, found)):.0f} us a frame for {minutes:g} minutes")


def alltoall(build, n, transport, size, times):
    program = os.path.join(build, "tools", "bench", "alltoall")
    done = subprocess.run([*mpirun(n, transport), program, str(size), str(times)], capture_output=True,
                          text=True, timeout=300, check=True)
    return float(done.stdout.split()[0])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build")
    p.add_argument("--ranks", default="2,4")
    p.add_argument("--transport", default="vader,tcp")
    p.add_argument("--channels", type=int, default=64)
    p.add_argument("--beams", type=int, default=512)
    p.add_argument("--frames", type=int, default=300)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--minutes", type=float, default=0)
    p.add_argument("--headers", action="store_true")
    a = p.parse_args()
    if a.headers:
        print("  ranks  transport  all headers of a frame  a header of another rank")
        with tempfile.TemporaryDirectory() as d:
            for n in map(int, a.ranks.split(",")):
                for transport in a.transport.split(","):
                    us = min(headers(a.build, n, transport, d, a.frames) for _ in range(a.rounds))
                    print(f"  {n:5}  {transport:9}  {us:19.1f} us  {us / (n - 1):21.1f} us", flush=True)
        return
    if a.minutes > 0:
        with tempfile.TemporaryDirectory() as d:
            for n in map(int, a.ranks.split(",")):
                for transport in a.transport.split(","):
                    endure(a.build, n, transport, d, a.minutes, channels=a.channels, beams=a.beams,
                           frames=a.frames)
        return
    print("  ranks  transport  MB a frame  MPI_Alltoall  exchange   share   with computing / the longer")
    with tempfile.TemporaryDirectory() as d:
        for n in map(int, a.ranks.split(",")):
            for transport in a.transport.split(","):
                size = a.channels * 32 * a.beams * 2 // n
                values = {"channels": a.channels, "beams": a.beams, "frames": a.frames}
                bare, ours, hidden, compute = [], [], [], []
                for _ in range(a.rounds):
                    bare.append(alltoall(a.build, n, transport, size, a.frames))
                    ours.append(pipeline(a.build, n, transport, d, compute=0, **values))
                    compute.append(2 * ours[-1])
                    hidden.append(pipeline(a.build, n, transport, d, compute=int(compute[-1]), **values))
                ratio = statistics.median(h / c for h, c in zip(hidden, compute))
                print(f"  {n:5}  {transport:9}  {size * n / 1e6:10.2f}  {statistics.median(bare):9.0f} us  "
                      f"{statistics.median(ours):6.0f} us  "
                      f"{statistics.median(bare) / statistics.median(ours):6.2f}   "
                      f"{ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
