"""Which beam is where: beams.csv, `info` and the headers of filterbank files against spherical geometry, also
after beams were pointed elsewhere; and `check` on a grid of beams that is wider than the sky repeats."""
import csv
import math
import os
import struct

import numpy as np

import harness
from small import at

TELESCOPE = """telescope: {name: t, grid: {m: 2, n: 2}, spacing_m: {m: 8.5, n: 6.3},
  dishes: [[0, 0], [1, 1]]%s}
"""
SITE = ", latitude_deg: 49.3, longitude_deg: -119.6"
NX, NY = 3, 4
COLUMNS = ("number,x,y,azimuth_deg,zenith_angle_deg,ra_deg,dec_deg,utc,x_end,y_end,azimuth_end_deg,"
           "zenith_angle_end_deg,ra_end_deg,dec_end_deg,utc_end").split(",")


def directions():
    """A grid whose last beams are below the horizon."""
    return [(math.sin(math.radians(a)), math.sin(math.radians(b))) for a in (-3.0, 0.5, 70.0)
            for b in (-4.0, 0.0, 2.5, 60.0)]


def horizon(x, y):
    """Azimuth from north over east and zenith angle of the direction x north, y east."""
    up = 1 - x * x - y * y
    if up < 0:
        return None
    return math.degrees(math.atan2(y, x)) % 360, math.degrees(math.acos(math.sqrt(up)))


def recording(path, nfreq=4, ntime=32):
    xy = directions()
    keys = {
        "HEADER": "DADA", "HDR_SIZE": 4096, "DTYPE": "f16", "AXES": "freq,time,beam",
        "SHAPE": f"{nfreq},0,{NX * NY}", "FRAME_SAMPLES": ntime * 4, "SAMPLE0": 0, "SAMPLES": ntime * 4,
        "SAMPLE_NS": 5120, "EPOCH_NS": 17 * 10**17, "FREQ_MHZ": "600:0.1953125:4", "WIDTH_MHZ": 0.1953125,
        "DOWNSAMPLE": 4, "BEAMS_GRID": f"{NX},{NY}",
        "BEAMS_XY": ",".join(repr(v) for beam in xy for v in beam)
    }
    text = "".join(f"{k} {v}\n" for k, v in keys.items()).encode().ljust(4096, b"\0")
    with open(path, "wb") as f:
        f.write(text + np.random.default_rng(1).random((nfreq, ntime, NX * NY)).astype("<f2").tobytes())


def check_table(rows, site):
    assert len(rows) == NX * NY
    for number, (row, (x, y)) in enumerate(zip(rows, directions())):
        assert int(
            row[0]) == number and abs(float(row[1]) - x) < 1e-15 and abs(float(row[2]) - y) < 1e-15, row
        wanted = horizon(x, y) if site else None
        if wanted is None:
            assert not any(row[3:7]), row
        else:
            assert abs(float(row[3]) - wanted[0]) < 1e-6 and abs(float(row[4]) - wanted[1]) < 1e-6, (row,
                                                                                                     wanted)


def angles(path):
    raw, out = open(path, "rb").read(1024), []
    for key in (b"az_start", b"za_start"):
        at = raw.index(key) + len(key)
        out.append(struct.unpack_from("<d", raw, at)[0])
    return out


def test_tables():
    for site in (True, False):
        with harness.scratch() as d:
            recording(os.path.join(d, "x.dada"))
            harness.run(
                d, TELESCOPE % (SITE if site else "") + """pipeline:
  - {stage: replay, files: x.dada, out: beams}
  - {stage: filterbank, in: beams, directory: out}
  - {stage: record, in: beams, directory: out, prefix: y}
""")
            for name in ("beams.csv", "y_beams.csv"):
                with open(os.path.join(d, "out", name), newline="") as f:
                    rows = list(csv.reader(f))
                assert rows[0] == COLUMNS, rows[0]
                check_table(rows[1:], site)
                erfa = any(row[5] for row in rows[1:])  # beamring may be built without it
                for row in rows[1:]:
                    assert row[7] == "2023-11-14-22:13:20" and row[14] == "2023-11-14-22:13:20.000655360", row
                    assert row[8:12] == row[1:5], "they stand still"
                    above = row[3] != "" and erfa
                    assert all((v != "") == above for v in row[5:7] + row[12:14]), row
            for number, (x, y) in enumerate(directions()):
                wanted = (horizon(x, y) if site else None) or (0, 0)
                got = angles(os.path.join(d, "out", f"beam{number:04}.fil"))
                assert np.allclose(got, wanted, rtol=0, atol=1e-9), (number, got, wanted)
            told = harness.beamring("info", "--beams", "out/y_000000.dada", cwd=d)
            assert "number = ix x 4 + iy" in told.out, told
            lines = told.out.split("zenith angle  RA  Dec (degrees)\n")[1].splitlines()[:NX * NY]
            check_table([line.split() for line in lines], site)
            # the table is not a recording, and exists once
            harness.run(
                d, """pipeline:
  - {stage: replay, files: "out/y_*", out: beams}
  - {stage: record, in: beams, directory: again, prefix: z}
""")


