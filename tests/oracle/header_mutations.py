"""Ten thousand headers of DADA files and GUPPI RAW, each changed at random: every one is refused, or replayed
as the readers of this file understand it, which know the formats and nothing of beamring. argv[1]:
read_cases."""
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from fractions import Fraction

CASES = 5000  # of each format
DAY = 86400 * 10**9
DADA = """HEADER DADA
HDR_VERSION 1.0
HDR_SIZE 4096
FILE_SIZE 240
FILE_NUMBER 0
NBIT {nbit}
NDIM 2
NPOL 2
NCHAN 2
NANT {nant}
ORDER {order}
FREQ 600
BW -10
TSAMP 2.56 # microseconds
RESOLUTION 12
UTC_START 2024-02-29-12:00:00
OBS_OFFSET 1200
"""
CARDS = [("BLOCSIZE", 240), ("OBSNCHAN", 6), ("NANTS", 3), ("NPOL", 4), ("NBITS", 8), ("OBSFREQ", 600.5),
         ("OBSBW", 2.0), ("TBIN", "1.5E-6"), ("OVERLAP", 2), ("PKTIDX", 160), ("PIPERBLK", 8),
         ("PKTFMT", "'1SFA    '"), ("STT_IMJD", 60000), ("STT_SMJD", 3600), ("STT_OFFS", 0.25),
         ("DIRECTIO", 0)]
MEANT = {key.encode() for key, _ in CARDS} | {b"PKTSIZE"}
PAYLOAD = bytes((37 * i + 11) % 256 for i in range(240))


class Unreadable(Exception):
    """What a reader of the format cannot know, or cannot be."""


def whole(text, low, high):
    if not re.fullmatch(rb"[+-]?\d+", text) or not low <= int(text) <= high:
        raise Unreadable(text)
    return int(text)


def keep(keys, key, value):
    """Of a key that comes twice some readers take the first value, others the last one."""
    if keys.setdefault(key, value) != value:
        raise Unreadable(key)


def real(text):
    try:
        value = float(text)
    except ValueError as error:
        raise Unreadable(text) from error
    if value != value or abs(value) == float("inf"):
        raise Unreadable(text)
    return value


# --- DADA -----------------------------------------------------------------------------------------
def dada_keys(data):
    keys = {}
    for line in data[:1 << 16].split(b"\0")[0].split(b"\n"):
        words = line.split(b"#")[0].split(None, 1)
        if words:
            keep(keys, words[0], words[1].strip() if len(words) > 1 else b"")
    return keys


def order_of(text, lengths):
    """The axes slowest first, those of length 1 left out."""
    letters = text.decode("latin-1").upper()
    if len(set(letters)) != len(letters) or not set(letters) <= set("TFPA") or "T" not in letters:
        raise Unreadable(text)
    if any(n > 1 and axis not in letters for axis, n in lengths.items()):
        raise Unreadable(text)
    return [a for a in letters if a == "T" or lengths[a] > 1]


