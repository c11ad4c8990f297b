"""`beamring calibrate` where things are not as they should be, for a source on the sky, and for a node that
runs."""
import glob
import os
import shutil
import time

import h5py
import numpy as np

import circle_common as circle
import harness
from circle_common import ND, NF, NP, PATHFINDER, SOURCE
from control_common import Node
from small import TELESCOPE

EPOCH_S, DT = 1700000000, 5.12e-6
SITE = np.radians([49.32075144444, -119.62081125])
ARCSEC = np.radians(1 / 3600)


def rotation(axis, angle):
    """Rotates the axes of coordinates, not vectors."""
    c, s, r = np.cos(angle), np.sin(angle), np.eye(3)
    i, j = (axis + 1) % 3, (axis + 2) % 3
    r[i, i], r[i, j], r[j, i], r[j, j] = c, s, -s, c
    return r


def north_east(ra_deg, dec_deg, unix_s):
    """Direction cosines to the north and to the east by textbook formulas: precession of 1976, the largest
    terms of nutation, aberration, sidereal time of 1982. UT1 is taken for UTC. Good to an arc second."""
    ra, dec = np.radians([ra_deg, dec_deg])
    n = np.array([np.cos(dec) * np.cos(ra), np.cos(dec) * np.sin(ra), np.sin(dec)])
    days = unix_s / 86400 + 2440587.5 - 2451545.0
    t = days / 36525
    eps = np.radians(23.439291 - 0.0130042 * t)
    mean = np.radians(280.46646 + 36000.76983 * t)
    anomaly = np.radians(357.52911 + 35999.05029 * t)
    sun = mean + np.radians(1.914602 * np.sin(anomaly) + 0.019993 * np.sin(2 * anomaly))
    perihelion = np.radians(102.93735 + 1.71946 * t)
    k, e = 20.49552 * ARCSEC, 0.016708634
    v = k * np.array([np.sin(sun) - e * np.sin(perihelion),
                      (-np.cos(sun) + e * np.cos(perihelion)) * np.cos(eps),
                      (-np.cos(sun) + e * np.cos(perihelion)) * np.sin(eps)])
    n = n + v
    n /= np.linalg.norm(n)
    zeta = (2306.2181 * t + 0.30188 * t ** 2) * ARCSEC
    z = (2306.2181 * t + 1.09468 * t ** 2) * ARCSEC
    theta = (2004.3109 * t - 0.42665 * t ** 2) * ARCSEC
    n = rotation(2, -z) @ rotation(1, theta) @ rotation(2, -zeta) @ n
    node = np.radians(125.04452 - 1934.136261 * t)
    moon = np.radians(218.3165 + 481267.8813 * t)
    dpsi = (-17.20 * np.sin(node) - 1.32 * np.sin(2 * mean) - 0.23 * np.sin(2 * moon)
            + 0.21 * np.sin(2 * node)) * ARCSEC
    deps = (9.20 * np.cos(node) + 0.57 * np.cos(2 * mean) + 0.10 * np.cos(2 * moon)) * ARCSEC
    n = rotation(0, -eps - deps) @ rotation(2, -dpsi) @ rotation(0, eps) @ n
    gmst = np.radians(280.46061837 + 360.98564736629 * days + 0.000387933 * t ** 2)
    lat, lon = SITE
    n = rotation(2, gmst + dpsi * np.cos(eps) + lon) @ n         # x to the south horizon's meridian
    return np.array([np.cos(lat) * n[2] - np.sin(lat) * n[0], n[1]]), \
        np.cos(lat) * n[0] + np.sin(lat) * n[2]


def has_erfa():
    return "without ERFA" not in harness.beamring("calibrate", "x", "--source", "1,2").err


def at_time(d, name, seconds, ra, dec):
    """A short recording of visibilities, `seconds` after the epoch, of a source on the sky."""
    first = round(seconds / DT / 6400) * 6400
    (x, y), up = north_east(ra, dec, EPOCH_S + (first + 3200) * DT)
    assert up > 0.3
    degrees = np.degrees(np.arcsin([x, y]))
    stream = circle.STREAM.rstrip() + f"\n  sample0: {first}\n"
    harness.run(d, f"""include: {PATHFINDER}
{stream}
pipeline:
  - stage: simulate
    noise: 2
    gains: receivers.h5
    samples: 6400
    seed: {first % 1000 + 5}
    sources: [{{x_deg: {degrees[0]}, y_deg: {degrees[1]}, flux: 0.3}}]
    out: field
  - {{stage: correlate, in: field, out: v, integrate: 6400}}
  - {{stage: uvh5, in: v, directory: {name}}}
""", name=f"{name}.yaml")


