"""Whatever comes from outside at random: pipelines with extreme parameters, mutated connections of every
wire, requests, slow clients, damaged files and files that change, signals, allocations that fail. A process
may refuse and say why; it may not crash, hang, or lose what was good.

    sweep.py [--seed S] [--seconds T] [--only KIND] [--case N] [--jobs N]

Case N of a kind follows from the seed alone. A failure is printed with the command that repeats it."""
import argparse
import concurrent.futures
import contextlib
import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import yaml

from common import check, COUNTS, Fault, mutated, Process  # first: it says where modules are
import frb_node
import harness
import kotekan
import recordings as other
import small
from extremes import extremes
from strangers import requests, slow
from wires_common import document, EPOCH, free_port, l0_packets, random_minichunks, STEP
from wires_kotekan import FIELD, field_metadata

# --- wires ----------------------------------------------------------------------------------------------


def send(rng, port, data):
    """In pieces, at most some of them; ends it politely or not."""
    COUNTS["connections"] += 1
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as s:
        for at in range(0, len(data), step := rng.choice((7, 1000, 1 << 20))):
            s.sendall(data[at:at + step])
            if at > 20 * step:
                s.sendall(data[at + step:])
                break
        if rng.random() < 0.5:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def wires(rng, d):
    """One node listens on every wire. Between strangers, good senders: all that they send arrives."""
    ports = free_port(), free_port(), free_port(socket.SOCK_DGRAM)
    draw = np.random.default_rng(rng.randrange(2**32))
    with open(os.path.join(d, "expected.yaml"), "w") as f:
        yaml.safe_dump(document(), f, default_flow_style=None)
    with open(os.path.join(d, "p.yaml"), "w") as f:
        f.write(f"""
include: {harness.CONFIG}/telescopes/pathfinder.yaml
stream: {{epoch_ns: {EPOCH}, sample_ns: 5120, freq_mhz: {{first: 600, step: 0.1953125, count: 3}}}}
pipeline:
  - {{stage: receive, name: frb, format: frb-node, address: "127.0.0.1:{ports[0]}", document: expected.yaml,
     handshake_s: 5, out: q, hold_s: 60}}
  - {{stage: record, name: r0, in: q, directory: ., prefix: frb}}
  - {{stage: receive, name: kotekan, format: kotekan, address: "127.0.0.1:{ports[1]}", frame_samples: 64,
     handshake_s: 5, max_frame_bytes: 10000000, out: e, hold_s: 60}}
  - {{stage: record, name: r1, in: e, directory: ., prefix: kotekan}}
  - {{stage: receive, name: l0, format: chime-l0, address: "127.0.0.1:{ports[2]}", hold_s: 60,
     beams: {{first: 100, count: 4}}, channels: {{first: 20, count: 6}}, nupfreq: 2, out: l}}
  - {{stage: record, name: r2, in: l, directory: ., prefix: l0}}
""")
    levels, side = random_minichunks(draw, 12, 2, 3)
    raw = draw.integers(0, 256, (12 * 64, *FIELD)).astype(np.uint8)
    packets = l0_packets(draw, 12)[0]
    hello = frb_node.hello(document(), flags=rng.randrange(2))
    chunk = [frb_node.minichunk(n * STEP, side[n], levels[n]) for n in range(12)]
    frame = [kotekan.frame(field_metadata(64 * n, 64), raw[64 * n:64 * n + 64]) for n in range(12)]
    node = Process(d, "run", "p.yaml")
    node.until(lambda: node.log().count("listening on port") == 3, "the node does not listen")
    check(node.poll() is None, "the node ends at once", node.log())
    with contextlib.ExitStack() as stack, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        slow = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
                for port in ports[:2] for _ in range(rng.choice((0, 20, 70)))]  # more than there are places
        COUNTS["slow clients"] += len(slow)
        good = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for port in ports[:2]]
        good[0].sendall(frb_node.hello(document()))
        udp.connect(("127.0.0.1", ports[2]))
        for n in range(12):
            for s in slow:
                with contextlib.suppress(OSError):
                    s.send(hello[n:n + 1])
            for name, s, data in zip(("frb-node", "kotekan"), good, (chunk[n], frame[n])):
                try:
                    s.sendall(data)
                except OSError as error:
                    said = node.log()[-3000:]
                    raise Fault(f"the good sender of {name} is closed: {error}\n{said}") from None
            for p in packets[4 * n:4 * n + 4]:
                udp.send(p[3])
            for _ in range(rng.randrange(8)):
                kind = rng.randrange(3)
                COUNTS["mutated messages"] += 1
                if kind == 0:  # of a document that is another one, so that no mutant is taken for a sender
                    there = hello.replace(b"beamset: 1", b"beamset: 7")
                    send(rng, ports[0], mutated(rng, there + b"".join(chunk[:rng.randrange(3)])))
                elif kind == 1:  # of frames that are past
                    cut = rng.randrange(1, 2 * len(frame[0]))
                    send(rng, ports[1], mutated(rng, frame[0] + frame[0], 1)[:cut] if n > 0 else b"")
                else:
                    with contextlib.suppress(OSError):
                        udp.send(mutated(rng, packets[0][3])[:9000])
    wanted = {"frb": 12 * 2 * 3 * 136, "kotekan": raw.size}
    size = lambda name: sum(
        os.path.getsize(os.path.join(d, x)) - 4096 for x in os.listdir(d)
        if x.startswith(name + "_") and x.endswith(".dada"))
    node.until(lambda: all(size(k) >= v for k, v in wanted.items()), "good data are lost")
    if node.poll() is None:
        node.send_signal(signal.SIGTERM)
    err = node.ended((0, 130), "the node that listens")
    data = np.fromfile(os.path.join(d, "kotekan_000000.dada"), np.uint8, offset=4096)[:raw.size]
    same = (data.reshape(raw.shape) == raw).mean()
    check(same > 0.9, f"of the electric field {same:.2%} are what was sent\n{err[-3000:]}")


