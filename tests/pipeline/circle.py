"""The circle: a field whose receivers have unknown gains, and dead inputs -> visibilities of a steady source
-> `beamring calibrate` -> gains -> beams of another field with the same receivers, in which a burst is found
where it is, with the S/N that the true gains give; and not without."""
import glob
import os

import h5py
import numpy as np

import circle_common as circle
import harness
from capture_common import ip_udp, LINKS, packets, write_pcap
from circle_common import DEAD, DT, FREQ0, ND, NF, NP, PATHFINDER, SOURCE, STEP

BURST = dict(x_deg=-0.7, y_deg=1.3, dm=40, arrival_s=0.06, at_mhz=401, width_s=0.002, flux=0.012)
BEAMS, SPACING, INTEGRATE = (9, 9), 0.35, 192


def chain(gains):
    more = f", gains: {gains}" if gains else ""
    return f"""include: {PATHFINDER}
pipeline:
  - {{stage: replay, files: "field_*.dada", out: field}}
  - {{stage: upchannelize, in: field, out: fine, factor: 16}}
  - {{stage: frb_grid, in: fine, out: grid, integrate: {INTEGRATE}{more}}}
  - {{stage: frb_beams, in: grid, out: beams, beams: {{grid: {list(BEAMS)}, spacing_deg: {SPACING},
      center: [{BURST['x_deg'] + SPACING}, {BURST['y_deg'] - 2 * SPACING}]}}}}
  - {{stage: record, in: beams, directory: beams_{gains or 'none'}, prefix: beams}}
"""


def search(d, gains):
    """(S/N, time in s, beam) of the best boxcar of 2 ms over all beams and times, dedispersed; and the S/N of
    every beam at the time of the burst."""
    harness.run(d, chain(gains), name=f"chain_{gains or 'none'}.yaml")
    path, = glob.glob(os.path.join(d, f"beams_{gains or 'none'}", "*.dada"))
    x, _, _, _ = harness.read_frames(path)
    x = x.astype(np.float64)[:, 8:-4]
    U, step_s = 16, INTEGRATE * DT
    u = np.arange(U)
    freq = (FREQ0 + STEP * (np.arange(NF)[:, None] + (u - (U - 1) / 2) / U)).ravel()
    delay = BURST["dm"] / 2.41e-4 * (freq ** -2.0 - BURST["at_mhz"] ** -2.0) / step_s
    x = x / x.mean(axis=1, keepdims=True)
    series = sum(np.roll(row, -int(np.round(s)), axis=0) for row, s in zip(x, delay))[:-20]
    box = series[1:] + series[:-1]
    snr = (box - np.median(box, axis=0)) / (np.subtract(*np.percentile(box, (75, 25), axis=0)) / 1.349)
    t, beam = np.unravel_index(snr.argmax(), snr.shape)
    # quartiles of some 300 values are good to 8 %: once it is known where it is, mean and deviation beside it
    beside = np.delete(box, np.s_[max(t - 8, 0):t + 9], axis=0)
    snr = (box - beside.mean(axis=0)) / beside.std(axis=0)
    filter_s = (4 - 1) * U / 2 * DT
    return snr[t, beam], (8 + t + 1) * step_s - filter_s, beam, snr


def truth_beam():
    """The beam that points at the burst: one column off the middle of the grid."""
    x = (np.arange(BEAMS[0]) - (BEAMS[0] - 1) / 2) * SPACING + BURST["x_deg"] + SPACING
    y = (np.arange(BEAMS[1]) - (BEAMS[1] - 1) / 2) * SPACING + BURST["y_deg"] - 2 * SPACING
    ix, iy = abs(x - BURST["x_deg"]).argmin(), abs(y - BURST["y_deg"]).argmin()
    assert abs(x[ix] - BURST["x_deg"]) < 1e-9 and abs(y[iy] - BURST["y_deg"]) < 1e-9
    return ix * BEAMS[1] + iy