def test_sky():
    """Two integrations an hour apart, added up: the source has moved by 15 degrees between them, 30 times the
    array's resolution."""
    if not has_erfa():
        return
    ra, dec = 150.5, 62.25
    with harness.scratch() as d:
        g = circle.write_receivers(d)
        for name, seconds in (("one", 3600 * 15), ("two", 3600 * 16)):
            at_time(d, name, seconds, ra, dec)
        names = [f"{n}/vis_000000.uvh5" for n in ("one", "two")]
        done = circle.calibrate(d, *names, "--source", f"{ra},{dec}")
        assert "2 integrations" in done.out and "degrees above the horizon" in done.out, done.out
        gain, flag, sets, attributes = circle.read_gains(os.path.join(d, "gains.h5"))
        phase, amplitude = circle.errors(gain, flag, g)
        assert np.sqrt((phase ** 2).mean()) < 1.2, np.sqrt((phase ** 2).mean())
        assert np.sqrt((amplitude ** 2).mean()) < 0.03
        assert attributes["source"] == b"source 150.5,62.25"
        hours = ra / 15
        sexagesimal = f"{int(hours):02d}:{int(hours * 60 % 60):02d}:{hours * 3600 % 60:.3f},+62:15:00"
        circle.calibrate(d, *names, "--source", sexagesimal, "--out", "same.h5")
        assert np.array_equal(circle.read_gains(os.path.join(d, "same.h5"))[0], gain)
        # the source half a degree off: another solution, with much less of the signal
        circle.calibrate(d, *names, "--source", f"{ra},{dec - 0.5}", "--out", "off.h5")
        off = circle.read_gains(os.path.join(d, "off.h5"))[2]
        assert off["snr"].mean() < 0.9 * sets["snr"].mean() or \
            np.sqrt((circle.errors(off["gain"], off["flag"], g)[0] ** 2).mean()) > 20
        low = circle.calibrate(d, *names, "--source", "150.5,-75", "--out", "low.h5", status=1)
        assert "below the horizon at 2023-11-1" in low.err and "its elevation is -" in low.err, low.err
        assert not os.path.exists(os.path.join(d, "low.h5"))
        twice = circle.calibrate(d, names[0], names[0], "--source", f"{ra},{dec}", "--overwrite", status=1)
        assert "expected every integration once" in twice.err, twice.err


def test_command_line():
    with harness.scratch() as d:
        for arguments, words in (
            ((), "usage: beamring calibrate"),
            (("x.uvh5",), "usage: beamring calibrate"),
            (("x.uvh5", "--direction", "0.9,0.9"), "below the horizon"),
            (("x.uvh5", "--direction", "0.9"), "expected X,Y"),
            (("x.uvh5", "--direction", "0,0", "--at", "noon"), "expected now, sample:N or time:NS"),
            (("x.uvh5", "--direction", "0,0", "--at", "now"), "--at goes with --post"),
            (("x.uvh5", "--direction", "0,0", "--ref-input", "1.5"), "expected a dish's number"),
            (("x.uvh5", "--direction", "0,0", "--min-snr", "many"), "expected a number from 0"),
            (("x.uvh5", "--direction"), "expected X,Y"),
            (("x.uvh5", "--dircetion", "0,0"), "unknown option '--dircetion'"),
            (("x.uvh5", "--direction", "0,0", "--telescope", "none.yaml"), "none.yaml"),
        ):
            result = circle.calibrate(d, *arguments, status=2)
            assert words in result.err and "%s" not in result.err, (words, result)
        if has_erfa():
            for source in ("1", "1,2,3", "25:00:00,0", "400,0", "10,91", "1:70:00,3", "a,b", "1:2:3:4,5"):
                result = circle.calibrate(d, "x", "--source", source, status=2)
                assert f"--source '{source}': expected" in result.err, result
            both = circle.calibrate(d, "x", "--source", "1,2", "--direction", "0,0", status=2)
            assert "both --source and --direction" in both.err


def recording(d, name):
    path, = glob.glob(os.path.join(d, name, "*.dada"))
    return path


