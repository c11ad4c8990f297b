"""beamring looks at the true sky: fields of an F-engine made of delays, real samples and forward transforms,
in the Nyquist zones 1 to 4, go through the program, and every source is where it is, every carrier in the
channel that is said to hold it."""
import csv
import os

import h5py
import numpy as np

import harness
import sky_common as sky
from sky_common import fe
from wires_common import recorded_levels

TIMES = 1024
STEP = 64
SAMPLE_S = 160e-9  # of sky.board()


BEAMS = """
updates: [{{at: {{sample: {half}}}, stages: {{still: {{beams: {second}}}}}}}]
pipeline:
  - {{stage: replay, files: field*.dada, out: field, frame_samples: 256}}
  - {{stage: frb_grid, in: field, out: image, integrate: {step}}}
  - {{stage: frb_beams, name: f1, in: image, out: grid, beams: {grid}}}
  - {{stage: frb_beams, name: f2, in: image, out: list, beams: {first}}}
  - {{stage: frb_beams, name: f3, in: image, out: steered, beams: {first},
      steer: [{{sample: {half}, beams: {second}}}]}}
  - {{stage: frb_beams, name: f4, in: image, out: moving, beams: {moving}}}
  - {{stage: baseband_beamform, name: still, in: field, out: voltages, shift: 10, beams: {first}}}
  - {{stage: baseband_beamform, name: moves, in: field, out: rates, shift: 10, beams: {moving}}}
"""
OUTPUTS = ("grid", "list", "steered", "moving", "voltages", "rates")


def check_table(directory, place, looks):
    """beams.csv says azimuth and zenith angle of the beam that looks at the source."""
    with open(os.path.join(directory, "list_beams.csv")) as f:
        row = list(csv.DictReader(f))[np.argmin(np.hypot(*(looks - sky.xy(place)).T))]
    off = float(row["azimuth_deg"]) - place[0], float(row["zenith_angle_deg"]) - 90 + place[1]
    assert np.abs(off).max() < 1e-3, (row, place)