def check_gains(d, g, name="gains.h5"):
    """The limits for gains: 2 degrees and 3 % for a source of S/N 10; flags of dead inputs and of no
    others; errors as large as the file says."""
    gain, flag, sets, _ = circle.read_gains(os.path.join(d, name))
    assert gain.dtype == np.complex64 and gain.shape == (NF, NP, ND)
    want = np.zeros_like(flag)
    for p, dish in DEAD:
        want[:, p, dish] = 1
    assert np.array_equal(flag, want), np.argwhere(flag != want)
    assert np.all(gain[flag != 0] == 0) and np.all(sets["weight"][flag != 0] == 0)
    assert 9 < sets["snr"].mean() < 11.5, sets["snr"]
    phase, amplitude = circle.errors(gain, flag, g)
    rms = np.sqrt((phase ** 2).mean())
    print(f"     S/N of a visibility {sets['snr'].mean():.1f}: phases within {rms:.2f} degrees rms, "
          f"amplitudes within {100 * amplitude.std():.2f} %")
    assert rms < 2 and np.sqrt((amplitude ** 2).mean()) < 0.03, (rms, amplitude.std())
    said = np.radians(phase) * np.sqrt(circle.good_weights(flag, sets))
    assert 0.85 < said.std() < 1.2, f"errors are {said.std():.2f} times what the weights say"
    assert abs(abs(gain).sum(axis=2) / (flag == 0).sum(axis=2) - 1).max() < 1e-5, "mean amplitude 1"
    assert np.array_equal(sets["freq_mhz"], FREQ0 + STEP * np.arange(NF))
    reference = sets["reference"][0, 0]
    assert (sets["reference"] == reference).all() and abs(gain[:, :, reference].imag).max() == 0


def test_circle():
    with harness.scratch() as d:
        g = circle.write_receivers(d)
        circle.see_source(d, samples=60000, flux=0.03, integrate=20000)
        # what was recorded of the same visibilities gives the same
        dada, = glob.glob(os.path.join(d, "vis", "v_*.dada"))
        circle.calibrate(d, dada, "--telescope", PATHFINDER, "--direction", circle.at(SOURCE), "--out",
                         "dada.h5")
        done = circle.calibrate(d, "vis/vis_000000.uvh5", "--direction", circle.at(SOURCE))
        assert "62.0 of 64" in done.out
        assert "flagged: dish 11, polarisation 0 (xx): dead in 8 of 8" in done.out
        one, two = (circle.read_gains(os.path.join(d, n))[0] for n in ("gains.h5", "dada.h5"))
        assert abs(one - two).max() < 1e-5, abs(one - two).max()
        check_gains(d, g)

        listed = ", ".join(f"{k}: {v}" for k, v in BURST.items())
        circle.simulate(d, f"    samples: 64000\n    seed: 12\n    bursts: [{{{listed}}}]",
                        "  - {stage: record, in: field, directory: ., prefix: field}", name="burst.yaml")
        true, at_true, beam_true, snr_true = search(d, "true.h5")
        found, at, beam, snr = search(d, "gains.h5")
        blind, _, beam_blind, snr_blind = search(d, None)
        want = truth_beam()
        print(f"     S/N {found:.1f}, of {true:.1f} with the true gains, {blind:.1f} without any")
        assert beam == beam_true == want, (beam, beam_true, want)
        assert abs(at - BURST["arrival_s"]) < 2 * INTEGRATE * DT and abs(at_true - at) < INTEGRATE * DT / 2
        assert true > 25 and found > 0.97 * true, (found, true)
        when = snr[:, want].argmax()
        assert snr_blind[when - 1:when + 2, want].max() < 0.2 * found and blind < 0.3 * found


def powers(d, gains):
    """Mean power [beam] of baseband beams toward the source and beside it."""
    more = f", gains: {gains}" if gains else ""
    harness.run(d, f"""include: {PATHFINDER}
pipeline:
  - {{stage: replay, files: "steady_*.dada", out: field}}
  - {{stage: baseband_beamform, in: field, out: j, shift: 12, beams: {{grid: [1, 3], spacing_deg: 2,
      center: [{SOURCE[0]}, {SOURCE[1]}]}}{more}}}
  - {{stage: record, in: j, directory: j_{gains or 'none'}, prefix: j}}
""", name=f"baseband_{gains or 'none'}.yaml")
    path, = glob.glob(os.path.join(d, f"j_{gains or 'none'}", "*.dada"))
    x, _, _, _ = harness.read_frames(path)
    return (abs(harness.unpack(x)) ** 2).mean(axis=(1, 2, 3))


