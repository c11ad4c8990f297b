#!/usr/bin/env python3
"""Runs a live node of config/live on this machine: a simulated F-engine sends packets, the node makes beams
of them and sends those to a receiver, which records them; then the burst is looked for in what arrived.

usage: live_demo.py [--test] [--device DEVICE] TELESCOPE DIRECTORY

TELESCOPE: chord_pathfinder, hirax or casm. --test: a short one, without a picture. The programs' words go to
DIRECTORY/{node,fengine,receiver}.log. Exit status: 0 when the burst was found where the F-engine put it.
"""
import argparse
import glob
import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
# In the sources, and in a bundle.
CONFIG = next(d for d in (os.path.join(TOP, "config"), os.path.join(TOP, "share", "beamring", "config"))
              if os.path.isdir(d))
sys.path.insert(0, os.path.join(TOP, "tools", "plots"))
import live_report  # noqa: E402

EPOCH_NS = 1700000000000000000

# What a small machine can do: the streams that the simulated F-engine sends, fewer beams than the node has,
# near the burst; and for --test short steps and a short field.
NEAR = "frb_beams.beams={grid: [%d, %d], spacing_deg: %g, center: [%g, %g]}"
SETTINGS = {
    "chord_pathfinder": {
        "speed": 0.05,
        "set": ["capture.streams=[0]", NEAR % (8, 8, 0.4, 0, 0)],
        "test": ["frb_grid.integrate=32", NEAR % (4, 4, 0.3, 0.6, -0.9)],
        "short": {"WIDTH": "0.0015",
                  "DURATION": "0.06", "ARRIVAL": "0.01", "DM": "0.5", "SILENT": "0.04", "SOUND": "0.05"}},
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


class Controller(http.server.BaseHTTPRequestHandler):
    """What the F-engine's controller answers: the time of sample 0."""

    def do_GET(self):
        body = json.dumps({"frame0_nano": EPOCH_NS}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def free_port(kind):
    with socket.socket(socket.AF_INET, kind) as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


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

    def wait_for(self, words, seconds=60):
        end = time.monotonic() + seconds
        while words not in self.text():
            if self.process.poll() is not None or time.monotonic() > end:
                raise self.trouble(f"did not come to '{words}'")
            time.sleep(0.02)

    def finish(self, seconds):
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise self.trouble("does not end") from None
        if status != 0:
            raise self.trouble(f"failed with {status}")

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def settings(pairs):
    return [word for pair in pairs for word in ("--set", pair)]


def run(telescope, directory, short, device):
    config, how = os.path.join(CONFIG, "live"), SETTINGS[telescope]
    controller = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Controller)
    threading.Thread(target=controller.serve_forever, daemon=True).start()
    tcp, udp = free_port(socket.SOCK_STREAM), free_port(socket.SOCK_DGRAM)
    node = [*how["set"], "capture.interfaces=[lo]", f"capture.addresses=127.0.0.1:{udp}",
            "capture.start_sample=0", "capture.idle_s=3",
            f"packetize.destinations=[{{address: '127.0.0.1:{tcp}'}}]",
            *(how["test"] if short else []), f"device={device}",
            f"control.listen=127.0.0.1:{free_port(socket.SOCK_STREAM)}"]
    if telescope != "casm":
        node.append(f"capture.epoch_url=http://127.0.0.1:{controller.server_port}/get-frame0-time")
    fengine = {"NODE": f"127.0.0.1:{udp}", "SPEED": str(how["speed"]), **(how["short"] if short else {})}
    programs = []
    try:
        def start(name, *args, **more):
            programs.append(Program(directory, name, *args, **more))
            return programs[-1]
        receiver = start("receiver", "receive", "frb-node", f"127.0.0.1:{tcp}", "--until-closed",
                         "--directory", os.path.join(directory, "received"))
        receiver.wait_for("listening")
        first = start("node", "run", os.path.join(config, telescope + ".yaml"), *settings(node))
        first.wait_for("listening on port")
        start("fengine", "run", os.path.join(config, telescope + "_fengine.yaml"), env=fengine).finish(600)
        first.finish(600)
        receiver.finish(60)
    finally:
        for program in programs:
            program.end()
        controller.shutdown()
    return first.text(), {**os.environ, **fengine}


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
    for path in glob.glob(os.path.join(directory, "*.log")) + glob.glob(os.path.join(directory, "live.png")):
        os.remove(path)
    try:
        said, env = run(arguments.telescope, directory, arguments.test, arguments.device)
        simulation = os.path.join(CONFIG, "live", arguments.telescope + "_fengine.yaml")
        good = live_report.report(simulation, env, os.path.join(directory, "received"), said,
                                  None if arguments.test else os.path.join(directory, "live.png"))
    except live_report.Trouble as trouble:
        print(f"live_demo: {trouble}", file=sys.stderr)
        return 2
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
