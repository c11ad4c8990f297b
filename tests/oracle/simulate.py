"""What `simulate` should make, from the equations: a plane wave's phases across the dishes, the noise's and
the sources' power, and a burst whose delay follows K DM (f^-2 - f_ref^-2) across channels and inside them.
Reads recordings with code of its own.

usage: simulate.py   (the program is named by BEAMRING)
"""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pipeline"))
import harness

DISHES = np.array([[0, 0], [0, 3], [1, 1], [2, 0], [2, 5], [3, 2], [3, 5]])
SPACING = np.array([8.5, 6.3])
DT = 5.12e-6
BAND = 1e-6 / DT
FREQ = 400 + BAND * np.arange(5)
K = 1 / 2.41e-4


SIDEBAND = "upper"


def field(**parameters):
    """E[time][freq][pol][dish] that simulate makes; of a lower sideband the conjugate: an upper one."""
    with harness.scratch() as d:
        listed = "".join(f"    {key}: {value}\n" for key, value in parameters.items())
        harness.run(d, f"""
telescope:
  name: oracle
  grid: {{m: 4, n: 6}}
  spacing_m: {{m: {SPACING[0]}, n: {SPACING[1]}}}
  dishes: {DISHES.tolist()}
stream:
  freq_mhz: {FREQ.tolist()}
  sample_ns: 5120
  epoch_ns: 1700000000000000000
  sideband: {SIDEBAND}
pipeline:
  - stage: simulate
{listed}    out: field
  - {{stage: record, in: field, directory: ., prefix: field}}
""")
        name = next(n for n in os.listdir(d) if n.endswith(".dada"))
        e, valid, first, _ = harness.read_e(os.path.join(d, name))
        assert valid.all() and first == 0
        return e.conj() if SIDEBAND == "lower" else e


def lower(test):
    """The same test with a lower sideband."""
    def run():
        global SIDEBAND
        SIDEBAND = "lower"
        try:
            test()
        finally:
            SIDEBAND = "upper"
    run.__name__ = test.__name__ + "_lower"
    return run


def wave(x_deg, y_deg):
    """Phase factor [freq][dish] of a source in this direction: a dish nearer to it receives the wave earlier,
    by path / c, and exp(2 pi i f t) is ahead there by 2 pi f path / c."""
    cosines = np.sin(np.radians([x_deg, y_deg]))
    path = (DISHES * SPACING * cosines).sum(axis=1)
    return np.exp(2j * np.pi * path[None] * FREQ[:, None] * 1e6 / 299792458.0)


def test_source():
    """Visibilities of one strong source: the product of its phases, in both polarisations, which are
    independent."""
    x, y, noise, flux = 1.3, -2.2, 0.5, 9.0
    n = 20000
    e = field(samples=n, seed=3, noise=noise, sources=f"[{{x_deg: {x}, y_deg: {y}, flux: {flux}}}]")
    for p in (0, 1):
        v = np.einsum("tfa,tfb->fab", e[:, :, p], e[:, :, p].conj()) / n
        a = wave(x, y)
        want = 2 * flux * noise ** 2 * a[:, :, None] * a.conj()[:, None, :]
        want += np.eye(len(DISHES)) * 2 * (noise ** 2 + 1 / 12)
        # n samples of power 5: an error of 5 / sqrt(n) = 0.035 a component
        assert abs(v - want).max() < 6 * 0.035, abs(v - want).max()
    cross = abs(np.einsum("tfa,tfb->fab", e[:, :, 0], e[:, :, 1].conj()) / n).max()
    assert cross < 6 * 0.035, cross


def test_two_sources():
    """The power of a beam toward each of two sources."""
    n, noise = 20000, 1.0
    places, flux = [(0.5, 0.7), (-2.5, 3.5)], [0.8, 0.3]
    listed = ", ".join(f"{{x_deg: {x}, y_deg: {y}, flux: {s}}}" for (x, y), s in zip(places, flux))
    e = field(samples=n, seed=4, noise=noise, sources=f"[{listed}]")
    waves = [wave(*place) for place in places]
    for a in waves:
        power = (abs(np.einsum("fd,tfpd->tfp", a.conj(), e)) ** 2).mean(axis=(0, 2))
        want = 2 * len(DISHES) * (noise ** 2 + 1 / 12)
        want = want + sum(2 * noise**2 * s * abs((a.conj() * b).sum(axis=1))**2 for s, b in zip(flux, waves))
        assert abs(power / want - 1).max() < 6 / np.sqrt(2 * n), power / want


