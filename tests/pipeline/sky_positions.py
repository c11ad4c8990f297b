"""beamring looks at the true sky with antennas that are on no grid and at different heights: fields of the
F-engine of tests/oracle/fengine.py, in the Nyquist zones 1 to 4, by way of a recording that knows where the
antennas are, are found where they are by beams, by `calibrate` and in visibilities."""
import os
import shutil

import h5py
import numpy as np

import harness
import sky_common as sky
from sky_common import fe
from sky_phases import calibrated, done_to, phase_errors

TIMES = 1024
SAMPLE_S = 160e-9  # of sky.board()
RECORD = """
pipeline:
  - {stage: replay, files: field*.dada, out: field}
  - {stage: record, in: field, directory: ., prefix: own, format: dada}
"""
PRODUCTS = """
pipeline:
  - {{stage: replay, files: own*.dada, out: field, frame_samples: 256}}
  - {{stage: baseband_beamform, name: b4, in: field, out: four, shift: 10, beams: {first}}}
  - {{stage: baseband_beamform, name: bm, in: field, out: rates, shift: 10, beams: {moving}}}
  - {{stage: baseband_beamform, name: az, in: field, out: azel, shift: 10,
      beams: {{towards: [{{azel: {azel}}}]}}}}
  - {{stage: power_beams, in: field, out: power, integrate: 64, beams: {first}}}
  - {{stage: correlate, in: field, out: v, integrate: 1024}}
  - {{stage: uvh5, in: v, directory: vis}}
  - {{stage: record, name: rv, in: v, directory: vis, prefix: v}}
"""


def check_visibilities(path, array, place):
    """The coherence of all baselines towards the source, and the same without their heights."""
    with h5py.File(path) as f:
        head = f["Header"]
        a, b, uvw = head["ant_1_array"][()], head["ant_2_array"][()], head["uvw_array"][()]
        assert np.abs(uvw - (array.positions[b] - array.positions[a])).max() < 1e-9
        assert head["altitude"][()] == 1222
        v = (f["Data/visdata"]["r"] + 1j * f["Data/visdata"]["i"])[:, :, :2]  # xx and yy
        mhz = head["freq_array"][()] * 1e-6
    early = uvw @ fe.direction(*place) / fe.C  # pyuvdata's sign: exp(+2 pi i u.s / lambda)
    pairs = a != b
    unwound = v[pairs] * np.exp(-2j * np.pi * np.multiply.outer(early[pairs], mhz))[..., None]
    coherence = unwound.sum() / abs(unwound).sum()
    flat = np.exp(-2j * np.pi * np.multiply.outer((uvw[pairs, :2] @ fe.direction(*place)[:2]) / fe.C, mhz))
    without = abs((v[pairs] * flat[..., None]).sum()) / abs(unwound).sum()
    return coherence, without