# --- files ----------------------------------------------------------------------------------------------


def write_files(d):
    """A small file of every kind, and how it is used."""
    e = other.noise((256, 3, 2, 6), 1)
    small.record_field(d, samples=512, missing="[{first: 100, count: 37}]")
    harness.run(d, small.TELESCOPE + """
pipeline:
  - {stage: replay, files: field_000000.dada, out: field}
  - {stage: correlate, in: field, out: v, integrate: 128}
  - {stage: uvh5, in: v, directory: ., prefix: v}
""")
    names = ["field_000000.dada", "v_000000.uvh5"]

    def put(name, data):
        names.append(name)
        with open(os.path.join(d, name), "wb") as f:
            f.write(data)

    raw = other.pack_chime(e[:, 0].reshape(256, 12))
    other.write_chime(os.path.join(d, "chime.h5"), raw, 5, 77, 1600000000.25, chunks=(64, 12))
    names.append("chime.h5")
    coarse = [2048, 2049, 2050]
    put("frames.raw", b"".join(
        other.kotekan_frame(e[64 * n:64 * n + 64], coarse, 64 * n) for n in range(4)))
    beams = np.random.default_rng(1).normal(size=(3, 64, 4)).astype(np.float32)
    put("beams.raw", other.kotekan_array(beams, ["F", "T", "B"], coarse, 700, "float32"))
    return names


def files(rng, d):
    """Damaged: looked at, checked, played, or used as tables."""
    stream = f"stream: {{sample_ns: 5120, epoch_ns: {EPOCH}}}\n"
    for name in write_files(d) + ["field_000000.dada.gaps"]:
        path = os.path.join(d, name)
        whole = open(path, "rb").read()
        for _ in range(2):
            COUNTS["damaged files"] += 1
            with open(path, "wb") as f:  # headers are more interesting than data
                edge = rng.choice((64, 512, 4096, len(whole)))
                f.write(mutated(rng, whole[:edge]) + whole[edge:])
            play = path[:-5] if name.endswith(".gaps") else path
            text = stream + f"pipeline:\n  - {{stage: replay, files: {os.path.basename(play)}, out: x}}\n"
            if name.endswith(".uvh5"):
                text = small.TELESCOPE + small.STREAM + """pipeline:
  - {stage: simulate, samples: 512, out: x}
  - {stage: frb_grid, in: x, out: y, integrate: 64, gains: v_000000.uvh5}
"""
            with open(os.path.join(d, "p.yaml"), "w") as f:
                f.write(text + "  - {stage: record, in: x, directory: out, prefix: x, overwrite: true}\n")
            Process(d, "info", os.path.basename(play)).ended((0, 1, 2), f"info {name}")
            Process(d, "run", "p.yaml").ended((0, 1, 2), f"run with {name}")
            if name.endswith(".uvh5"):
                process = Process(d, "calibrate", name, "--direction", "0,0", "--overwrite")
                process.ended((0, 1, 2), "calibrate")
        with open(path, "wb") as f:
            f.write(whole)


def changing(rng, d):
    """A recording that is cut, lengthened, replaced or written over while it is played."""
    path = small.record_field(d, samples=200000, missing="[]") or os.path.join(d, "field_000000.dada")
    with open(os.path.join(d, "p.yaml"), "w") as f:
        f.write("""pipeline:
  - {stage: replay, files: field_000000.dada, out: x, loop: 3}
  - {stage: record, in: x, directory: out, prefix: x, overwrite: true}
""")
    size = os.path.getsize(path)
    process = Process(d, "run", "p.yaml")
    for _ in range(30):
        if process.poll() is not None:
            break
        kind = rng.randrange(4)
        COUNTS["changes of files"] += 1
        if kind == 0:
            os.truncate(path, rng.randrange(size))
        elif kind == 1:
            with open(path, "ab") as f:
                f.write(rng.randbytes(rng.randrange(100000)))
        elif kind == 2:
            with open(path, "r+b") as f:
                f.seek(rng.randrange(4096))
                f.write(rng.randbytes(100))
        else:
            with open(path + ".new", "wb") as f:
                f.write(rng.randbytes(8192))
            os.rename(path + ".new", path)
        time.sleep(rng.random() * 0.02)
    process.ended((0, 1, 2), "run while its file changes")


