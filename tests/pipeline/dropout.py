"""Boards that drop out and come back: in the beams of noise nothing looks like a pulse, since the share of
the inputs goes through the chain with the samples; without it, the search finds the drop-outs."""
import glob
import os
import struct
import sys

import numpy as np

import harness
from capture_common import ip_udp

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "plots"))
import demo_report  # noqa: E402

BOARDS, INPUTS, CHANNELS, PACKET = 16, 8, 16, 16
SAMPLES, FRAME = 26624, 2048
DESCRIPTION = """
bytes: 2064
fields:
  seq: {offset: 0, bytes: 8}
  board: {offset: 8, bytes: 2}
  stream: {offset: 10, bytes: 2}
sequence: {fields: seq}
source: {fields: board}
stream: {fields: stream}
payload: {offset: 16, axes: [freq, time, input], lengths: [16, 16, 8]}
coding: {values: twos_complement, real: low}
sample_ns: 5120
freq_mhz: {first: 400, step: 0.1953125}
sources: {first: 0, step: 1, count: 16}
streams: {first: 0, step: 1, count: 1}
"""
# Boards that are gone, from which packet to which one: for long, for a moment, and more than half of them.
GONE = [((3,), 300, 420), ((5,), 700, 712), ((0, 1), 900, 1000), (tuple(range(9)), 1200, 1230)]

CHAIN = """
include: %s/telescopes/pathfinder.yaml
pipeline:
  - {stage: replay, files: "e_*.dada", out: field}
  - {stage: upchannelize, in: field, out: fine, factor: 16}
  - {stage: frb_grid, in: fine, out: grid, integrate: 48}
  - {stage: frb_beams, in: grid, out: beams, beams: {grid: [4, 4], spacing_deg: 0.5}}
  - {stage: quantize, in: beams, out: levels, bits: 8}
  - {stage: filterbank, in: levels, directory: out, overwrite: true}
"""


def write_packets(path):
    """Noise of rms 2 in every component, less the packets of boards that are gone."""
    rng = np.random.default_rng(18)
    table = np.clip(np.rint(2 * np.sqrt(2) * inverse_error(np.linspace(-1, 1, 258)[1:-1])), -7, 7).astype(int)
    blocks = SAMPLES // PACKET
    payload = np.zeros((blocks, BOARDS, 2048), np.uint8)
    for part, shift in ((table, 0), (table, 4)):
        nibble = ((part & 15) << shift).astype(np.uint8)
        payload |= nibble[rng.integers(0, 256, payload.shape, np.uint8)]
    head = np.frombuffer(struct.pack("<IIII", 1700000000, 0, 14 + 28 + 2064, 14 + 28 + 2064) + bytes(12) +
                         b"\x08\x00" + ip_udp(bytes(2064)), np.uint8)
    frames = np.broadcast_to(head, (blocks, BOARDS, head.size)).copy()
    at = head.size - 2064
    frames[:, :, at:at + 8] = (np.arange(blocks) * PACKET).astype(">u8").view(np.uint8).reshape(-1, 1, 8)
    frames[:, :, at + 8:at + 10] = np.arange(BOARDS).astype(">u2").view(np.uint8).reshape(1, -1, 2)
    frames[:, :, at + 16:] = payload
    there = np.ones((blocks, BOARDS), bool)
    for boards, first, end in GONE:
        there[first:end, list(boards)] = False
    with open(path, "wb") as f:
        f.write(struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1) + frames[there].tobytes())


def inverse_error(p):
    """erf's inverse by Newton's method."""
    from math import erf
    x = np.zeros_like(p)
    for _ in range(60):
        step = (np.vectorize(erf)(x) - p) * np.sqrt(np.pi) / 2 * np.exp(x * x)
        x -= np.clip(step, -0.5, 0.5)
    return x


def strongest(directory):
    header, freq, data = demo_report.read_beams(os.path.join(directory, "out"))
    # A board that goes is a dip.
    return max(demo_report.search(freq, header["tsamp"], sign * data, freq.max())[0][0]
               for sign in (1, -1)), data


def test_a_board_that_drops_out_is_no_pulse():
    with harness.scratch() as d:
        write_packets(os.path.join(d, "boards.cap"))
        with open(os.path.join(d, "boards.yaml"), "w") as f:
            f.write(DESCRIPTION)
        harness.run(d, f"""
include: {harness.CONFIG}/telescopes/pathfinder.yaml
stream: {{epoch_ns: 1700000000000000000, sample_ns: 5120}}
pipeline:
  - {{stage: replay, files: boards.cap, packet: ./boards.yaml, frame_samples: {FRAME}, out: packets}}
  - {{stage: unpack, in: packets, out: e}}
  - {{stage: record, in: e, directory: ., prefix: e}}
""")
        harness.run(d, CHAIN % harness.CONFIG)
        snr, data = strongest(d)
        # The files' verdict on each step: complete, the share of the boards, or masked below one half.
        gaps, = glob.glob(os.path.join(d, "out", "*.gaps"))
        share = harness.read_gaps(gaps[:-len(".gaps")], 0, data.shape[2], data.shape[0], 1)
        for boards, first, end in GONE:
            inner = share[first // 3 + 2:end // 3 - 1]
            want = round(255 * (1 - len(boards) / 16)) if len(boards) < 8 else 0
            assert inner.size and (inner == want).all(), boards
        assert (share == 0).all(axis=1).sum() < 12 and (share == 255).all(axis=1).sum() > 400
        gaps, = glob.glob(os.path.join(d, "e_*.gaps"))
        os.remove(gaps)
        harness.run(d, CHAIN % harness.CONFIG)
        without, _ = strongest(d)
        print(f"strongest: {snr:.1f} sigma; {without:.1f} if nobody says that boards were gone")
        assert snr < 6, snr
        assert without > 8, without


if __name__ == "__main__":
    harness.main([test_a_board_that_drops_out_is_no_pulse])
