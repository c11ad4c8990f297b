"""Looks for the burst that a simulated F-engine sent in the beams that an FRB receiver recorded behind a live
node, and draws it with what became of the packets. Reads every file with code of its own."""
import glob
import math
import os
import re

import numpy as np
import yaml

import demo_report
from demo_report import dedisperse, delay_s, noise_of, Trouble

LIGHT, DETECTION = 299792458.0, 8.0


def load_simulation(path, env):
    """The F-engine's pipeline file, with its variables filled in."""
    def value(match):
        return env.get(match.group(1), match.group(2) or "")
    config = demo_report.load_config(path)
    text = re.sub(r"\$\{(\w+)(?::-([^}]*))?\}", value, yaml.safe_dump(config))
    return yaml.safe_load(text)


# --- what was received ----------------------------------------------------------------------------

def header_of(path):
    with open(path, "rb") as f:
        text = f.read(1 << 20).split(b"\0")[0].decode("latin-1")
    pairs = (line.split("#")[0].split(None, 1) for line in text.split("\n"))
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}


def list_of(header, key):
    """A list, which may go on in KEY_2, KEY_3, ..."""
    parts, k = [header[key]], 2
    while f"{key}_{k}" in header:
        parts.append(header[f"{key}_{k}"])
        k += 1
    return ",".join(part.strip(",") for part in parts)


def frequencies(header):
    text = list_of(header, "FREQ_MHZ")
    if ":" in text:
        first, step, count = text.split(":")
        return float(first) + float(step) * np.arange(int(count))
    return np.array([float(v) for v in text.split(",")])


