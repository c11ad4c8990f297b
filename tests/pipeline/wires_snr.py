"""Bursts on the wire keep their S/N: 4 bits over frb-node and 8 bits over chime-l0, decoded by receivers that
share nothing with the program, beside the intensities of the same run; drifts of gain are not sent."""
import os

import numpy as np

import harness
from bursts import boxcars, BLOCK, CHANNELS, intensities, measured, STEP_S, write_recording
from wires_common import CONFIG
import chime_l0
import frb_node

STEPS, BEAMS, DOWN, FIRST_COARSE = 8192, 8, 384, 100
COARSE = CHANNELS // 16
MHZ = 0.390625 / 16
KEYS = {
    "SAMPLE_NS": 2560, "DOWNSAMPLE": DOWN, "WIDTH_MHZ": MHZ,
    "FREQ_MHZ": f"{800 - 0.390625 * (FIRST_COARSE + COARSE - 0.5) + MHZ / 2!r}:{MHZ!r}:{CHANNELS}",
    "ZONE_0": f"0,{CHANNELS},16,{DOWN},0"
}
SNR, WIDTHS = (8, 20, 50, 100, 200, 500), (1, 4, 16, 64)


def plan():
    """[beam] -> [(first step, width, S/N)], the faint ones first."""
    rng = np.random.default_rng(3)
    kinds = [(s, w) for s in SNR for w in WIDTHS for _ in range(4 if s == 8 else 2)]
    beams = [[] for _ in range(BEAMS)]
    for i, (s, w) in enumerate(kinds):
        beams[i % BEAMS].append((1500 + i // BEAMS * 900 + int(rng.integers(0, 256)), w, s))
    assert max(first + w for of in beams for first, w, _ in of) < STEPS - 100
    return beams


def run(directory, x, stages):
    beams = ",".join(f"0,{0.001 * b!r}" for b in range(x.shape[2]))
    write_recording(directory, x, BEAMS_XY=beams, **KEYS)
    harness.run(directory, f"""
include: {CONFIG}/telescopes/pathfinder.yaml
pipeline:
  - {{stage: replay, files: j.dada, out: j}}
{stages}""")


def over_frb_node(x):
    """The received data, [freq][time][beam]: mean 0 and the requested variance."""
    receiver = frb_node.Receiver()
    with harness.scratch() as d:
        run(d, x, f"""
  - {{stage: quantize, in: j, out: q, bits: 4, block: 256}}
  - {{stage: packetize, in: q, format: frb-node, acks: true, noise_variance: 4,
      destinations: [{{address: "{receiver.address}"}}]}}
""")
    (_, _, chunks), = receiver.finish(60)
    assert [seq for seq, _, _ in chunks] == [k * 256 * DOWN for k in range(x.shape[1] // 256)]
    values = [levels * side[..., :1].astype(np.float64) + side[..., 1:] for _, side, levels in chunks]
    assert all((levels != -8).all() for _, _, levels in chunks)
    return np.concatenate(values, axis=-1).transpose(1, 2, 0)


def over_chime_l0(x):
    """The received data, [freq][time][beam]; the mean of its channel where a packet was lost."""
    receiver = chime_l0.Receiver()
    with harness.scratch() as d:
        run(d, x, f"""
  - {{stage: packetize, in: j, format: chime-l0, rate: 1e7, burst: 50000,
      destinations: [{{address: "{receiver.address}"}}]}}
""")
    got = np.full(x.shape, np.nan)
    for p in receiver.finish():
        at = p["count"] // DOWN
        for b, beam in enumerate(p["beams"]):
            for f, coarse in enumerate(p["coarse"]):
                rows = (FIRST_COARSE + COARSE - 1 - coarse) * 16
                value = p["scale"][b, f].astype(np.float64) * p["data"][b, f] + p["offset"][b, f]
                assert (p["data"][b, f] > 0).all()
                got[rows:rows + 16, at:at + value.shape[1], beam] = value[::-1]
    lost = np.isnan(got)
    assert lost.mean() < 0.01, lost.mean()
    return np.where(lost, np.nanmean(got, axis=1, keepdims=True), got)


def check(whole, got, beams, bound):
    """Mean S/N by kind: kept up to S/N 100, and growing beyond."""
    whole, got = (measured(v.sum(axis=0, dtype=np.float64).T, beams) for v in (whole, got))
    least = (2,)
    for w in WIDTHS:
        before = 0
        for s in SNR:
            at = (whole[:, 0] == w) & (whole[:, 1] == s)
            if not at.any():
                continue
            ratio = got[at, 2].mean() / whole[at, 2].mean()
            assert ratio >= 0.95 or s > 100, (w, s, ratio)
            assert got[at, 2].mean() > 1.7 * before and ratio > bound, (w, s, ratio)
            before, least = got[at, 2].mean(), min(least, (ratio, w, s))
    print(f"least S/N: {least[0]:.3f} of that of the intensities, at width {least[1]}, S/N {least[2]}")


def test_frb_node():
    beams = plan()
    x = intensities(beams, STEPS)
    got = over_frb_node(x)
    check(x, got, beams, 0.9)
    quiet = got[:, 512:1500]
    assert abs(quiet.mean()) < 0.01 and abs(quiet.var() / 4 - 1) < 0.02, (quiet.mean(), quiet.var())


def test_chime_l0():
    beams = [[(first, w, s) for first, w, s in of if first < 6000] for of in plan()][:4]
    x = intensities(beams + [[]] * 4, 6144)[:, :, :4]
    check(x, over_chime_l0(x), beams, 0.9)


def test_frb_node_drift():
    gain = 1 + 0.01 * STEP_S * np.arange(10240)
    got = over_frb_node(intensities([], gain.size, gain))
    series = got.sum(axis=0).T
    assert boxcars(series) < 8, boxcars(series)
    means = got.mean(axis=(0, 2)).reshape(-1, 256).mean(axis=1)
    # The whole drift is 0.1 sqrt(24) deviations of 2.
    assert abs(means).max() < 0.2 and abs(means[-8:]).max() < 0.08, means


if __name__ == "__main__":
    harness.main([test_frb_node, test_chime_l0, test_frb_node_drift])
