"""DADA files of others in every order of their axes, in heaps, with axes of length 1: read as NumPy reads
them, or refused with what is missing. GUPPI RAW with PKTFMT."""
import itertools
import os
import sys

import numpy as np

import harness
from files_common import replay, same, write
from files_hints import dada, ours, theirs

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import recordings as other  # noqa: E402

EPOCH = 1709208000 * 10**9
AXES = "TFPA"


def payload(e, order, heap=None, bits=4):
    """E[time][freq][pol][dish] as bytes in an order of the letters; `heap` samples at a time."""
    blocks = [e] if heap is None else [e[i:i + heap] for i in range(0, len(e), heap)]
    out = b""
    for block in blocks:
        laid = np.ascontiguousarray(block.transpose([AXES.index(a) for a in order]))
        if bits == 4:
            out += other.pack_int4x2(laid).tobytes()
        else:
            out += np.stack([laid.real, laid.imag], axis=-1).astype(np.int8).tobytes()
    return out


def header(e, **more):
    _, nchan, npol, ndish = e.shape
    keys = theirs(NCHAN=nchan, NPOL=npol, NANT=ndish, BW=-0.390625 * nchan, **more)
    return dada(keys, e[:0])


def play(e, data, status=0, stream="", extra="", **keys):
    with harness.scratch() as d:
        write(d, "x.dada", header(e, **keys) + data)
        if status:
            return replay(d, "x.dada", stream, extra, status=status)
        got = replay(d, "x.dada", stream, extra)
        same(got, e, np.ones(e.shape[:2], bool), 0, EPOCH)
        return got


def test_all_orders():
    e = other.noise((90, 5, 2, 3), 1)
    for order in map("".join, itertools.permutations(AXES)):
        play(e, payload(e, order), ORDER=order, extra=", frame_samples: 37")
        play(e, payload(e, order, bits=8), ORDER=order, NBIT=8)
        # the user says it of a file that does not
        play(e, payload(e, order), ORDER=None, stream=f"stream: {{order: {order}}}\n")


def test_heaps():
    e = other.noise((96, 5, 2, 3), 1)
    for order in map("".join, itertools.permutations(AXES)):
        text = ",".join({"T": "time:16", "F": "freq", "P": "pol", "A": "dish"}[a] for a in order)
        data = payload(e, order, 16)
        play(e, data, ORDER=None, stream=f'stream: {{order: "{text}"}}\n', extra=", frame_samples: 23")
        if order[0] != "T":  # a heap that the file's end cuts is left out
            with harness.scratch() as d:
                write(d, "x.dada", header(e, ORDER=f"T{order.replace('T', 'T:16')}") + data[:-7])
                got = replay(d, "x.dada")
                same(got, e[:80], np.ones((80, 5), bool), 0)
                assert "truncated" in got[4].err, got[4]
    long = other.noise((4096, 3, 2, 2), 2)  # reads of more than one piece
    play(long, payload(long, "PFTA", 1024), ORDER="TPFT:1024A", extra=", frame_samples: 1000, readers: 3")


def test_gaps_of_heaps():
    """Lines of a sidecar beside files of heaps, in the second of two bands: each line counts once."""
    e, valid = other.noise((64, 4, 2, 3), 1), np.ones((64, 4), bool)
    valid[3:43, 3] = False
    e[~valid] = 0
    with harness.scratch() as d:
        for k, name in enumerate("ab"):
            write(d, f"{name}.dada", header(e[:, :2], ORDER="TFT:16PA", FREQ=f"{600 + 0.78125 * k}") +
                  payload(e[:, 2 * k:2 * k + 2], "FTPA", 16))
        write(d, "b.dada.gaps", b"3 40 1 1 0\n")
        same(replay(d, '"*.dada"'), e, valid, 0)