def test_baseband():
    """A steady source in a baseband beam: its power with gains of a calibration and with the true ones."""
    with harness.scratch() as d:
        g = circle.write_receivers(d)
        circle.see_source(d)
        circle.calibrate(d, "vis/vis_000000.uvh5", "--direction", circle.at(SOURCE), "--ref-input", "5")
        gain, flag, sets, _ = circle.read_gains(os.path.join(d, "gains.h5"))
        assert (sets["reference"] == 5).all() and abs(gain[:, :, 5].imag).max() == 0
        # the true gains, scaled alike
        scale = np.divide(1, g, where=g != 0, out=np.zeros_like(g))
        scale /= abs(scale).sum(axis=2, keepdims=True) / (g != 0).sum(axis=2, keepdims=True)
        circle.write_gains(os.path.join(d, "true.h5"), scale)
        circle.simulate(d, f"""    samples: 4000
    seed: 13
    sources: [{{x_deg: {SOURCE[0]}, y_deg: {SOURCE[1]}, flux: 0.05}}]""",
                        "  - {stage: record, in: field, directory: ., prefix: steady}", name="steady.yaml")
        true, found, blind = (powers(d, name) for name in ("true.h5", "gains.h5", None))
        contrast = [p[1] / (p[0] + p[2]) * 2 for p in (true, found, blind)]
        print(f"     source / noise in a beam {contrast[1]:.2f}, of {contrast[0]:.2f} with the true gains, "
              f"{contrast[2]:.2f} without any")
        assert contrast[1] > 0.97 * contrast[0] > 2.5 and abs(contrast[2] - 1) < 0.3


def test_flags_and_drift():
    """Inputs that do not fit: one with a carrier in one channel, by its residuals; phases that drift too fast
    for the time that is averaged over show as weak gains."""
    with harness.scratch() as d:
        circle.write_receivers(d)
        rate = np.zeros((NP, ND))
        rate[1, 30] = 2 * np.pi / (6400 * DT)          # one cycle while it is averaged
        with h5py.File(os.path.join(d, "drifts.h5"), "w") as f:
            f["drift"] = rate
        circle.simulate(d, f"""    samples: 6400
    seed: 14
    drifts: drifts.h5
    carriers: [{{freq_mhz: 400.4, power_db: 6, duty: 0.1, period_s: 0.003, east_m: 900, north_m: -400}}]
    sources: [{{x_deg: {SOURCE[0]}, y_deg: {SOURCE[1]}, flux: 0.1}}]""", """
  - {stage: correlate, in: field, out: v, integrate: 6400}
  - {stage: uvh5, in: v, directory: vis}""")
        done = circle.calibrate(d, "vis/vis_000000.uvh5", "--direction", circle.at(SOURCE),
                                "--max-residual", "2")
        _, flag, sets, _ = circle.read_gains(os.path.join(d, "gains.h5"))
        assert "dish 30, polarisation 1 (yy): weak in 8 of 8" in done.out, done
        assert (flag[:, 1, 30] == 2).all()
        others = np.delete(sets["residual"], 2, axis=0)
        carrier = sets["residual"][2][flag[2] == 0]
        assert carrier.mean() > 2 * others[others > 0].mean(), "its channel has larger residuals"


