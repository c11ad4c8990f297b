"""Pipelines whose parameters are legal and extreme, within what `beamring stages NAME` allows. `check`
accepts or refuses them; those that it accepts and that need little memory run for a moment."""
import contextlib
import functools
import os
import re
import resource
import subprocess
import time

import yaml

import harness
from common import COUNTS, Process

MOST_BYTES = 300e6  # of a pipeline that is run
FILE_BYTES = 30000000
CHAINS = [
    ["simulate", "record"],
    ["simulate", "upchannelize", "record"],
    ["simulate", "upchannelize", "frb_grid", "frb_beams", "quantize", "filterbank"],
    ["simulate", "flag", "frb_grid", "frb_beams", "filterbank"],
    ["simulate", "correlate", "uvh5"],
    ["simulate", "flag", "correlate", "record"],
    ["simulate", "frb_grid", "frb_beams", "quantize", "packetize"],
    ["simulate", "packetize"],
    ["simulate", "dump"],
    ["capture", "record"],
    ["receive", "record"],
]
# Names of files lead into the test's own directory, or nowhere.
TEXTS = ["", "x", "a b", "../x", "/nonexistent/x", "x" * 300, "\u00e9\u4e2d\U0001f4a9", "%s%n", "a\nb",
         "\x1b[31m", "$(id)", "-1", "nan", "1e999"]
# Chosen by hand: without them nothing runs, or it runs for a machine's memory.
GIVEN = {"simulate": {"samples": [1, 2, 1000, 5000, 100000]}, "quantize": {"bits": [4, 8]},
         "correlate": {"integrate": [1, 2, 64, 1000, 10**12]},
         "frb_beams": {"beams": [{"grid": [1, 1], "spacing_deg": 0.1}, {"grid": [3, 2], "spacing_deg": 89},
                                 {"grid": [64, 64], "spacing_deg": 1e-9}, {"directions": [[0, 0]]},
                                 {"directions": [[1, -1], [90, 90], [1e-300, 0]]}]},
         "record": {"prefix": ["x"], "overwrite": [True]}, "uvh5": {"overwrite": [True]},
         "filterbank": {"overwrite": [True]},
         "packetize": {"format": ["chime-l0", "frb-node", "kotekan", "packets"]},
         "receive": {"format": ["chime-l0", "kotekan"], "address": ["127.0.0.1:0"]},
         "capture": {"addresses": [["127.0.0.1:0"]], "packet": ["chime-ice", "casm-snap"],
                     "sources": [[0], [0, 1, 65535]], "streams": [[0], [1, 65535]]}}
FORMATS = {"chime-l0": {"beams": {"first": 0, "count": 4}, "channels": {"first": 0, "count": 4},
                        "nupfreq": 2}}
PLACES = {"directory": "out", "stats": "stats"}


@functools.lru_cache
def parameters(stage):
    """{name: (words of its type, {its own parameters})}, as the program says."""
    text = subprocess.run([os.path.abspath(harness.PROGRAM), "stages", stage], capture_output=True, text=True,
                          check=True).stdout
    found, inner = {}, {}
    for line in text.splitlines():
        row = re.match(r"( {2}| {4})(\w+) +(\S.*)$", line)
        if row is None or re.match(r"  (in|out) {2,}\w+ {2,}", line):
            continue
        if len(row[1]) == 2:
            inner = {}
            found[row[2]] = (row[3], inner)
        else:
            inner[row[2]] = (row[3], {})
    return found


def number(rng, words):
    bounds = re.search(r"(\S+) to (\S+)", words)
    low, high = (float(b.rstrip(",;")) for b in bounds.groups()) if bounds else (0, 1e9)
    whole = words.startswith("integer")
    near = [low, high, low + 1, high - 1, (low + high) / 2, 0, 1, 2, 3, 64, 100]
    if high > 0:
        near += [max(low, high**rng.random()), max(low, high**rng.random()), 2**rng.randrange(40)]
    if not whole:
        near += [low + 1e-9, high * (1 - 1e-15), 1e-300, -0.0, 0.1]
    x = min(max(rng.choice(near), low), high)
    return int(x) if whole else float(x)


def value(rng, words, inner):
    """One that the words allow, or None."""
    kind = words.split(",")[0].split(" (")[0]
    if kind.startswith("choice"):
        return rng.choice(re.sub(r" \(.*", "", words)[len("choice, "):].split(" or "))
    if words.startswith("true or false"):
        return rng.random() < 0.5
    if kind in ("integer", "number"):
        return number(rng, words)
    if kind in ("integers", "numbers"):
        one = kind[:-1] + words[len(kind):]
        return [number(rng, one) for _ in range(rng.choice((1, 2, 3, 64)))]
    if kind == "list of maps" and inner:
        return [drawn(rng, inner, 0.8) for _ in range(rng.choice((1, 2, 20)))]
    if kind == "text":
        return rng.choice(TEXTS)
    return None


