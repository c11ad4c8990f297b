#!/usr/bin/env python3
"""Twelve antennas on a roof, which are on no grid: a beam that follows a source across the sky beside one
that stays; a burst from that source, found again among beams around it; a picture.

usage: array_demo.py DIRECTORY   (in the top folder; tools/demo --array builds first)

Exit status: 0 when the beam that follows keeps its power within 2 % while the other one loses the source, and
the burst is found in the beam at the source; 1 otherwise.
"""
import os
import sys

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "plots"))
import demo_report  # noqa: E402
from circle_demo import best_of_beams, run  # noqa: E402

NEAR_DEG = 0.01  # the beam at the source may be so far from it


def power(path):
    """Minutes from the start, and the power of a beam."""
    header, data = demo_report.read_filterbank(path)
    total = data.mean(axis=1)
    return (np.arange(len(total)) + 0.5) * header["tsamp"] / 60, total


def degrees(sigproc, hours=False):
    """An angle of a SIGPROC header: hhmmss.s or ddmmss.s."""
    size = abs(sigproc)
    whole = size // 10000 + size % 10000 // 100 / 60 + size % 100 / 3600
    return np.copysign(whole, sigproc) * (15 if hours else 1)


def place(path):
    """Right ascension and declination of a beam, by its file's header, degrees."""
    header, _ = demo_report.read_filterbank(path)
    return degrees(header["src_raj"], hours=True), degrees(header["src_dej"])


def sexagesimal(radec):
    ra, dec = (np.dot([abs(float(v)) for v in text.split(":")], [1, 1 / 60, 1 / 3600]) for text in radec)
    return 15 * ra, np.copysign(dec, float(radec[1].split(":")[0]))


def draw(path, positions, powers, snr, spacing, waterfall, header, freq, source):
    figure, ((layout, follow), (sky, field)) = plt.subplots(2, 2, figsize=(9, 7), layout="constrained")
    dots = layout.scatter(positions[:, 0], positions[:, 1], c=positions[:, 2], cmap="viridis")
    layout.set(title="twelve antennas on a roof", xlabel="east, m", ylabel="north, m", aspect="equal")
    figure.colorbar(dots, ax=layout, label="up, m")
    for (minutes, total), name in zip(powers, ("a beam that follows the source", "a beam that stays")):
        follow.plot(minutes, total, label=name)
    follow.set(title=f"power towards {source}", xlabel="minutes", ylim=(0, 1.3))
    follow.legend(loc="lower left")
    n = int(np.sqrt(len(snr)))
    edge = n / 2 * spacing
    image = sky.imshow(snr.reshape(n, n), origin="lower", extent=(-edge, edge, -edge, edge), cmap="magma",
                       vmin=0)
    sky.plot(0, 0, "o", ms=16, mfc="none", mec="cyan")
    sky.set(title=f"a burst: S/N {snr.max():.0f}", xlabel="degrees along east", ylabel="degrees along north")
    figure.colorbar(image, ax=sky, label="S/N in each beam")
    times = 1e3 * header["tsamp"] * waterfall.shape[1]
    field.imshow(waterfall, aspect="auto", origin="upper", extent=(0, times, freq[-1], freq[0]),
                 cmap="viridis", vmin=np.percentile(waterfall, 1), vmax=np.percentile(waterfall, 99.8))
    field.set(title="the beam at the source", xlabel="ms", ylabel="MHz")
    figure.savefig(path, dpi=80)


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    os.environ["ARRAY_OUT"] = out
    config = demo_report.load_config("config/array/burst.yaml")
    burst = demo_report.stage(config, "simulate")["bursts"][0]
    grid = demo_report.stage(config, "power_beams")["beams"]
    run("beams", "config/array/follow.yaml", "--at", "sample:540000")
    run("run", "config/array/follow.yaml")
    run("run", "config/array/burst.yaml")

    powers = [power(f"{out}/{name}0000.fil") for name in ("followed", "still")]
    start = powers[0][1][:len(powers[0][1]) // 10].mean()
    powers = [(minutes, total / start) for minutes, total in powers]
    kept, left = (total[-(len(total) // 10):].mean() for _, total in powers)
    snr = best_of_beams(f"{out}/burst", burst)
    best, middle = int(snr.argmax()), len(snr) // 2
    ra, dec = sexagesimal(burst["radec"])
    found = place(f"{out}/burst/beam{best:04}.fil")
    apart = np.hypot((found[0] - ra) * np.cos(np.radians(dec)), found[1] - dec)
    header, freq, data = demo_report.read_beams(f"{out}/burst")
    wide = data[:, best].reshape(len(freq) // 4, 4, -1).mean(axis=1)
    draw(f"{out}/array.png", np.array(config["telescope"]["positions_m"]), powers, snr, grid["spacing_deg"],
         wide[:, :wide.shape[1] // 2 * 2].reshape(len(wide), -1, 2).mean(axis=2),
         {"tsamp": 2 * header["tsamp"]}, freq, "the source")
    print(f"\nthe source: after {powers[0][0][-1]:.0f} minutes {kept:.3f} of the power in the beam that follows, "
          f"{left:.3f} in the one that stays\n"
          f"the burst:  S/N {snr.max():.1f} in beam {best} (it is in {middle}), which looks at RA "
          f"{found[0]:.4f}, Dec {found[1]:.4f} degrees: {3600 * apart:.1f} arc seconds from the source\n"
          f"picture:    {out}/array.png")
    good = abs(kept - 1) < 0.02 and left < 0.6 and best == middle and apart < NEAR_DEG and snr.max() > 8
    print("the source was followed, and the burst was found" if good else "this is NOT what was simulated")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