def frames_of(path, header):
    """(first base sample, values [beam][freq][step], NaN where missing) of a recording of 4-bit levels; whole
    frames of one that grows."""
    beams, channels, _ = (int(n) for n in header["SHAPE"].split(","))
    per, down = int(header["FRAME_SAMPLES"]), int(header["DOWNSAMPLE"])
    at, end = int(header["SAMPLE0"]), int(header["SAMPLE0"]) + (int(header["SAMPLES"]) or 1 << 60)
    raw, pos = np.fromfile(path, np.uint8, offset=int(header["HDR_SIZE"])), 0
    while at < end:
        stop = min((at // per + 1) * per, end)
        steps = -(-stop // down) - at // down
        size = (beams * channels * steps + 1) // 2
        if pos + size + 8 * beams * channels > raw.size:
            break
        packed = raw[pos:pos + size]
        side = raw[pos + size:pos + size + 8 * beams * channels].view(np.float32)
        side = side.reshape(beams, channels, 2)
        levels = np.stack([packed & 15, packed >> 4], -1).reshape(-1)[:beams * channels * steps]
        levels = ((levels ^ 8).astype(np.int8) - 8).reshape(beams, channels, steps)
        values = side[:, :, :1] * levels + side[:, :, 1:]
        yield at, np.where(levels == -8, np.nan, values).astype(np.float32)
        pos, at = pos + size + 8 * beams * channels, stop


def read_received(directory):
    """Beams' directions [beam][2], frequencies, seconds of a step, start in s, data [channel][beam][step]
    less each one's mean, 0 where missing; and the part that is missing."""
    paths = sorted(glob.glob(os.path.join(directory, "received_*.dada")))
    if not paths:
        raise Trouble(f"{directory}: nothing was received")
    head = header_of(paths[0])
    down = int(head["DOWNSAMPLE"])
    frames = [frame for path in paths for frame in frames_of(path, header_of(path))]
    if not frames:
        raise Trouble(f"{directory}: nothing was received")
    first, last = frames[0][0] // down, frames[-1][0] // down + frames[-1][1].shape[2]
    data = np.full((frames[0][1].shape[1], frames[0][1].shape[0], last - first), np.nan, np.float32)
    for at, values in frames:
        begin = at // down - first
        data[:, :, begin:begin + values.shape[2]] = values.transpose(1, 0, 2)
    missing = float(np.isnan(data).mean())
    nothing = np.isnan(data).all(axis=2, keepdims=True)
    mean = np.nanmean(np.where(nothing, 0, data), axis=2, keepdims=True)
    data = np.nan_to_num(data - mean)
    numerator, _, denominator = head["SAMPLE_NS"].partition("/")
    sample_s = float(numerator) / float(denominator or 1) * 1e-9
    freq = frequencies(head)
    order = np.argsort(-freq)
    beams = np.array([float(v) for v in list_of(head, "BEAMS_XY").split(",")]).reshape(-1, 2)
    return beams, freq[order], down * sample_s, first * down * sample_s, data[order], missing


def packets_of(said):
    """{source: {reason: packets}} of what capture says at its end."""
    found = {}
    for source, text in re.findall(r"capture: source (\d+): (.*)", said):
        found[int(source)] = {reason: int(n) for n, reason in re.findall(r"(\d+) (never came|\w+)", text)}
    return found


# --- the picture ----------------------------------------------------------------------------------

def draw(path, found, truth, axes, levels, freq, tsamp, start, data, packets):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    plt.rcParams.update({"font.size": 9, "axes.titlesize": 10, "axes.titlelocation": "left"})
    fig = plt.figure(figsize=(12, 7), constrained_layout=True)
    grid = fig.add_gridspec(2, 2, width_ratios=(1, 1.25), height_ratios=(1.6, 1.5))

    sky = fig.add_subplot(grid[0, 0])
    dx, dy = (axis[1] - axis[0] for axis in axes)
    extent = (axes[1][0] - dy / 2, axes[1][-1] + dy / 2, axes[0][0] - dx / 2, axes[0][-1] + dx / 2)
    shown = sky.imshow(levels.reshape(len(axes[0]), -1), origin="lower", extent=extent, cmap="magma",
                       aspect="auto")
    sky.plot(truth["y"], truth["x"], "+", color="#20a090", markersize=16, markeredgewidth=2, label="sent")
    sky.plot(found["y"], found["x"], "o", markerfacecolor="none", color="#2060ff", markersize=18,
             markeredgewidth=2, label="found")
    sky.set(xlabel="y, east-west (degrees)", ylabel="x, north-south (degrees)",
            title=f"Beams at the burst: {len(levels)} beams")
    sky.legend(loc="upper left", framealpha=0.85, markerscale=0.6)
    fig.colorbar(shown, ax=sky, label="signal to noise", shrink=0.8)

    bars = fig.add_subplot(grid[1, 0])
    names, left = [str(s) for s in packets], np.zeros(len(packets))
    colors = {"accepted": "#3f8f5f", "never came": "#c0392b", "late": "#e0a030", "no_frame": "#8050a0",
              "behind": "#5070b0"}
    for reason, color in colors.items():
        part = np.array([100 * c.get(reason, 0) / max(c.get("accepted", 0) + c.get("never came", 0), 1)
                         for c in packets.values()])
        bars.barh(names, part, left=left, color=color, label=reason.replace("_", " "))
        left += part
    bars.invert_yaxis()
    bars.set(xlabel="packets (% of the expected)", ylabel="source", title="Packets of each source",
             xlim=(0, 105))
    bars.legend(loc="upper left", bbox_to_anchor=(0, -0.16), ncols=4, frameon=False)

    series = dedisperse(data[:, found["beam"]], delay_s(found["dm"], freq, truth["ref"]) / tsamp)
    times = 1e3 * (start + (np.arange(len(series)) + 0.5) * tsamp)
    profile = fig.add_subplot(grid[0, 1])
    profile.axvline(1e3 * truth["arrival"], color="#20a090", linewidth=4, alpha=0.35, label="sent")
    profile.step(times, series / max(noise_of(series), 1e-9), where="mid", color="#502080", linewidth=0.9)
    profile.set(ylabel="signal to noise", xlabel="time (ms)",
                title=f"Best beam dedispersed to {found['dm']:.2f} pc cm$^{{-3}}$, at {truth['ref']:g} MHz")
    profile.legend(loc="upper right", framealpha=0.7)

    waterfall = fig.add_subplot(grid[1, 1], sharex=profile)
    keep = data[:, found["beam"]]
    group = next(g for g in (16, 8, 4, 2, 1) if len(freq) % g == 0)
    keep = keep.reshape(-1, group, keep.shape[1]).mean(axis=1)
    low, high = np.percentile(keep, (2, 99.7))
    waterfall.imshow(keep, aspect="auto", cmap="magma", vmin=low, vmax=high, interpolation="nearest",
                     extent=(1e3 * start, 1e3 * (start + len(series) * tsamp), len(keep) - 0.5, -0.5))
    ticks = np.linspace(0, len(keep) - 1, min(len(keep), 7)).astype(int)
    waterfall.set_yticks(ticks, [f"{freq[group * k:group * (k + 1)].mean():.0f}" for k in ticks])
    waterfall.set(xlabel="time (ms)", ylabel="frequency (MHz), not to scale", title="Best beam, as received")
    fig.savefig(path, dpi=130)
    plt.close(fig)


# --- the report -----------------------------------------------------------------------------------

def beam_axes(beams):
    """Angles of a grid of beams along x and y, degrees."""
    axes = [np.degrees(np.arcsin(np.unique(np.round(beams[:, k], 9)))) for k in (0, 1)]
    if len(axes[0]) * len(axes[1]) != len(beams):
        raise Trouble("the beams are not a grid")
    return axes


def resolution(simulation, freq):
    """Width of a beam along x and y, degrees."""
    t = simulation["telescope"]
    cells = np.array(t["dishes"])
    size = [(np.ptp(cells[:, k]) + 1) * t["spacing_m"][name] for k, name in ((0, "m"), (1, "n"))]
    return [math.degrees(LIGHT / (freq.mean() * 1e6) / s) for s in size]


def find(received, ref):
    """The burst in what read_received gives: where and when it is, and each beam's signal to noise."""
    beams, freq, tsamp, start, data, _ = received
    (snr, dm, width, begin, beam), step = demo_report.search(freq, tsamp, data, ref)
    dm, arrival = demo_report.refine(freq, tsamp, data[:, beam], ref, dm, step, width, begin)
    series = dedisperse(data, np.round(delay_s(dm, freq, ref) / tsamp))
    box = series[:, begin:begin + width].sum(axis=1)
    levels = box / (np.maximum(noise_of(series), 1e-9) * math.sqrt(width))
    x, y = demo_report.position(beam_axes(beams), levels)
    found = {"x": x, "y": y, "dm": dm, "arrival": start + arrival * tsamp, "beam": beam, "snr": snr,
             "step": step, "width": width * tsamp}
    return found, levels


def burst_of(path, env):
    return demo_report.stage(load_simulation(path, env), "simulate")["bursts"][0]


def report(path, env, directory, said, picture):
    """Prints what was found beside what was sent; True when it is the same."""
    simulation = load_simulation(path, env)
    burst = burst_of(path, env)
    received = read_received(directory)
    beams, freq, tsamp, start, data, missing = received
    ref = float(burst["at_mhz"])
    found, levels = find(received, ref)
    snr, step, axes = found["snr"], found["step"], beam_axes(beams)
    truth = {"x": burst["x_deg"], "y": burst["y_deg"], "dm": float(burst["dm"]),
             "arrival": float(burst["arrival_s"]), "ref": ref}
    wide = resolution(simulation, freq)
    allowed = {"x": max(axes[0][1] - axes[0][0], 0.25 * wide[0]),
               "y": max(axes[1][1] - axes[1][0], 0.25 * wide[1]), "dm": 2 * step,
               "arrival": max(2 * tsamp, 0.25 * float(burst["width_s"]))}
    good = snr >= DETECTION
    print(f"{'burst':24} {'sent':>12} {'found':>12} {'allowed':>10}")
    for key, name, scale in (("x", "x, degrees", 1), ("y", "y, degrees", 1), ("dm", "DM, pc cm^-3", 1),
                             ("arrival", f"at {ref:g} MHz, ms", 1e3)):
        off = abs(found[key] - truth[key])
        good = good and off <= allowed[key]
        print(f"{name:24} {truth[key] * scale:12.3f} {found[key] * scale:12.3f} {allowed[key] * scale:10.3f}"
              f"{'' if off <= allowed[key] else '   WRONG'}")
    print(f"{'signal to noise':24} {'':12} {snr:12.1f}   at least {DETECTION:g} expected")
    packets = packets_of(said)
    came = sum(c.get("accepted", 0) for c in packets.values())
    never = sum(c.get("never came", 0) for c in packets.values())
    slow = sum(c.get("no_frame", 0) + c.get("behind", 0) for c in packets.values())
    print(f"packets: {came} taken, {never} never came, {slow} found no free frame; "
          f"{100 * missing:.2f} % of the beams is masked")
    if picture is not None:
        draw(picture, found, truth, axes, levels, freq, tsamp, start, data, packets)
        print(f"picture: {picture}")
    return bool(good)