def test_files():
    """Files that are not what they should be, or do not belong together; nothing is written for them, and
    what was there stays."""
    with harness.scratch() as d:
        circle.write_receivers(d)
        circle.see_source(d, samples=3200)
        vis = "vis/vis_000000.uvh5"
        dada = recording(d, "vis")
        place = ("--direction", circle.at(SOURCE))
        circle.simulate(d, "    samples: 100", """
  - {stage: correlate, in: field, out: v, integrate: 100, autocorrelations: only}
  - {stage: uvh5, in: v, directory: autos}
  - {stage: record, in: v, directory: autos, prefix: v}""")
        circle.simulate(d, "    samples: 100", "  - {stage: record, in: field, directory: e, prefix: e}")
        with open(os.path.join(d, "text"), "w") as f:
            f.write("no visibilities\n")
        with open(os.path.join(d, "none.yaml"), "w") as f:
            f.write("pipeline: []\n")
        shutil.copy(os.path.join(d, vis), os.path.join(d, "other.uvh5"))
        with h5py.File(os.path.join(d, "other.uvh5"), "a") as f:
            f["Header/freq_array"][...] += 50e6
        shutil.copy(os.path.join(d, vis), os.path.join(d, "phased.uvh5"))
        with h5py.File(os.path.join(d, "phased.uvh5"), "a") as f:
            del f["Header/phase_center_catalog/0/cat_type"]
            f["Header/phase_center_catalog/0/cat_type"] = np.bytes_("sidereal")
        shutil.copy(os.path.join(d, vis), os.path.join(d, "headless.uvh5"))
        with h5py.File(os.path.join(d, "headless.uvh5"), "a") as f:
            del f["Header/freq_array"]
        shutil.copy(os.path.join(d, vis), os.path.join(d, "huge.uvh5"))  # 64 GiB of times, it says
        with h5py.File(os.path.join(d, "huge.uvh5"), "a") as f:
            del f["Header/time_array"]
            f.create_dataset("Header/time_array", (1 << 33,), "f8", chunks=(1024,))
        for files, words in (
            (("huge.uvh5",), "there is no integration in it"),
            (("nothing.uvh5",), "nothing.uvh5: No such file"),
            (("text",), "is neither UVH5 nor DADA"),
            ((dada,), "give --telescope FILE"),
            ((recording(d, "e"), "--telescope", PATHFINDER), "expected visibilities"),
            ((recording(d, "autos"), "--telescope", PATHFINDER), "autocorrelations alone have no phases"),
            (("autos/vis_000000.uvh5",), "no channel has a result"),
            ((vis, "other.uvh5"), "channel 0 is at 400 and at 450 MHz"),
            ((vis, dada, "--telescope", PATHFINDER), "expected every integration once"),
            (("phased.uvh5",), "phased to a place on the sky ('sidereal')"),
            (("headless.uvh5",), "Header/freq_array"),
            ((vis, "--ref-input", "11"), "flagged in all channels of polarisation 0"),
            ((vis, "--ref-input", "64"), "expected a dish, 0 to 63"),
            ((vis, "--min-snr", "1000"), "the source is too weak"),
        ):
            result = circle.calibrate(d, *files, *place, "--out", "out.h5", status=1)
            assert words in result.err, (words, result)
            assert not os.path.exists(os.path.join(d, "out.h5")), words
        result = circle.calibrate(d, dada, *place, "--telescope", "none.yaml", status=2)
        assert "has no `telescope:`" in result.err, result
        for size in (500, 3000, 6000):  # a disk that is full
            result = circle.calibrate(d, vis, *place, status=1, file_bytes=size)
            assert "gains.h5 cannot be written: File too large" in result.err, result
            assert not [n for n in os.listdir(d) if n.startswith("gains")]
        circle.calibrate(d, vis, *place)
        before = open(os.path.join(d, "gains.h5"), "rb").read()
        assert "--overwrite replaces it" in circle.calibrate(d, vis, *place, status=1).err
        assert open(os.path.join(d, "gains.h5"), "rb").read() == before
        shutil.copy(os.path.join(d, vis), os.path.join(d, "outside.uvh5"))
        for name in ("Header/freq_array", "Data/nsamples"):
            for way in harness.send_outside(os.path.join(d, "outside.uvh5"), name):
                result = circle.calibrate(d, "outside.uvh5", *place, "--out", "out.h5", status=1)
                assert "outside.uvh5: " in result.err and name.split("/")[1] in result.err, (way, result)
        for byte in harness.damage_hdf5(os.path.join(d, "other.uvh5")):
            result = circle.calibrate(d, "other.uvh5", *place, "--out", "out.h5", status=1)
            assert "other.uvh5: " in result.err, (byte, result)


