#!/usr/bin/env python3
"""Runs a live node of config/live on this machine: a simulated F-engine sends packets, the node makes beams
of them and sends those to a receiver, which records them; then the burst is looked for in what arrived. For
the CHORD pathfinder the node keeps what has passed: the burst's voltages are asked for, and formed into a
beam at its position.

usage: live_demo.py [--test] [--device DEVICE] TELESCOPE DIRECTORY

TELESCOPE: chord_pathfinder, hirax or casm. --test: a short one, without a picture. The programs' words go to
DIRECTORY/{node,fengine,receiver}.log. Exit status: 0 when the burst was found where the F-engine put it.
"""
import argparse
import contextlib
import glob
import json
import math
import os
import random
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import yaml

from controller import Controller, time_of_sample_0

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
# In the sources, and in a bundle.
CONFIG = next(d for d in (os.path.join(TOP, "config"), os.path.join(TOP, "share", "beamring", "config"))
              if os.path.isdir(d))
sys.path.insert(0, os.path.join(TOP, "tools", "plots"))
import demo_report  # noqa: E402
import dump_report  # noqa: E402
import live_report  # noqa: E402

EPOCH_NS = 1700000000000000000

# The load of a small machine: the streams that the simulated F-engine sends, fewer beams than the node has,
# near the burst; and for --test short steps and a short field.
NEAR = "frb_beams.beams={grid: [%d, %d], spacing_deg: %g, center: [%g, %g]}"
SETTINGS = {
    "chord_pathfinder": {
        "speed": 0.05,
        "set": ["capture.streams=[0]", NEAR % (8, 8, 0.4, 0, 0)],
        "test": ["frb_grid.integrate=32", NEAR % (4, 4, 0.3, 0.6, -0.9)],
        "history_s": 0.9, "short_history_s": 0.2, "long": {"DURATION": "1.3"},
        "short": {"WIDTH": "0.0015",
                  "DURATION": "0.16", "ARRIVAL": "0.01", "DM": "0.5", "SILENT": "0.04", "SOUND": "0.05"}},
    "hirax": {
        "speed": 0.05,
        "set": ["capture.streams=[0]", NEAR % (8, 8, 0.4, 0, 0)],
        "test": ["frb_grid.integrate=64", "capture.out={name: packets, depth: 12}",
                 NEAR % (4, 4, 0.2, 0.6, -0.9)],
        "short": {"WIDTH": "0.0015",
                  "DURATION": "0.07", "ARRIVAL": "0.01", "DM": "2"}},
    "casm": {
        "speed": 0.1,
        "set": [NEAR % (8, 6, 4, 0, 0)],
        "test": ["frb_grid.integrate=4", NEAR % (5, 3, 4, 4, -4)],
        "short": {"WIDTH": "0.0015",
                  "DURATION": "0.07", "ARRIVAL": "0.01", "DM": "8", "SILENT": "0.04", "SOUND": "0.05"}},
}


def free_port(kind):
    """Below the ports that the kernel gives: no connection of another program gets it meanwhile."""
    while True:
        port = random.randrange(12000, 20000)
        with socket.socket(socket.AF_INET, kind) as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port


