"""beamring looks at the true sky: fields of an F-engine made of delays, real samples and forward transforms,
in the Nyquist zones 1 to 4, go through the program, and every source is where it is, every carrier in the
channel that is said to hold it."""
import numpy as np

import harness
import sky_common as sky
from sky_common import fe

TIMES = 1024
STEP = 64
SAMPLE_S = 160e-9  # of sky.board()


def looks_at(place, rng):
    """The source, its mirror images, the axes exchanged, and seven others, in any order."""
    x, y = sky.xy(place)
    out = [[x, y], [-x, -y], [-x, y], [x, -y], [y, x], *rng.uniform(-0.5, 0.5, (7, 2))]
    return np.array(out)[rng.permutation(len(out))]


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


def check_source(zone, seed, place):
    """All kinds of beams of one source. Returns its beam's power over that of the mirror direction, in each
    product."""
    rng = np.random.default_rng([zone, seed])
    array = sky.Array(sky.board(zone))
    field = fe.simulate(array.board, fe.Receivers(array.positions), [fe.Source(*place, sky.FLUX)], TIMES,
                        seed=seed, epoch_ns=sky.EPOCH_NS)
    assert field.clipped < 1e-3
    x, y = sky.xy(place)
    first, second, ends = looks_at(place, rng), looks_at(place, rng), np.array([[x, y], [-x, -y]])
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
            assert np.allclose(sky.stated_xy(keys), before, rtol=0, atol=1e-9)
            for half, looks in enumerate((before, after)):
                here = i[:, half * 8:half * 8 + 8].sum(1) / (TIMES / 2)
                check(f"{name} {half}", looks, here, TIMES // 2)
        i, keys = sky.intensities(d, "grid")
        check("grid", sky.stated_xy(keys), i.sum(1) / TIMES, TIMES)

        scale = (127 / 2 ** 10) ** 2
        more = {"scale": scale, "rounding": 2 / 6}
        j, keys = sky.voltages(d, "voltages")
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


def carrier_places(board, seed):
    """A carrier in every second channel, each at a random place of it, at least a fifth of the finest channel
    from the edges of all fine channels."""
    rng = np.random.default_rng([seed, board.zone])
    width = abs(float(board.step_mhz))
    fine = rng.integers(-56, 56, 4) + 0.5 + rng.uniform(-0.3, 0.3, 4)
    return board.freq_mhz()[rng.integers(2)::2] + fine / 128 * width


def check_carriers(label, carriers, power, mhz, width):
    """Each carrier stands in the channel whose stated frequency holds it. power [freq], mhz [freq], width
    [freq]; channels of different widths are not compared, as they sum different numbers of samples. Returns
    how many carriers these channels hold."""
    found = 0
    for one in np.unique(width):
        here = width == one
        f, p = mhz[here], power[here]
        for carrier in (c for c in carriers if abs(f - c).min() <= one / 2 * 1.001):
            near = np.flatnonzero(abs(f - carrier) < 200 / 32 / 2 + one / 2)
            peak = f[near[np.argmax(p[near])]]
            assert abs(peak - carrier) <= one / 2, \
                f"{label}: the carrier at {carrier:.6f} MHz is in the channel at {peak:.6f}, {one} wide"
            found += 1
    return found


def read_filterbank(path):
    """Data [step][channel] and the stated frequency of each channel."""
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
    return data, keys["fch1"] + keys["foff"] * np.arange(keys["nchans"])


def file_width(mhz, field):
    """The width of a filterbank file's channels; a file of one channel has a whole one of the F-engine."""
    return abs(mhz[1] - mhz[0]) if len(mhz) > 1 else field.width_mhz


def mean_power(directory, prefix):
    """Mean |E|^2 of a recorded field, [freq], of the steps that are there, and the header's keys. Of several
    zones each its own steps."""
    (path,) = sky.files(directory, f"{prefix}_*.dada")
    keys, size = harness.header(path)
    inputs = int(np.prod([int(n) for n in keys["SHAPE"].split(",")[2:]]))
    zones = [[int(v) for v in keys[f"ZONE_{z}"].split(",")] for z in range(int(keys["NZONES"]))]
    raw, at, sums = np.fromfile(path, np.uint8, offset=size), 0, [0] * len(zones)
    for begin in range(0, int(keys["SAMPLES"]), int(keys["FRAME_SAMPLES"])):
        for z, (_, channels, _, down, _) in enumerate(zones):
            steps = int(keys["FRAME_SAMPLES"]) // down
            frame = harness.unpack(raw[at:at + steps * channels * inputs]).reshape(steps, channels, inputs)
            here = [begin + t * down >= 3 * down for t in range(steps)]  # the filter has four taps
            sums[z] = sums[z] + (abs(frame[here]) ** 2).sum((0, 2)) / (int(keys["SAMPLES"]) / down - 3)
            at += steps * channels * inputs
    assert at == len(raw)
    return np.concatenate(sums), keys


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
  - {{stage: filterbank, name: f_{n}, in: j_{n}, directory: {n}}}""" for n, up in ups.items())
    for zone in sky.ZONES:
        board = sky.board(zone, noise_rms=1.2, taps=4)
        array = sky.Array(board, 2, 2)
        wanted = carrier_places(board, 3)
        field = fe.simulate(board, fe.Receivers(array.positions), [fe.Carrier(f, 0.5) for f in wanted], 4096,
                            seed=zone, epoch_ns=sky.EPOCH_NS)
        with harness.scratch() as d:
            sky.write(d, field)
            harness.run(d, array.yaml + f"""
pipeline:
  - {{stage: replay, files: field*.dada, out: field, frame_samples: 1024}}{stages}
""")
            for n in ups:
                power, keys = mean_power(d, n)
                mhz = sky.numbers(keys, "FREQ_MHZ")
                width = np.broadcast_to(sky.numbers(keys, "WIDTH_MHZ"), mhz.shape)
                assert len(power) == len(mhz)
                found = [check_carriers(f"zone {zone}, {n}", field.carriers_mhz, power, mhz, width)]
                j, keys = sky.intensities(d, f"j_{n}")
                found.append(check_carriers(f"zone {zone}, {n}, beams", field.carriers_mhz, j[:, 4:].sum(1),
                                            sky.numbers(keys, "FREQ_MHZ"), width))
                parts = [read_filterbank(path) for path in sky.files(d, f"{n}/*.fil")]
                found.append(sum(check_carriers(f"zone {zone}, {n}.fil", field.carriers_mhz, data[4:].sum(0), mhz,
                                                np.full(len(mhz), file_width(mhz, field))) for data, mhz in parts))
                assert found == [4, 4, 4], (zone, n, found)


if __name__ == "__main__":
    harness.main([test_sources_are_in_their_beams, test_carriers_are_in_their_channels])