def test_flag():
    """The stage `flag` before `correlate`: a pulsed carrier leaves the residuals, inputs that are known to be
    bad are dead to the calibration, and all others are as good as without."""
    with harness.scratch() as d:
        g = circle.write_receivers(d)
        bad = [5, ND + 20]
        circle.simulate(d, f"""    samples: 24576
    seed: 16
    carriers: [{{freq_mhz: 400.4, power_db: 6, duty: 0.1, period_s: 0.006, east_m: 900, north_m: -400}}]
    sources: [{{x_deg: {SOURCE[0]}, y_deg: {SOURCE[1]}, flux: 0.1}}]""", f"""
  - {{stage: flag, in: field, out: clean, bad_inputs: {bad}}}
  - {{stage: correlate, in: field, out: v, integrate: 8192}}
  - {{stage: uvh5, in: v, directory: raw}}
  - {{stage: correlate, name: second, in: clean, out: w, integrate: 8192}}
  - {{stage: uvh5, name: uvh5_clean, in: w, directory: clean}}""")
        residual = {}
        for name in ("raw", "clean"):
            circle.calibrate(d, f"{name}/vis_000000.uvh5", "--direction", circle.at(SOURCE), "--out",
                             f"{name}.h5")
            gain, flag, sets, _ = circle.read_gains(os.path.join(d, f"{name}.h5"))
            residual[name] = sets["residual"].sum(axis=(1, 2)) / (sets["residual"] > 0).sum(axis=(1, 2))
        want = np.zeros((NP, ND), bool)
        for p, dish in DEAD + [(i // ND, i % ND) for i in bad]:
            want[p, dish] = True
        assert np.array_equal(flag == 1, np.broadcast_to(want, flag.shape)) and (flag <= 1).all()
        others = np.delete(residual["clean"], 2)
        print(f"     residual/noise with a carrier {residual['raw'][2]:.2f}, flagged "
              f"{residual['clean'][2]:.2f}, in other channels {others.mean():.2f}")
        assert residual["raw"][2] > 1.3 * others.max() and residual["clean"][2] < 1.05 * others.max()
        phase, _ = circle.errors(gain, flag, g)
        assert np.sqrt((phase ** 2).mean()) < 2


class Boards(packets.ChordCrs):
    """The pathfinder's 16 boards, as far as one stream goes: 48 channels 25 MHz apart."""
    sources, streams = (0, 2, 4, 6, 8, 10, 12, 15, 1, 3, 5, 7, 9, 11, 13, 14), (0,)


def test_packets():
    """The same from what the boards send: packets in a capture file, encoded by code of the test's own."""
    stream = circle.STREAM.replace(f"first: {FREQ0}, step: {STEP}, count: {NF}",
                                   "first: 300, step: 25, count: 48")
    with harness.scratch() as d:
        g = circle.write_receivers(d)[:1]
        circle.write_gains(os.path.join(d, "receivers.h5"), g)
        harness.run(d, f"""include: {PATHFINDER}
{stream.rstrip()}
  width_mhz: {STEP}
pipeline:
  - stage: simulate
    noise: 2
    gains: receivers.h5
    samples: 3200
    seed: 15
    sources: [{{x_deg: {SOURCE[0]}, y_deg: {SOURCE[1]}, flux: 0.3}}]
    out: field
  - {{stage: record, in: field, directory: ., prefix: field}}
""", name="simulate.yaml")
        e, _, _, _ = harness.read_e(glob.glob(os.path.join(d, "field_*.dada"))[0])
        raw = ((e.real + 8).astype(np.uint8) << 4 | (e.imag + 8).astype(np.uint8)).reshape(3200, 48, 128)
        write_pcap(os.path.join(d, "a.pcap"), 101,
                   [LINKS["raw"][1](ip_udp(p)) for *_, p in Boards().packets(raw)])
        harness.run(d, f"""include: {PATHFINDER}
stream: {{epoch_ns: 1700000000000000000}}
pipeline:
  - {{stage: replay, files: a.pcap, packet: chord-crs, streams: [0], frame_samples: 640, out: packets}}
  - {{stage: unpack, in: packets, out: field}}
  - {{stage: correlate, in: field, out: v, integrate: 1600}}
  - {{stage: uvh5, in: v, directory: vis}}
""")
        circle.calibrate(d, "vis/vis_000000.uvh5", "--direction", circle.at(SOURCE))
        gain, flag, sets, _ = circle.read_gains(os.path.join(d, "gains.h5"))
        assert abs(sets["freq_mhz"] - (300 + 25 * np.arange(48))).max() < 1e-6
        dead = np.zeros((NP, ND), bool)
        for p, dish in DEAD:
            dead[p, dish] = True
        assert np.array_equal(flag != 0, np.broadcast_to(dead, flag.shape))
        phase, amplitude = circle.errors(gain, flag, np.repeat(g, 48, axis=0))
        assert np.sqrt((phase ** 2).mean()) < 2 and np.sqrt((amplitude ** 2).mean()) < 0.03, phase.std()


def test_config():
    """config/circle runs as it is written there, shorter; its direction is that of its source."""
    folder = os.path.join(harness.CONFIG, "circle")
    with harness.scratch() as d:
        g = np.repeat(circle.receivers()[:1], 16, axis=0)
        circle.write_gains(os.path.join(d, "receivers.h5"), g)
        env = {"CIRCLE_OUT": d, "SAMPLES": "8192"}
        words = next(line for line in open(os.path.join(folder, "source.yaml")) if "--direction" in line)
        for name in ("source", "burst"):
            done = harness.beamring("run", os.path.join(folder, f"{name}.yaml"), env=env)
            assert done.status == 0, done
            if name == "source":
                place = words.split("--direction")[1].split()[0]
                circle.calibrate(d, "vis_000000.uvh5", "--direction", place)
                gain, flag, _, _ = circle.read_gains(os.path.join(d, "gains.h5"))
                assert np.sqrt((circle.errors(gain, flag, g)[0] ** 2).mean()) < 4
        assert len(glob.glob(os.path.join(d, "calibrated", "*.fil"))) == 256


if __name__ == "__main__":
    harness.main([test_circle, test_baseband, test_flags_and_drift, test_flag, test_packets, test_config])
