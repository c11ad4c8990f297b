"""The F-engine of the soak: eight boards that send packets in real time, and what happens to packets on the
way. It keeps a ledger of its own, of every packet of every board: sent, or why not.

usage: boards.py LEDGER.npz EPOCH_NS SLOTS SEED   (orders come as JSON lines on stdin; it ends with it)

A slot is the time of one packet, SLOT_NS; slot n begins at EPOCH_NS + n SLOT_NS, whatever the counters of the
boards say meanwhile. Orders: {"dead": [board, ...]}, {"loss": share, "burst": packets}, {"reorder": packets},
{"late": share}, {"duplicate": share}, {"near": true}, {"far": true}, {"noise": share},
{"begin_again": slot}: the counters are 0 there.
"""
import json
import os
import select
import socket
import struct
import sys
import time

import numpy as np

BOARDS, CHANNELS, INPUTS, SAMPLES = 8, 4, 4, 64
SAMPLE_NS = 40960
SLOT_NS = SAMPLES * SAMPLE_NS
BITS = 22  # of the counter, which counts samples: it begins again after 172 s
PORT = 4000
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
TABLE = 251


def payloads():
    """[TABLE][channel][sample][input]: noise of rms 2.5 levels in each component; two's complement, the real
    part in the low nibble."""
    rng = np.random.default_rng(7)
    level = np.clip(np.rint(rng.normal(0, 2.5, (2, TABLE, CHANNELS, SAMPLES, INPUTS))), -7, 7).astype(np.int8)
    return (level[0].view(np.uint8) & 15) | (level[1].view(np.uint8) << 4)


def which_payload(slot, board):
    """The row of payloads() that a board sends in a slot."""
    return (slot * 31 + board * 97 + slot // TABLE * 13) % TABLE


class Boards:
    def __init__(self, epoch_ns, slots, seed):
        self.epoch_ns, self.rng = epoch_ns, np.random.default_rng(seed)
        self.state = np.zeros((BOARDS, slots), np.uint8)
        self.count = {"genuine": 0, "copies": 0, "twins": 0, "noise": 0, "failed": 0}
        self.by_board = np.zeros((BOARDS, 2), np.int64)  # packets with its number: genuine and copies, twins
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.payload = [p.tobytes() for p in payloads()]
        self.zero, self.next_zero = 0, None  # the slot in which the counters are 0
        self.held = []      # packets that are late: (slot in which they go, bytes)
        self.block = []     # packets to be shuffled
        self.losing = 0
        self.order = {"dead": [], "loss": 0, "burst": 1, "reorder": 0, "late": 0, "duplicate": 0,
                      "near": False, "far": False, "noise": 0}

    def put(self, packet):
        try:
            self.socket.sendto(packet, ("127.0.0.1", PORT))
        except OSError:
            self.count["failed"] += 1

    def packet(self, slot, board):
        seq = (slot - self.zero) * SAMPLES & (1 << BITS) - 1
        return struct.pack(">IHH", seq, board, 0x50AC) + self.payload[which_payload(slot, board)]

    def lost(self):
        """Whether the way loses the next packet."""
        if self.losing == 0 and self.order["loss"] and self.rng.random() < self.order["loss"]:
            self.losing = self.order["burst"]
        self.losing -= self.losing > 0
        return self.losing > 0

    def twin(self, slot, board):
        """A second F-engine with the same numbers: it repeats what has been, or has other counters."""
        if slot % 3 or not (self.order["near"] or self.order["far"]):
            return
        at = slot - 2 if self.order["near"] else slot + (1 << BITS - 2) // SAMPLES
        self.count["twins"] += 1
        self.by_board[board, 1] += 1
        if at < self.state.shape[1]:
            self.state[board, at] |= TWIN
        self.put(self.packet(at, board))

    def send(self, slot):
        if slot == self.next_zero:
            self.flush()
            self.zero = slot
        for board in range(BOARDS):
            o = self.order
            if board in o["dead"]:
                self.state[board, slot] |= DEAD
                continue
            if self.lost():
                self.state[board, slot] |= LOST
                continue
            self.state[board, slot] |= SENT
            times = 1 + (o["duplicate"] > 0 and self.rng.random() < o["duplicate"])
            self.count["genuine"] += 1
            self.count["copies"] += times - 1
            self.by_board[board, 0] += times
            packet = self.packet(slot, board)
            if o["late"] and self.rng.random() < o["late"]:
                self.held.append((slot + int(self.rng.integers(40, 200)), packet))
                times -= 1
            if o["reorder"]:
                self.block += [packet] * times
            else:
                for _ in range(times):
                    self.put(packet)
            self.twin(slot, board)
        if len(self.block) > self.order["reorder"]:
            self.flush()
        if self.order["noise"] and self.rng.random() < self.order["noise"]:
            self.count["noise"] += 1
            self.put(self.rng.bytes(int(self.rng.integers(0, 2000))))
        while self.held and self.held[0][0] <= slot:
            self.put(self.held.pop(0)[1])

    def flush(self):
        self.rng.shuffle(self.block)
        for packet in self.block:
            self.put(packet)
        self.block = []

    def run(self):
        slot, slots, begin = 0, self.state.shape[1], self.epoch_ns
        offset = time.time_ns() - time.monotonic_ns()
        start, ended, text = -1, False, b""
        while not ended:
            now = time.monotonic_ns() + offset
            due = min(slots, (now - begin) // SLOT_NS)
            if start < 0:
                start = slot = due  # the epoch is long ago
            while slot < due:
                self.send(slot)
                slot += 1
            if select.select([0], [], [], 0.004)[0]:
                read = os.read(0, 65536)
                ended, text = read == b"", text + read
            while b"\n" in text:
                line, text = text.split(b"\n", 1)
                order = json.loads(line)
                self.next_zero = order.pop("begin_again", self.next_zero)
                self.order.update(order)
            ended = ended or slot >= slots
        self.flush()
        for _, packet in self.held:
            self.put(packet)
        return start, slot


def main():
    path, epoch_ns, slots, seed = sys.argv[1], *map(int, sys.argv[2:])
    boards = Boards(epoch_ns, slots, seed)
    start, end = boards.run()
    np.savez(path + ".part.npz", state=boards.state, start=start, end=end, by_board=boards.by_board,
             count=json.dumps(boards.count))
    os.rename(path + ".part.npz", path)


if __name__ == "__main__":
    main()