def test_length_one():
    """An axis of length 1 says nothing about the order."""
    for shape, orders in (((90, 5, 1, 3), ("TFPA", "TPFA", "PTFA", "TFAP", "TFA")),
                          ((90, 1, 2, 1), ("TFPA", "TPFA", "TP", "FTP", "ATPF")), ((90, 1, 1, 1),
                                                                                   ("T", "TFPA", "AFPT"))):
        e = other.noise(shape, 3)
        for order in orders:
            play(e, other.pack_int4x2(e).tobytes(), ORDER=order)


def test_refused():
    e = other.noise((96, 4, 2, 3), 1)
    data = payload(e, "TFPA")
    for keys, words in (
        (dict(ORDER=None), ("ORDER is missing", "order")),
        (dict(ORDER="TFP"), ("dish of 3", "order")),
        (dict(ORDER="TAFTP"), ("time twice", "time:256")),
        (dict(ORDER="TFPB"), ("ORDER is 'TFPB'", "order")),
        (dict(NBIT=None), ("NBIT", "4 or 8")),
        (dict(NDIM=None), ("NDIM",)),
        (dict(NDIM=1), ("NDIM", "2")),
        (dict(RESOLUTION=24 * 16), ("RESOLUTION is 384", "16 samples", "pol,freq,time:16")),
        (dict(RESOLUTION=25), ("RESOLUTION is 25",)),
        (dict(INNER_T=16), ("INNER_T is 16", "time:16")),
        (dict(NBEAM=2), ("NBEAM is 2",)),
        (dict(ORDER="FTPA", FILE_SIZE=len(data) + 24), ("depends on its length", str(len(data)))),
    ):
        refused = play(e, data, status=2, **keys)
        for word in (*words, "x.dada"):
            assert word in refused.err, (keys, word, refused)
    assert "'TFQ'" in play(e, data, status=2, stream="stream: {order: TFQ}\n").err
    refused = play(e, data, status=2, ORDER="TFPA", stream="stream: {order: TPFA}\n")
    assert "override: [order]" in refused.err, refused
    play(e, payload(e, "TPFA"), ORDER="TFPA", stream="stream: {order: TPFA, override: [order]}\n")
    # what the user says settles what the header leaves open
    play(e, data, ORDER="TFPA", RESOLUTION=24 * 16, stream="stream: {order: TFPA}\n")
    play(e, data, ORDER="TFPA", RESOLUTION=24)
    play(e, data, ORDER="TFPA", RESOLUTION=1)


def test_files_in_a_row():
    """Several files of another order follow each other by OBS_OFFSET."""
    e = other.noise((90, 4, 2, 3), 1)
    with harness.scratch() as d:
        for i in range(3):
            part = e[30 * i:30 * i + 30]
            write(d, f"x_{i}.dada",
                  header(part, ORDER="FTPA", OBS_OFFSET=30 * i * 24) + payload(part, "FTPA"))
        same(replay(d, '"x_*.dada"'), e, np.ones((90, 4), bool), 0, EPOCH)


def test_info():
    """`info` says the order, or prints the header and what is missing."""
    e = other.noise((96, 4, 2, 3), 1)
    with harness.scratch() as d:
        write(d, "x.dada", header(e, ORDER="TPFT:16A") + payload(e, "PFTA", 16))
        told = harness.beamring("info", "x.dada", cwd=d)
        assert told.status == 0 and "PFT:16A" in told.out and "96" in told.out, told
        write(d, "x.dada", header(e, ORDER=None))
        told = harness.beamring("info", "x.dada", cwd=d)
        assert "ORDER is missing" in told.err and "NCHAN" in told.out, told


def test_guppi_formats():
    v = other.noise((96, 4, 2, 1), 5, -128, 127)
    whole = np.ones((96, 4), bool)
    for fmt, first in (("1SFA", False), ("SIMPLE", True), ("ATASNAPV", False), (None, False)):
        blocks = other.guppi_blocks(v, 48, first_packet=480, PKTFMT=fmt)
        if first:  # [time][chan][pol] in each block
            for i, block in enumerate(blocks):
                part = v[48 * i:48 * i + 48, :, :, 0]
                data = np.stack([part.real, part.imag], axis=-1).astype(np.int8).tobytes()
                blocks[i] = block[:-len(data)] + data
        with harness.scratch() as d:
            write(d, "g.raw", b"".join(blocks))
            same(replay(d, "g.raw", extra=", frame_samples: 37"), v, whole, 480)
    with harness.scratch() as d:
        write(d, "g.raw", b"".join(other.guppi_blocks(v, 48, PKTFMT="PARKES")))
        refused = replay(d, "g.raw", status=2)
        assert "PKTFMT = 'PARKES'" in refused.err and "SIMPLE" in refused.err, refused
        told = harness.beamring("info", "g.raw", cwd=d)
        assert told.status == 1 and "PKTFMT" in told.err, told


