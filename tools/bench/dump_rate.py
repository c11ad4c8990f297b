"""How fast a dump is written, against a bare write of the same bytes into as many files of the same
directory, alternating; and how soon its frames are pinned.

  dump_rate.py [--build build|BUNDLE] [--directory /tmp] [--channels 48] [--dishes 64] [--bytes 400e6]
  [--rounds 5]
               [--format dada|chime]

The node keeps all of a recording that it plays in real time; each round dumps all of it and then writes as
many bytes from memory, 256 KiB at a time as the stage does. The rates include making and naming the files."""
import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
import urllib.request

CONTROL = 8098
BLOCK = 256 << 10


def ask(path, body=None):
    request = urllib.request.Request(f"http://127.0.0.1:{CONTROL}{path}", body and json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def bare_write(directory, memory, files, size):
    """Seconds that it takes to write all of `memory` as `files` files of `size` bytes."""
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    begin = time.monotonic()
    for i in range(files):
        part = os.path.join(directory, f"bare_{i}.part")
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.posix_fallocate(fd, 0, size)
        for at in range(0, size, BLOCK):
            os.pwrite(fd, memory[i * size + at:i * size + min(at + BLOCK, size)], at)
        os.close(fd)
        os.rename(part, part[:-5])
    return time.monotonic() - begin


def dump(event, directory, samples, form):
    """Seconds from the request to the last file, and to the pin."""
    shutil.rmtree(os.path.join(directory, "dumps"), ignore_errors=True)
    os.makedirs(os.path.join(directory, "dumps"))
    ask("/v1/dump", {"id": event, "start": "earliest", "samples": samples, "format": form})
    while True:
        d = ask(f"/v1/dumps?id={event}")["dumps"][0]
        if d["state"] == "done":
            assert d["missing_samples"] == 0, d
            return (d["finished_ns"] - d["requested_ns"]) * 1e-9, d["pinned_after_seconds"]
        assert d["state"] in ("waiting", "writing"), d
        time.sleep(0.01)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--directory", default="/tmp")
    parser.add_argument("--channels", type=int, default=48)
    parser.add_argument("--dishes", type=int, default=64)
    parser.add_argument("--bytes", type=float, default=400e6)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--format", default="dada", choices=["dada", "chime"])
    a = parser.parse_args()
    program = next(p for p in (os.path.abspath(os.path.join(a.build, folder, "beamring"))
                               for folder in ("bin", "tools")) if os.path.exists(p))
    row = a.channels * 2 * a.dishes
    frame = max((16 << 20) // row, 16)
    frames = int(a.bytes / (frame * row))
    samples = frames * frame
    sample_ns = 0.05e9 / frame  # 20 frames a second
    with tempfile.TemporaryDirectory(dir=a.directory, prefix="dump_rate-") as directory:
        head = (
            f"HEADER DADA\nHDR_SIZE 4096\nNBIT 4\nNDIM 2\nNPOL 2\nNCHAN {a.channels}\nNANT {a.dishes}\n"
            f"ORDER TFPA\nDTYPE int4x2\nAXES time,freq,pol,dish\nSHAPE 0,{a.channels},2,{a.dishes}\n"
            "SAMPLE0 0\n"
            f"FRAME_SAMPLES {frame}\nSAMPLE_NS {round(sample_ns)}/1\nEPOCH_NS 1700000000000000000\n"
            f"FREQ_MHZ 800:-0.390625:{a.channels}\nWIDTH_MHZ 0.390625\nDOWNSAMPLE 1\nNZONES 1\n"
            f"ZONE_0 0,{a.channels},1,1,0\nSCALE 1\n")
        with open(os.path.join(directory, "field.dada"), "wb") as f:
            f.write(head.encode().ljust(4096, b"\0"))
            block = bytes(x & 0x77 for x in os.urandom(frame * row))
            for _ in range(4):
                f.write(block)
        seconds = 2 * samples * round(sample_ns) * 1e-9
        with open(os.path.join(directory, "node.yaml"), "w") as f:
            f.write(f"""control: {{listen: "127.0.0.1:{CONTROL}"}}
pipeline:
  - {{stage: replay, files: field.dada, loop: 0, realtime: true, out: field}}
  - {{stage: dump, in: {{from: field, history: {{seconds: {seconds}}}}}, directory: dumps}}
""")
        node = subprocess.Popen([program, "run", "node.yaml"], cwd=directory, stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True)
        try:
            lines = []
            while "shows this node" not in "".join(lines[-1:]):
                lines.append(node.stderr.readline())
                assert lines[-1], "".join(lines)
            while ask("/v1/queues?now")["queues"][0]["samples"] < 2 * samples:
                time.sleep(0.1)
            rates, bare, pins = [], [], []
            memory = memoryview((block * frames)[:samples * row])
            for event in range(a.rounds):
                took, pin = dump(event, directory, samples, a.format)
                rates.append(samples * row / took)
                pins.append(pin)
                bare.append(samples * row / bare_write(os.path.join(directory, "bare"), memory, a.channels,
                                                       samples * 2 * a.dishes))
                print(
                    f"round {event}: dump {rates[-1] / 1e9:.3f} GB/s, bare write {bare[-1] / 1e9:.3f} GB/s, "
                    f"ratio {rates[-1] / bare[-1]:.2f}; pinned after {pin * 1e3:.3f} ms", flush=True)
            print(f"{samples * row / 1e6:.0f} MB, {a.channels} files, {a.format}: median of the ratios "
                  f"{statistics.median(r / b for r, b in zip(rates, bare)):.2f}, "
                  f"pinned after at most {max(pins) * 1e3:.3f} ms")
        finally:
            node.send_signal(signal.SIGTERM)
            node.wait(60)


if __name__ == "__main__":
    main()
