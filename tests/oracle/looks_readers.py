"""Where beams looked: tables, headers of filterbank files and of recordings against astropy, which transforms
right ascension and declination to azimuth and altitude and back; and filterbank headers as sigpyproc reads
them.

Needs BEAMRING (the program) and BEAMRING_READERS_PYTHON (an interpreter that has numpy, astropy and
sigpyproc); skips without the latter."""
import csv
import os
import sys

from external import HERE, run_with

SITE = (49.3, -119.6, 545.0)
EPOCH_S, SECONDS = 1700000000, 20
PIPELINE = """
telescope: {name: t, grid: {m: 2, n: 2}, spacing_m: {m: 8.5, n: 6.3}, dishes: [[0, 0], [0, 1], [1, 1]],
  latitude_deg: 49.3, longitude_deg: -119.6, height_m: 545, eop: EOP}
stream: {epoch_ns: 1700000000000000000, sample_ns: 1000000, sideband: upper,
  freq_mhz: {first: 400, step: 0.001, count: 4}}
pipeline:
  - {stage: simulate, samples: 20000, frame_samples: 1000, seed: 3, out: e}
  - stage: power_beams
    in: e
    out: i
    integrate: 100
    beams: {towards: [{radec: [240.5, -12.25], name: J1602-1215}, {radec: ["05:30:00.5", "-11:59:59"]},
      {name: sun}, {xy: [-0.2, 0.3]}]}
  - {stage: filterbank, in: i, directory: fil, prefix: b}
  - {stage: filterbank, name: told, in: i, directory: fil, prefix: told, source: Crab, src_raj: 53431.97,
     src_dej: 220052.1}
  - {stage: record, in: i, directory: dada, prefix: x}
  - {stage: baseband_beamform, in: e, out: j, beams: {directions: [[0.1, 0.2]]}}
  - {stage: record, name: still, in: j, directory: dada, prefix: j}
"""
SOURCES = [(240.5, -12.25), (15 * (5.5 + 0.5 / 3600), -(11 + 59 / 60 + 59 / 3600)), None, None]


def sky():
    """Functions: the azimuth and altitude of a place in the sky (None: the Sun) after some seconds, and the
    place in the sky that is in a direction; in degrees."""
    import astropy_iers_data
    from astropy import units as u
    from astropy.coordinates import AltAz, EarthLocation, SkyCoord, get_body
    from astropy.time import Time
    from astropy.utils import iers
    iers.conf.auto_download = False
    iers.earth_orientation_table.set(iers.IERS_A.open(astropy_iers_data.IERS_A_FILE))
    site = EarthLocation.from_geodetic(SITE[1], SITE[0], SITE[2])

    def frame(seconds):
        return AltAz(obstime=Time(EPOCH_S + seconds, format="unix"), location=site)

    def place(source, seconds):
        at = frame(seconds)
        c = SkyCoord(*source, unit="deg") if source is not None else get_body("sun", at.obstime, site)
        there = c.transform_to(at)
        return there.az.deg, there.alt.deg

    def back(azimuth, altitude, seconds):
        c = SkyCoord(azimuth * u.deg, altitude * u.deg, frame=frame(seconds)).icrs
        return c.ra.deg, c.dec.deg

    return astropy_iers_data.IERS_A_FILE, place, back


def apart(a, b):
    """Arc seconds between two directions (azimuth, altitude) or (ra, dec) in degrees."""
    import numpy as np
    x, y = (np.array([np.cos(p[1]) * np.cos(p[0]), np.cos(p[1]) * np.sin(p[0]), np.sin(p[1])])
            for p in (np.radians(a), np.radians(b)))
    return np.degrees(np.linalg.norm(x - y)) * 3600


