"""Documents and chordMetadata with random mistakes: our readers refuse them, or read exactly what readers of
our own making read that share nothing with them."""
import random
import re
import struct
import subprocess
import sys

import yaml

import chord_metadata
import frb_document

GOOD = b"""version: 2
zone_nfreq: [4, 2]
zone_freq_edges: [400.0, 401.0, 402.5]
freq_channels: [5, 0, 3]
beamset: 1
beam_ids: [10, 12, 11]
beam_positions_x: [0.0, 0.6, -0.01]
beam_positions_y: [0.0, -0.8, 0.02]
unix_ns_at_seq_0: 1500000000000000000
dt_ns_per_seq: 5120
seq_per_frb_time_sample: 192
tel_origin_itrs_lat_deg: 49.32075144444
tel_origin_itrs_lon_deg: -119.62081125
tel_grid_x_axis: [1.0, 0.0, 0.0]
tel_grid_y_axis: [0.0, 1.0, 0.0]
tel_dish_elev_axis: [1.0, 0.0, 0.0]
tel_dish_vert_axis: [0.0, 0.6, 0.8]
tel_dish_coelev_deg: -1.5
tel_dish_separation_x_m: 6.3
tel_dish_separation_y_m: 8.5
noise_variance: [1.0, 2.5]
"""
NUMBER = re.compile(rb"-?[0-9]+(\.[0-9]+)?")
EDGES = [
    *(b"0 1 -1 2 90 -90 90.0000001 -90.1 180 -180 -180.1 360 360.1 361 1e-30 1e300 1e400 -1e400 .nan .inf 0.0"
      b" 1.0000005 1.0000004 0.9999994 1.0000006 1e-6 1.1e-6 -2e-6 4 5 6 256 2147483647 2147483648"
      b" 9223372036854775807 9223372036854775808 -9223372036854775808 010 0x10 1_000 1:30 +5 +.5 5. . -"
      b" '5' \"5\" true ~ null 1e5 1E+2 1e 0b1 0o17 [] [1] [[1]] {} [1,2] 1.5 3 0.5 *x &x !!int !!float"
      ).split(b" "), b"{a: 1}", b"&x 1", b"!!int 1", b"!!float 1.0", b"", b"1 # a comment", b"[1, 2,]"
]
# Characters that mean something to YAML.
MARKS = b"[]{},:#&*!|>'\"%@` \t\n-."