def check_source(zone):
    rng = np.random.default_rng([zone, 41])
    place = sky.places(zone)[zone]
    array = sky.Irregular(sky.board(zone), zone)
    field = fe.simulate(array.board, fe.Receivers(array.positions), [fe.Source(*place, sky.FLUX)], TIMES,
                        seed=zone, epoch_ns=sky.EPOCH_NS)
    assert field.clipped < 1e-3
    x, y = sky.xy(place)
    first, ends = sky.looks_at(place, rng), np.array([[x, y], [-x, -y]])
    rates = (ends[::-1] - ends) / (TIMES * SAMPLE_S)
    moving = "{directions: %s, rates: %s, reference_ns: %d, every_s: %.9f}" % (
        ends.tolist(), rates.tolist(), sky.EPOCH_NS, TIMES / 4 * SAMPLE_S)
    label = f"zone {zone}, az {place[0]:.1f}, alt {place[1]:.1f}"
    with harness.scratch() as d:
        sky.write(d, field)
        harness.run(d, (array.yaml if zone % 2 else array.write_table(d)) + RECORD)
        records = "".join(f"  - {{stage: record, name: r_{o}, in: {o}, directory: ., prefix: {o}}}\n"
                          for o in ("four", "rates", "azel", "power"))
        text = PRODUCTS.format(first=sky.text(first), moving=moving, azel=list(place)) + records
        assert "telescope:" not in text  # the recording knows
        harness.run(d, text)

        more = {"scale": (127 / 2 ** 10) ** 2, "rounding": 2 / 6}
        power = (abs(sky.voltages(d, "four")[0]) ** 2).sum(2).mean(2).T
        sky.check_beams(array, place, first, power, TIMES, label=f"{label}, voltages", **more)
        power = (abs(sky.voltages(d, "azel")[0]) ** 2).sum(2).mean(2).T
        sky.check_beams(array, place, [[x, y]], power, TIMES, label=f"{label}, azel", **more)
        power = (abs(sky.voltages(d, "rates")[0]) ** 2).sum(2)
        for k in range(4):
            now = ends + rates * (k + 0.5) / 4 * TIMES * SAMPLE_S
            here = power[..., k * TIMES // 4:(k + 1) * TIMES // 4].mean(2).T
            sky.check_beams(array, place, now, here, TIMES // 4, label=f"{label}, moving {k}", **more)
        i, keys = sky.intensities(d, "power")
        assert np.allclose(sky.stated_xy(keys), first, rtol=0, atol=1e-9)
        seen = i.sum(1) / TIMES
        expected = array.power(place, first)
        scale = seen.sum() / expected.sum()  # of the weights, whose shift the stage chooses
        sky.check_beams(array, place, first, seen, TIMES, scale=scale, label=f"{label}, power")

        coherence, without = check_visibilities(os.path.join(d, "vis", "vis_000000.uvh5"), array, place)
        assert coherence.real > 0.9 and abs(coherence.imag) < 0.1, f"{label}: {coherence}"
        assert without < 0.5, f"{label}: heights that change nothing ({without}) test nothing"
        for file in ("vis/vis_000000.uvh5", "vis/v_000000.dada"):
            gain = calibrated(d, file, "--direction", f"{x!r},{y!r}")
            rms = np.sqrt((phase_errors(gain, done_to(field)) ** 2).mean())
            assert rms < 4, f"{label}, {file}: {rms:.2f} degrees rms"
    print(f"{label}: coherence {coherence.real:.3f}, without heights {without:.3f}; "
          f"calibrate {rms:.2f} degrees")


def test_sources_are_where_they_are():
    for zone in sky.ZONES:
        check_source(zone)


def test_simulate():
    """The simulator's source has the phases of the wave in azimuth and altitude."""
    place = (200.0, 55.0)
    array = sky.Irregular(sky.board(1), 7, antennas=8)
    x, y = sky.xy(place)
    mhz = array.board.freq_mhz()
    with harness.scratch() as d:
        harness.run(d, array.yaml + f"""
stream: {{sample_ns: 160, epoch_ns: {sky.EPOCH_NS}, freq_mhz: {mhz.tolist()}}}
pipeline:
  - {{stage: simulate, out: field, samples: 2048, noise: 0.5, frame_samples: 512,
      sources: [{{x_deg: {np.degrees(np.arcsin(x))!r}, y_deg: {np.degrees(np.arcsin(y))!r}, flux: 16}}]}}
  - {{stage: record, in: field, directory: ., prefix: e}}
""")
        raw, _, keys, _ = harness.read_frames(sky.one(d, "e_*.dada"))
    e = harness.unpack(raw)
    seen = np.angle((e * e[..., :1].conj()).sum((0, 2)))
    wave = fe.wave(array.positions, *place, mhz)
    off = np.degrees(np.angle(np.exp(1j * seen) / (wave * wave[:, :1].conj())))
    assert np.abs(off).max() < 3, off
    assert keys["POSITIONS_M"].split(",")[2] == repr(float(array.positions[0, 2])), keys["POSITIONS_M"]


def test_needs_a_grid():
    """Stages that need a grid say so, and name the one that does not."""
    array = sky.Irregular(sky.board(1), 3, antennas=4)
    field = fe.simulate(array.board, fe.Receivers(array.positions), [], 64, epoch_ns=sky.EPOCH_NS)
    with harness.scratch() as d:
        sky.write(d, field)
        replay = array.yaml + "pipeline:\n  - {stage: replay, files: field*.dada, out: field}\n"
        for stages, words in (
            ("  - {stage: frb_grid, in: field, out: i, integrate: 64}\n"
             "  - {stage: record, in: i, directory: ., prefix: i}\n", "the stage power_beams"),
            ("  - {stage: power_beams, in: field, out: i, integrate: 64, beams: {directions: [[0, 0]]}}\n"
             "  - {stage: quantize, in: i, out: q, bits: 4, block: 256}\n"
             "  - {stage: packetize, in: q, format: frb-node, destinations: [{address: '127.0.0.1:1'}]}\n",
             "site: {separation_m: [along m, along n]}"),
        ):
            with open(os.path.join(d, "p.yaml"), "w") as f:
                f.write(replay + stages)
            result = harness.beamring("check", "p.yaml", cwd=d)
            assert result.status != 0 and words in result.err, result
        with open(os.path.join(d, "p.yaml"), "w") as f:
            f.write(replay + stages.replace("frb-node", "frb-node, site: {separation_m: [6, 5]}"))
        result = harness.beamring("check", "p.yaml", cwd=d)
        assert result.status == 0, result
        other = sky.Irregular(sky.board(1), 3, antennas=5)
        with open(os.path.join(d, "p.yaml"), "w") as f:
            f.write(other.yaml + "pipeline:\n  - {stage: replay, files: field*.dada, out: field}\n"
                    "  - {stage: record, in: field, directory: ., prefix: i}\n")
        result = harness.beamring("check", "p.yaml", cwd=d)
        words = "SHAPE has 4 dishes, but the telescope 'sky' has 5"
        assert result.status != 0 and words in result.err, result


SUN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "aavs3_sun.uvh5")
FROM_FILE = """
telescope: {{name: sun, positions_m: {0}{1}}}
stream: {{sample_ns: 1000, epoch_ns: 1700000000000000000, freq_mhz: [159.375]}}
pipeline:
  - {{stage: simulate, out: e, samples: 8, frame_samples: 8}}
  - {{stage: record, in: e, directory: ., prefix: e, overwrite: true}}
"""


def test_uvh5():
    """The antennas of another telescope's UVH5 file; damaged files are refused with their names."""
    with h5py.File(SUN) as f:
        xyz = f["Header/antenna_positions"][()]
        lat, lon = (np.radians(f[f"Header/{name}"][()]) for name in ("latitude", "longitude"))
        height = f["Header/altitude"][()]
    east = np.array([-np.sin(lon), np.cos(lon), 0])
    up = np.array([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])
    want = xyz @ np.stack([east, np.cross(up, east), up]).T
    with harness.scratch() as d:
        harness.run(d, FROM_FILE.format(SUN, ""))
        keys, size = harness.header(os.path.join(d, "e_000000.dada"))
        assert np.abs(sky.numbers(keys, "POSITIONS_M").reshape(-1, 3) - want).max() < 1e-6 and size > 4096
        assert abs(float(keys["SITE_HEIGHT_M"]) - height) < 1e-6

        def refused(words, more="", name="bad.uvh5"):
            result = harness.run(d, FROM_FILE.format(name, more), status=2)
            assert words in result.err and name in result.err, (words, result)

        def changed(change, words):
            shutil.copy(SUN, os.path.join(d, "bad.uvh5"))
            with h5py.File(os.path.join(d, "bad.uvh5"), "a") as f:
                change(f["Header"])
            refused(words)

        def replace(name, value):
            def change(head):
                del head[name]
                head[name] = value
            return change

        changed(lambda head: head.pop("antenna_positions"), "antenna_positions")
        changed(replace("antenna_positions", xyz[:, :2]), "antenna_positions")
        changed(replace("antenna_positions", xyz[:-1]), "antenna_positions")
        changed(replace("antenna_positions", xyz * np.nan), "finite")
        changed(replace("antenna_positions", xyz * 0), "dish 1 is in the place of dish 0")
        changed(replace("antenna_positions", h5py.ExternalLink("other.h5", "x")), "refers to another file")
        changed(replace("antenna_numbers", np.zeros(len(xyz), int)), "every number once")
        whole = open(SUN, "rb").read()
        for length in (9, 100, 2000, 20000, len(whole) // 2):
            with open(os.path.join(d, "cut.uvh5"), "wb") as f:
                f.write(whole[:length])
            refused("cut.uvh5", name="cut.uvh5")
        refused("leave latitude_deg out of `telescope:`", ", latitude_deg: 37", name=SUN)


if __name__ == "__main__":
    harness.main([test_sources_are_where_they_are, test_simulate, test_needs_a_grid, test_uvh5])
