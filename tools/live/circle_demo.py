#!/usr/bin/env python3
"""The circle on one machine: receivers with gains that only this program knows; visibilities of a steady
source; `beamring calibrate`; beams of another field with and without the gains that it found; a picture.

usage: circle_demo.py DIRECTORY   (in the top folder; tools/demo --circle builds first)

Exit status: 0 when the gains are within 2 degrees and 3 % of the truth, and the burst is found in its beam
with them and not without; 1 otherwise.
"""
import os
import subprocess
import sys

import h5py
import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "plots"))
import demo_report  # noqa: E402

DISHES, DEAD = 64, ((0, 11), (1, 11), (0, 40), (1, 3))
GRID, SPACING_DEG = 16, 0.25


def make_receivers(path, freq):
    """Any phases, delays of some ns, amplitudes of 0.7 to 1.4, and dead inputs: [freq][pol][dish]."""
    rng = np.random.default_rng(2026)
    phase, delay = rng.uniform(0, 1, (2, DISHES)), rng.uniform(-60e-9, 60e-9, (2, DISHES))
    g = 2 ** rng.uniform(-0.5, 0.5, (2, DISHES)) * np.exp(
        2j * np.pi * (phase + delay * 1e6 * (freq[:, None, None] - freq[0])))
    for p, d in DEAD:
        g[:, p, d] = 0
    with h5py.File(path, "w") as f:
        f["gain"] = g.astype(np.complex64)
    return g


def run(*words):
    print("\n$ beamring " + " ".join(words), flush=True)
    subprocess.run(["build/tools/beamring", *words], check=True)


def compare(path, g):
    """rms of phases in degrees and of amplitudes, by the truth, and the file's gains and flags."""
    with h5py.File(path) as f:
        gain, flag = f["gain"][()], f["flag"][()]
    ratio = np.where((flag == 0) & (g != 0), gain * g, np.nan)
    with np.errstate(invalid="ignore"):
        ratio = ratio / np.nanmean(ratio / abs(ratio), axis=2, keepdims=True)
    size = abs(ratio) / np.nanmean(abs(ratio), axis=2, keepdims=True)
    phase = np.degrees(np.sqrt(np.nanmean(np.angle(ratio) ** 2)))
    return phase, np.sqrt(np.nanmean((size - 1) ** 2)), gain, flag


def best_of_beams(directory, burst):
    """S/N [beam] of the best boxcar within 10 ms of the burst, at its dispersion measure."""
    header, freq, data = demo_report.read_beams(directory)
    series = demo_report.dedisperse(
        data, demo_report.delay_s(burst["dm"], freq, burst["at_mhz"]) / header["tsamp"])
    sigma = demo_report.noise_of(series)[:, None]
    total = np.cumsum(np.pad(series, ((0, 0), (1, 0))), axis=1)
    at, near = int(burst["arrival_s"] / header["tsamp"]), int(0.01 / header["tsamp"])
    return np.max([((total[:, w:] - total[:, :-w]) / sigma / np.sqrt(w))[:, at - near:at + near].max(axis=1)
                   for w in (1, 2, 3, 4, 6)], axis=0)


def draw(path, freq, gain, flag, maps, burst):
    figure = plt.figure(figsize=(9, 6.6), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=[1, 1.15])
    amplitude, phase = top.subplots(1, 2)
    colours = plt.get_cmap("viridis")(np.linspace(0, 1, DISHES))
    for d in range(DISHES):
        keep = flag[:, 0, d] == 0
        amplitude.plot(freq[keep], abs(gain[keep, 0, d]), ".-", ms=2, lw=0.5, color=colours[d])
        phase.plot(freq[keep], np.degrees(np.angle(gain[keep, 0, d])), ".", ms=2.5, color=colours[d])
    dead = np.flatnonzero((flag[:, 0] > 0).all(axis=0))
    amplitude.set(ylim=(0, None), xlabel="MHz",
                  title=f"|gain|, polarisation 0 (flagged: {', '.join(map(str, dead))})")
    phase.set(ylim=(-180, 180), yticks=range(-180, 181, 90), xlabel="MHz", title="phase, degrees")
    edge = GRID / 2 * SPACING_DEG
    for axis, (name, snr) in zip(bottom.subplots(1, 2), maps.items()):
        image = axis.imshow(snr.reshape(GRID, GRID), origin="lower", extent=(-edge, edge, -edge, edge),
                            cmap="magma", vmin=0, vmax=max(m.max() for m in maps.values()))
        axis.plot(burst["y_deg"], burst["x_deg"], "o", ms=14, mfc="none", mec="cyan")
        axis.set(title=f"{name}: S/N {snr.max():.0f}", xlabel="n (east), degrees",
                 ylabel="m (north), degrees")
    bottom.colorbar(image, ax=bottom.axes, label="S/N at the burst's time")
    figure.savefig(path, dpi=80)


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    os.environ["CIRCLE_OUT"] = out
    config = demo_report.load_config("config/circle/burst.yaml")
    burst = demo_report.stage(config, "simulate")["bursts"][0]
    source = demo_report.stage(demo_report.load_config("config/circle/source.yaml"), "simulate")["sources"][0]
    channels = config["stream"]["freq_mhz"]
    freq = channels["first"] + channels["step"] * np.arange(channels["count"])
    g = make_receivers(f"{out}/receivers.h5", freq)
    gains = f"{out}/gains.h5"
    place = ",".join(f"{np.sin(np.radians(source[k])):.10f}" for k in ("x_deg", "y_deg"))
    run("run", "config/circle/source.yaml")
    run("calibrate", f"{out}/vis_000000.uvh5", "--direction", place, "--out", gains, "--overwrite")
    run("run", "config/circle/burst.yaml")
    phase, amplitude, gain, flag = compare(gains, g)
    maps = {name: best_of_beams(f"{out}/{folder}", burst)
            for name, folder in (("without gains", "without"), ("calibrated", "calibrated"))}
    draw(f"{out}/circle.png", freq, gain, flag, maps, burst)
    x, y = (int(round(burst[k] / SPACING_DEG + (GRID - 1) / 2)) for k in ("x_deg", "y_deg"))
    found, blind = maps["calibrated"], maps["without gains"]
    print(f"\ngains: phases within {phase:.2f} degrees rms of the truth, amplitudes within "
          f"{100 * amplitude:.1f} %\nburst: S/N {found.max():.1f} in beam {found.argmax()} (it is in "
          f"{x * GRID + y}); without gains {blind.max():.1f}\npicture: {out}/circle.png")
    good = phase < 2 and amplitude < 0.03 and found.argmax() == x * GRID + y
    good = good and blind.max() < 0.3 * found.max()
    print("the circle is closed" if good else "the circle is NOT closed")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