def test_missing():
    """What is missing does not count, in UVH5 files and in recordings alike: a whole integration, parts of
    others, and integrations that the recording cuts."""
    with harness.scratch() as d:
        g = circle.write_receivers(d)
        circle.see_source(d, samples=7001, flux=0.8,
                          missing="[{first: 100, count: 900}, {first: 1600, count: 1700}]")
        place = ("--direction", circle.at(SOURCE))
        circle.calibrate(d, "vis/vis_000000.uvh5", *place)
        circle.calibrate(d, recording(d, "vis"), "--telescope", PATHFINDER, *place, "--out", "dada.h5")
        one, two = (circle.read_gains(os.path.join(d, n)) for n in ("gains.h5", "dada.h5"))
        assert abs(one[0] - two[0]).max() < 1e-5
        snr = one[2]["snr"].mean()
        # 4401 samples; R of the source's part of the power, with the noise of rounding
        R = 0.8 / (1.8 + 1 / 12 / 4)
        want = R / (1 - R) * np.sqrt(2 * (7001 - 2600))
        assert abs(snr / want - 1) < 0.08, (snr, want)
        assert abs(snr / two[2]["snr"].mean() - 1) < 1e-3
        phase, _ = circle.errors(*one[:2], g)
        weight = circle.good_weights(*one[1:3])
        said = (np.radians(phase) * np.sqrt(weight)).std()
        assert 0.85 < said < 1.2, f"errors are {said:.2f} times what the weights say"


def test_one_dish():
    with harness.scratch() as d:
        one = TELESCOPE[:TELESCOPE.index("  dishes:")] + "  dishes: [[0, 0]]\n  latitude_deg: 1\n" \
            "  longitude_deg: 2\n"
        harness.run(d, one + circle.STREAM + """
pipeline:
  - {stage: simulate, samples: 500, out: field}
  - {stage: correlate, in: field, out: v, integrate: 500}
  - {stage: uvh5, in: v, directory: vis, npol: 2}
""")
        result = circle.calibrate(d, "vis/vis_000000.uvh5", "--direction", "0,0", status=1)
        assert "1 of 1 inputs are left; a fit needs 4" in result.err, result


def test_other_channels():
    """A node refuses gains of other channels, if there are as many; those of its coarse channels fit behind
    upchannelize."""
    with harness.scratch() as d:
        circle.write_receivers(d)
        circle.see_source(d, samples=3200)
        circle.calibrate(d, "vis/vis_000000.uvh5", "--direction", circle.at(SOURCE))
        for first, status in ((400, 0), (500, 2)):
            for stages in (
                "  - {stage: baseband_beamform, in: field, out: j, gains: gains.h5,\n"
                "     beams: {directions: [[0, 0]]}}",
                "  - {stage: upchannelize, in: field, out: fine, factor: 4}\n"
                "  - {stage: frb_grid, in: fine, out: j, integrate: 64, gains: gains.h5}"):
                stream = circle.STREAM.replace("first: 400.0", f"first: {first}")
                text = f"""include: {PATHFINDER}
{stream}
pipeline:
  - {{stage: simulate, samples: 100, out: field}}
{stages}
  - {{stage: record, in: j, directory: ., prefix: j}}
"""
                result = harness.run(d, text, command="check", status=status)
                words = "they are gains of other channels: number 0 is at 400 MHz there, and at 500 MHz here"
                assert status == 0 or words in result.err, result


def test_picture():
    with harness.scratch() as d:
        circle.write_receivers(d)
        circle.see_source(d, samples=3200)
        circle.calibrate(d, "vis/vis_000000.uvh5", "--direction", circle.at(SOURCE), "--plot", "gains.png")
        with open(os.path.join(d, "gains.png"), "rb") as f:
            assert f.read(8) == b"\x89PNG\r\n\x1a\n"


NODE = """
  - {stage: baseband_beamform, name: beam, in: field, out: j, beams: {directions: [[%r, %r]]}%s}
  - {stage: record, in: j, directory: %s, prefix: j}
"""


