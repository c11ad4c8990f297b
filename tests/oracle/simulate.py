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


def field(**parameters):
    """E[time][freq][pol][dish] that simulate makes."""
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
pipeline:
  - stage: simulate
{listed}    out: field
  - {{stage: record, in: field, directory: ., prefix: field}}
""")
        name = next(n for n in os.listdir(d) if n.endswith(".dada"))
        e, valid, first, _ = harness.read_e(os.path.join(d, name))
        assert valid.all() and first == 0
        return e


def wave(x_deg, y_deg):
    """Phase factor [freq][dish] of a source in this direction."""
    cosines = np.sin(np.radians([x_deg, y_deg]))
    path = (DISHES * SPACING * cosines).sum(axis=1)
    return np.exp(-2j * np.pi * path[None] * FREQ[:, None] * 1e6 / 299792458.0)


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
            assert "/gain is [2][2][7]; expected [5 or 1][2][7]" in str(error), error
        else:
            raise AssertionError("gains of two channels for five were taken")


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
    harness.main([test_gains, test_source, test_two_sources, test_burst_delays, test_burst_profile])
