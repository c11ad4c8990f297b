"""Receivers with unknown gains, what is simulated of them, and what `beamring calibrate` finds."""
import os

import h5py
import numpy as np

import harness

PATHFINDER = os.path.join(harness.CONFIG, "telescopes", "pathfinder.yaml")
NF, NP, ND = 8, 2, 64
DEAD = [(0, 11), (1, 11), (0, 40), (1, 3)]  # polarisation, dish
FREQ0, STEP, DT = 400.0, 0.1953125, 5.12e-6
NOISE = 2.0
SOURCE = (1.4, -0.9)  # degrees, as `simulate` has them
STREAM = f"""
stream:
  freq_mhz: {{first: {FREQ0}, step: {STEP}, count: {NF}}}
  sample_ns: 5120
  epoch_ns: 1700000000000000000
"""


def cosines(x_deg, y_deg):
    return np.sin(np.radians([x_deg, y_deg]))


def at(direction):
    """As --direction wants it."""
    return ",".join(f"{c:.12g}" for c in cosines(*direction))


def receivers(seed=1):
    """The receivers' gains, [freq][pol][dish]: amplitudes of 0.7 to 1.4, any phase, a delay of some
    ns; dead inputs."""
    rng = np.random.default_rng(seed)
    freq = FREQ0 + STEP * np.arange(NF)
    amplitude = np.exp(rng.uniform(np.log(0.7), np.log(1.4), (NP, ND)))
    phase = rng.uniform(0, 2 * np.pi, (NP, ND))
    delay = rng.uniform(0, 60e-9, (NP, ND))
    g = amplitude * np.exp(1j * (phase + 2 * np.pi * delay * freq[:, None, None] * 1e6))
    g *= 1 + 0.05 * rng.normal(size=(NF, NP, ND))
    for p, d in DEAD:
        g[:, p, d] = 0
    return g


def write_gains(path, gain):
    with h5py.File(path, "w") as f:
        f["gain"] = gain.astype(np.complex64)


def write_receivers(d, seed=1):
    """receivers.h5, and true.h5 with what makes the array coherent; returns the receivers' gains."""
    g = receivers(seed)
    write_gains(os.path.join(d, "receivers.h5"), g)
    write_gains(os.path.join(d, "true.h5"), np.divide(1, g, where=g != 0, out=np.zeros_like(g)))
    return g


def simulate(d, more, after, name="simulate.yaml"):
    harness.run(d, f"include: {PATHFINDER}\n{STREAM}" + f"""
pipeline:
  - stage: simulate
    noise: {NOISE}
    gains: receivers.h5
    out: field
{more}
{after}
""", name=name)


def see_source(d, samples=6400, flux=0.1, integrate=1600, seed=11, missing="[]"):
    """Visibilities of a steady source: vis/vis_000000.uvh5 and vis/v_*.dada."""
    simulate(d, f"""    samples: {samples}
    seed: {seed}
    missing: {missing}
    sources: [{{x_deg: {SOURCE[0]}, y_deg: {SOURCE[1]}, flux: {flux}}}]""", f"""
  - {{stage: correlate, in: field, out: v, integrate: {integrate}}}
  - {{stage: uvh5, in: v, directory: vis}}
  - {{stage: record, in: v, directory: vis, prefix: v}}""")


def calibrate(d, *arguments, status=0, **more):
    result = harness.beamring("calibrate", *arguments, cwd=d, **more)
    assert result.status == status, result
    return result


def read_gains(path):
    with h5py.File(path) as f:
        return f["gain"][()], f["flag"][()], {k: f[k][()] for k in f}, dict(f.attrs)


def errors(gain, flag, g):
    """Phase errors in degrees and relative errors of amplitudes of the good inputs, each channel and
    polarisation up to one phase and one scale, by the receivers' gains g."""
    phases, amplitudes = [], []
    for f in range(g.shape[0]):
        for p in range(g.shape[1]):
            good = flag[f, p] == 0
            ratio = (gain[f, p] * g[f, p])[good]
            ratio = ratio / (ratio / abs(ratio)).mean()
            phases.append(np.degrees(np.angle(ratio)))
            amplitudes.append(abs(ratio) / np.mean(abs(ratio)) - 1)
    return np.concatenate(phases), np.concatenate(amplitudes)


def good_weights(flag, sets):
    """Weights of the good inputs, in the order of `errors`."""
    return np.concatenate([w[f == 0] for w, f in zip(sets["weight"].reshape(-1, ND), flag.reshape(-1, ND))])


def has_erfa():
    return "without ERFA" not in harness.beamring("calibrate", "x", "--source", "1,2").err
