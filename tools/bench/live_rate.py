"""The highest rate of packets that a whole node takes without loss, and what limits it: packets -> capture
-> unpack -> both beam chains, on this machine, with a sender on the loopback interface.

  live_rate.py [--build build-cuda|BUNDLE] [--device cuda:0] [--node chord|small] [--backend auto] [--ways 4]
               [--senders 4] [--seconds 6] [--start 0.1] [--steps 4]

A node of CHORD is 48 channels of 512 dishes (128 boards of 8 inputs): at its real rate one port, 1.5625
million packets a second. Rates are parts of the real one. Each try starts the node anew, sends with a
ramp of 2 s, and asks /v1/status meanwhile who holds the pipeline up. The rate is doubled until something
is lost, then halved in between `--steps` times; what was found is held once more, four times as long."""
import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

PORT, CONTROL, RAMP = 4000, 8099, 2
NODES = {
    # name: (boards, streams, telescope, frame_samples, FRB beams, voltage beams)
    "chord": (128, [0], "chord", 8192, 32, "[8, 12]"),
    "small": (16, [0], "pathfinder", 2048, 4, "[2, 2]"),
}


def places(a):
    """The program, the sender and the environment, of a build or of a bundle (tools/bundle)."""
    build = os.path.abspath(a.build)
    if os.path.exists(os.path.join(build, "bin", "beamring")):
        config, plugins = os.path.join(build, "share", "beamring", "config"), "tests/plugins"
        program, flood = "bin/beamring", "tests/packet_flood"
    else:
        here = os.path.dirname(os.path.abspath(__file__))
        config = os.path.abspath(os.path.join(here, "..", "..", "config"))
        program, flood, plugins = "tools/beamring", "tools/packet_flood", "tests/runtime"
    environment = {**os.environ, "BEAMRING_PLUGIN_PATH": os.path.join(build, plugins),
                   "BEAMRING_CONFIG_PATH": config}
    if program == "bin/beamring":
        environment["LD_LIBRARY_PATH"] = os.path.join(build, "lib")
    return os.path.join(build, program), os.path.join(build, flood), environment, config


def node(a):
    boards, streams, telescope, frame, side, voltages = NODES[a.node]
    config = places(a)[3]
    addresses = ", ".join(f'"127.0.0.1:{PORT + k}"' for k in range(a.ways))
    spacing = "0.12" if a.node == "chord" else "0.25"
    return f"""
include: {config}/telescopes/{telescope}.yaml
device: {a.device}
control: {{listen: "127.0.0.1:{CONTROL}"}}
stream: {{epoch_ns: 1700000000000000000}}
pipeline:
  - {{stage: capture, packet: chord-crs, sources: {list(range(boards))}, streams: {streams}, interfaces: [lo],
     addresses: [{addresses}], backend: {a.backend}, frame_samples: {frame}, start_sample: 0, idle_s: 2,
     receive_buffer: {a.buffer << 20}, out: packets}}
  - {{stage: unpack, in: packets, out: field}}
  - {{stage: upchannelize, in: field, out: fine, factor: 16}}
  - {{stage: frb_grid, in: fine, out: grid, integrate: 192}}
  - {{stage: frb_beams, in: grid, out: beams, beams: {{grid: [{side}, {side}], spacing_deg: {spacing}}}}}
  - {{stage: quantize, in: beams, out: levels, bits: 4, block: 256}}
  - {{stage: t_sink, name: levels_end, in: levels, check: false}}
  - {{stage: baseband_beamform, in: field, out: voltage, beams: {{grid: {voltages}, spacing_deg: 0.1}}}}
  - {{stage: t_sink, name: voltage_end, in: voltage, check: false}}
"""


def status():
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{CONTROL}/v1/status", timeout=2) as answer:
            return json.load(answer)
    except (OSError, ValueError):
        return None


def counts(text):
    said = re.search(r"capture: (\d+) packets: (.*); (\d+) never came, of which the kernel lost (\d+)", text)
    if said is None:
        return None
    found = {reason: int(n) for n, reason in re.findall(r"(\d+) (\w+)", said.group(2))}
    return {**found, "never came": int(said.group(3)), "kernel": int(said.group(4))}


