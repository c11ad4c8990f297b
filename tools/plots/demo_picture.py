"""The demo's picture: where the burst was found, its sweep, and the steady source in the baseband beams."""

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

INJECTED, FOUND, SOURCE, CURVE = "#20a090", "#2060ff", "#90c0ff", "#502080"


def draw_sky(axes, found, truth, sim, beams, levels):
    """S/N of every FRB beam at the burst's time and dispersion measure."""
    dx, dy = (a[1] - a[0] if len(a) > 1 else 1.0 for a in beams)
    extent = (beams[1][0] - dy / 2, beams[1][-1] + dy / 2, beams[0][0] - dx / 2, beams[0][-1] + dx / 2)
    shown = axes.imshow(levels.reshape(len(beams[0]), len(beams[1])), origin="lower", extent=extent,
                        cmap="magma")
    axes.plot(truth["y"], truth["x"], "+", color=INJECTED, markersize=16, markeredgewidth=2,
              linestyle="none", label="burst as simulated")
    axes.plot(found["y"], found["x"], "o", markerfacecolor="none", color=FOUND, markersize=22,
              markeredgewidth=2, linestyle="none", label="burst as found")
    for k, s in enumerate(sim.get("sources", [])):
        axes.plot(s["y_deg"], s["x_deg"], "*", markerfacecolor="none", color=SOURCE, markersize=11,
                  linestyle="none", label="steady source: seen in the baseband beams" if k == 0 else None)
    axes.set(xlabel="y, east-west (degrees)", ylabel="x, north-south (degrees)", xlim=extent[:2],
             ylim=extent[2:], title=f"{len(levels)} FRB beams at the moment of the burst")
    axes.legend(loc="upper left", framealpha=0.85, markerscale=0.6, fontsize=8)
    axes.figure.colorbar(shown, ax=axes, label="signal to noise", shrink=0.85)


def draw_baseband(axes, baseband):
    """Power of the voltage beams: measured as bars, expected as lines."""
    at = np.arange(len(baseband))
    axes.bar(at, [got for _, _, _, got, _ in baseband], width=0.6,
             color=[FOUND if source else "0.75" for *_, source in baseband])
    for k, (_, _, want, _, _) in enumerate(baseband):
        axes.plot([k - 0.4, k + 0.4], [want, want], color=INJECTED, lw=2,
                  label="expected from noise and source" if k == 0 else None)
    names = [f"x {x:+.2f}, y {y:+.2f}" + ("\n(at the steady source)" if source else "\n(beside it)")
             for x, y, _, _, source in baseband]
    axes.set_xticks(at, names, fontsize=8)
    axes.set(ylabel="power, levels$^2$", title="Baseband beams: only the one at the steady source is loud")
    axes.set_ylim(top=1.25 * max(max(want, got) for _, _, want, got, _ in baseband))
    axes.legend(loc="upper right", fontsize=8, framealpha=0.85)


def draw_profile(axes, found, truth, times, ref_mhz):
    axes.axvline(1e3 * truth["arrival"], color=INJECTED, linewidth=4, alpha=0.35,
                 label="arrival as simulated")
    axes.step(1e3 * times, found["series"], where="mid", color=CURVE, linewidth=0.9)
    axes.set(ylabel="signal to noise",
             title=f"The burst in its beam: dedispersed to {found['dm']:.1f} pc cm$^{{-3}}$, "
                   f"at {ref_mhz:g} MHz")
    axes.legend(loc="upper right", framealpha=0.7, fontsize=8)
    plt.setp(axes.get_xticklabels(), visible=False)


def draw_waterfall(axes, truth, header, freq, beam, t0):
    group = next(g for g in (4, 2, 1) if len(freq) % g == 0)
    keep = beam.reshape(-1, group, beam.shape[1]).mean(axis=1)
    low, high = np.percentile(keep, (2, 99.7))
    half, end = abs(header["foff"]) / 2, t0 + beam.shape[1] * header["tsamp"]
    axes.imshow(keep, aspect="auto", cmap="magma", vmin=low, vmax=high, interpolation="nearest",
                extent=(1e3 * t0, 1e3 * end, freq[-1] - half, freq[0] + half))
    for side in (-1, 1):
        axes.plot(1e3 * (truth["sweep"] + side * 5 * truth["width"]), freq, color="#40e0d0", linewidth=1,
                  linestyle="--", label="on either side of the sweep as simulated" if side < 0 else None)
    axes.set(xlabel="time (ms)", ylabel="frequency (MHz)",
             title="The same beam before: low frequencies come later", xlim=(1e3 * t0, 1e3 * end))
    axes.legend(loc="lower left", framealpha=0.85, fontsize=8)


def draw(path, found, truth, sim, header, freq, beam, beams, levels, ref_mhz, baseband):
    """beam [channel][time] is that of the burst; found["series"] its dedispersed S/N, truth["sweep"] the
    arrival at each channel; baseband [(x, y, expected, measured, at the source)]."""
    plt.rcParams.update({"font.size": 9, "axes.titlesize": 10, "axes.titlelocation": "left"})
    fig = plt.figure(figsize=(12, 7.4), constrained_layout=True)
    left, right = fig.subfigures(1, 2, width_ratios=(1, 1.25))
    upper = left.add_gridspec(2, 1, height_ratios=(2.3, 1))
    lower = right.add_gridspec(2, 1, height_ratios=(1, 2.1))
    draw_sky(left.add_subplot(upper[0] if baseband else upper[:]), found, truth, sim, beams, levels)
    if baseband:
        draw_baseband(left.add_subplot(upper[1]), baseband)
    times = found["start_s"] + (np.arange(len(found["series"])) + 0.5) * header["tsamp"]
    profile = right.add_subplot(lower[0])
    draw_profile(profile, found, truth, times, ref_mhz)
    draw_waterfall(right.add_subplot(lower[1], sharex=profile), truth, header, freq, beam, found["start_s"])
    fig.savefig(path, dpi=130)
    plt.close(fig)