# --- the process itself ---------------------------------------------------------------------------------

PIPELINE = small.TELESCOPE + small.STREAM + """
pipeline:
  - {stage: simulate, samples: 20000, seed: 7, out: e, frame_samples: 1024}
  - {stage: frb_grid, in: e, out: i, integrate: 16}
  - {stage: frb_beams, in: i, out: j, beams: {grid: [2, 4], spacing_deg: 0.3}}
  - {stage: quantize, in: j, out: q, bits: 8, block: 64}
  - {stage: filterbank, in: q, directory: fil, overwrite: true}
  - {stage: correlate, in: e, out: v, integrate: 1024}
  - {stage: uvh5, in: v, directory: vis, overwrite: true}
  - {stage: record, in: e, directory: e, prefix: e, overwrite: true}
"""


def signals(rng, d):
    """At random moments of a run, several of them."""
    with open(os.path.join(d, "p.yaml"), "w") as f:
        f.write(PIPELINE)
    for _ in range(4):
        process, sent = Process(d, "run", "p.yaml"), []
        process.until(lambda: os.path.exists(os.path.join(d, "e", "e_000000.dada")), "it does not begin")
        time.sleep(rng.random() * 0.1)
        for _ in range(rng.randrange(1, 4)):
            sent.append(rng.choice((signal.SIGTERM, signal.SIGINT, signal.SIGPIPE, signal.SIGWINCH,
                                    signal.SIGUSR1)))
            COUNTS["signals"] += 1
            if process.poll() is None:
                process.send_signal(sent[-1])
            time.sleep(rng.random() * 0.1)
        process.ended((0, 1, 130, -signal.SIGTERM, -signal.SIGINT), f"run with {sent}")
        os.remove(os.path.join(d, "e", "e_000000.dada"))


def memory(rng, d):
    """An allocation that fails, or several on end."""
    library = os.environ["BEAMRING_NO_MEMORY"]
    with open(os.path.join(d, "p.yaml"), "w") as f:  # HDF5 itself does not survive it
        f.write("".join(line + "\n" for line in PIPELINE.splitlines() if "uvh5" not in line))
    for _ in range(10):
        at, count = int(10**rng.uniform(1.5, 4)), rng.choice((1, 1, 3, 100))
        COUNTS["failed allocations"] += count
        env = {**os.environ, "LD_PRELOAD": library, "NO_MEMORY_AT": str(at), "NO_MEMORY_COUNT": str(count)}
        # 127: the loader found no memory. SIGABRT: libraries that have no other way.
        Process(d, "run", "p.yaml", env=env).ended((0, 1, 2, 127, -signal.SIGABRT),
                                                   f"run without memory at {at}, {count}")


KINDS = {"pipelines": extremes, "wires": wires, "requests": requests, "slow": slow, "files": files,
         "changing": changing, "signals": signals, "memory": memory}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--case", type=int)
    parser.add_argument("--jobs", type=int, default=3, help="cases at a time")
    options = parser.parse_args()
    kinds = [options.only] if options.only else list(KINDS)
    if not os.environ.get("BEAMRING_NO_MEMORY") and "memory" in kinds:
        print("left out: memory, for BEAMRING_NO_MEMORY does not name libno_memory.so (nor can a sanitizer's "
              "allocator be replaced)")
        kinds.remove("memory")
    until = time.time() + options.seconds
    counts, failed = dict.fromkeys(kinds, 0), []

    def one(kind, number):
        with harness.scratch() as d:
            try:
                KINDS[kind](random.Random(f"{options.seed} {kind} {number}"), d)
            except (Fault, AssertionError, OSError, subprocess.SubprocessError) as fault:
                failed.append(kind)
                print(f"FAIL {kind}: {fault}\nagain: {sys.argv[0]} --seed {options.seed} --only {kind} "
                      f"--case {number}", flush=True)
            finally:
                Process.end_all(d)
        counts[kind] += 1

    def tell():
        print("cases:", ", ".join(f"{kind} {n}" for kind, n in counts.items()))
        print("tried:", ", ".join(f"{n} {what}" for what, n in sorted(COUNTS.items())), flush=True)

    signal.signal(signal.SIGUSR1, lambda *_: tell())  # how far it is
    numbers = itertools.count() if options.case is None else [options.case]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = set()
        for number, kind in ((n, k) for n in numbers for k in kinds):
            if number > (options.case or 0) and time.time() > until:
                break
            running.add(pool.submit(one, kind, number))
            if len(running) >= options.jobs:
                done, running = concurrent.futures.wait(running, return_when="FIRST_COMPLETED")
                for task in done:
                    task.result()
    for task in running:
        task.result()
    tell()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
