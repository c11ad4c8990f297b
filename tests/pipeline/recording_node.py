"""A node that records is killed and started again, as the shipped unit for systemd would do it: it records
again under new names, and nothing that was recorded is lost."""
import glob
import os
import re
import shlex
import signal
import socket
import subprocess
import time

import harness
from wires_common import free_port

UNIT = os.path.join(harness.CONFIG, "service", "beamring@.service")
STREAM = """
include: CONFIG/telescopes/pathfinder.yaml
stream: {epoch_ns: 1700000000000000000, sample_ns: 5120, freq_mhz: {first: 400, step: 0.1, count: 96}}
pipeline:
"""
SEND = STREAM + """
  - {stage: simulate, out: e, seed: 3, frame_samples: 1024, duration_s: 20}
  - {stage: packetize, in: e, format: packets, packet: chord-crs, streams: [3, 19],
     destinations: [{address: "127.0.0.1:PORT"}], speed: 0.04}
"""
NODE = STREAM + """
  - {stage: capture, packet: chord-crs, addresses: "127.0.0.1:PORT", streams: [3, 19], frame_samples: 1024,
     sources: [0, 2, 4, 6, 8, 10, 12, 15, 1, 3, 5, 7, 9, 11, 13, 14], values: offset_binary, real: high,
     out: packets}
  - {stage: record, in: packets, directory: "data_{date}", prefix: PREFIX}
"""


class Service:
    """systemd's part: what the unit says about starting and starting again."""

    def __init__(self, directory, text):
        self.directory, self.process, self.path = directory, None, os.path.join(directory, "node.yaml")
        self.write(text)
        self.unit = dict(re.findall(r"^(\w+)=(.*)$", open(UNIT).read(), re.M))
        self.starts = 0

    def write(self, text):
        with open(self.path, "w") as f:
            f.write(text)

    def command(self, key):
        words = self.unit[key].replace("/etc/beamring/%i.yaml", self.path)
        return shlex.split(words.replace("/opt/beamring/bin/beamring", os.path.abspath(harness.PROGRAM)))

    def start(self):
        """A start that ExecStartPre refuses is a failed one. The log goes to a file."""
        self.starts += 1
        with open(os.path.join(self.directory, "log"), "a") as log:
            pre = subprocess.run(self.command("ExecStartPre"), cwd=self.directory, stdout=log, stderr=log,
                                 timeout=60)
            if pre.returncode == 0:
                self.process = subprocess.Popen(self.command("ExecStart"), cwd=self.directory, stdout=log,
                                                stderr=log)
        return pre.returncode == 0

    def log(self):
        return open(os.path.join(self.directory, "log")).read()

    def ended(self):
        """Waits for the end; whether the unit starts it again, after RestartSec."""
        status = self.process.wait(60)
        assert self.unit["Restart"] == "on-failure", self.unit
        prevented = [int(x) for x in self.unit["RestartPreventExitStatus"].split()]
        clean = status in (0, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, -signal.SIGPIPE)
        if clean or status in prevented:
            return False
        time.sleep(float(self.unit["RestartSec"]))
        return True


def recorded(d, names="data_*/*_000000.dada"):
    """Recordings that hold data, and their bytes."""
    found = {}
    for path in glob.glob(os.path.join(d, names)):
        if os.path.getsize(path) > 8192:
            found[path] = open(path, "rb").read()
    return found


def wait_for(condition, node, seconds=60):
    end = time.time() + seconds
    while not condition():
        assert time.time() < end and node.process.poll() is None, node.log()
        time.sleep(0.02)


