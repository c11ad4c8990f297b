#!/usr/bin/env python3
"""Looks for the demo's burst in the filterbank files, as a search would, and compares it with what was put
in; compares the baseband beams' power with what it should be; draws one picture. Reads every file with code
of its own.

usage: demo_report.py --simulation config/demo_simulate.yaml --pipeline config/demo.yaml --directory demo-out

The truth is what the simulation's file says. Exit status: 0 when the burst was found within one beam, one
time sample and one step of dispersion measure of the truth with at least 0.95 of the S/N of the radiometer
equation, and the beams' power is right; 1 when not; 2 when files are missing or senseless.
"""
import argparse
import glob
import json
import math
import os
import struct
import sys

import numpy as np
import yaml

DISPERSION = 1 / 2.41e-4       # s MHz^2 per pc cm^-3
LIGHT = 299792458.0            # m/s
WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16)  # boxcars, samples
DETECTION = 8.0                # sigma
KEPT = 0.95                    # of the S/N that the radiometer equation gives
UNIX_EPOCH_MJD = 40587
# Where the program looks for what a pipeline file includes and has not beside it.
CONFIG = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "config")


class Trouble(Exception):
    """Something the report cannot work with."""


# --- files ----------------------------------------------------------------------------------------

def load_config(path):
    """A pipeline file with what it includes; the including file's keys win."""
    with open(path) as f:
        own = yaml.safe_load(f)
    merged = {}
    include = own.pop("include", [])
    for name in [include] if isinstance(include, str) else include:
        beside = os.path.join(os.path.dirname(path), name)
        merge(merged, load_config(beside if os.path.exists(beside) else os.path.join(CONFIG, name)))
    merge(merged, own)
    return merged


def merge(into, more):
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value


def stage(config, name):
    found = [s for s in config["pipeline"] if s["stage"] == name]
    return found[0] if found else None


STRINGS = ("source_name", "rawdatafile")
DOUBLES = ("fch1", "foff", "tstart", "tsamp", "src_raj", "src_dej", "az_start", "za_start", "refdm", "period")


def read_filterbank(path):
    """Header as a dictionary, and the data as [time][channel]."""
    with open(path, "rb") as f:
        raw = f.read()
    at = 0

    def text():
        nonlocal at
        n, = struct.unpack_from("<i", raw, at)
        if not 0 < n < 256:
            raise Trouble(f"{path}: is no filterbank file")
        at += 4 + n
        return raw[at - n:at].decode("latin-1")

    try:
        if text() != "HEADER_START":
            raise Trouble(f"{path}: is no filterbank file")
        header = {}
        while True:
            key = text()
            if key == "HEADER_END":
                break
            if key in STRINGS:
                header[key] = text()
            else:
                kind = "<d" if key in DOUBLES else "<i"
                header[key], = struct.unpack_from(kind, raw, at)
                at += struct.calcsize(kind)
        dtype = {8: np.uint8, 32: np.float32}[header["nbits"]]
        data = np.frombuffer(raw, dtype, offset=at)
        steps = data.size // header["nchans"]
        return header, data[:steps * header["nchans"]].reshape(steps, header["nchans"])
    except (struct.error, KeyError) as error:
        raise Trouble(f"{path}: its header is incomplete ({error})") from None


def read_beams(directory):
    """All files beam*.fil: header of the first, frequencies [channel], data [channel][beam][time] less each
    channel's mean."""
    paths = sorted(glob.glob(os.path.join(directory, "*.fil")))
    if not paths:
        raise Trouble(f"{directory}: there are no filterbank files")
    beams = [read_filterbank(p) for p in paths]
    header = beams[0][0]
    for path, (h, d) in zip(paths, beams):
        if d.shape != beams[0][1].shape or h["tstart"] != header["tstart"] or h["fch1"] != header["fch1"]:
            raise Trouble(f"{path}: differs in shape, time or frequency from {paths[0]}")
    data = np.stack([d.T for _, d in beams], axis=1).astype(np.float32)
    data -= data.mean(axis=2, keepdims=True)
    return header, header["fch1"] + header["foff"] * np.arange(header["nchans"]), data


