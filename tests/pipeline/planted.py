"""Causes that are planted: the status of the node names the stage and the cause. How soon is printed. A slow
stage on a GPU is planted in tests/runtime/control/test_verdict.c and tests/gpu/control.py."""
import os
import socket
import sys
import threading
import time

import numpy as np

import harness
from capture_common import free_port, packets, Sender
from control_common import ENDLESS, node

SLOW_DISK = os.environ.get("BEAMRING_SLOW_DISK", "build/tests/pipeline/libslow_disk.so")
RECORD = """pipeline:
  - {stage: t_source, samples: 100000000000, frame_samples: 4096, out: bytes}
  - {stage: record, in: bytes, directory: out, prefix: bytes}
"""
FRAME = 64
CAPTURE = """
stream:
  epoch_ns: 1700000000000000000
  sample_ns: 2560
  freq_mhz: {{first: 400, step: 0.1, count: {channels}}}
pipeline:
  - stage: capture
    packet: chord-crs
    addresses: "127.0.0.1:{port}"
    sources: {sources}
    streams: {streams}
    frame_samples: {frame}
    start_sample: 0
    backend: socket
    out: packets
  - {{stage: t_sink, check: false, in: packets}}
"""


def blamed(n, stage, kind, words, seconds=30):
    """Waits until the status blames the stage in these words; prints how long that took."""
    begin = time.time()

    def is_it(status):
        held = status["held_up"]
        return held and held["stage"] == stage and held["kind"] in kind and words in held["cause"]

    status = n.wait_until(is_it, seconds, f"'{stage}' {kind} '{words}'")
    print(f"{time.time() - begin:.2f} s: {status['sentence']}")
    return status


def test_slow_sink():
    with node(ENDLESS) as n:
        status = blamed(n, "slow", ["limits"], "it takes ")
        assert status["held_up"]["queue"] == "passed", status["held_up"]
        assert "queue 'passed' before it is full" in status["sentence"], status["sentence"]
        states = {q["name"]: q["state"] for q in status["graph"]["queues"]}
        assert states["passed"] == "full", states
        n.end()


def test_slow_disk():
    env = {"LD_PRELOAD": os.path.abspath(SLOW_DISK), "SLOW_DISK_MS": "30"}
    with node(RECORD, env=env) as n:
        status = blamed(n, "record", ["limits"], "it waits for the disk")
        assert "record limits the pipeline: it waits for the disk" in status["sentence"]
        n.end()
    env["SLOW_DISK_MS"] = "4000"
    with node(RECORD, env=env) as n:
        blamed(n, "record", ["holds"], "it has waited for the disk for")
        n.process.kill()


def test_full_disk():
    env = {"LD_PRELOAD": os.path.abspath(SLOW_DISK), "FULL_DISK_BYTES": "1000000"}
    with node(RECORD, command="serve", env=env) as n:
        status = n.wait_until(lambda s: s["state"] == "failed", what="the failure")
        held = status["held_up"]
        assert held["stage"] == "record" and held["kind"] == "failed", held
        assert "No space left on device" in held["cause"], held
        assert "record" in status["sentence"] and "No space left on device" in status["sentence"], status
        n.end(status=1)


def test_dead_peer():
    """A receiver that is not there, and one that takes nothing."""
    text = """
telescope: {name: t, grid: {m: 2, n: 2}, spacing_m: {m: 6, n: 6}, dishes: [[0, 0], [0, 1], [1, 0], [1, 1]]}
stream: {epoch_ns: 1700000000000000000, sample_ns: 5120, freq_mhz: {first: 400, step: 0.1, count: 2}}
pipeline:
  - {stage: simulate, duration_s: 100000, frame_samples: 4096, out: field}
  - {stage: packetize, in: field, format: kotekan, connect_s: 0.2, stall_s: 100,
     destinations: [{address: "127.0.0.1:PORT"}]}
"""
    with node(text.replace("PORT", str(free_port()))) as n:
        blamed(n, "packetize", ["trouble"], "is not there")
        status = blamed(n, "packetize", ["trouble"], "no_destination")
        assert n.stage("packetize", status)["trouble"].endswith("is not there")
        n.end()
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        with node(text.replace("PORT", str(deaf.getsockname()[1]))) as n:
            peer, _ = deaf.accept()
            blamed(n, "packetize", ["holds", "limits"], "a receiver that reads too slowly")
            peer.close()
            n.process.kill()


class FEngine:
    """Sends packets of zeros at a quiet pace until it is told to fall silent, or one of its boards is."""

    def __init__(self, port):
        self.boards, self.port, self.silent = packets.ChordCrs(), port, set()
        self.text = CAPTURE.format(port=port, channels=len(self.boards.channel_ids()), frame=FRAME,
                                   sources=list(self.boards.sources), streams=list(self.boards.streams))
        threading.Thread(target=self._send, daemon=True).start()

    def _send(self):
        raw, sender, first = np.zeros(self.boards.shape(FRAME), np.uint8), Sender(self.port), 0
        while True:
            for source, _, _, packet in self.boards.packets(raw, first):
                if source not in self.silent:
                    sender.send(packet)
            first += FRAME
            time.sleep(0.05)


def test_dead_source_and_missing_board():
    port = free_port(socket.SOCK_DGRAM)
    with node(CAPTURE.format(port=port, channels=2 * 48, frame=FRAME, sources=[0], streams=[0, 1])) as n:
        status = blamed(n, "capture", ["no_data"], "it waits for packets: none come")
        assert "source capture has given nothing yet" in status["sentence"], status["sentence"]
        assert n.get("/-/ready").code == 503 and n.get("/-/healthy").code == 200
        n.end()
    engine = FEngine(free_port(socket.SOCK_DGRAM))
    with node(engine.text) as n:
        n.wait_until(lambda s: s["ready"] and not s["held_up"], what="data")
        gone = engine.boards.sources[1]
        engine.silent.add(gone)
        count = len(engine.boards.sources)
        blamed(n, "capture", ["trouble"], f"1 of {count} sources send nothing: source {gone}")
        engine.silent.clear()
        n.wait_until(lambda s: not s["held_up"], what="the board's return")
        engine.silent.update(engine.boards.sources)
        status = blamed(n, "capture", ["no_data"], "it waits for packets: none come")
        assert "source capture has given nothing for" in status["sentence"], status["sentence"]
        n.end()


if __name__ == "__main__":
    if not os.path.exists(SLOW_DISK):
        print(f"there is no {SLOW_DISK}")
        sys.exit(1)
    harness.main([test_slow_sink, test_slow_disk, test_full_disk, test_dead_peer,
                  test_dead_source_and_missing_board])