def test_node():
    """Gains that are posted to a running node hold from the sample on that was asked for, as if the pipeline
    had been started anew there."""
    with harness.scratch() as d:
        circle.write_receivers(d)
        circle.see_source(d, samples=6400)
        x, y = (float(c) for c in circle.cosines(*SOURCE))
        circle.simulate(d, f"""    samples: 5000
    seed: 3
    sources: [{{x_deg: {SOURCE[0]}, y_deg: {SOURCE[1]}, flux: 0.1}}]""",
                        "  - {stage: record, in: field, directory: ., prefix: field}", name="field.yaml")
        replay = f"device: {harness.DEVICE}\ninclude: {PATHFINDER}\npipeline:\n  - {{stage: replay, " \
                 "files: 'field_*.dada', out: field, frame_samples: 1000, loop: %d%s}"
        node = Node(d, replay % (4000, ", realtime: true") + NODE % (x, y, "", "live"), command="serve")
        try:
            node.wait_until(lambda s: s["state"] == "running")
            vis = ("vis/vis_000000.uvh5", "--direction", circle.at(SOURCE), "--overwrite", "--post", node.url)
            refused = circle.calibrate(d, *vis, "--stages", "baem:gains", status=1)
            assert "did you mean 'beam'?" in refused.err, refused
            late = circle.calibrate(d, *vis, "--at", "sample:1", status=1)
            assert "status 409" in late.err and "too late" in late.err, late
            sample = node.get("/v1/updates").json["earliest"] + 500001
            done = circle.calibrate(d, *vis, "--at", f"sample:{sample}")
            assert f"scheduled, from sample {sample} on" in done.out, done
            node.wait_for_line(f"holds from sample {sample}", 60)
            time.sleep(0.3)
        finally:
            node.end(status=0)
        live = harness.read_frames(recording(d, "live"))[0]
        samples = live.shape[3]
        assert live.shape[:3] == (1, NF, NP) and sample + 1000 < samples, (live.shape, sample)
        loops = -(-samples // 5000)
        for name, more in (("before", ""), ("after", ", gains: gains.h5")):
            harness.run(d, replay % (loops, "") + NODE % (x, y, more, name), name=f"{name}.yaml")
        before, after = (harness.read_frames(recording(d, name))[0] for name in ("before", "after"))
        assert np.array_equal(live[..., :sample], before[..., :sample])
        assert np.array_equal(live[..., sample:], after[..., sample:samples])
        assert not np.array_equal(before[..., sample:samples], after[..., sample:samples])
        # it is not there any more
        gone = circle.calibrate(d, *vis, status=1)
        assert f"{node.url}/v1/graph: " in gone.err, gone


def test_every_stage_of_a_node():
    """Without --stages all that take gains get them, at one sample."""
    with harness.scratch() as d:
        circle.write_receivers(d)
        circle.see_source(d, samples=3200)
        circle.simulate(d, "    samples: 4096\n    seed: 3",
                        "  - {stage: record, in: field, directory: ., prefix: field}", name="field.yaml")
        node = Node(d, f"""device: {harness.DEVICE}
include: {PATHFINDER}
pipeline:
  - {{stage: replay, files: 'field_*.dada', out: field, loop: 4000}}
  - {{stage: upchannelize, in: field, out: fine, factor: 16}}
  - {{stage: frb_grid, name: first, in: fine, out: grid, integrate: 192}}
  - {{stage: frb_beams, in: grid, out: intensity, beams: {{grid: [2, 2], spacing_deg: 1}}}}
  - {{stage: record, name: keep, in: intensity, directory: frb, prefix: i}}
""" + NODE % (0, 0, "", "voltage"), command="serve")
        try:
            node.wait_until(lambda s: s["state"] == "running")
            done = circle.calibrate(d, "vis/vis_000000.uvh5", "--direction", circle.at(SOURCE), "--post",
                                    node.url)
            assert "scheduled, from sample" in done.out, done
            line = node.wait_for_line("holds from sample", 60)
            assert "(first, beam)" in line or "(beam, first)" in line, line
        finally:
            node.end(status=0)


if __name__ == "__main__":
    assert ND == 64
    harness.main([
        test_sky, test_command_line, test_files, test_missing, test_one_dish, test_other_channels,
        test_picture, test_node, test_every_stage_of_a_node
    ])
