"""The F-engine of the soak: boards that send packets in real time (boards.c), what they send, and their
ledger of every packet of every board: sent, or why not.

SOAK_NODE says how large it is: `small` for two processors, `chord` for a node of CHORD."""
import json
import os
import subprocess

import numpy as np

import harness

SIZE = os.environ.get("SOAK_NODE", "small")
CHORD = SIZE == "chord"
BOARDS, CHANNELS, INPUTS, SAMPLES, SAMPLE_NS, FRAME, THREADS, BUNDLE = \
    (128, 48, 8, 16, 5120, 8192, 8, 8) if CHORD else (8, 4, 4, 64, 40960, 4096, 1, 1)
SLOT_NS = SAMPLES * SAMPLE_NS  # of one packet of a board
BITS = None if CHORD else 22  # of the counter, which counts samples: it begins again after 172 s
PORT = 4000  # and the next ones, one for each of THREADS
PAYLOAD = CHANNELS * SAMPLES * INPUTS
DESCRIPTION = f"""
bytes: {8 + PAYLOAD}
fields:
  seq: {{offset: 0, bytes: 4}}
  board: {{offset: 4, bytes: 2}}
  protocol: {{offset: 6, bytes: 2, equals: 0x50AC}}
sequence: {{fields: seq, bits: {BITS}}}
source: {{fields: board}}
payload: {{offset: 8, axes: [freq, time, input], lengths: [{CHANNELS}, {SAMPLES}, {INPUTS}]}}
coding: {{values: twos_complement, real: low}}
sample_ns: {SAMPLE_NS}
freq_mhz: {{first: 400, step: 0.0244140625}}
sources: {{first: 0, step: 1, count: {BOARDS}}}
streams: {{first: 0, step: 1, count: 1}}
"""
# The ledger's marks of a slot of a board.
SENT, DEAD, LOST, TWIN = 1, 2, 4, 8
TABLE = 2039 if CHORD else 251
RMS = 2 if CHORD else 2.5  # levels


def payloads():
    """[TABLE][channel][sample][input]: noise of rms RMS levels in each component; two's complement, the real
    part in the low nibble."""
    rng = np.random.default_rng(7)
    level = np.clip(np.rint(rng.normal(0, RMS, (2, TABLE, CHANNELS, SAMPLES, INPUTS))), -7, 7).astype(np.int8)
    return (level[0].view(np.uint8) & 15) | (level[1].view(np.uint8) << 4)


def which_payload(slot, board):
    """The row of payloads() that a board sends in a slot: boards.c has the same."""
    return (slot * 31 + board * 97 + slot // TABLE * 13) % TABLE


class Boards:
    """The program that sends, in `directory`: from the slot that is now until end()."""

    def __init__(self, directory, epoch_ns, slots, seed):
        table = payloads()
        if CHORD:  # offset binary, the real part in the high nibble
            table = (table >> 4 | table << 4) ^ 0x88
        self.ledger, self.slots = os.path.join(directory, "sent"), slots
        table.tofile(os.path.join(directory, "payloads"))
        description = os.path.join(harness.CONFIG, "packets", "chord-crs.yaml") if CHORD else \
            os.path.join(directory, "board.yaml")
        words = [os.environ["SOAK_BOARDS"], description, os.path.join(directory, "payloads"), TABLE,
                 self.ledger, BOARDS, THREADS, BUNDLE, PORT, epoch_ns, slots, FRAME // SAMPLES, seed]
        self.process = subprocess.Popen(list(map(str, words)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def order(self, **orders):
        for word, value in orders.items():
            numbers = value if isinstance(value, list) else [value]
            self.process.stdin.write(" ".join([word, *(f"{n:.17g}" for n in numbers)]) + "\n")
        self.process.stdin.flush()

    def end(self, seconds):
        said, _ = self.process.communicate(timeout=seconds)
        said = json.loads(said)
        self.start, self.stop, self.count, self.latest = (said[k] for k in
                                                              ("start", "end", "count", "latest"))
        self.packets = sum(self.count[k] for k in ("genuine", "copies", "twins", "noise"))
        self.state = np.memmap(self.ledger, np.uint8, "r", shape=(BOARDS, self.slots))
