#!/usr/bin/env python3
"""Draws gains against frequency: amplitudes and phases of all inputs, one column for each polarisation; what
was flagged is marked below.

usage: gains_report.py gains.h5 out.png [--try]

Exit status: 0; 1 when the file is not one of `beamring calibrate`; 3 without numpy, h5py or matplotlib, which
is said unless --try is given.
"""
import sys

try:
    import h5py
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np
except ImportError as missing:
    if "--try" not in sys.argv:
        print(f"gains_report.py: {missing}; it needs numpy, h5py and matplotlib (Debian: python3-h5py, "
              "python3-matplotlib)", file=sys.stderr)
    sys.exit(3)

FLAGS = {1: ("dead", "black"), 2: ("weak", "tab:blue"), 3: ("misfit", "tab:red"), 4: ("no result", "0.8")}


def text(value):
    return value.decode() if isinstance(value, bytes) else str(value)


def draw(file, path):
    gain, flag, freq = file["gain"][()], file["flag"][()], file["freq_mhz"][()]
    width = file["width_mhz"][()].max()
    npol, ndishes = gain.shape[1:]
    good = flag == 0
    figure, axes = plt.subplots(3, npol, figsize=(4.6 * npol + 0.8, 6.4), sharex=True, squeeze=False,
                                height_ratios=[2, 2, 1.6], layout="constrained")
    colours = plt.get_cmap("viridis")(np.linspace(0, 1, ndishes))
    for p in range(npol):
        top, middle, bottom = axes[:, p]
        for d in range(ndishes):
            keep = good[:, p, d]
            g = gain[keep, p, d]
            style = dict(color=colours[d], lw=0.6, marker=".", ms=3)
            top.plot(freq[keep], abs(g), **style)
            middle.plot(freq[keep], np.degrees(np.angle(g)), **{**style, "lw": 0})
        for value, (name, colour) in FLAGS.items():
            f, d = np.nonzero(flag[:, p] == value)
            if len(f):
                bottom.scatter(freq[f], d, s=14, marker="s", color=colour, label=name, linewidths=0)
        if (flag[:, p] > 0).any():
            bottom.legend(fontsize=7, loc="lower right", framealpha=0.8)
        snr = file["snr"][:, p]
        solved = snr[snr > 0]
        mean = solved.mean() if len(solved) else 0
        top.set_title(f"polarisation {p}: S/N of a visibility {mean:.3g}", fontsize=9)
        top.set_ylim(bottom=0)
        middle.set(ylim=(-180, 180), yticks=np.arange(-180, 181, 90))
        bottom.set(ylim=(ndishes - 0.5, -0.5), xlabel="MHz", xlim=(freq.min() - width, freq.max() + width))
    axes[0, 0].set_ylabel("|gain|")
    axes[1, 0].set_ylabel("phase, degrees")
    axes[2, 0].set_ylabel("flagged dishes")
    figure.suptitle(f"{text(file.attrs['telescope'])}, {text(file.attrs['source'])}", fontsize=10)
    figure.savefig(path, dpi=90)


def main():
    if len(sys.argv) not in (3, 4):
        print(__doc__, file=sys.stderr)
        return 1
    try:
        with h5py.File(sys.argv[1]) as file:
            draw(file, sys.argv[2])
    except (OSError, KeyError, ValueError) as error:
        print(f"{sys.argv[1]}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