ELSEWHERE = """
device: %s
updates: [%s]
%sstream: {sample_ns: 20000000, epoch_ns: 1700000000000000000, freq_mhz: {first: 600, step: 0.2, count: 2}}
pipeline:
  - {stage: simulate, samples: 1600, frame_samples: 128, out: e}
  - {stage: baseband_beamform, name: v, in: e, out: voltage, shift: 6, beams: %s}
  - {stage: record, name: rv, in: voltage, directory: v, prefix: v, file_bytes: 2000}
  - {stage: power_beams, name: p, in: e, out: power, integrate: 40, beams: %s}
  - {stage: filterbank, name: fp, in: power, directory: p}
  - {stage: frb_grid, in: e, out: grid, integrate: 48}
  - {stage: frb_beams, name: f, in: grid, out: frb, beams: %s, steer: [{sample: 0, beams: %s},
     {sample: 1000, beams: %s}]}
  - {stage: record, name: rf, in: frb, directory: f, prefix: f}
"""


def test_pointed_elsewhere():
    """An update, or steering, begins new lines of the table, and is in headers of files that begin later."""
    there, other = [[0.1, 0.2], [0, -0.3]], [[0.2, 0.2], [0.3, 0]]
    radec = [[10.0, 80.0], [250.0, 60.0]]
    still, others = f"{{directions: {there}}}", f"{{directions: {other}}}"
    follows = f"{{towards: [{{radec: {radec[0]}, name: a}}, {{radec: {radec[1]}}}]}}"
    values = ", ".join(f"{stage}: {{beams: {follows}}}" for stage in "vp")
    updates = ", ".join((f"{{at: {{sample: 777}}, stages: {{{values}}}}}", at(900, "shift: 5", "v"),
                         at(1200, f"beams: {others}", "v"), at(1201, f"beams: {others}, steer: []", "f")))

    def sample(utc):
        return round((float(utc.split(":")[2]) - 20) / 0.02)

    def spans(d, name):
        """[(first sample, sample behind the last one, lines)], the lines without times."""
        with open(os.path.join(d, name), newline="") as f:
            rows = list(csv.reader(f))[1:]
        assert [int(row[0]) for row in rows] == [0, 1] * (len(rows) // 2), rows
        return [(sample(a[7]), sample(a[14]), [a, b]) for a, b in zip(rows[::2], rows[1::2])]

    def check(d, name, ends, looks):
        told = spans(d, name)
        assert [(a, b) for a, b, _ in told] == list(zip([0, *ends], ends)), (name, told)
        for (_, _, lines), look in zip(told, looks):
            for line, wanted in zip(lines, look):
                if look is radec:
                    got = [float(v) for v in line[5:7] + line[12:14]]
                    assert np.allclose(got, wanted * 2, atol=2e-6, rtol=0) and line[1] != line[8], line
                else:
                    assert [float(v) for v in line[1:3] + line[8:10]] == wanted * 2, line

    with harness.scratch() as d:
        beams = (still, still, still, others, still)
        harness.run(d, ELSEWHERE % (harness.DEVICE, updates, TELESCOPE % SITE, *beams))
        check(d, "v/v_beams.csv", [777, 1200, 1600], [there, radec, other])
        check(d, "p/beams.csv", [800, 1600], [there, radec])
        check(d, "f/f_beams.csv", [1008, 1248, 1600], [other, there, other])
        files = sorted(n for n in os.listdir(os.path.join(d, "v")) if n.endswith(".dada"))
        assert len(files) > 3
        for name in files:
            keys, _ = harness.header(os.path.join(d, "v", name))
            first, last = int(keys["SAMPLE0"]), int(keys["SAMPLE0"]) + int(keys["SAMPLES"])
            moved = last > 777
            assert ("BEAMS_START" in keys) == moved and ("BEAMS_XY" in keys) != moved, (name, keys)
            wanted = there if first < 777 else other if first >= 1200 else None
            got = [float(v) for v in keys["BEAMS_START" if moved else "BEAMS_XY"].split(",")]
            assert wanted is None or got == sum(wanted, []), (name, got)
            sky = [float(v) for v in keys.get("BEAMS_RADEC", "").split(",") if v]
            assert wanted is not None or np.allclose(sky, sum(radec, []), atol=2e-6), (name, sky)
        # files of one recording still, whose directions are not known
        os.mkdir(os.path.join(d, "again"))
        harness.run(d, """pipeline:
  - {stage: replay, files: "v/v_*.dada", out: beams}
  - {stage: record, in: beams, directory: again, prefix: z}
""")
        again = os.listdir(os.path.join(d, "again"))
        assert "z_000000.dada" in again and "z_beams.csv" not in again, again


def test_wide_grid():
    text = f"include: {harness.CONFIG}/telescopes/pathfinder.yaml\n" + """
stream: {sample_ns: 5120, epoch_ns: 0, freq_mhz: {first: 600, step: 0.1953125, count: 2}}
pipeline:
  - {stage: simulate, duration_s: 0.01, out: e}
  - {stage: upchannelize, in: e, out: fine, factor: 16}
  - {stage: frb_grid, in: fine, out: grid, integrate: 192}
  - {stage: frb_beams, in: grid, out: beams, beams: {grid: [16, 16], spacing_deg: %g}}
  - {stage: record, in: beams, directory: out, prefix: x}
"""
    high = 600.1953125 + 0.1953125 * 15 / 32  # the highest of 16 fine channels
    period = f"{299.792458 / high / 8.5:.4g}"  # along m; along n it is 0.0793
    with harness.scratch() as d:
        told = harness.run(d, text % 0.28, command="check")
        told = told.out + told.err
        assert "along m" in told and period in told and "along n" not in told, told
        told = harness.run(d, text % 0.2, command="check")
        assert "repeat the sky" not in told.out + told.err, told


if __name__ == "__main__":
    harness.main([test_tables, test_pointed_elsewhere, test_wide_grid])