def told_samples(d, path):
    """First sample, end and number as `info` has them."""
    told = harness.beamring("info", path, cwd=d)
    line = next(line for line in told.out.splitlines() if line.split()[:1] == ["samples"])
    words = line.replace(":", "").replace(",", "").replace(";", "").split()
    return int(words[1]), int(words[3]), int(words[4])


def test_guppi_overlap_counts():
    """What `info` counts is what is replayed, with overlap and without, with a block lost."""
    for overlap in (0, 16):
        for skip in ((), (2,)):
            v = other.noise((7 * 48 + overlap, 4, 2, 1), 5, -128, 127)
            with harness.scratch() as d:
                write(d, "g.raw",
                      b"".join(other.guppi_blocks(v, 48 + overlap, overlap, first_packet=480, skip=skip)))
                e, _, first, _, _ = replay(d, "g.raw")
                assert told_samples(d, "g.raw") == (first, first + len(e), len(e)), (overlap, skip)


def test_guppi_two_or_one():
    """NPOL = 2 is what the user says: two polarisations, or the parts of one."""
    two, one = other.noise((96, 4, 2, 1), 5, -128, 127), other.noise((96, 4, 1, 1), 6, -128, 127)
    for npol, v in ((2, two), (1, one)):
        with harness.scratch() as d:
            write(d, "g.raw", b"".join(other.guppi_blocks(v, 48, NPOL=2)))
            same(replay(d, "g.raw", f"stream: {{npol: {npol}}}\n"), v, np.ones((96, 4), bool), 0)
            assert "NPOL is 2" in replay(d, "g.raw", status=2).err


def test_guppi_blocks_of_a_file():
    """All blocks of a file that we write are as long as its first one; what is shorter has a file of its
    own."""
    e = other.noise((1000, 2, 2, 3), 7)
    with harness.scratch() as d:
        keys = ours(SAMPLE0=100, SAMPLES=1000, FRAME_SAMPLES=256)
        write(d, "x.dada", dada(keys, e))
        done = harness.beamring("convert", "--to", "guppi", "x.dada", "made/g", cwd=d)
        assert done.status == 0, done
        names = sorted(os.listdir(os.path.join(d, "made")))
        parts = []
        for name in names:
            with open(os.path.join(d, "made", name), "rb") as f:
                data = f.read()
            sizes, at = set(), 0
            while at < len(data):
                text = data[at:at + 80 * 64].split(b"END" + b" " * 77)[0]
                cards = [text[i:i + 80].decode() for i in range(0, len(text), 80)]
                card = {c[:8].strip(): c[10:].strip() for c in cards}
                size, head = int(card["BLOCSIZE"]), -(-(len(text) + 80) // 512) * 512
                sizes.add(size)
                block = np.frombuffer(data, np.int8, size, at + head).reshape(3, 2, -1, 2, 2)
                parts.append((int(card["PKTIDX"]), (block[..., 0] + 1j * block[..., 1]).transpose(2, 1, 3,
                                                                                                  0)))
                at += head + size
            assert len(sizes) == 1 and at == len(data), (name, sizes)
        got = np.concatenate([part for _, part in sorted(parts, key=lambda x: x[0])])
        assert np.array_equal(got, e) and len(names) == 3, names
        same(replay(d, '"made/*.raw"'), e, np.ones((1000, 2), bool), 100)


if __name__ == "__main__":
    harness.main([f for name, f in sorted(globals().items()) if name.startswith("test_")])
