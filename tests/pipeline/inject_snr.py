"""Recovered over predicted S/N of injected bursts, on and off beam centres, with a board missing for a third
of them: in 8-bit files, over frb-node, and over chime-l0.

The suite runs a few events through files and frb-node. For the numbers of docs/inject.md:
    tests/pipeline/inject_snr.py --events 120 [--seed N] [--sideband upper|lower]"""
import argparse
import json
import os
import signal
import subprocess
import sys

import numpy as np

import harness
from inject_common import ledger

CHANNELS, COARSE, DISHES = 8, 512, 8  # coarse channels of CHIME, the first of them
SAMPLE_NS, SLOT, STEP, EPOCH_NS = 2560, 24576, 384, 1700000000000000000
BLOCK = 256 * STEP

HEAD = f"""
telescope: {{name: t, grid: {{m: 2, n: 4}}, spacing_m: {{m: 8, n: 6}}, latitude_deg: 49.3,
  longitude_deg: -119.6, dishes: [{', '.join(f'[{i // 4}, {i % 4}]' for i in range(DISHES))}]}}
stream: {{epoch_ns: {EPOCH_NS}, sample_ns: {SAMPLE_NS}, sideband: %s,
  freq_mhz: {{first: {800 - 0.390625 * (COARSE + CHANNELS - 1)!r}, step: 0.390625, count: {CHANNELS}}}}}
pipeline:
"""
CHAIN = """
  - {stage: upchannelize, in: field, out: fine, factor: 16}
  - {stage: frb_grid, in: fine, out: image, integrate: 384}
  - {stage: frb_beams, in: image, out: beams, beams: {grid: [2, 2], spacing_deg: 0.7}}
  - {stage: quantize, name: eight, in: beams, out: levels, bits: 8}
  - {stage: filterbank, in: levels, directory: fil}
"""
FRB_NODE = """
  - {stage: quantize, name: four, in: beams, out: q, bits: 4, block: 256}
  - {stage: packetize, name: frb, in: q, format: frb-node, acks: true,
     destinations: [{address: "127.0.0.1:%s"}]}
"""
CHIME_L0 = """
  - {stage: packetize, name: l0, in: beams, format: chime-l0, rate: 3e6, burst: 20000,
     destinations: [{address: "127.0.0.1:%s"}]}
"""


def make_field(d, events, seed, sideband):
    """A recording of noise in which a board of two dishes is missing for the middle third of the time."""
    samples = -(-(events * SLOT) // BLOCK) * BLOCK + BLOCK
    harness.run(d, HEAD % sideband + f"""
  - {{stage: simulate, samples: {samples}, seed: {seed}, out: e}}
  - {{stage: record, in: e, directory: ., prefix: e}}
""", timeout=3000)
    first, last = events // 3 * SLOT, 2 * events // 3 * SLOT
    names = sorted(n for n in os.listdir(d) if n.endswith(".dada"))
    for name in names:
        path = os.path.join(d, name)
        keys, size = harness.header(path)
        raw = np.memmap(path, np.uint8, "r+", size).reshape(-1, CHANNELS, 2, DISHES)
        at = int(keys["SAMPLE0"])
        raw[max(first - at, 0):max(last - at, 0), :, :, 4:6] = 0
        raw.flush()
        a, b = max(first, at), min(last, at + len(raw))
        if a < b:
            with open(path + ".gaps", "w") as f:
                f.write(f"{a} {b - a} 0 {CHANNELS} 191\n")


def listen(d, *args):
    """A receiver and the port on which it listens, which it chose itself."""
    tool = subprocess.Popen([os.path.abspath(harness.PROGRAM), "receive", *map(str, args)], cwd=d,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = tool.stderr.readline()
    assert "listening on port" in line, line
    return tool, line.split()[-1]


def measure(events, seed, sideband="lower", chime_l0=False):
    """{way: what `beamring recover --json` says}, and the ledger's events."""
    slots = 3600 / (SLOT * SAMPLE_NS * 1e-9)
    with harness.scratch() as d:
        make_field(d, events, seed, sideband)
        frb, port = listen(d, "frb-node", "127.0.0.1:0", "--directory", "frb", "--until-closed")
        ways = FRB_NODE % port
        if chime_l0:
            l0, port = listen(d, "chime-l0", "127.0.0.1:0", "--directory", "l0", "--beams", 4,
                              "--channels", CHANNELS, "--first-channel", COARSE, "--epoch-ns", EPOCH_NS)
            ways += CHIME_L0 % port
        harness.run(d, HEAD % sideband + f"""
  - {{stage: replay, files: e_*.dada, out: e, frame_samples: 4096}}
  - {{stage: inject, in: e, out: field, ledger: ledger.jsonl, seed: {seed},
      schedule: {{per_hour: {slots!r}, seed: {seed}, snr: [8, 100], dm: [20, 150],
      width_s: [0.001, 0.004], radius: 0.01}}}}
""" + CHAIN + ways, timeout=3000)
        frb.communicate(timeout=100)
        files = {"8-bit files": sorted(os.path.join(d, "fil", n) for n in os.listdir(os.path.join(d, "fil"))
                                       if n.endswith(".fil")),
                 "frb-node": sorted(os.path.join(d, "frb", n) for n in os.listdir(os.path.join(d, "frb"))
                                    if n.endswith(".dada"))}
        if chime_l0:
            l0.send_signal(signal.SIGTERM)
            print("chime-l0:", l0.communicate(timeout=100)[0].strip())
            files["chime-l0"] = sorted(os.path.join(d, "l0", n) for n in os.listdir(os.path.join(d, "l0"))
                                       if n.endswith(".dada"))
        found = {}
        for way, names in files.items():
            result = harness.beamring("recover", "ledger.jsonl", *names, "--json", cwd=d, timeout=3000)
            assert result.out.startswith("{"), result
            found[way] = result.status, json.loads(result.out)
        return found, ledger(os.path.join(d, "ledger.jsonl"))


def report(way, document):
    s = document["summary"]
    print(f"{way}: recovered over predicted {s['mean']:.4f} +- {s['error']:.4f} of {s['events']} events, "
          f"scatter {s['scatter']:.3f}; {s['missed']} missed, {s['unexpected']} unexpected, "
          f"{s['outside']} outside")


def test_few():
    found, events = measure(6, 5)
    inside = {id for id, e in events.items() if e["state"] == "injected"}
    assert len(inside) >= 6 and not any(e["state"] == "partly" for e in events.values()), events
    assert any(abs(events[id]["inputs"] - 0.75) < 1e-6 for id in inside), events
    for way, (status, document) in found.items():
        report(way, document)
        s = document["summary"]
        assert status == 0 and s["events"] == len(inside) and s["missed"] == s["unexpected"] == 0, document


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--events", type=int, default=120)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--sideband", default="lower")
    o = options.parse_args()
    found, events = measure(o.events, o.seed, o.sideband, chime_l0=True)
    whole = [e for e in events.values() if e["state"] == "injected"]
    print(f"{len(whole)} events, {sum(e['inputs'] < 0.99 for e in whole)} with a board missing")
    good = True
    for way, (status, document) in found.items():
        report(way, document)
        s = document["summary"]
        good = good and status == 0 and 0.97 <= s["mean"] <= 1.03 and s["events"] >= o.events
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    if "--events" in sys.argv:
        main()
    harness.main([test_few])