def read_dada(data):
    keys = dada_keys(data)
    if b"DTYPE" in keys:
        raise Unreadable("another kind of file")
    try:
        size = whole(keys.get(b"HDR_SIZE", b"4096"), 1, len(data))
        bits, ndim = whole(keys[b"NBIT"], 4, 8), whole(keys[b"NDIM"], 2, 2)
        lengths = {"F": whole(keys[b"NCHAN"], 1, 1 << 20), "P": whole(keys[b"NPOL"], 1, 1 << 20),
                   "A": whole(keys[b"NANT"], 1, 1 << 20)}
        order = order_of(keys[b"ORDER"], lengths)
        centre, band = real(keys[b"FREQ"]), real(keys[b"BW"])
        sample_ns = 1000 * Fraction(keys[b"TSAMP"].decode("latin-1"))
        start = keys[b"UTC_START"].decode("latin-1").replace("T", "-")
    except (KeyError, ValueError, ZeroDivisionError) as error:
        raise Unreadable(error) from error
    parts = re.fullmatch(r"(\d{4}-\d{1,2}-\d{1,2}-\d{1,2}:\d{1,2}:\d{1,2})(\.\d*)?", start)
    if bits not in (4, 8) or ndim != 2 or parts is None or sample_ns <= 0:
        raise Unreadable("bits, dimensions, times")
    leap = parts[1].endswith("23:59:60")  # a leap second has the number of the next one
    try:
        second = datetime.strptime(re.sub("60$", "59", parts[1]) if leap else parts[1], "%Y-%m-%d-%H:%M:%S")
    except ValueError as error:
        raise Unreadable(start) from error
    epoch = (int(second.replace(tzinfo=timezone.utc).timestamp()) + leap) * 10**9 + int(
        Fraction("0" + (parts[2] or ".0") + "0") * 10**9)
    element = 2 * bits // 8
    f, p, a = lengths["F"], lengths["P"], lengths["A"]
    row, payload = f * p * a * element, data[size:]
    samples, offset = len(payload) // row, whole(keys.get(b"OBS_OFFSET", b"0"), 0, 1 << 64)
    if offset % row or not samples:
        raise Unreadable("no whole samples")
    counts, stride, bytes_before = {"T": samples, **lengths}, {}, element
    for axis in reversed(order):
        stride[axis] = bytes_before
        bytes_before *= counts[axis]
    cells = []
    for t in range(samples):
        for c in range(f):
            for q in range(p):
                for d in range(a):
                    at = sum(i * stride.get(axis, 0) for axis, i in (("T", t), ("F", c), ("P", q), ("A", d)))
                    cells.append(payload[at:at + element])
    mhz = [centre + band * ((i + 0.5) / f - 0.5) for i in range(f)]
    return {
        "dtype": "int8x2" if bits == 8 else "int4x2", "shape": (f, p, a), "sample_ns": sample_ns,
        "epoch": epoch, "first": offset // row, "mhz": mhz, "width": abs(band) / f,
        "hex": b"".join(cells).hex()
    }


def make_dada(rng):
    nbit = rng.choice((4, 8))
    text = DADA.format(nbit=nbit, nant=3, order=rng.choice(("TFPA", "TFPA", "TPAF", "FTPA")))
    return bytearray(text.replace("RESOLUTION 12", f"RESOLUTION {12 * nbit // 4}").encode())


# --- GUPPI RAW ------------------------------------------------------------------------------------
def guppi_keys(data):
    keys = {}
    for at in range(0, len(data) - 79, 80):
        card = data[at:at + 80]
        if card[:3] == b"END" and card[3:4] in (b" ", b"\0"):
            return keys, at + 80
        if card[8:9] == b"=":
            value = card[9:].strip(b" ")
            value = value[1:].split(b"'")[0] if value[:1] == b"'" else value.split(b"/")[0]
            key = card[:8].rstrip(b" ")
            if key in MEANT:
                keep(keys, key, value.strip(b" "))
    raise Unreadable("no END")


def count(keys, key, low, high, absent=None):
    value = keys.get(key.encode())
    if value is None:
        if absent is None:
            raise Unreadable(key)
        return absent
    return whole(re.sub(rb"\.0*$", b"", value), low, high)