def check_table(path, place, back):
    """Each beam at the start and at the end; empty below the horizon. The rows."""
    import numpy as np
    with open(path, newline="") as f:
        rows = list(csv.DictReader(f))
    below = 0
    for row, source in zip(rows, SOURCES):
        for end, seconds in (("", 0), ("_end", SECONDS)):
            x, y, utc = (row[k + end] for k in ("x", "y", "utc"))
            az, za, ra, dec = (row[f"{k}{end}_deg"] for k in ("azimuth", "zenith_angle", "ra", "dec"))
            number = int(row["number"])
            assert utc == ("2023-11-14-22:13:20" if seconds == 0 else "2023-11-14-22:13:40"), row
            if number == 3:
                assert (float(x), float(y)) == (-0.2, 0.3)
                want = np.degrees(np.arctan2(0.3, -0.2)), np.degrees(np.arccos(np.hypot(0.2, 0.3)))
            else:
                want = place(source, seconds)
            if want[1] < 0:
                assert not any((x, y, az, za, ra, dec)), row
                below += 1
                continue
            there = float(az), 90 - float(za)
            assert apart(there, want) < 1, (row, want)
            north = np.cos(np.radians(there[1])) * np.cos(np.radians(there[0]))
            assert abs(float(x) - north) < 1e-8, row
            radec = source or back(*want, seconds)
            assert apart((float(ra), float(dec)), radec) < 1, (row, radec)
    assert below == 2, "beam 1 is below the horizon"
    return rows


def check_headers(d, rows):
    """The headers of filterbank files: where the beam looks, or what the user says."""
    from sigpyproc.readers import FilReader
    for row in rows:
        h = FilReader(os.path.join(d, f"fil/b{int(row['number']):04}.fil")).header
        known = row["ra_deg"] != ""
        ra, dec = (float(row["ra_deg"]), float(row["dec_deg"])) if known else (0, 0)
        assert apart((h.coord.icrs.ra.deg, h.coord.icrs.dec.deg), (ra, dec)) < 0.01, (row, h.coord)
        assert abs(h.azimuth.deg - float(row["azimuth_deg"] or 0)) < 1e-6, (row, h)
        assert abs(h.zenith.deg - float(row["zenith_angle_deg"] or 0)) < 1e-6, (row, h)
        number = int(row["number"])
        assert h.source == ("J1602-1215", "beam 1", "sun", "beam 3")[number], h.source
    h = FilReader(os.path.join(d, "fil/told0000.fil")).header
    assert apart((h.coord.icrs.ra.deg, h.coord.icrs.dec.deg), (83.6332083, 22.0144722)) < 0.01 and \
        h.source == "Crab", h


def compare():
    sys.path.insert(0, os.path.join(HERE, "..", "pipeline"))
    import harness
    import numpy as np
    eop, place, back = sky()
    with harness.scratch() as d:
        harness.run(d, PIPELINE.replace("EOP", eop))
        rows = check_table(os.path.join(d, "fil/bs.csv"), place, back)
        with open(os.path.join(d, "fil/bs.csv")) as a, open(os.path.join(d, "dada/x_beams.csv")) as b:
            assert a.read() == b.read()
        check_headers(d, rows)
        keys, _ = harness.header(os.path.join(d, "dada/x_000000.dada"))
        radec, xy = (np.array(keys[k].split(","), float).reshape(-1, 2)
                     for k in ("BEAMS_RADEC", "BEAMS_START"))
        assert "BEAMS_XY" not in keys, "the beams move"
        for row, place_, direction in zip(rows, radec, xy):
            if row["x"] == "":
                assert (place_ == 999).all() and (direction == 999).all(), (place_, direction)
                continue
            assert apart(place_, (float(row["ra_deg"]), float(row["dec_deg"]))) < 0.01
            assert np.allclose(direction, (float(row["x"]), float(row["y"])), rtol=0, atol=1e-9)
        told = harness.beamring("info", "dada/x_000000.dada", cwd=d)
        assert "they move" in told.out and "240.5000000  -12.2500000" in told.out, told
        keys, _ = harness.header(os.path.join(d, "dada/j_000000.dada"))
        az, alt = np.degrees(np.arctan2(0.2, 0.1)), np.degrees(np.arccos(np.hypot(0.1, 0.2)))
        assert keys["BEAMS_XY"] == "0.1,0.2" and "BEAMS_START" not in keys, keys
        assert apart(list(map(float, keys["BEAMS_RADEC"].split(","))), back(az, alt, 0)) < 1, keys
    print("tables and headers say where astropy has the beams")


if __name__ == "__main__":
    sys.exit(run_with("sigpyproc", compare))
