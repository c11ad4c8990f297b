"""One bit of a packet's header flips: what must become of the packet, by the tables of the makers.

  packet_flips.py PROGRAM N

Writes N packets with a flipped bit (and one in six more without) for every F-engine, with the place where
each must arrive, and gives them to PROGRAM (tests/formats/packets/flips.c), which puts them through
capture's window.

A flipped header either is, in the bits that mean something, the header of another packet: then the packet
belongs there, for nothing in it says otherwise. Or it is the header of no packet that this node gets now:
then it may arrive nowhere. Where the bit means nothing the packet arrives where it did; where it repeats
what other bits say (a number of channels) it may be refused too."""
import os
import subprocess
import sys
import tempfile

import numpy as np

import packets

BLOCKS = 32  # packets of a source and stream in a window
CLEAN = 6    # one of so many has no flip

LITTLE, BIG = False, True


def field(offset, bytes_, low=0, bits=None, big=LITTLE):
    """Bits of a field in a word of so many bytes, the lowest first. Bit 8 k + 7 is the highest of byte k."""
    at = []
    for k in range(low, low + (bits or 8 * bytes_ - low)):
        byte = offset + (bytes_ - 1 - k // 8 if big else k // 8)
        at.append(8 * byte + k % 8)
    return at


def spead_value(item, low=0, bits=48):
    return field(8 + 8 * item, 8, low, bits, BIG)


# Bits of the header that mean nothing, or repeat something.
MEANINGLESS = {
    "chord-crs": field(1, 1) + field(6, 2) + field(16, 4) + field(20, 2),
    # Behind the header stand the flags, 6 bytes with the rounding: CRC, short and long of both stages count.
    "chime-ice": field(0, 2) + field(2, 2, 12) + field(4, 4) + field(10, 2) +
                 [b for b in field(16, 4) if not 0x70000700 >> (b - 128) & 1] + field(20, 2),
    "casm-snap": field(12, 2, big=BIG) + field(14, 2, big=BIG),
    "lwa-snap2": [b for k in (8, 10, 12, 14, 16, 18, 20, 22) for b in field(k, 2, big=BIG)],
    "ata-snap": field(0, 1) + field(1, 1) + field(2, 2, big=BIG) + field(8, 8, 38, big=BIG),
    "dsa110-snap": [],
    # Two bytes that are reserved; the heap's counter, its length, that of the payload.
    "spead": field(4, 2) + spead_value(0) + spead_value(1) + spead_value(3),
}
# Those of them for which "refused" is wrong: they say nothing at all.
IGNORED = {
    "chord-crs": MEANINGLESS["chord-crs"], "chime-ice": MEANINGLESS["chime-ice"],
    "lwa-snap2": [b for k in (8, 10) for b in field(k, 2)], "ata-snap": field(0, 2),
    "spead": field(4, 2) + spead_value(0)
}


def headers(fengine):
    """All headers of the window, uint8 [slot][bytes]; slot = (block x sources + source) x streams +
    stream."""
    tail = bytes(6) if fengine.name == "chime-ice" else b""
    return np.array([
        np.frombuffer(fengine.header(block * fengine.t, source, stream) + tail, np.uint8)
        for block in range(BLOCKS) for source in fengine.sources for stream in fengine.streams
    ])


def make(fengine, n, rng):
    """Packets: header [n][bytes], slot [n] (-1: nowhere) and whether it must arrive [n]."""
    legal = headers(fengine)
    nbits = 8 * legal.shape[1]
    keep = np.full(nbits, True)
    keep[MEANINGLESS[fengine.name]] = False
    mask = np.packbits(keep, bitorder="little")
    where = {(row & mask).tobytes(): k for k, row in enumerate(legal)}
    assert len(where) == len(legal), fengine.name
    count = n + n // CLEAN
    slot = rng.integers(0, len(legal), count)
    bit = rng.integers(0, nbits, count)
    bit[rng.permutation(count)[n:]] = -1
    head = legal[slot].copy()
    flipped = np.flatnonzero(bit >= 0)
    head[flipped, bit[flipped] // 8] ^= (1 << bit[flipped] % 8).astype(np.uint8)
    ignored = np.isin(bit, IGNORED.get(fengine.name, []))
    redundant = np.isin(bit, MEANINGLESS[fengine.name]) & ~ignored
    moved = 0
    for k in flipped[~np.isin(bit[flipped], MEANINGLESS[fengine.name])]:
        to = where.get((head[k] & mask).tobytes(), -1)
        moved += to >= 0
        slot[k] = to
    print(
        f"{fengine.name:12} {len(flipped)} flips of {nbits} bits: {int(ignored.sum())} in bits that say "
        f"nothing, {int(redundant.sum())} in repetitions, {moved} make another packet's header", flush=True)
    return head, slot, ~redundant


def write(path, fengine, n, seed):
    head, slot, must = make(fengine, n, np.random.default_rng(seed))
    with open(path, "wb") as f:
        words = (fengine.name, BLOCKS * fengine.t, head.shape[1], len(head), len(fengine.sources),
                 len(fengine.streams), *fengine.sources, *fengine.streams)
        f.write((" ".join(map(str, words)) + "\n").encode())
        rows = np.zeros(len(head), [("slot", "<i4"), ("must", "u1"), ("head", "u1", head.shape[1])])
        rows["slot"], rows["must"], rows["head"] = slot, must, head
        rows.tofile(f)


def main():
    program, n = os.path.abspath(sys.argv[1]), int(sys.argv[2])
    failed = 0
    with tempfile.TemporaryDirectory(prefix="beamring-") as d:
        for seed, fengine in enumerate(packets.ALL):
            path = os.path.join(d, "flips")
            write(path, fengine, n, seed)
            failed += subprocess.run([program, path]).returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