class Program:
    """beamring in the background; what it says goes to a file."""

    def __init__(self, directory, name, *args, env=None):
        self.name, self.path = name, os.path.join(directory, name + ".log")
        program = os.environ.get("BEAMRING", os.path.join(TOP, "build", "tools", "beamring"))
        with open(self.path, "w") as log:
            self.process = subprocess.Popen([os.path.abspath(program), *args], stdout=log,
                                            stderr=subprocess.STDOUT, env={**os.environ, **(env or {})})

    def text(self):
        with open(self.path) as f:
            return f.read()

    def trouble(self, what):
        return live_report.Trouble(f"the {self.name} {what}:\n{self.text()[-2000:]}")

    def wait_for(self, words, seconds=180):
        end = time.monotonic() + seconds
        while words not in self.text():
            if self.process.poll() is not None or time.monotonic() > end:
                raise self.trouble(f"did not come to '{words}'")
            time.sleep(0.02)

    def finish(self, seconds, expected=0):
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise self.trouble("does not end") from None
        if status != expected:
            raise self.trouble(f"failed with {status}")

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def node_with_history(telescope, directory, seconds):
    """The node's file with the stage that keeps what has passed; returns its path."""
    config = demo_report.load_config(os.path.join(CONFIG, "live", telescope + ".yaml"))
    config["pipeline"].append({"stage": "dump", "in": {"from": "field", "history": {"seconds": seconds}},
                               "directory": os.path.join(directory, "dumps")})
    path = os.path.join(directory, "node.yaml")
    with open(path, "w") as f:
        yaml.safe_dump(config, f, sort_keys=False)
    return path


class Control:
    """The node's control interface."""

    def __init__(self, port):
        self.port = port

    def ask(self, path, body=None):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body and
                                         json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise live_report.Trouble(f"{path}: {error.read().decode()}") from None

    def wait_for_dump(self, event, seconds=120):
        end = time.monotonic() + seconds
        while True:
            dump = self.ask(f"/v1/dumps?id={event}")["dumps"][0]
            if dump["state"] not in ("waiting", "writing"):
                return dump
            if time.monotonic() > end:
                raise live_report.Trouble(f"the dump does not end: {dump}")
            time.sleep(0.1)


def search(directory, ref, seconds):
    """Looks for the burst in what has been received so far, again and again until it is there."""
    end = time.monotonic() + seconds
    while True:
        found = {"snr": 0}
        try:
            found, _ = live_report.find(live_report.read_received(directory), ref)
        except (live_report.Trouble, ValueError, IndexError, KeyError):
            pass  # too little has come
        if found["snr"] >= live_report.DETECTION + 2:
            return found
        if time.monotonic() > end:
            raise live_report.Trouble(
                f"the burst does not show in the beams: signal to noise {found['snr']:.1f}")
        time.sleep(1)


def dump_burst(control, found, ref):
    """Asks for the burst's voltages, several widths to either side."""
    margin = 8 * found["width"]
    request = {
        "id": 1, "start": {"time_ns": EPOCH_NS + int((found["arrival"] - margin) * 1e9)},
        "duration_s": 2 * margin, "dm": found["dm"], "dm_error": 2 * found["step"], "freq_ref_mhz": ref
    }
    control.ask("/v1/dump", request)
    dump = control.wait_for_dump(1)
    print(f"dump {dump['state']}: {len(dump['channels'])} channels, {dump['bytes'] / 1e6:.0f} MB, "
          f"{100 * dump['missing_samples'] / dump['channel_samples']:.2f} % were not there any more; pinned "
          f"{1e3 * dump['pinned_after_seconds']:.2f} ms after the request")
    if dump["state"] != "done":
        raise live_report.Trouble(f"the burst's voltages were not dumped: {dump}")


def form_beam(telescope, directory, found, device):
    """The dumped voltages in one coherent beam at the burst's position."""
    node = demo_report.load_config(os.path.join(CONFIG, "live", telescope + ".yaml"))
    x, y = (math.sin(math.radians(found[k])) for k in "xy")
    pipeline = {
        "telescope": node["telescope"], "device": device, "pipeline": [{
            "stage": "replay", "files": os.path.join(directory, "dumps", "baseband_1_*.dada"), "out": "field"
        }, {"stage": "baseband_beamform", "in": "field", "out": "beam", "beams": {"directions": [[x, y]]}
            }, {"stage": "record", "in": "beam", "directory": directory, "prefix": "beam", "overwrite": True}]
    }
    path = os.path.join(directory, "beam.yaml")
    with open(path, "w") as f:
        yaml.safe_dump(pipeline, f, sort_keys=False)
    program = Program(directory, "beamformer", "run", path)
    try:
        program.finish(300)
    finally:
        program.end()