def attempt(a, rate, seconds):
    """Packets sent, what became of them, what the status said meanwhile, and what the stages did."""
    boards, streams, *_ = NODES[a.node]
    with tempfile.TemporaryDirectory(prefix="beamring-") as d:
        with open(os.path.join(d, "node.yaml"), "w") as f:
            f.write(node(a))
        program, flood, environment, _ = places(a)
        log, stats = os.path.join(d, "log"), os.path.join(d, "stats.json")
        with open(log, "w") as err:
            words = [program, "run", "node.yaml", "--stats", stats]
            run = subprocess.Popen(words, cwd=d, env=environment, stderr=err, stdout=subprocess.DEVNULL)
        while "listening on port" not in open(log).read():
            if run.poll() is not None:
                sys.exit(open(log).read())
            time.sleep(0.05)
        words = [
            flood, "chord-crs", f"127.0.0.1:{PORT}", str(a.ways),
            ",".join(map(str, range(boards))), ",".join(map(str, streams)), str(rate), str(seconds + RAMP),
            str(RAMP), str(min(a.senders, boards))
        ]
        sender = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
        said = []
        time.sleep(RAMP)
        while sender.poll() is None:
            now = status()
            if now is not None:
                said.append(now)
            time.sleep(0.5)
        sent, took = re.match(r"(\d+) packets in ([\d.]+) s", sender.stdout.read()).groups()
        try:
            run.wait(60)
        except subprocess.TimeoutExpired:
            run.send_signal(signal.SIGINT)
            run.wait(60)
        text = open(log).read()
        return int(sent), float(took), counts(text), said, json.load(open(stats))["stages"], text


def report(a, part, result, verbose=False):
    sent, took, became, said, stages, text = result
    if became is None:
        sys.exit(text)
    lost = sent - became["accepted"]
    reached = sent / (took - RAMP / 2)
    way = re.search(r"with `(\w+)`", text).group(1)
    sentence = next((s.get("sentence") or s.get("text") or "" for s in reversed(said)), "")
    print(
        f"{part:6.3f} of the real rate wanted, {reached / 1e3:8.1f} k packets/s sent "
        f"({reached * 6144 / 1e9:.2f} GB/s, `{way}`): {lost} of {sent} lost (kernel "
        f"{became['kernel']}, no_frame {became['no_frame']}, behind {became['behind']}, "
        f"late {became['late']}); {sentence}", flush=True)
    if verbose or lost:
        for s in stages:
            print(f"        {s['name']:20} busy {s['busy_s']:7.2f} s, CPU {s['cpu_s']:7.2f}, waits for input "
                  f"{s['wait_in_s']:7.2f}, for output {s['wait_out_s']:7.2f}, GPU {s.get('gpu_s') or 0:7.2f}")
    return lost, reached


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build-cuda")
    p.add_argument("--device", default="cuda:0")
    p.add_argument("--node", choices=NODES, default="chord")
    p.add_argument("--backend", default="auto")
    p.add_argument("--ways", type=int, default=4, help="ports, each with a receiving thread")
    p.add_argument("--senders", type=int, default=4, help="sending threads")
    p.add_argument("--buffer", type=int, default=256, help="MiB of the kernel, for each receiving thread")
    p.add_argument("--seconds", type=float, default=6)
    p.add_argument("--start", type=float, default=0.1, help="first rate, part of the real one")
    p.add_argument("--most", type=float, default=1.2, help="last rate, part of the real one")
    p.add_argument("--steps", type=int, default=4)
    a = p.parse_args()
    boards, streams, *_ = NODES[a.node]
    real = boards * len(streams) * 1e9 / 5120 / 16
    print(
        f"{a.node}: {boards} boards, {len(streams)} streams; its real rate is {real / 1e6:.4f} million "
        f"packets/s; `{a.backend}`, {a.ways} receiving and {a.senders} sending threads, "
        f"{os.cpu_count()} processors"
    )
    good, bad, part = 0.0, None, a.start
    while bad is None and good < a.most:
        lost, reached = report(a, part, attempt(a, part * real, a.seconds))
        if lost:
            bad = part
        elif reached < 0.9 * part * real:
            print("        the sender can no more: this is its limit, not the node's")
            good = reached / real
            break
        else:
            good, part = part, min(2 * part, a.most)
    for _ in range(a.steps if bad is not None else 0):
        part = (good + bad) / 2
        lost, reached = report(a, part, attempt(a, part * real, a.seconds))
        if lost:
            bad = part
        elif reached < 0.9 * part * real:
            good = reached / real
            break
        else:
            good = part
    if good == 0:
        print("nothing without loss")
        return 1
    print("held:")
    lost, reached = report(a, good, attempt(a, good * real, 4 * a.seconds), verbose=True)
    print(f"{'0 lost' if not lost else 'LOST ' + str(lost)} at {reached / 1e6:.4f} million packets/s, "
          f"{reached / real:.3f} of the real rate")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