def read_guppi(data):
    keys, at = guppi_keys(data)
    if count(keys, "DIRECTIO", 0, 1, 0):
        at = -(-at // 512) * 512
    size, nants = count(keys, "BLOCSIZE", 1, 1 << 40), count(keys, "NANTS", 1, 1 << 20, 1)
    nchan, npol = count(keys, "OBSNCHAN", 1, 1 << 20), {1: 1, 4: 2}.get(count(keys, "NPOL", 1, 4))
    form, overlap = keys.get(b"PKTFMT", b"1SFA"), count(keys, "OVERLAP", 0, 1 << 40, 0)
    if count(keys, "NBITS", 8, 8) != 8 or npol is None or form not in (b"1SFA", b"SIMPLE", b"ATASNAPV"):
        raise Unreadable("bits, polarisations, packets")
    if nchan % nants or len(data) != at + size or size % (2 * nchan * npol) or (form == b"SIMPLE" and
                                                                                nants > 1):
        raise Unreadable("shape")
    samples, f = size // (2 * nchan * npol), nchan // nants
    if overlap >= samples:
        raise Unreadable("overlap")
    packets = count(keys, "PIPERBLK", 1, 1 << 60, 0)
    if not packets:
        bytes_new = (samples - overlap) * 2 * nchan * npol
        packet = count(keys, "PKTSIZE", 1, 1 << 60, 0)
        packets = bytes_new // packet if packet and bytes_new % packet == 0 else 0
    first = Fraction(count(keys, "PKTIDX", 0, 1 << 62, 0) * (samples - overlap), packets or 1)
    if not packets:
        first = Fraction(0)
    if first.denominator != 1:
        raise Unreadable("PKTIDX")
    try:
        centre, band = real(keys[b"OBSFREQ"]), real(keys[b"OBSBW"])
        sample_ns = Fraction(1000 * f) / Fraction(abs(band)) if b"TBIN" not in keys else 10**9 * Fraction(
            keys[b"TBIN"].decode("latin-1"))
        epoch = (count(keys, "STT_IMJD", 0, 100000) - 40587) * DAY + count(keys, "STT_SMJD", 0, 86400) * 10**9
        epoch += round(real(keys.get(b"STT_OFFS", b"0")) * 1e9)
    except (KeyError, ValueError, ZeroDivisionError) as error:
        raise Unreadable(error) from error
    plane, cells = 2 * npol * samples, []
    for t in range(samples):
        for c in range(f):
            for q in range(npol):
                for a in range(nants):
                    place = a * f * plane + c * plane + t * 2 * npol + 2 * q
                    if form == b"SIMPLE":
                        place = (t * f + c) * 2 * npol + 2 * q
                    cells.append(data[at + place:at + place + 2])
    mhz = [centre + band * ((i + 0.5) / f - 0.5) for i in range(f)]
    return {
        "dtype": "int8x2", "shape": (f, npol, nants), "sample_ns": sample_ns, "epoch": epoch,
        "first": int(first), "mhz": mhz, "width": abs(band) / f, "hex": b"".join(cells).hex()
    }


def make_guppi(rng):
    cards = [f"{key:<8}= {value:>20}" for key, value in CARDS]
    if rng.random() < 0.3:
        cards = [c.replace("1SFA  ", "SIMPLE") for c in cards if not c.startswith("NANTS")]
        cards = [
            c.replace("                   6", "                   2") if "OBSNCHAN" in c else c for c in cards
        ]
        cards = [c.replace("240", " 80") if "BLOCSIZE" in c else c for c in cards]
    return bytearray("".join(c.ljust(80) for c in [*cards, "END"]).encode())


# --- mutations ------------------------------------------------------------------------------------
def mutate(text, rng, lines):
    """One to three changes. `lines`: where entries start, and how long they are."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        kind, at = rng.randrange(7), rng.randrange(len(text))
        a, b = rng.choice(lines(text)), rng.choice(lines(text))
        if kind == 0:
            text[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            text[at] = rng.choice(b"0123456789")
        elif kind == 2:
            digits = [i for i in range(a[0], a[0] + a[1]) if chr(text[i]).isdigit()]
            if digits:
                text[rng.choice(digits)] = rng.choice(b"0123456789.-")
        elif kind == 3:  # an entry is gone
            del text[a[0]:a[0] + a[1]]
        elif kind == 4:  # an entry comes twice, somewhere
            text[b[0]:b[0]] = text[a[0]:a[0] + a[1]]
        elif kind == 5:  # an entry comes twice, with two values
            other = swap(bytes(text[a[0]:a[0] + a[1]]), bytes(text[b[0]:b[0] + b[1]]))
            text[b[0]:b[0]] = other
        else:  # an entry has the other one's value
            text[a[0]:a[0] + a[1]] = swap(bytes(text[a[0]:a[0] + a[1]]), bytes(text[b[0]:b[0] + b[1]]))
    return bytes(text)


def swap(a, b):
    if len(a) == 80 and len(b) == 80:
        return a[:9] + b[9:]
    return a.split(b" ", 1)[0] + b" " + b.split(b" ", 1)[-1]


def text_lines(text):
    out, at = [], 0
    for line in bytes(text).split(b"\n")[:-1]:
        out.append((at, len(line) + 1))
        at += len(line) + 1
    return out or [(0, 1)]


def card_lines(text):
    return [(at, 80) for at in range(0, max(len(text) - 160, 1), 80)]


def cases(rng):
    for i in range(CASES):
        text = make_dada(rng) if i else bytearray(DADA.format(nbit=4, nant=3, order="TFPA").encode())
        yield read_dada, (bytes(text) if i == 0 else mutate(text, rng, text_lines)).ljust(
            4096, b"\0")[:4096] + PAYLOAD
    for i in range(CASES):
        text = make_guppi(rng)
        size = 80 if b"SIMPLE" in text else 240
        yield read_guppi, (bytes(text) if i == 0 else mutate(text, rng, card_lines)) + PAYLOAD[:size]


# --- comparison -----------------------------------------------------------------------------------
def differs(line, want):
    """What is read otherwise, or None."""
    words = line.split(" ")
    dtype, shape = words[1], tuple(int(n) for n in words[2:5])
    num, den = (int(n) for n in words[5].split("/"))
    mhz, widths = ([float(v) for v in words[k].split(",")] for k in (8, 9))
    close = lambda a, b: abs(a - b) <= 1e-9 * abs(b)
    if (dtype, shape) != (want["dtype"], want["shape"]):
        return "shape"
    if not close(Fraction(num, den), want["sample_ns"]):
        return "sample time"
    if int(words[6]) != want["epoch"] or int(words[7]) != want["first"]:
        return "time"
    if not all(close(a, b)
               for a, b in zip(mhz, want["mhz"])) or not all(close(w, want["width"]) for w in widths):
        return "frequencies"
    # a run of many samples is looked at from its start
    told = words[10]
    if "unfinished" in line:
        return None if want["hex"].startswith(told) else "data"
    return None if told == want["hex"] else "data"


def main(program):
    rng = random.Random(20240229)
    made = list(cases(rng))
    with tempfile.TemporaryDirectory(prefix="beamring-") as d:
        path = os.path.join(d, "cases")
        with open(path, "wb") as f:
            for _, data in made:
                f.write(struct.pack("<I", len(data)) + data)
        done = subprocess.run([program, path], capture_output=True, timeout=600, check=True)
    lines = done.stdout.decode("latin-1").split("\n")[:-1]
    assert len(lines) == len(made), (len(lines), len(made))
    read, wrong = {read_dada: 0, read_guppi: 0}, []
    for (reader, data), line in zip(made, lines):
        if line.startswith("refused "):
            continue
        read[reader] += 1
        try:
            what = differs(line, reader(data))
        except Unreadable as error:
            what = f"unreadable ({error})"
        if what:
            wrong.append((what, line[:200], data[:4096].rstrip(b"\0")))
    for what, line, data in wrong[:10]:
        print(f"--- {what}\n{line}\n{data[:1300]!r}")
    print(f"{len(made)} headers: {read[read_dada]} DADA and {read[read_guppi]} GUPPI read, "
          f"{len(made) - sum(read.values())} refused, {len(wrong)} read otherwise")
    assert lines[0].startswith("read ") and lines[CASES].startswith("read "), "headers without a change"
    assert min(read.values()) > CASES // 10 and sum(read.values()) < 0.9 * len(made)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
