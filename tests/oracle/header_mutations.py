"""Ten thousand headers of DADA files and GUPPI RAW, and some of our own recordings, each changed at random:
every one is refused, or replayed as the readers of this file understand it, which know the formats
(docs/recordings.md for ours) and nothing of the program. argv[1]: read_cases."""
import math
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from fractions import Fraction

CASES, OUR_CASES = 5000, 3000  # of each format; of our own recordings
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
PICOSECONDS 250000000000
MJD_START 60369.5000029
OBS_OFFSET 1200
"""
OURS = """HEADER DADA
HDR_SIZE 4096
FILE_SIZE 240
FILE_NUMBER 0
OBS_OFFSET 1200
FREQ 600
BW -10
TSAMP 2.56
NBIT 4
NDIM 2
NPOL 2
NCHAN 2
NANT 3
ORDER TFPA
RESOLUTION 12
UTC_START 2024-02-29-12:00:00
MJD_START 60369.5
DTYPE int4x2
AXES time,freq,pol,dish
SHAPE 0,2,2,3
SAMPLE0 1100
SAMPLES 20
FRAME_SAMPLES 8
SAMPLE_NS 2560/1
EPOCH_NS 1709207999997440000
SCALE 1
FREQ_MHZ 602.5,597.5
WIDTH_MHZ 5
DOWNSAMPLE 1
NZONES 1
ZONE_0 0,2,1,1,0
"""
CARDS = [("BLOCSIZE", 240), ("OBSNCHAN", 6), ("NANTS", 3), ("NPOL", 4), ("NBITS", 8), ("OBSFREQ", 600.5),
         ("OBSBW", 2.0), ("TBIN", "1.5E-6"), ("OVERLAP", 2), ("PKTIDX", 160), ("PIPERBLK", 8),
         ("PKTSTART", 80), ("PKTFMT", "'1SFA    '"), ("STT_IMJD", 60000), ("STT_SMJD", 3600),
         ("STT_OFFS", 0.25), ("DIRECTIO", 0)]
MEANT = {key.encode() for key, _ in CARDS} | {b"PKTSIZE", b"SYNCTIME"}
PAYLOAD = bytes((37 * i + 11) % 256 for i in range(240))


class Unreadable(Exception):
    """Cases that a reader of the format cannot judge."""


def whole(text, low, high):
    if not re.fullmatch(rb"[+-]?\d+", text) or not low <= int(text) <= high:
        raise Unreadable(text)
    return int(text)


def keep(keys, key, value):
    """If a key comes twice, some readers take the first value, others the last."""
    if keys.setdefault(key, value) != value:
        raise Unreadable(key)


def real(text):
    try:
        value = float(re.sub(rb"^([+-]?[0-9.]+)[Dd]", rb"\1E", text))  # as FITS has it
    except ValueError as error:
        raise Unreadable(text) from error
    if value != value or abs(value) == float("inf"):
        raise Unreadable(text)
    return value


# --- DADA -----------------------------------------------------------------------------------------
def dada_keys(data):
    keys, size = {}, re.search(rb"(?m)^HDR_SIZE[ \t]+(\d+)", data[:4096])
    for line in data[:int(size[1]) if size else 4096].split(b"\0")[0].split(b"\n"):
        words = line.split(b"#")[0].split(None, 1)
        if words:
            keep(keys, words[0], words[1].strip() if len(words) > 1 else b"")
    return keys


def utc_ns(text):
    """Nanoseconds since 1970; a leap second has the number of the next one."""
    parts = re.fullmatch(r"(\d{4}-\d{1,2}-\d{1,2}-\d{1,2}:\d{1,2}:\d{1,2})(\.\d*)?", text.replace("T", "-"))
    if parts is None:
        raise Unreadable(text)
    leap = parts[1].endswith("23:59:60")
    try:
        second = datetime.strptime(re.sub("60$", "59", parts[1]) if leap else parts[1], "%Y-%m-%d-%H:%M:%S")
    except ValueError as error:
        raise Unreadable(text) from error
    return (int(second.replace(tzinfo=timezone.utc).timestamp()) + leap) * 10**9 + int(
        Fraction("0" + (parts[2] or ".0") + "0") * 10**9)


def start_ns(keys):
    """Time of the observation's first byte: UTC_START or MJD_START, which agree, the finer one."""
    utc = mjd = None
    if b"UTC_START" in keys:
        text = keys[b"UTC_START"].decode("latin-1")
        utc, fine = utc_ns(text), Fraction(10**9, 10**len(text.partition(".")[2]))
        if b"PICOSECONDS" in keys:
            utc, fine = utc + (whole(keys[b"PICOSECONDS"], 0, 10**12 - 1) + 500) // 1000, 1
    if b"MJD_START" in keys:
        text = keys[b"MJD_START"].decode("latin-1")
        if not re.fullmatch(r"\d+(\.\d*)?", text):
            raise Unreadable(text)
        mjd, coarse = int((Fraction(text) - 40587) * DAY), Fraction(DAY, 10**len(text.partition(".")[2]))
    if utc is None or mjd is None:
        if utc is None and mjd is None:
            raise Unreadable("no start")
        return mjd if utc is None else utc
    if abs(utc - mjd) > coarse + fine:
        raise Unreadable("two starts")
    return utc if abs(utc - mjd) <= coarse or coarse >= fine else mjd


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
    except (KeyError, ValueError, ZeroDivisionError) as error:
        raise Unreadable(error) from error
    if bits not in (4, 8) or ndim != 2 or sample_ns <= 0:
        raise Unreadable("bits, dimensions, times")
    epoch = start_ns(keys)
    element = 2 * bits // 8
    f, p, a = lengths["F"], lengths["P"], lengths["A"]
    announced = whole(keys.get(b"FILE_SIZE", b"0"), 0, 1 << 64) or len(data)
    row, payload = f * p * a * element, data[size:size + announced]
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


