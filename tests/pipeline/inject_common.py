"""Pipelines with injected bursts, and what NumPy expects of them: the dispersion law, and the S/N of a filter
of the burst's shape in filterbank files. Nothing here comes from the program."""
import glob
import json
import math
import os

import numpy as np

K_DM = 1 / 2.41e-4  # s MHz^2 / (pc cm^-3)
EPOCH_NS = 1700000000000000000
SAMPLE_NS, MHZ, CHANNELS, FIRST_MHZ = 8000, 0.125, 16, 600.0

HEAD = f"""
telescope: {{name: t, grid: {{m: 2, n: 2}}, spacing_m: {{m: 6, n: 7}},
  dishes: [[0, 0], [0, 1], [1, 0], [1, 1]]}}
stream: {{epoch_ns: {EPOCH_NS}, sample_ns: {SAMPLE_NS}, sideband: %s,
  freq_mhz: {{first: {FIRST_MHZ}, step: {MHZ}, count: {CHANNELS}}}}}
pipeline:
  - {{stage: simulate, samples: %d, seed: 3, frame_samples: 2048, out: clean}}
"""
CHAIN = """
  - {stage: upchannelize, in: field, out: fine, factor: 16}
  - {stage: frb_grid, in: fine, out: image, integrate: 128}
  - {stage: frb_beams, in: image, out: beams, beams: {grid: [2, 2], spacing_deg: 1}}
"""
FILES = """
  - {stage: quantize, in: beams, out: levels, bits: 8}
  - {stage: filterbank, in: levels, directory: fil}
"""
DISHES = np.array([[0, 0], [0, 7], [6, 0], [6, 7.0]])  # north, east


def frequencies():
    return FIRST_MHZ + MHZ * np.arange(CHANNELS)


def late_s(dm, mhz, ref_mhz):
    return K_DM * dm * (np.asarray(mhz, float) ** -2 - ref_mhz ** -2)


def ledger(path):
    """The last line of each event, by id."""
    with open(path) as f:
        events = [json.loads(line) for line in f]
    return {e["id"]: e for e in events}


def read_filterbank(path):
    """Values [step][channel], MHz of each channel, header."""
    raw, keys, at = open(path, "rb").read(), {}, 0
    while True:
        size = int.from_bytes(raw[at:at + 4], "little")
        word, at = raw[at + 4:at + 4 + size].decode(), at + 4 + size
        if word == "HEADER_END":
            break
        if word in ("rawdatafile", "source_name"):
            at += 4 + int.from_bytes(raw[at:at + 4], "little")
        elif word != "HEADER_START":
            real = word in ("fch1", "foff", "tsamp", "tstart", "src_raj", "src_dej", "az_start", "za_start")
            keys[word] = np.frombuffer(raw, "<f8" if real else "<i4", 1, at)[0]
            at += 8 if real else 4
    data = np.frombuffer(raw, np.float32 if keys["nbits"] == 32 else np.uint8, offset=at)
    data = data.reshape(-1, keys["nchans"]).astype(float)
    return data, keys["fch1"] + keys["foff"] * np.arange(keys["nchans"]), keys


def recovered(directory, events):
    """{id: (beam, predicted, S/N of the filter in NumPy)} in the beam with the largest prediction, for events
    without scattering."""
    files = sorted(glob.glob(os.path.join(directory, "*.fil")))
    erf, out = np.vectorize(math.erf), {}
    data = [read_filterbank(f) for f in files]
    steps, tsamp = len(data[0][0]), data[0][2]["tsamp"]
    start = (data[0][2]["tstart"] - 40587) * 86400 - EPOCH_NS * 1e-9
    spans = {}
    for e in events:
        at = (e["time_ns"] - EPOCH_NS) * 1e-9 + late_s(e["dm"], data[0][1], e["freq_mhz"]) - start
        spans[e["id"]] = at, (int((at.min() - 3 * e["width_s"]) / tsamp) - 1,
                              int((at.max() + 3 * e["width_s"]) / tsamp) + 2)
    busy = np.zeros(steps, bool)
    for _, (a, b) in spans.values():
        busy[max(a, 0):b] = True
    for e in events:
        at, (a, b) = spans[e["id"]]
        (_, beams), = e["beams"].items()
        beam = int(np.argmax(beams["snr"]))
        x = data[beam][0]
        t = np.arange(a, b)[:, None] * tsamp - at
        scale = e["width_s"] / math.sqrt(8 * math.log(2)) * math.sqrt(2)
        w = erf((t + tsamp) / scale) - erf(t / scale)
        y = (x[a:b] - x[~busy].mean(axis=0)) / x[~busy].std(axis=0)
        out[e["id"]] = beam, beams["snr"][beam], (w * y).sum() / np.sqrt((w ** 2).sum())
    return out
