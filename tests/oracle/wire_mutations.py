"""Documents and metadata with random mistakes: our readers refuse them, or read exactly what readers of our
own making read that share nothing with them."""
import random
import re
import struct
import subprocess
import sys

import yaml

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
    """What read_documents prints -> dict of lists."""
    pairs = (item.split(":") for item in line.split())
    return {key: [int(v) if re.fullmatch("-?[0-9]+", v) else float.fromhex(v) for v in rest.split(",")[:-1]]
            for key, rest in pairs}


# What we refuse though others may take it: our own counters have 32 bits there.
OURS = {"zone_nfreq", "seq_per_frb_time_sample"}
# How a value is spelt is not the rules' business: they read what we write.
SPELLING = ("anchors", "plain", "is no number")


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


if __name__ == "__main__":
    test_documents(sys.argv[1])