def test_gains():
    """A receiver's gain multiplies all that it gives: quarter cycles and 0 do so exactly, channel by channel,
    or in all channels alike; a file of another shape is refused."""
    import h5py
    steps = np.random.default_rng(1).integers(0, 5, (len(FREQ), 2, len(DISHES)))
    gain = np.array([1, 1j, -1, -1j, 0])[steps]
    more = dict(samples=300, seed=6, noise=2, sources="[{x_deg: 1, y_deg: 2, flux: 0.5}]")
    plain = field(**more)
    with harness.scratch() as d:
        path = os.path.join(d, "gains.h5")
        for value in (gain, gain[:1]):
            with h5py.File(path, "w") as f:
                f["gain"] = value.astype(np.complex64)
            assert np.array_equal(field(**more, gains=path), plain * value)
        with h5py.File(path, "w") as f:
            f["gain"] = gain[:2].astype(np.complex64)
        try:
            field(**more, gains=path)
        except AssertionError as error:
            assert "/gain is [2][2][7]; expected freq 1 or 5, pol 2, dish 7" in str(error), error
        else:
            raise AssertionError("gains of two channels for five were taken")


def test_drifts():
    """A phase that drifts by w is exp(i w t) on all that the receiver gives: of a strong source without noise
    to speak of, in the visibilities of short spans; a rate of 0 changes nothing."""
    import h5py
    n, span, noise = 40000, 1000, 0.02
    rate = np.random.default_rng(2).normal(size=(2, len(DISHES))) * 30
    rate[:, 2] = 0
    source = dict(samples=n, seed=8, noise=noise, sources="[{x_deg: 0.4, y_deg: -1.1, flux: 10000}]")
    with harness.scratch() as d:
        path = os.path.join(d, "drifts.h5")
        with h5py.File(path, "w") as f:
            f["drift"] = rate
        e = field(**source, drifts=path)
        assert np.array_equal(e[:, :, :, 2], field(**source)[:, :, :, 2])
        with h5py.File(path, "w") as f:
            f["drift"] = rate[:1]
        for more, words in ((dict(drifts=path), "/drift is [1][7]; expected [2][7]"),
                            (dict(drifts=path, drift_rms=3), "both drifts and drift_rms")):
            try:
                field(**source, **more)
            except AssertionError as error:
                assert words in str(error), error
            else:
                raise AssertionError(f"taken: {more}")
    a = wave(0.4, -1.1)
    blocks = e.reshape(n // span, span, *e.shape[1:])
    v = np.einsum("btfpi,btfp->bfpi", blocks, blocks[..., 2].conj()) * (a.conj() * a[:, 2:3])[None, :, None]
    t = (np.arange(n // span) + 0.5) * span * DT
    off = np.angle(v * np.exp(-1j * rate[None, None] * t[:, None, None, None]))
    # 1000 samples of a source of S/N 50 with the noise of rounding: 1 / (rms 2 / 0.3) / sqrt(1000) = 0.005
    assert abs(off).max() < 0.03 and off.std() < 0.006, (abs(off).max(), off.std())


def test_drawn_drifts():
    """Rates that are drawn have the stated rms, another one for each input, and follow the seed."""
    source = dict(samples=60000, noise=0.02, sources="[{x_deg: 0, y_deg: 0, flux: 10000}]", drift_rms=18000)
    rates = []
    for seed in range(1, 9):
        e = field(seed=seed, **source)
        s = (e * e[:, :, :, :1].conj()).sum(axis=1).reshape(60, 1000, 2, -1).sum(axis=1)
        slope = np.angle((s[1:] * s[:-1].conj()).sum(axis=0)) / (1000 * DT)
        rates.append(slope[:, 1:] / (2 * np.pi) * 3600)     # differences to dish 0
    rates = np.array(rates)
    assert abs(np.sqrt((rates ** 2).mean()) / (18000 * np.sqrt(2)) - 1) < 0.25, rates
    assert len(set(np.round(rates.ravel(), 3))) == rates.size


def spherical(east, north, freq_mhz):
    """exp(-2 pi i r / lambda) / r at each dish, which the wave reaches late by r / c; its mean power is 1."""
    r = np.hypot(east - DISHES[:, 1] * SPACING[1], north - DISHES[:, 0] * SPACING[0])
    return np.exp(-2j * np.pi * r * freq_mhz * 1e6 / 299792458.0) / r / np.sqrt((1 / r ** 2).mean())


CARRIER = dict(freq_mhz=400.25, power_db=3, duty=0.25, period_s=0.004, start_s=0.002, east_m=90, north_m=-55)


def test_carriers():
    """A pulsed carrier: when it is on, at which frequency, how strong, with which phases at the dishes; in
    its channel alone, alike in both polarisations, and with another phase in each pulse."""
    n, noise = 20000, 1.0
    listed = ", ".join(f"{k}: {v}" for k, v in CARRIER.items())
    e = field(samples=n, seed=9, noise=noise, carriers=f"[{{{listed}}}]")
    quiet = field(samples=n, seed=9, noise=noise)
    c = abs(FREQ - CARRIER["freq_mhz"]).argmin()
    others = np.arange(len(FREQ)) != c
    assert np.array_equal(e[:, others], quiet[:, others])
    t = np.arange(n) * DT
    since = t - CARRIER["start_s"]
    on = (since >= 0) & (np.mod(since, CARRIER["period_s"]) < CARRIER["duty"] * CARRIER["period_s"])
    edge = abs(np.mod(since + 1e-9, CARRIER["period_s"]) - np.array([[0], [1e-3]])).min(axis=0) < DT
    assert np.array_equal(e[~on & ~edge, c], quiet[~on & ~edge, c])
    w = spherical(CARRIER["east_m"], CARRIER["north_m"], CARRIER["freq_mhz"])
    beam = (e[:, c] * w.conj()).mean(axis=2)                # [time][pol]
    tone = beam * np.exp(-2j * np.pi * (CARRIER["freq_mhz"] - FREQ[c]) * 1e6 * t)[:, None]
    pulse = np.floor(since / CARRIER["period_s"]).astype(int)
    amplitude = np.sqrt(2 * noise ** 2 * 10 ** (CARRIER["power_db"] / 10))
    phases = []
    for k in range(pulse.max()):
        mean = tone[on & ~edge & (pulse == k)].mean(axis=0)
        # 190 samples of 7 dishes with noise 1: 0.03 in each component
        assert abs(abs(mean) - amplitude).max() < 0.15 and abs(mean[0] - mean[1]) < 0.2, (k, mean)
        phases.append(np.angle(mean[0]))
    assert len(phases) > 20 and np.ptp(np.sort(np.diff(phases))) > 3
    listed = ", ".join(f"{k}: {v}" for k, v in dict(CARRIER, duty=1).items())
    steady = field(samples=n, seed=9, noise=noise, carriers=f"[{{{listed}}}]")
    tone = (steady[:, c] * w.conj()).mean(axis=(1, 2)) * np.exp(
        -2j * np.pi * (CARRIER["freq_mhz"] - FREQ[c]) * 1e6 * t)
    late = tone[since > DT]
    assert abs(abs(late.mean()) - amplitude) < 0.03, "one phase while it is always on"


def test_impulses():
    """An impulse: white noise of its power in all channels while it lasts, one wave for both
    polarisations; a plane wave where the transmitter is far away."""
    n, noise, power = 20000, 1.0, 2.0
    x = np.sin(np.radians(3.0))
    place = f"north_m: {1e6 * x}, east_m: {1e6 * np.sqrt(1 - x * x)}"
    e = field(samples=n, seed=10, noise=noise, impulses=f"[{{start_s: 0.02, duration_s: 0.05, power_db: "
              f"{10 * np.log10(power)}, {place}}}]")
    quiet = field(samples=n, seed=10, noise=noise)
    t = np.arange(n) * DT
    on = (t >= 0.02) & (t < 0.07)
    edge = np.minimum(abs(t - 0.02), abs(t - 0.07)) < DT
    assert np.array_equal(e[~on & ~edge], quiet[~on & ~edge])
    a = np.exp(2j * np.pi * FREQ[:, None] * 1e6 / 299792458.0 *
               (DISHES * SPACING * [x, np.sqrt(1 - x * x)]).sum(axis=1))
    part = e[on & ~edge]
    v = np.einsum("tfpa,tfqb->fpqab", part, part.conj()) / len(part)
    want = 2 * noise ** 2 * power * a[:, None, None, :, None] * a.conj()[:, None, None, None, :]
    want = want + np.einsum("pq,ab->pqab", np.eye(2), np.eye(len(DISHES))) * 2 * (noise ** 2 + 1 / 12)
    # 9765 samples of power 6: 0.06 in each component; the wave of 1000 km is bent by 1e-4 rad
    assert abs(v - want).max() < 6 * 0.06, abs(v - want).max()
    cross = np.einsum("tfa,tga->fg", part[:, :, 0], part[:, :, 0].conj()) / len(part) / len(DISHES)
    assert abs(cross[0, 1:]).max() < 6 * 0.06, "channels are independent"


BURST = dict(x_deg=-1.0, y_deg=2.0, dm=250.0, arrival_s=0.01, at_mhz=401.0, width_s=0.001, flux=4.0)
NOISE = 1.0


def burst_beam():
    """The coherent sum toward a burst, [time][freq][pol], in levels of one dish."""
    listed = ", ".join(f"{k}: {v}" for k, v in BURST.items())
    e = field(duration_s=0.07, seed=5, noise=NOISE, bursts=f"[{{{listed}}}]")
    a = wave(BURST["x_deg"], BURST["y_deg"])
    return np.einsum("fd,tfpd->tfp", a.conj(), e) / len(DISHES)


def delay(f):
    return K * BURST["dm"] * (f ** -2.0 - BURST["at_mhz"] ** -2.0)


def test_burst_delays():
    """Sixteenth channels by plain transforms of 16 samples: each sees the burst at its own time, and the
    delays fit DM."""
    z = burst_beam()
    u = 16
    n = len(z) // u
    blocks = z[:n * u].reshape(n, u, len(FREQ), 2)
    fine = np.fft.fft(blocks, axis=1)
    power = (abs(fine) ** 2).sum(axis=3)                       # [block][u][freq]
    offset = np.fft.fftfreq(u) * BAND
    f = (FREQ[None] + offset[:, None])
    centre_of_block = (np.arange(n) + 0.5) * u * DT
    want = BURST["arrival_s"] + delay(f)
    keep = np.abs(offset) < 0.45 * BAND                        # the channel's very edges alias
    background = np.median(power, axis=0) / np.log(2) * 0.8
    got = np.zeros_like(f)
    for k in range(u):
        for c in range(len(FREQ)):
            near = abs(centre_of_block - want[k, c]) < 0.003
            assert near.sum() * u * DT > 0.0055, "the burst is inside the recording"
            w = power[near, k, c] - background[k, c]
            got[k, c] = (w * centre_of_block[near]).sum() / w.sum()
    error = (got - want)[keep]
    assert abs(error.mean()) < 6e-5, error.mean()
    assert error.std() < 2e-4, error.std()
    law = (f ** -2.0 - BURST["at_mhz"] ** -2.0)[keep].ravel()
    slope, _ = np.polyfit(law, got[keep].ravel(), 1)
    assert abs(slope / K / BURST["dm"] - 1) < 0.02, slope / K
    # Inside a channel alone: the sweep from edge to edge is 6.3 ms, and each channel shows it.
    for c in range(len(FREQ)):
        slope, _ = np.polyfit((f[keep, c] ** -2.0), got[keep, c], 1)
        assert abs(slope / K / BURST["dm"] - 1) < 0.1, (c, slope / K)


def test_burst_profile():
    """The inverse of the chirp gives back a Gaussian of the width, time and energy that were asked for."""
    z = burst_beam()
    n = len(z)
    v = np.fft.fftfreq(n, DT) * 1e-6
    t = np.arange(n) * DT
    energies = []
    for c, fc in enumerate(FREQ):
        # the delay of fc + v against fc, integrated over v, in cycles
        cycles = 1e6 * K * BURST["dm"] * (1 / fc - 1 / (fc + v) - v / fc ** 2)
        back = np.fft.ifft(np.fft.fft(z[:, c], axis=0) * np.exp(2j * np.pi * cycles)[:, None], axis=0)
        power = (abs(back) ** 2).sum(axis=1) - 2 * 2 * (NOISE ** 2 + 1 / 12) / len(DISHES)
        near = abs(t - BURST["arrival_s"] - delay(fc)) < 2 * BURST["width_s"]
        energy = power[near].sum()
        centre = (power * t)[near].sum() / energy
        sigma = np.sqrt((power * (t - centre) ** 2)[near].sum() / energy)
        # about 2 pol x 195 independent samples in its width
        assert abs(centre - BURST["arrival_s"] - delay(fc)) < 1.2e-4, centre - BURST["arrival_s"] - delay(fc)
        assert abs(sigma * np.sqrt(8 * np.log(2)) / BURST["width_s"] - 1) < 0.15, sigma
        energies.append(energy)
    want = 2 * 2 * NOISE ** 2 * BURST["flux"] * BURST["width_s"] / DT * np.sqrt(np.pi / (4 * np.log(2)))
    assert abs(np.mean(energies) / want - 1) < 0.08, np.array(energies) / want


if __name__ == "__main__":
    harness.main([
        test_gains, test_source, test_two_sources, test_drifts, test_drawn_drifts, test_carriers,
        test_impulses,
        test_burst_delays, test_burst_profile,
        *(lower(test) for test in (test_source, test_carriers, test_impulses, test_burst_delays))
    ])