class Sending:
    """An F-engine that does not stop, whatever becomes of the node."""

    def __init__(self, d, port):
        with open(os.path.join(d, "send.yaml"), "w") as f:
            f.write(SEND.replace("CONFIG", harness.CONFIG).replace("PORT", str(port)))
        words = [os.path.abspath(harness.PROGRAM), "run", "send.yaml", "--quiet"]
        self.process = subprocess.Popen(words, cwd=d, stdout=subprocess.DEVNULL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def text(port, prefix):
    return NODE.replace("CONFIG", harness.CONFIG).replace("PORT", str(port)).replace("PREFIX", prefix)


def test_killed():
    port = free_port(socket.SOCK_DGRAM)
    with harness.scratch() as d, Sending(d, port):
        node = Service(d, text(port, '"e_{start}"'))
        assert node.start()
        wait_for(lambda: recorded(d), node)
        node.process.kill()
        node.process.wait()
        killed, kept = time.time(), recorded(d)
        assert node.ended() and node.start()
        wait_for(lambda: len(recorded(d)) > len(kept), node)
        print(f"{time.time() - killed:.2f} s from SIGKILL to data in a new recording")
        now = recorded(d)
        assert all(now[path] == was for path, was in kept.items()), (sorted(now), sorted(kept))
        node.process.terminate()
        assert not node.ended() and node.process.returncode == 0, node.log()
        for path in recorded(d):
            start = re.search(r"data_20231114/e_(20231114T22\d{4}\.\d{3}Z)_000000.dada$", path)
            keys, _ = harness.header(path)
            ns = 1700000000000000000 + int(keys["SAMPLE0"]) * 5120
            utc = time.strftime("%Y%m%dT%H%M%S", time.gmtime(ns // 10**9)) + f".{ns // 10**6 % 1000:03d}Z"
            assert start and start[1] == utc, (path, utc)
        assert len(recorded(d)) == 2, os.listdir(d)


def test_an_output_that_exists():
    """It is not the file that is wrong: the unit tries again, and the node starts once it is moved away."""
    port = free_port(socket.SOCK_DGRAM)
    with harness.scratch() as d, Sending(d, port):
        node = Service(d, text(port, "e").replace("data_{date}", "data_x"))
        assert node.start()
        wait_for(lambda: recorded(d), node)
        node.process.kill()
        assert node.ended() and node.start()
        before = recorded(d)
        assert node.ended() and node.process.returncode == 1, node.log()
        assert "e_000000.dada" in node.log() and "{start}" in node.log(), node.log()
        assert recorded(d) == before
        os.rename(os.path.join(d, "data_x"), os.path.join(d, "old"))
        assert node.start()
        wait_for(lambda: recorded(d), node)
        node.process.terminate()
        assert not node.ended()


def test_a_wrong_file():
    with harness.scratch() as d:
        node = Service(d, text(1, "e").replace("frame_samples", "frame_sampels"))
        assert not node.start(), node.log()
        assert "frame_sampels" in node.log()
        node.process = subprocess.Popen(node.command("ExecStart"), cwd=d, stderr=subprocess.DEVNULL)
        assert not node.ended() and node.process.returncode == 2


def test_placeholders():
    """{run} is the same in all stages; what cannot be a name is said."""
    beams = """
  - {stage: frb_grid, in: e, out: grid, integrate: 16}
  - {stage: frb_beams, in: grid, out: beams, beams: {grid: [2, 2], spacing_deg: 1}}
  - {stage: quantize, in: beams, out: levels, bits: 8}
  - {stage: filterbank, in: levels, directory: "{run}", prefix: "b_{start}_"}
  - {stage: record, name: v, in: e, format: vdif, lossy: true, directory: "{run}", prefix: "v_{start}"}
  - {stage: record, in: e, directory: "{run}", prefix: "e"}
  - {stage: correlate, in: e, out: v, integrate: 1024}
  - {stage: uvh5, in: v, directory: "{run}", prefix: "vis_{date}"}
"""
    simulate = STREAM.replace("CONFIG", harness.CONFIG).replace(
        "pipeline:", "pipeline:\n  - {stage: simulate, out: e, samples: 8192, frame_samples: 1024}")
    simulate = simulate.replace("sample_ns: 5120", "sample_ns: 10000").replace("count: 96", "count: 4")
    with harness.scratch() as d:
        harness.run(d, simulate + beams)
        runs = glob.glob(os.path.join(d, "*Z"))
        assert len(runs) == 1 and re.search(r"/20\d{6}T\d{6}\.\d{3}Z$", runs[0]), os.listdir(d)
        names = os.listdir(runs[0])
        for name in ("b_20231114T221320.000Z_0000.fil", "b_20231114T221320.000Z_s.csv",
                     "v_20231114T221320.000Z_0000000.vdif", "e_000000.dada", "vis_20231114_000000.uvh5"):
            assert name in names, (name, names)
        harness.run(d, simulate + beams)  # another run has another {run}
        assert len(glob.glob(os.path.join(d, "*Z"))) == 2
        same = simulate + '  - {stage: record, in: e, prefix: "x_{start}"}\n'
        harness.run(d, same)
        again = harness.run(d, same, status=1)  # the first sample has the same time: nothing is overwritten
        assert re.search("x_20231114T221320.000Z_000000.dada.* exists and would be lost", again.err), again
        for wrong, words in (('prefix: "{strat}"', "expected {start}, {date} or {run}"),
                             ('prefix: "x_{start}", overwrite: true', "names of its own")):
            said = harness.run(d, simulate + "  - {stage: record, in: e, " + wrong + "}\n", status=2).err
            assert words in said, said
        said = harness.run(d, simulate + "  - {stage: dump, in: {from: e, history: {seconds: 0.01}}, "
                           'directory: "{date}"}\n', status=2).err
        assert "which this stage does not replace" in said, said


if __name__ == "__main__":
    harness.main([test_killed, test_an_output_that_exists, test_a_wrong_file,
                  test_placeholders])