def settings(pairs):
    return [word for pair in pairs for word in ("--set", pair)]


def run(telescope, directory, short, device):
    config, how = os.path.join(CONFIG, "live"), SETTINGS[telescope]
    controller = Controller(time_of_sample_0(EPOCH_NS))
    tcp, udp = free_port(socket.SOCK_STREAM), free_port(socket.SOCK_DGRAM)
    history, found = how.get("short_history_s" if short else "history_s", 0), None
    control = Control(free_port(socket.SOCK_STREAM))
    node = [*how["set"], "capture.interfaces=[lo]", f"capture.addresses=127.0.0.1:{udp}",
            "capture.start_sample=0", f"capture.idle_s={120 if history else 3}",
            f"packetize.destinations=[{{address: '127.0.0.1:{tcp}'}}]",
            *(how["test"] if short else []), f"device={device}",
            f"control.listen=127.0.0.1:{control.port}"]
    if telescope != "casm":
        node.append(f"capture.epoch_url={controller.url}")
    fengine = {
        "NODE": f"127.0.0.1:{udp}", "SPEED": str(how["speed"]),
        **(how["short"] if short else how.get("long", {}))
    }
    programs = []
    try:
        def start(name, *args, **more):
            programs.append(Program(directory, name, *args, **more))
            return programs[-1]
        receiver = start("receiver", "receive", "frb-node", f"127.0.0.1:{tcp}", "--until-closed",
                         "--directory", os.path.join(directory, "received"))
        receiver.wait_for("listening")
        file = os.path.join(config, telescope + ".yaml")
        if history:
            file = node_with_history(telescope, directory, history)
        first = start("node", "run", file, *settings(node))
        first.wait_for("listening on port")
        sender = start("fengine", "run", os.path.join(config, telescope + "_fengine.yaml"), env=fengine)
        if history:  # the beams of what the F-engine sends now are looked at already
            ref = float(live_report.burst_of(os.path.join(config, telescope + "_fengine.yaml"),
                                             {**os.environ, **fengine})["at_mhz"])
            found = search(os.path.join(directory, "received"), ref, 300)
            dump_burst(control, found, ref)
        sender.finish(600)
        if history:
            control.ask("/v1/stop", {})
        first.finish(600, 130 if history else 0)
        receiver.finish(60)
    finally:
        for program in programs:
            program.end()
        controller.close()
    return first.text(), {**os.environ, **fengine}, found


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--test", action="store_true")
    parser.add_argument("--device", default="auto")
    parser.add_argument("telescope", choices=sorted(SETTINGS))
    parser.add_argument("directory")
    arguments = parser.parse_args()
    directory = arguments.directory
    os.makedirs(directory, exist_ok=True)
    shutil.rmtree(os.path.join(directory, "received"), ignore_errors=True)
    shutil.rmtree(os.path.join(directory, "dumps"), ignore_errors=True)
    for pattern in ("*.log", "live.png", "dump.png", "beam_*"):
        for path in glob.glob(os.path.join(directory, pattern)):
            os.remove(path)
    try:
        said, env, found = run(arguments.telescope, directory, arguments.test, arguments.device)
        simulation = os.path.join(CONFIG, "live", arguments.telescope + "_fengine.yaml")
        good = live_report.report(simulation, env, os.path.join(directory, "received"), said,
                                  None if arguments.test else os.path.join(directory, "live.png"))
        if found is not None:
            form_beam(arguments.telescope, directory, found, arguments.device)
            burst = live_report.burst_of(simulation, env)
            good &= dump_report.report(directory, found, float(burst["at_mhz"]), float(burst["arrival_s"]),
                                       None if arguments.test else os.path.join(directory, "dump.png"))
    except live_report.Trouble as trouble:
        print(f"live_demo: {trouble}", file=sys.stderr)
        return 2
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