def drawn(rng, known, share):
    made = {}
    for name, (words, inner) in known.items():
        if name not in ("in", "out", "affinity") and (rng.random() < share or "(required)" in words):
            one = PLACES.get(name) if name in PLACES else value(rng, words, inner)
            if one is not None:
                made[name] = one
    return made


def stage(rng, name, extreme):
    known = parameters(name)
    made = drawn(rng, known, rng.choice((0.1, 0.3, 0.6)) if extreme else 0)
    for key, values in GIVEN.get(name, {}).items():
        if key not in made or rng.random() < 0.8:
            made[key] = rng.choice(values)
    one, other = {"frb_grid": ("integrate", "downsample"), "upchannelize": ("factor", "zones"),
                  "simulate": ("samples", "duration_s")}.get(name, ("", ""))
    if one in made:
        made.pop(other, None)
    elif one and other not in made:
        made[one] = rng.choice((1, 2, 16, 128))
    if name == "packetize":
        made["destinations"] = [{"address": "127.0.0.1:9"}]
    if name == "receive":
        made.update(FORMATS.get(made["format"], {}))
    only = {key: words.split("; only ")[1] for key, (words, _) in known.items() if "; only " in words}
    return {key: v for key, v in made.items() if key not in only or made["format"] in only[key]}


def promised(said):
    """Bytes of the host that `check` says are needed."""
    units = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50}
    row = re.search(r"^ +together.*$", said, re.M)
    sizes = re.findall(r"([0-9.e+]+) (B|[KMGTP]iB)(?= |$)", row[0]) if row else []
    return sum(float(number) * units[unit] for number, unit in sizes[:2])


def pipeline(rng):
    chain = rng.choice(CHAINS)
    side = rng.choice((1, 2, 3))
    dishes = [[i // side, i % side] for i in range(rng.randrange(1, side * side + 1))]
    ns, step = rng.choice(4 * [(2560, 0.390625), (5120, 0.1953125)] +
                          [(1, 1000), ("3/7", 1e-3), (10**9, 1e-9)])
    text = {
        "telescope": {"name": "extreme", "grid": {"m": side, "n": side}, "dishes": dishes,
                      "latitude_deg": rng.choice((-90, 0, 49.3, 90)),
                      "longitude_deg": rng.choice((-180, 0, 119.6)),
                      "spacing_m": {"m": rng.choice((0.1, 6, 1000)), "n": rng.choice((0.1, 8.5, 1000))}},
        "stream": {"freq_mhz": {"first": rng.choice((600, 800, 1e5, 1e6)),
                                "count": rng.choice((1, 2, 3, 8, 64)),
                                "step": step * rng.choice((1, 1, 1, -1, 2))},
                   "sample_ns": ns, "epoch_ns": rng.choice((0, -1, 1700000000000000000, 2**62))},
        "pipeline": []}
    if chain[0] == "capture":  # its packets say it
        del text["stream"]["freq_mhz"], text["stream"]["sample_ns"]
    strange = rng.randrange(len(chain))  # most stages as usual: else hardly a pipeline is legal
    for i, name in enumerate(chain):
        entry = {"stage": name, **stage(rng, name, i == strange or rng.random() < 0.2)}
        if i > 0:
            entry["in"] = f"q{i}"
            if name == "dump":
                entry["in"] = {"from": f"q{i}", "history": {"seconds": rng.choice((1e-6, 0.001, 1, 86400))}}
        if i + 1 < len(chain):
            entry["out"] = f"q{i + 1}"
        text["pipeline"].append(entry)
    return text


def extremes(rng, d):
    """Twenty of them."""
    for _ in range(20):
        text = pipeline(rng)
        with open(os.path.join(d, "p.yaml"), "w") as f:
            yaml.safe_dump(text, f, allow_unicode=True)
        what = f"of {text}"
        checked = Process(d, "check", "p.yaml")
        said = checked.ended((0, 2), f"check {what}")
        COUNTS["pipelines checked"] += 1
        if checked.returncode != 0 or promised(said) > MOST_BYTES:
            continue
        process = Process(d, "run", "p.yaml")
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
        end = time.time() + 0.3
        while process.poll() is None and time.time() < end:
            time.sleep(0.005)
        process.stopped((0, 1, 2, 130), f"run {what}")
        COUNTS["pipelines run"] += 1