def mutation(rng, text=GOOD):
    """One to three mistakes, most of them in numbers and near limits."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        kind = rng.randrange(10)
        lines = text.split(b"\n")
        numbers = list(NUMBER.finditer(text))
        if kind <= 4 and numbers:  # a number becomes another one
            m = rng.choice(numbers)
            text = text[:m.start()] + rng.choice(EDGES) + text[m.end():]
        elif kind == 5 and numbers:  # near where it was
            m = rng.choice(numbers)
            value = float(m.group()) + rng.choice((1e-9, -1e-9, 3e-7, -3e-7, 6e-7, 1e-3, -1, 1))
            text = text[:m.start()] + repr(value).encode() + text[m.end():]
        elif kind == 6:  # a line is left out, comes twice, or elsewhere
            line = lines.pop(rng.randrange(len(lines)))
            for _ in range(rng.randrange(3)):
                lines.insert(rng.randrange(len(lines) + 1), line)
            text = b"\n".join(lines)
        elif kind == 7:  # a list is shorter or longer
            lists = [m for m in re.finditer(rb"\[([^\[\]]*)\]", text)]
            if lists:
                m = rng.choice(lists)
                items = m.group(1).split(b", ")
                items = items[:-1] if rng.random() < 0.5 else items + [rng.choice(items)]
                text = text[:m.start()] + b"[" + b", ".join(items) + b"]" + text[m.end():]
        elif kind == 8:  # any byte
            at = rng.randrange(len(text))
            byte = rng.choice((rng.randrange(256), rng.choice(MARKS)))
            text = text[:at] + bytes([byte]) + text[at + rng.randrange(2):]
        else:  # cut, or with something behind
            at = rng.randrange(len(text))
            text = rng.choice((text[:at], text + text[at:], text + b"---\n", text + b"...\n",
                               text + b"--- 1\n", b"--- " + text, b"%YAML 1.1\n---\n" + text,
                               text.replace(b": ", b" : "), text.replace(b", ", b",\n    ")))
    return text


def expected(text, loader=frb_document.LOADER):
    """(the document or None, what refused it)."""
    try:
        return frb_document.read(text, loader), None
    except frb_document.Refused as refused:
        return None, refused


def values(line):
    """The output of read_documents -> dict of lists."""
    pairs = (item.split(":") for item in line.split())
    return {key: [int(v) if re.fullmatch("-?[0-9]+", v) else float.fromhex(v) for v in rest.split(",")[:-1]]
            for key, rest in pairs}


# Documents that we refuse although others may accept them: our own counters have 32 bits there.
OURS = {"zone_nfreq", "seq_per_frb_time_sample"}
# How a value is spelt is not the rules' business: they read what we write.
SPELLING = ("anchors", "plain", "is not a number")


def test_documents(program):
    rng = random.Random(20260101)
    texts = [GOOD] + [mutation(rng) for _ in range(10000)]
    answers = subprocess.run([program], input=b"".join(struct.pack("<I", len(t)) + t for t in texts),
                             stdout=subprocess.PIPE, check=True).stdout.decode().splitlines()
    assert len(answers) == len(texts)
    good, by_key = 0, {}
    for n, (text, answer) in enumerate(zip(texts, answers)):
        want, refused = expected(text)
        if n % 50 == 0:  # the YAML library is not the arbiter of itself
            assert expected(text, yaml.SafeLoader)[0] == want, text
        rules, parsed = answer.split("\t")
        if want is None:
            spelling = refused.args[0] == "text" or any(w in str(refused) for w in SPELLING)
            assert rules.startswith("refused: ") or spelling, (text, refused, answer)
            assert parsed.startswith("refused: "), (text, refused, answer)
            by_key[refused.args[0]] = by_key.get(refused.args[0], 0) + 1
        elif parsed.startswith("refused: "):
            assert parsed.split()[1].rstrip(
                ":") in OURS and "2147483648" in parsed or "9223372036854775807" in parsed, (text, answer)
        else:
            good += 1
            assert rules == "good", (text, answer)
            assert values(parsed) == {k: v if isinstance(v, list) else [v]
                                      for k, v in want.items()}, (text, answer)
    assert good > 500 and \
        set(by_key) >= set(frb_document.KEYS), (good, sorted(set(frb_document.KEYS) - set(by_key)))
    known = {key: by_key[key] for key in ("text", *frb_document.KEYS)}
    print(f"documents: {len(texts)}, {good} good; refused by key: {known}")


# name, type code, dimensions, channels, upchan, step, half
FRAMES = [
    ("E", 7, "T=16 F=3 P=2 D=5", 3, 1, 1, 0),
    ("E", 6, "F=3 T=16 P=2 D=5", 3, 1, 1, 2),
    ("Ebar", 7, "Tbar=16 Fbar=24 P=2 D=5", 3, 8, 8, 3),
    ("Ebar", 6, "T=16 F=12 P=2 D=5", 3, 4, 4, 3),
    ("I", 12, "Ttilde=10 Fbar=24 beamQ=6 beamP=4", 3, 32, 32, 3),
    ("I", 12, "F=24 T=10 beamP=4 beamQ=6", 3, 8, 32, 31),
    ("I2", 12, "R=7 Fbar=24 Ttilde=10", 3, 32, 32, 3),
    ("J", 13, "F=3 Tbar=10 B=7", 3, 1, 6, 5),
    ("J", 6, "B=7 F=3 P=2 T=10", 3, 1, 1, 0),
]
INTS = (-2**31, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 31, 32, 64, 128, 1023,
        1024, 1025, 2**20, 2**20 + 1, 2**31 - 1)
LABELS = (b"T", b"Tbar", b"Ttilde", b"F", b"Fbar", b"P", b"D", b"B", b"R", b"beamP", b"beamQ", b"X", b"",
          b"T\x01", b"twenty characters nn")


def frame(name, code, dims, nfreq, upchan, step, half):
    """(metadata, bytes of the frame)."""
    m = bytearray(chord_metadata.SIZE)
    struct.pack_into("<4i", m, 0, 10, 20, 1024, 5)
    m[16:16 + len(name)] = name.encode()
    pairs = [item.split("=") for item in dims.split()]
    struct.pack_into("<2i", m, 36, code, len(pairs))
    stride = 1
    for i, (label, length) in reversed(list(enumerate(pairs))):
        struct.pack_into("<i", m, 44 + 4 * i, int(length))
        m[84 + 20 * i:84 + 20 * i + len(label)] = label.encode()
        struct.pack_into("<q", m, 288 + 8 * i, stride)
        stride *= int(length)
    struct.pack_into("<q", m, 624, 1000)
    struct.pack_into("<i", m, 632, nfreq)
    for i in range(nfreq):
        struct.pack_into("<i", m, 636 + 4 * i, 2000 + i)
        struct.pack_into("<i", m, 4732 + 4 * i, upchan)
        struct.pack_into("<q", m, 8832 + 8 * i, half)
        struct.pack_into("<i", m, 17024 + 4 * i, step)
    return m, stride * chord_metadata.TYPES[code][1]


def strides_of(m):
    """Makes the strides those of the lengths, where they have any; and the bytes of the frame."""
    code, n = struct.unpack_from("<2i", m, 36)
    stride = 1
    for i in reversed(range(min(max(n, 0), 10))):
        if not 0 <= stride < 2 ** 62:
            return 0
        struct.pack_into("<q", m, 288 + 8 * i, stride)
        stride *= struct.unpack_from("<i", m, 44 + 4 * i)[0]
    return stride * chord_metadata.TYPES.get(code, ("", 0))[1]


def mutate_metadata(rng):
    m, size = frame(*rng.choice(FRAMES))
    for _ in range(rng.choice((1, 1, 2, 3))):
        kind, i = rng.randrange(9), rng.randrange(3)
        if kind == 0:
            struct.pack_into("<i", m, rng.choice((0, 4, 8, 12, 36, 40, 376, 632)), rng.choice(INTS))
        elif kind == 1:
            struct.pack_into("<i", m, 44 + 4 * rng.randrange(5), rng.choice(INTS))
        elif kind == 2:
            at = 84 + 20 * rng.randrange(4)
            m[at:at + 20] = rng.choice(LABELS).ljust(20, b"\0")
        elif kind == 3:  # all channels alike, or one
            at, value = rng.choice((636, 4732, 17024)), rng.choice(INTS)
            for k in range(3) if rng.random() < 0.7 else (i,):
                struct.pack_into("<i", m, at + 4 * k, value)
        elif kind == 4:
            value = rng.choice(INTS + (2 ** 40, 2 ** 62, -2 ** 63))
            for k in range(3) if rng.random() < 0.7 else (i,):
                struct.pack_into("<q", m, 8832 + 8 * k, value)
        elif kind == 5:
            struct.pack_into("<q", m, rng.choice((288, 296, 304, 312, 368, 624)), rng.choice(
                INTS + (2 ** 40, 2 ** 61, 2 ** 61 + 1, 2 ** 62, 2 ** 63 - 1)))
        elif kind == 6:  # any byte of the first kilobyte
            m[rng.randrange(640)] = rng.randrange(256)
        elif kind == 7:
            size = max(size + rng.choice((-1, 1, 0, 2)), 0)
        else:  # two dimensions change places
            a, b = rng.randrange(4), rng.randrange(4)
            m[84 + 20 * a:104 + 20 * a], m[84 + 20 * b:104 + 20 * b] = (
                m[84 + 20 * b:104 + 20 * b], m[84 + 20 * a:104 + 20 * a])
        if rng.random() < 0.7 and kind != 7:
            size = strides_of(m)
    return bytes(m), max(size, 1) % 2 ** 64


def expected_metadata(m, size):
    """(fields or None, array or None)."""
    try:
        d = chord_metadata.fields(m, size)
    except chord_metadata.Refused:
        return None, None
    try:
        return d, chord_metadata.array(d)
    except chord_metadata.Refused:
        return d, None


def said(d):
    """The fields as read_metadata prints them."""
    numbers = lambda key: "".join(f"{x}," for x in d[key])
    dims = "".join(f"{name}={n}," for name, n in d["dims"])
    return (
        f"type:{chord_metadata.TYPES[d['code']][0]} dims:{dims} name:{d['name']} counter:{d['counter']} "
        f"sample0:{d['sample0']} coarse:{numbers('coarse')} upchan:{numbers('upchan')} "
        f"half:{numbers('half')} step:{numbers('step')}")


def test_metadata(program):
    rng = random.Random(20260102)
    cases = [(bytes(m), size) for m, size in map(lambda f: frame(*f), FRAMES)]
    cases += [mutate_metadata(rng) for _ in range(10000)]
    answers = subprocess.run([program], stdout=subprocess.PIPE, check=True, input=b"".join(
        struct.pack("<IQ", len(m), size) + m for m, size in cases)).stdout.decode("latin-1").split("\n")[:-1]
    assert len(answers) == len(cases)
    read = arrays = 0
    for n, ((m, size), answer) in enumerate(zip(cases, answers)):
        d, array = expected_metadata(m, size)
        if d is None:
            assert answer.startswith("refused: "), (m[:640], size, answer)
            continue
        read += 1
        assert answer.split("\t")[0] == said(d), (said(d), answer)
        answer = answer.split("\t")[1]
        if array is None:
            assert answer.startswith("refused: "), (d, answer)
            continue
        arrays += 1
        want = " ".join(f"{key}:{value}" for key, value in array.items())
        assert answer.split(" ", 1)[1] == want, (d, want, answer)
        assert n >= len(FRAMES) or array is not None
    assert read > 3000 and arrays > 1500, (read, arrays)
    print(f"metadata: {len(cases)}, {read} read, {arrays} of them arrays of ours")


if __name__ == "__main__":
    test_documents(sys.argv[1])
    test_metadata(sys.argv[2])