# --- our recordings -------------------------------------------------------------------------------
def reals(text, n):
    """A list, or first:step:count."""
    if text.count(b":") == 2:
        first, step, count = text.split(b":")
        values = [real(first) + real(step) * i for i in range(whole(count, 1, n))]
    else:
        values = [real(v) for v in text.split(b",")]
    if len(values) != n:
        raise Unreadable(text)
    return values


def plain_words(keys, mine, first_time_ns, row):
    """Keys that every reader of DADA files understands agree with our own keys."""
    f, p, a = mine["shape"]
    counts = {b"NBIT": 4, b"NDIM": 2, b"NPOL": p, b"NCHAN": f, b"NANT": a, b"RESOLUTION": row}
    if any(key in keys and whole(keys[key], 0, 1 << 64) != value for key, value in counts.items()):
        raise Unreadable("counts")
    if keys.get(b"ORDER", b"TFPA").upper() != b"TFPA":
        raise Unreadable("order")
    near = {b"TSAMP": (float(mine["sample_ns"]) / 1e3, 1e-5 * float(mine["sample_ns"])),
            b"FREQ": (sum(mine["mhz"]) / f, 0.01 * mine["width"]),
            b"BW": ((mine["mhz"][-1] - mine["mhz"][0]) * f / max(f - 1, 1) or mine["width"],
                    0.01 * mine["width"])}
    for key, (value, most) in near.items():
        if key in keys and abs(real(keys[key]) - value) > most:
            raise Unreadable(key)
    start = first_time_ns - whole(keys.get(b"OBS_OFFSET", b"0"), 0, 1 << 64) // row * mine["sample_ns"]
    if b"MJD_START" in keys:
        digits = len(keys[b"MJD_START"].partition(b".")[2])
        if abs(start_ns({b"MJD_START": keys[b"MJD_START"]}) - start) > Fraction(DAY, 10**digits) + 10:
            raise Unreadable("MJD_START")
    if b"UTC_START" in keys and abs(utc_ns(keys[b"UTC_START"].decode("latin-1")) - start) > 10**9 + 10:
        raise Unreadable("UTC_START")