def check_source(zone, seed, place):
    """All kinds of beams of one source. Returns its beam's power over that of the mirror direction, in each
    product."""
    rng = np.random.default_rng([zone, seed])
    array = sky.Array(sky.board(zone))
    field = fe.simulate(array.board, fe.Receivers(array.positions), [fe.Source(*place, sky.FLUX)], TIMES,
                        seed=seed, epoch_ns=sky.EPOCH_NS)
    assert field.clipped < 1e-3
    x, y = sky.xy(place)
    first, second, ends = sky.looks_at(place, rng), sky.looks_at(place, rng), np.array([[x, y], [-x, -y]])
    rates = (ends[::-1] - ends) / (TIMES * SAMPLE_S)
    grid = "{grid: [7, 5], spacing_deg: [6, 8], center: [%r, %r]}" % (
        float(np.degrees(np.arcsin(x))) / 2, float(np.degrees(np.arcsin(y))) / 2)
    moving = "{directions: %s, rates: %s, reference_ns: %d, every_s: %.9f}" % (
        ends.tolist(), rates.tolist(), sky.EPOCH_NS, TIMES / 4 * SAMPLE_S)
    margins = {}
    with harness.scratch() as d:
        sky.write(d, field)
        records = "".join(f"  - {{stage: record, name: r_{o}, in: {o}, directory: ., prefix: {o}}}\n"
                          for o in OUTPUTS)
        harness.run(d, array.yaml + BEAMS.format(half=TIMES // 2, step=STEP, first=sky.text(first),
                                                 second=sky.text(second), grid=grid, moving=moving) + records)

        def check(label, looks, seen, samples, **more):
            label = f"zone {zone}, az {place[0]:.1f}, alt {place[1]:.1f}, {label}"
            over = sky.check_beams(array, place, looks, seen, samples, label=label, **more)
            mirror = np.hypot(*(np.asarray(looks) + [x, y]).T)
            if mirror.min() < 1e-9:
                margins[label.split(", ")[-1]] = over[np.argmin(mirror)]

        for name, before, after in (("list", first, first), ("steered", first, second)):
            i, keys = sky.intensities(d, name)
            assert ("BEAMS_START" in keys) == (name == "steered"), keys
            assert np.allclose(sky.stated_xy(keys), before, rtol=0, atol=1e-9)
            for half, looks in enumerate((before, after)):
                here = i[:, half * 8:half * 8 + 8].sum(1) / (TIMES / 2)
                check(f"{name} {half}", looks, here, TIMES // 2)
        check_table(d, place, first)
        i, keys = sky.intensities(d, "grid")
        check("grid", sky.stated_xy(keys), i.sum(1) / TIMES, TIMES)

        scale = (127 / 2 ** 10) ** 2
        more = {"scale": scale, "rounding": 2 / 6}
        j, first_step, _ = sky.voltages(d, "voltages")
        assert first_step == 0
        power = (abs(j) ** 2).sum(2)
        for half, looks in enumerate((first, second)):
            here = power[..., half * TIMES // 2:(half + 1) * TIMES // 2].mean(2).T
            check(f"voltages {half}", looks, here, TIMES // 2, **more)
        moved, _ = sky.intensities(d, "moving")
        power = (abs(sky.voltages(d, "rates")[0]) ** 2).sum(2)
        for k in range(4):
            now = ends + rates * (k + 0.5) / 4 * TIMES * SAMPLE_S
            check(f"moving {k}", now, moved[:, k * 4:k * 4 + 4].sum(1) / (TIMES / 4), TIMES // 4)
            here = power[..., k * TIMES // 4:(k + 1) * TIMES // 4].mean(2).T
            check(f"rates {k}", now, here, TIMES // 4, **more)
    return margins


def test_sources_are_in_their_beams():
    """Twenty random directions, five in each zone."""
    margins = {}
    for zone in sky.ZONES:
        for seed, place in enumerate(sky.places(zone)):
            for name, margin in check_source(zone, seed, place).items():
                margins.setdefault(name, []).append(margin)
    print("; ".join(f"{name}: {min(m):.1f} to {max(m):.1f} times the mirror" for name, m in margins.items()))


FACTORS = (1, 2, 4, 8, 16, 32, 64, 128)
MIXED = [(1, 128), (2, 4), (1, 1), (2, 32), (1, 2), (1, 64)]  # (channels, factor) of zones of one band


def test_quantized_beams():
    """A grid of beams and 8-bit levels of it."""
    for zone in sky.ZONES:
        array, place = sky.Array(sky.board(zone)), sky.places(zone)[1]
        field = fe.simulate(array.board, fe.Receivers(array.positions), [fe.Source(*place, sky.FLUX)], TIMES,
                            seed=zone, epoch_ns=sky.EPOCH_NS)
        degrees = [float(np.degrees(np.arcsin(c))) for c in sky.xy(place)]
        with harness.scratch() as d:
            sky.write(d, field)
            harness.run(d, array.yaml + f"""
pipeline:
  - {{stage: replay, files: field*.dada, out: field, frame_samples: 1024}}
  - {{stage: frb_grid, in: field, out: image, integrate: 4}}
  - {{stage: frb_beams, in: image, out: beams, beams: {{grid: [3, 3], spacing_deg: 12, center: {degrees}}}}}
  - {{stage: quantize, in: beams, out: levels, bits: 8, block: 256}}
  - {{stage: record, in: levels, directory: ., prefix: levels}}
""")
            path = os.path.join(d, "levels_000000.dada")
            keys, _ = harness.header(path)
            (_, levels, side), = recorded_levels(path)
        assert (levels > 0).all()
        value = side[..., :1].astype(float) * (levels - 128.0) + side[..., 1:]
        sky.check_beams(array, place, sky.stated_xy(keys), value.mean(2).T * float(keys["SCALE"]) / 4, TIMES,
                        label=f"zone {zone}, quantized")


def read_filterbank(path):
    """Data [step][channel], the stated frequency of each channel, and the header."""
    raw, keys, at = open(path, "rb").read(), {}, 0
    while True:
        size = int.from_bytes(raw[at:at + 4], "little")
        word, at = raw[at + 4:at + 4 + size].decode(), at + 4 + size
        if word == "HEADER_END":
            break
        if word in ("rawdatafile", "source_name"):
            at += 4 + int.from_bytes(raw[at:at + 4], "little")
        elif word != "HEADER_START":
            form = "<f8" if word in ("fch1", "foff", "tsamp", "tstart", "src_raj", "src_dej", "az_start",
                                     "za_start") else "<i4"
            keys[word] = np.frombuffer(raw, form, 1, at)[0]
            at += np.dtype(form).itemsize
    data = np.frombuffer(raw, np.float32, offset=at).reshape(-1, keys["nchans"])
    return data, keys["fch1"] + keys["foff"] * np.arange(keys["nchans"]), keys


def file_width(mhz, field):
    """The width of a filterbank file's channels; a file of one channel has a whole one of the F-engine."""
    return abs(mhz[1] - mhz[0]) if len(mhz) > 1 else field.width_mhz


def test_carriers_are_in_their_channels():
    """By FREQ_MHZ of recordings, fch1 and foff of filterbank files, for every factor and for zones of the
    band with different ones."""
    ups = {f"u{u}": f"factor: {u}" for u in FACTORS}
    ups["mixed"] = "zones: [" + ", ".join(f"{{channels: {c}, factor: {u}}}" for c, u in MIXED) + "]"
    stages = "".join(f"""
  - {{stage: upchannelize, name: up_{n}, in: field, out: {n}, gain: 1.5, {up}}}
  - {{stage: record, name: r_{n}, in: {n}, directory: ., prefix: {n}}}
  - {{stage: frb_grid, name: g_{n}, in: {n}, out: i_{n}, integrate: 128}}
  - {{stage: frb_beams, name: b_{n}, in: i_{n}, out: j_{n}, beams: {{directions: [[0, 0]]}}}}
  - {{stage: record, name: rj_{n}, in: j_{n}, directory: ., prefix: j_{n}}}
  - {{stage: filterbank, name: f_{n}, in: j_{n}, directory: {n}}}""" for n, up in ups.items()) + """
  - {stage: correlate, in: u16, out: v, integrate: 4096, autocorrelations: only}
  - {stage: uvh5, in: v, directory: vis}"""
    for zone in sky.ZONES:
        board = sky.board(zone, noise_rms=1.2, taps=4)
        array = sky.Array(board, 2, 2)
        wanted = sky.carrier_places(board, 3)
        field = fe.simulate(board, fe.Receivers(array.positions), [fe.Carrier(f, 0.5) for f in wanted], 4096,
                            seed=zone, epoch_ns=sky.EPOCH_NS)
        with harness.scratch() as d:
            sky.write(d, field)
            harness.run(d, array.yaml + f"""
pipeline:
  - {{stage: replay, files: field*.dada, out: field, frame_samples: 1024}}{stages}
""")
            for n in ups:
                power, keys = sky.power_of(d, n)
                mhz = sky.numbers(keys, "FREQ_MHZ")
                width = np.broadcast_to(sky.numbers(keys, "WIDTH_MHZ"), mhz.shape)
                assert len(power) == len(mhz)
                label, carriers = f"zone {zone}, {n}", field.carriers_mhz
                found = [sky.check_carriers(label, carriers, power, mhz, width)]
                j, keys = sky.intensities(d, f"j_{n}")
                found.append(sky.check_carriers(f"{label}, beams", carriers, j[:, 4:].sum(1),
                                                sky.numbers(keys, "FREQ_MHZ"), width))
                found.append(0)
                for path in sky.files(d, f"{n}/*.fil"):
                    data, mhz, _ = read_filterbank(path)
                    width = np.full(len(mhz), file_width(mhz, field))
                    found[-1] += sky.check_carriers(path, carriers, data[4:].sum(0), mhz, width)
                assert found == [4, 4, 4], (zone, n, found)
            with h5py.File(os.path.join(d, "vis", "vis_000000.uvh5")) as f:
                power = f["Data/visdata"]["r"].sum((0, 2)).astype(float)
                mhz = f["Header/freq_array"][()] * 1e-6
                width = f["Header/channel_width"][()] * 1e-6
            assert sky.check_carriers(f"zone {zone}, uvh5", carriers, power, mhz, width) == 4


if __name__ == "__main__":
    harness.main([test_sources_are_in_their_beams, test_quantized_beams, test_carriers_are_in_their_channels])
