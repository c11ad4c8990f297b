#!/usr/bin/env python3
"""Draws what `beamring recover --json` found: recovered over predicted S/N, and errors in DM and time.

usage: recover_report.py found.json out.png [--try]

Exit status: 0; 1 when the file has no event; 3 without numpy or matplotlib, which is said unless --try is
given.
"""
import json
import sys

try:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np
except ImportError as missing:
    if "--try" not in sys.argv:
        print(f"recover_report.py: {missing}; it needs numpy and matplotlib", file=sys.stderr)
    sys.exit(3)


def main(source, target):
    with open(source) as f:
        document = json.load(f)
    events = [e for e in document["events"] if "ratio" in e]
    if not events:
        print(f"recover_report.py: {source}: no event was looked for", file=sys.stderr)
        return 1
    predicted, ratio, dm, late = (np.array([e[k] for e in events])
                                  for k in ("predicted", "ratio", "dm_error", "time_error_s"))
    summary = document["summary"]
    figure, axes = plt.subplots(3, 1, figsize=(7, 7), sharex=True, height_ratios=[2, 1, 1],
                                layout="constrained")
    axes[0].axhspan(*summary["limits"], color="0.9")
    axes[0].errorbar(predicted, ratio, 1 / predicted, fmt=".", lw=0.7)
    axes[0].axhline(summary["mean"], color="tab:red", lw=0.8)
    axes[0].set(ylabel="recovered / predicted", xscale="log",
                title=f"mean {summary['mean']:.4f} of {summary['events']} events, {summary['missed']} missed")
    axes[1].plot(predicted, dm, ".")
    axes[1].set(ylabel="DM error, pc/cm$^3$")
    axes[2].plot(predicted, 1e3 * late, ".")
    axes[2].set(ylabel="late, ms", xlabel="predicted S/N")
    figure.savefig(target, dpi=110, format="png")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