def read_ours(data):
    keys = dada_keys(data)
    try:
        size = whole(keys.get(b"HDR_SIZE", b"4096"), 1, len(data))
        if keys[b"DTYPE"] != b"int4x2" or keys[b"AXES"] != b"time,freq,pol,dish":
            raise Unreadable("another array")
        shape = [whole(v, 0, 1 << 20) for v in keys[b"SHAPE"].split(b",")]
        zone = [whole(v, 0, 1 << 40) for v in keys.get(b"ZONE_0", b"0,%d,1,1,0" % shape[1]).split(b",")]
        if (b"NZONES" in keys) != (b"ZONE_0" in keys):
            raise Unreadable("zones")
        whole(keys.get(b"NZONES", b"1"), 1, 1)
        sample_ns = Fraction(keys[b"SAMPLE_NS"].decode("latin-1") if b"SAMPLE_NS" in keys else
                             str(1000 * Fraction(keys[b"TSAMP"].decode("latin-1"))))
        offset = whole(keys.get(b"OBS_OFFSET", b"0"), 0, 1 << 64)
        if b"SAMPLE0" not in keys and b"EPOCH_NS" in keys:
            raise Unreadable("SAMPLE0")
        first = whole(keys.get(b"SAMPLE0", b"%d" % (offset // max(math.prod(shape[1:]), 1))), 0, 1 << 62)
        whole(keys[b"FRAME_SAMPLES"], 1, 1 << 40)
        if shape[0] != 0 or zone[:2] != [0, shape[1]] or zone[3] != 1 or len(zone) != 5:
            raise Unreadable("zone")
        if keys.get(b"DOWNSAMPLE", b"1") != b"1":
            raise Unreadable("steps")
        f, p, a = shape[1:]
        row = f * p * a
        if b"FREQ_MHZ" in keys:
            mhz, critical = reals(keys[b"FREQ_MHZ"], f), b"%.17g" % (1e3 / float(sample_ns))
        else:
            centre, band = real(keys[b"FREQ"]), real(keys[b"BW"])
            mhz, critical = [centre + band * ((i + 0.5) / f - 0.5)
                             for i in range(f)], b"%.17g" % (abs(band) / f)
            keys[b"WIDTH_MHZ"] = critical  # of channels whose centres are not said
        widths = keys.get(b"WIDTH_MHZ", critical)
        width = reals(widths, f if widths.count(b",") or widths.count(b":") else 1)
        if max(width) != min(width):
            raise Unreadable("widths")
        if b"EPOCH_NS" in keys:
            epoch = whole(keys[b"EPOCH_NS"], -1 << 62, 1 << 62)
        else:
            epoch = start_ns(keys) - int(
                (first - whole(keys.get(b"OBS_OFFSET", b"0"), 0, 1 << 64) // row) * sample_ns)
        mine = {"dtype": "int4x2", "shape": (f, p, a), "sample_ns": sample_ns, "epoch": epoch, "first": first,
                "mhz": mhz, "width": width[0], "hex": data[size:size + (len(data) - size) // row * row].hex()}
        plain_words(keys, mine, epoch + first * sample_ns, row)
    except (KeyError, ValueError, ZeroDivisionError, IndexError) as error:
        raise Unreadable(error) from error
    return mine


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
    value = real(value) if re.search(rb"[.DdEe]", value) else whole(value, low, high)
    return whole(b"%d" % value, low, high) if value == int(value) else whole(key.encode(), 0, 0)


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
    number = count(keys, "PKTIDX", 0, 1 << 62, 0)
    first = Fraction(number * (samples - overlap), packets or 1)
    if first.denominator != 1 or (number and not packets):
        raise Unreadable("PKTIDX")
    try:
        centre, band = real(keys[b"OBSFREQ"]), real(keys[b"OBSBW"])
        sample_ns = Fraction(1000 * f) / Fraction(abs(band)) if b"TBIN" not in keys else 10**9 * Fraction(
            re.sub("[Dd]", "E", keys[b"TBIN"].decode("latin-1")))
        epoch = (count(keys, "STT_IMJD", 0, 100000) - 40587) * DAY + count(keys, "STT_SMJD", 0, 86400) * 10**9
        epoch += round(real(keys.get(b"STT_OFFS", b"0")) * 1e9)
        start = count(keys, "PKTSTART", 0, 1 << 60, 0) if b"PKTIDX" in keys else 0
        if (b"PKTSTART" not in keys and number) or (start and not packets):
            raise Unreadable("which packet STT_* is the time of, or when that was")
        epoch -= int(start * (samples - overlap) // max(packets, 1) * sample_ns)
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
    for i in range(OUR_CASES):
        text = bytearray(OURS.encode())
        yield read_ours, (bytes(text) if i == 0 else mutate(text, rng, text_lines)).ljust(
            4096, b"\0")[:4096] + PAYLOAD
    for i in range(CASES):
        text = make_guppi(rng)
        size = 80 if b"SIMPLE" in text else 240
        yield read_guppi, (bytes(text) if i == 0 else mutate(text, rng, card_lines)) + PAYLOAD[:size]


# --- comparison -----------------------------------------------------------------------------------
def differs(line, want):
    """The first value that is read differently, or None."""
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
    read, wrong = {read_dada: 0, read_ours: 0, read_guppi: 0}, []
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
    print(
        f"{len(made)} headers: {read[read_dada]} DADA, {read[read_ours]} of ours and {read[read_guppi]} "
        f"GUPPI read, {len(made) - sum(read.values())} refused, {len(wrong)} read otherwise")
    for i in (0, CASES, CASES + OUR_CASES):
        assert lines[i].startswith("read "), ("a header without a change", lines[i])
    assert min(read.values()) > OUR_CASES // 10 and sum(read.values()) < 0.9 * len(made)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