def read_voltage(directory, prefix):
    """Baseband beams as powers: mean of re^2 and im^2 over time, frequency and polarisation, [beam], -8
    (missing) left out."""
    paths = sorted(glob.glob(os.path.join(directory, f"{prefix}_*.dada")))
    if not paths:
        raise Trouble(f"{directory}: there is no recording {prefix}_*.dada")
    total, count = 0, 0
    for path in paths:
        with open(path, "rb") as f:
            head = f.read(4096).decode("latin-1")
            keys = dict(
                line.split(None, 1) for line in head.rstrip("\0").splitlines()
                if len(line.split(None, 1)) == 2)
            if keys.get("AXES", "").strip() != "beam,freq,pol,time":
                raise Trouble(f"{path}: its axes are {keys.get('AXES')}; expected beam,freq,pol,time")
            f.seek(int(keys["HDR_SIZE"]))
            raw = np.frombuffer(f.read(), np.uint8)
        beams, channels, pols, _ = (int(n) for n in keys["SHAPE"].split(","))
        per, k = int(keys["FRAME_SAMPLES"]), int(keys["SAMPLE0"])
        rows, at = beams * channels * pols, 0
        while at < raw.size:
            steps = min((k // per + 1) * per - k, (raw.size - at) // rows)
            if steps == 0:
                break
            frame = raw[at:at + rows * steps].reshape(beams, -1)
            good = frame != 0x88
            re, im = ((frame & 15) ^ 8).astype(np.int16) - 8, ((frame >> 4) ^ 8).astype(np.int16) - 8
            total = total + ((re * re + im * im) * good).sum(axis=1, dtype=np.int64)
            count = count + 2 * good.sum(axis=1)
            at, k = at + rows * steps, k + steps
    return total / count


# --- the search -----------------------------------------------------------------------------------

def delay_s(dm, f_mhz, ref_mhz):
    return DISPERSION * dm * (f_mhz ** -2.0 - ref_mhz ** -2.0)


def dedisperse(data, shifts):
    """Sum over channels of [channel][...][time], each moved to earlier times by its shift in samples (a
    fraction is allowed)."""
    out = np.zeros(data.shape[1:], np.float64 if data.ndim == 2 else np.float32)
    steps = data.shape[-1]
    for channel, shift in zip(data, shifts):
        whole = math.floor(shift)
        for s, weight in ((whole, 1 - (shift - whole)), (whole + 1, shift - whole)):
            a, b = max(s, 0), min(steps + s, steps)
            if weight > 0 and a < b:
                part = channel[..., a:b]
                out[..., a - s:b - s] += part if weight == 1 else part.dtype.type(weight) * part
    return out


def noise_of(series):
    """Standard deviation from the quartiles: a burst does not raise it. Zeros at the ends of the sum hardly
    count."""
    return np.subtract(*np.percentile(series, (75, 25), axis=-1)) / 1.349


def search(freq, tsamp, data, ref_mhz, nbands=16):
    """Best (snr, dm, width, start, beam) over all beams, and the step of dm: one sample more between the
    band's edges.

    In two stages, for speed: subbands are dedispersed to every nbands-th trial only (which smears less than a
    sample inside them), then moved against each other for every trial."""
    step = tsamp / delay_s(1, freq.min(), freq.max())
    trials = step * np.arange(max(int(data.shape[2] / 2), 1))
    bands = [b for b in np.array_split(np.arange(len(freq)), nbands) if len(b) > 0]
    top = np.array([freq[b].max() for b in bands])
    sigma = np.maximum(noise_of(data.sum(axis=0)), 1e-9)[:, None]
    best = (-np.inf,)
    for begin in range(0, len(trials), nbands):
        group = trials[begin:begin + nbands]
        middle = group[len(group) // 2]
        inner = np.stack(
            [dedisperse(data[b], np.round(delay_s(middle, freq[b], f) / tsamp)) for b, f in zip(bands, top)])
        for dm in group:
            series = dedisperse(inner, np.round(delay_s(dm, top, ref_mhz) / tsamp))
            total = np.cumsum(np.pad(series, ((0, 0), (1, 0))), axis=1, dtype=np.float64) / sigma
            for width in WIDTHS:
                snr = (total[:, width:] - total[:, :-width]) / math.sqrt(width)
                beam, start = np.unravel_index(snr.argmax(), snr.shape)
                if snr[beam, start] > best[0]:
                    best = (float(snr[beam, start]), float(dm), width, int(start), int(beam))
    return best, step


def parabola(y):
    """Offset of the maximum through three points, in steps from the middle one."""
    bend = y[0] - 2 * y[1] + y[2]
    return 0.0 if bend >= 0 else float(np.clip(0.5 * (y[0] - y[2]) / bend, -1, 1))


def refine(freq, tsamp, beam_data, ref_mhz, dm, step, width, start):
    """Dispersion measure and arrival (in samples; sample i spans [i, i + 1)) from a Gaussian of about the
    boxcar's width."""
    sigma = width / 2.355
    times = start + width / 2 + np.arange(-2 * width - 1, 2 * width + 1.01, 0.1)
    grid = np.arange(beam_data.shape[1]) + 0.5
    template = np.exp(-0.5 * ((grid[None] - times[:, None]) / sigma) ** 2)
    template -= template.mean(axis=1, keepdims=True)
    trials = dm + step * np.arange(-4, 4.01, 0.25)
    match = np.array([template @ dedisperse(beam_data, delay_s(d, freq, ref_mhz) / tsamp) for d in trials])
    i, j = np.unravel_index(match.argmax(), match.shape)
    near = match.max(axis=1)
    keep = near > 0.8 * near.max()          # the top of the curve is a parabola: fit it
    if keep.sum() >= 3:
        a, b, _ = np.polyfit(trials[keep] - trials[i], near[keep], 2)
        dm_fit = trials[i] + (float(np.clip(-b / (2 * a), -step, step)) if a < 0 else 0)
    else:
        dm_fit = trials[i]
    at = template @ dedisperse(beam_data, delay_s(dm_fit, freq, ref_mhz) / tsamp)
    j = int(np.clip(at.argmax(), 1, len(at) - 2))
    return dm_fit, times[j] + 0.1 * parabola(at[j - 1:j + 2])


def position(beams, levels):
    """Where the burst is, degrees: the maximum of a Gaussian through the best beam and its neighbours, axis
    by axis."""
    nx, ny = len(beams[0]), len(beams[1])
    grid = levels.reshape(nx, ny)
    i, j = np.unravel_index(grid.argmax(), grid.shape)
    found = []
    for axis, k, line in ((beams[0], i, grid[:, j]), (beams[1], j, grid[i])):
        offset = 0.0
        if 0 < k < len(axis) - 1 and (line[k - 1:k + 2] > 0).all():
            offset = parabola(np.log(line[k - 1:k + 2]))
        found.append(axis[k] + offset * (axis[1] - axis[0]) if len(axis) > 1 else axis[k])
    return found


# --- what should come out -------------------------------------------------------------------------

def beam_grid(parameter):
    """Angles of a grid of beams along x and y, degrees."""
    spacing = parameter["spacing_deg"]
    spacing = [spacing, spacing] if np.isscalar(spacing) else spacing
    center = parameter.get("center", [0, 0])
    return [center[k] + (np.arange(n) - (n - 1) / 2) * spacing[k] for k, n in enumerate(parameter["grid"])]


def expected_snr(sim, config, header, width):
    """Radiometer equation for the boxcar, for a beam right at the burst: the filterbank keeps 0.8 of noise
    and signal alike, and both roundings to levels add 1/12 to the noise."""
    burst, dishes = sim["bursts"][0], len(config["telescope"]["dishes"])
    noise = sim.get("noise", 2.0) ** 2
    ratio = dishes * burst["flux"] * 0.8 * noise / (0.8 * (noise + 1 / 12) + 1 / 12)
    box = width * header["tsamp"]
    inside = math.erf(box * math.sqrt(math.log(2)) / burst["width_s"])
    fluence = burst["width_s"] * math.sqrt(math.pi / (4 * math.log(2))) * inside
    bandwidth = abs(header["foff"]) * 1e6 * header["nchans"]
    return ratio * fluence / box * math.sqrt(config.get("stream", {}).get("npol", 2) * bandwidth * box)


def clamped_power(variance):
    """Mean square of a normal deviate that is rounded to integers in [-7, 7]."""
    sigma = math.sqrt(2 * variance)
    upper = [0.5 * (1 + math.erf((k + 0.5) / sigma)) for k in range(-7, 7)] + [1.0]
    return sum(k * k * (b - a) for k, a, b in zip(range(-7, 8), [0.0] + upper[:-1], upper))


def expected_voltage(sim, config, beamform, freq):
    """Mean square of a component of each baseband beam: noise and the steady sources through weights of
    127."""
    t = config["telescope"]
    dishes = np.array(t["dishes"], float) * [t["spacing_m"]["m"], t["spacing_m"]["n"]]
    noise = sim.get("noise", 2.0) ** 2
    xs, ys = beam_grid(beamform["beams"])
    power = []
    for x in xs:
        for y in ys:
            each = []
            for f in freq:
                total = len(dishes) * (noise + 1 / 12)
                for s in sim.get("sources", []):
                    apart = np.sin(np.radians([x, y])) - np.sin(np.radians([s["x_deg"], s["y_deg"]]))
                    total += noise * s["flux"] * abs(
                        np.exp(2j * np.pi * (dishes @ apart) * f * 1e6 / LIGHT).sum())**2
                each.append(clamped_power(total * 127 ** 2 / 4 ** beamform["shift"]))
            power.append(np.mean(each))
    return np.array(power)


# --- the report -----------------------------------------------------------------------------------

def report(arguments):
    simulation, pipeline = load_config(arguments.simulation), load_config(arguments.pipeline)
    sim, former, beamform = (stage(c, n) for c, n in ((simulation, "simulate"), (pipeline, "frb_beams"),
                                                      (pipeline, "baseband_beamform")))
    if sim is None or not sim.get("bursts") or former is None or "grid" not in former.get("beams", {}):
        raise Trouble(
            "the report needs a simulate stage with a burst, and a frb_beams stage with a grid of beams")
    burst = sim["bursts"][0]
    header, freq, data = read_beams(os.path.join(arguments.directory, "filterbank"))
    ref = burst.get("at_mhz") or freq.max()
    beams, tsamp = beam_grid(former["beams"]), header["tsamp"]
    if data.shape[1] != len(beams[0]) * len(beams[1]):
        raise Trouble(
            f"there are {data.shape[1]} filterbank files; expected {len(beams[0])} x {len(beams[1])}")
    epoch_s = simulation["stream"].get("epoch_ns", 0) * 1e-9
    start_s = (header["tstart"] - UNIX_EPOCH_MJD) * 86400 - epoch_s

    (snr, dm, width, start, beam), step = search(freq, tsamp, data, ref)
    dm, arrival = refine(freq, tsamp, data[:, beam], ref, dm, step, width, start)
    series = dedisperse(data, np.round(delay_s(dm, freq, ref) / tsamp))
    begin = int(np.clip(round(arrival - width / 2), 0, series.shape[1] - width))
    levels = series[:,
                    begin:begin + width].sum(axis=1) / (np.maximum(noise_of(series), 1e-9) * math.sqrt(width))
    snr = max(snr, levels[beam])
    x, y = position(beams, levels)
    found = {
        "x": x, "y": y, "dm": dm, "arrival": start_s + arrival * tsamp, "snr": snr, "beam": beam,
        "start_s": start_s
    }
    truth = {"x": burst["x_deg"], "y": burst["y_deg"], "dm": burst["dm"], "arrival": burst["arrival_s"],
             "snr": expected_snr(sim, simulation, header, width), "width": burst["width_s"]}
    tolerance = {
        "x": abs(beams[0][1] - beams[0][0]), "y": abs(beams[1][1] - beams[1][0]), "dm": step, "arrival": tsamp
    }

    print(f"{'burst':28} {'injected':>12} {'recovered':>12} {'difference':>12} {'allowed':>10}")
    wrong = []
    for key, name, scale, digits in (("x", "position x, degrees", 1, 3), ("y", "position y, degrees", 1, 3),
                                     ("dm", "DM, pc cm^-3", 1, 2), ("arrival", f"arrival at {ref:g} MHz, ms",
                                                                    1e3, 3)):
        off = found[key] - truth[key]
        print(
            f"{name:28} {truth[key] * scale:12.{digits}f} {found[key] * scale:12.{digits}f} "
            f"{off * scale:12.{digits}f} "
            f"{tolerance[key] * scale:10.{digits}f}")
        if not abs(off) <= tolerance[key]:
            wrong.append(
                f"{name}: {found[key] * scale:.{digits}f} is not the {truth[key] * scale:.{digits}f} that "
                f"was injected"
            )
    print(f"{'signal to noise':28} {truth['snr']:12.1f} {snr:12.1f}   (injected: by the radiometer equation)")
    print(f"{'':28} {'':12} {snr / truth['snr']:12.3f} of it, expected at least {KEPT:g}")
    print(f"{'':28} beam {beam}, boxcar of {width} samples of {tsamp * 1e3:.3f} ms")
    if snr < KEPT * truth["snr"]:
        wrong.append(f"signal to noise: {snr:.1f} is {snr / truth['snr']:.3f} of the radiometer equation's")
    if snr < DETECTION:
        wrong.insert(
            0,
            f"no burst was found: the highest signal to noise is {snr:.1f}, expected at least {DETECTION:g}")

    baseband = []
    if beamform is not None:
        baseband, off = report_voltage(arguments, sim, simulation, pipeline, beamform)
        wrong += off
    report_run(os.path.join(arguments.directory, "stats.json"), pipeline)

    picture = os.path.join(arguments.directory, "demo.png")
    best = dedisperse(data[:, beam], delay_s(dm, freq, ref) / tsamp)
    found["series"] = best / max(noise_of(best), 1e-9)
    truth["sweep"] = truth["arrival"] + delay_s(truth["dm"], freq, ref)
    from demo_picture import draw  # needs matplotlib, which who imports this file may not have
    draw(picture, found, truth, sim, header, freq, data[:, beam], beams, levels, ref, baseband)
    print(f"\npicture                      {picture}")
    print(f"filterbank files             {os.path.join(arguments.directory, 'filterbank')}")
    print(f"recordings                   {os.path.join(arguments.directory, '*.dada')}")
    for line in wrong:
        print(f"WRONG: {line}")
    return 1 if wrong else 0


def report_voltage(arguments, sim, simulation, pipeline, beamform):
    """Prints the power of the baseband beams beside the expected one; returns [(x, y, expected, measured,
    whether the source is there)], and what is wrong."""
    recorder = next(s for s in pipeline["pipeline"] if s["stage"] == "record" and s["in"] == beamform["out"])
    axis = simulation["stream"]["freq_mhz"]
    channels = axis["first"] + axis["step"] * np.arange(axis["count"]) if isinstance(axis,
                                                                                     dict) else np.array(axis)
    got = read_voltage(arguments.directory, recorder["prefix"])
    want = expected_voltage(sim, simulation, beamform, channels)
    if got.shape != want.shape:
        raise Trouble(f"the recording has {len(got)} baseband beams; expected {len(want)}")
    xs, ys = beam_grid(beamform["beams"])
    beams, wrong = [], []
    print(
        f"\n{'baseband beam':28} {'expected':>12} {'measured':>12} {'ratio':>12}   mean square of a "
        f"component, levels^2"
    )
    for k, (x, y) in enumerate((x, y) for x in xs for y in ys):
        at = any(abs(x - s["x_deg"]) < 1e-9 and abs(y - s["y_deg"]) < 1e-9 for s in sim.get("sources", []))
        name = f"({x:+.2f}, {y:+.2f})" + (" at the source" if at else "")
        print(f"{name:28} {want[k]:12.3f} {got[k]:12.3f} {got[k] / want[k]:12.3f}")
        beams.append((x, y, want[k], got[k], at))
        if not abs(got[k] / want[k] - 1) < 0.05:
            wrong.append(f"baseband beam {k}: its power is {got[k]:.3f}, expected {want[k]:.3f}")
    return beams, wrong


def report_run(path, pipeline):
    """Samples in and out and the speed, from what `beamring run --stats` wrote."""
    if not os.path.exists(path):
        return
    with open(path) as f:
        stats = json.load(f)
    stages = {s["name"]: s for s in stats["stages"]}
    print()
    for s in pipeline["pipeline"]:
        counts = stages.get(s.get("name", s["stage"]))
        if counts is None:
            continue
        if "in" not in s:
            print(f"{'samples in':28} {counts['out_samples']:12d}   {s['stage']}")
        elif "out" not in s:
            print(f"{'samples out':28} {counts['in_samples']:12d}   {s['stage']} of '{s['in']}'")
    print(f"{'telescope time':28} {stats['stream_s']:12.3f} s in {stats['wall_s']:.1f} s: real-time factor "
          f"{stats['real_time_factor']:.3f}")


def main():
    parser = argparse.ArgumentParser(description="Finds the demo's burst again, and draws it.")
    parser.add_argument("--simulation", required=True, help="the pipeline file that made the field")
    parser.add_argument("--pipeline", required=True, help="the pipeline file that made the beams")
    parser.add_argument("--directory", required=True, help="where their files are, and the picture goes")
    arguments = parser.parse_args()
    try:
        return report(arguments)
    except (Trouble, OSError, KeyError, ValueError) as error:
        print(f"demo_report: {error if not isinstance(error, KeyError) else f'{error} is missing'}",
              file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
