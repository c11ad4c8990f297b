"""Where beams that follow the sky look, as astropy has it: random sources, sites and dates, over 24 hours, with the
same IERS file; RA and Dec of beams that stand still; and the sky without the file, or behind its end.

The Moon's oracle has the same theory (Meeus' series, in ERFA): what is tested is its parallax, light time and
aberration. Against modern ephemerides that theory is off by some 10 seconds of arc. For the Sun astropy adds the
light deflection of something within its disc, which has none: up to 0.3 seconds of arc.

Needs BEAMRING (the program) and BEAMRING_READERS_PYTHON (an interpreter that has astropy and its IERS data); skips
without."""
import json
import os
import sys
import warnings

from external import HERE, run_with

sys.path.insert(0, os.path.join(HERE, "..", "pipeline"))
ARCSEC = 1 / 3600
PIPELINE = """
telescope: {{name: t, grid: {{m: 2, n: 2}}, spacing_m: {{m: 10, n: 10}}, dishes: [[0, 0], [1, 1]],
  latitude_deg: {lat!r}, longitude_deg: {lon!r}, height_m: {height!r}{eop}}}
stream: {{sample_ns: 5120, epoch_ns: {epoch}, freq_mhz: [400, 400.5]}}
pipeline:
  - {{stage: simulate, samples: 1000, out: field}}
  - {{stage: baseband_beamform, name: b, in: field, out: v, beams: {{towards: [{towards}]}}}}
  - {{stage: record, in: v, directory: out, prefix: v}}
"""
SIXTY = 60 * 10**9
DAY = 86400 * 10**9


class Site:
    def __init__(self, rng, epoch, eop, towards):
        from astropy.coordinates import EarthLocation
        self.lat, self.lon = float(rng.uniform(-85, 85)), float(rng.uniform(-180, 180))
        self.height, self.epoch = float(rng.uniform(0, 5000)), int(epoch)
        self.place = EarthLocation.from_geodetic(self.lon, self.lat, self.height)
        self.text = PIPELINE.format(lat=self.lat, lon=self.lon, height=self.height, epoch=self.epoch,
                                    eop=f", eop: {eop}" if eop else "", towards=", ".join(towards))

    def beams(self, d, ns):
        import harness
        with open(os.path.join(d, "p.yaml"), "w") as f:
            f.write(self.text)
        told = harness.beamring("beams", "p.yaml", "--json", "--at", f"time:{ns}", cwd=d)
        assert told.status == 0, told
        document = json.loads(told.out)["b"]
        assert document["time_ns"] == ns
        return document["beams"], told.err

    def frame(self, ns):
        from astropy.coordinates import AltAz
        return AltAz(obstime=time(ns), location=self.place)


def time(ns):
    from astropy.time import Time
    return Time(ns // DAY + 40587, (ns % DAY) / DAY, format="mjd", scale="utc")


def apart(beam, there):
    """Degrees between a beam's direction cosines and astropy's AltAz; NaN where both are below the horizon."""
    import numpy as np
    alt, az = there.alt.rad, there.az.rad
    if beam["x"] is None:
        assert alt < 2e-5 and beam["azimuth_deg"] is None and beam["ra_deg"] is None, (beam, there)
        return np.nan
    assert alt > -2e-5, (beam, there)
    x, y = beam["x"], beam["y"]
    s = np.array([x, y, np.sqrt(max(0, 1 - x * x - y * y))])
    wanted = np.array([np.cos(az) * np.cos(alt), np.sin(az) * np.cos(alt), np.sin(alt)])
    horizontal = np.array([beam["azimuth_deg"], beam["altitude_deg"]])
    assert abs((horizontal[0] - np.degrees(az) + 180) % 360 - 180) * np.cos(alt) < ARCSEC, (beam, there)
    assert abs(horizontal[1] - np.degrees(alt)) < ARCSEC, (beam, there)
    return np.degrees(2 * np.arcsin(np.linalg.norm(s - wanted) / 2))


def sources(d, eop):
    """100 sources, four at each of 25 sites and dates; the Sun and the Moon."""
    import numpy as np
    from astropy.coordinates import get_body, SkyCoord
    rng = np.random.default_rng(41)
    worst, seen = np.zeros(3), np.zeros(3, int)
    for _ in range(25):
        ra = rng.uniform(0, 360, 4)
        site = Site(rng, rng.integers(820454400, 1767225600) * 10**9, eop, [])
        low, high = max(-89.9, site.lat - 85), min(89.9, site.lat + 85)  # sources that rise
        dec = np.degrees(np.arcsin(rng.uniform(*np.sin(np.radians([low, high])), 4)))
        site.text = site.text.replace("towards: []", "towards: [%s, {name: sun}, {name: moon}]" % ", ".join(
            f"{{radec: [{a!r}, {b!r}]}}" for a, b in zip(ra.tolist(), dec.tolist())))
        for hour in np.sort(rng.uniform(0, 24, 2)):
            ns = site.epoch + int(hour * 60) * SIXTY
            beams, _ = site.beams(d, ns)
            frame = site.frame(ns)
            there = SkyCoord(ra, dec, unit="deg").transform_to(frame)
            off = [apart(beams[i], there[i]) for i in range(4)]
            off += [apart(beams[4 + i], get_body(n, frame.obstime, site.place, ephemeris="builtin").transform_to(frame))
                    for i, n in enumerate(("sun", "moon"))]
            for i, value in enumerate(off):
                kind = max(0, i - 3)
                seen[kind] += np.isfinite(value)
                worst[kind] = np.fmax(worst[kind], value / ARCSEC)
            for i in range(4):
                if beams[i]["ra_deg"] is not None:
                    turn = abs((beams[i]["ra_deg"] - ra[i] + 180) % 360 - 180) * np.cos(np.radians(dec[i]))
                    assert np.hypot(turn, beams[i]["dec_deg"] - dec[i]) < 1e-3 * ARCSEC, (beams[i], ra[i], dec[i])
    print(f"worst of {seen[0]} places of sources, {seen[1]} of the Sun, {seen[2]} of the Moon: "
          f"{worst[0]:.4f}, {worst[1]:.4f}, {worst[2]:.4f} arc seconds")
    assert (seen > 25).all() and (worst < [0.01, 0.5, 0.5]).all(), (seen, worst)


def still(d, eop):
    """RA and Dec of beams that stand still."""
    import numpy as np
    from astropy.coordinates import AltAz, ICRS, SkyCoord
    rng = np.random.default_rng(42)
    for _ in range(5):
        az, alt = rng.uniform(0, 360, 4), rng.uniform(5, 89, 4)
        site = Site(rng, rng.integers(820454400, 1767225600) * 10**9, eop,
                    [f"{{azel: [{a!r}, {b!r}]}}" for a, b in zip(az.tolist(), alt.tolist())])
        ns = site.epoch + int(rng.integers(0, 1440)) * SIXTY
        beams, _ = site.beams(d, ns)
        frame = AltAz(obstime=time(ns), location=site.place)
        wanted = SkyCoord(az, alt, unit="deg", frame=frame).transform_to(ICRS())
        got = SkyCoord([b["ra_deg"] for b in beams], [b["dec_deg"] for b in beams], unit="deg")
        off = got.separation(wanted).arcsec
        assert (off < 0.05).all(), off
        assert np.allclose([b["altitude_deg"] for b in beams], alt, rtol=0, atol=1e-9), beams


def orientation(d, eop):
    """Without a file the program says by how much it may be off, and is not off by more; the same behind the end of a
    file that is old; a later file makes it right again."""
    import numpy as np
    from astropy.coordinates import SkyCoord
    rng = np.random.default_rng(43)
    epoch = 1136073600 * 10**9 - DAY  # 2005-12-31, with a leap second at its end: UT1 - UTC from -0.66 to 0.34 s
    old = os.path.join(d, "old.all")
    lines = open(eop, encoding="ascii").readlines()
    with open(old, "w", encoding="ascii") as f:
        f.writelines(line for line in lines if float(line[7:15]) <= 53735 - 100)
    for file, least, most in ((None, 4, 14.2), (old, 0.05, 3.7), (eop, 0, 0.05)):
        site = Site(np.random.default_rng(7), epoch, file, ["{azel: [0, 90]}"])
        source = SkyCoord(float(rng.uniform(0, 360)), site.lat * 0.5, unit="deg")
        site.text = site.text.replace("{azel: [0, 90]}", f"{{radec: [{float(source.ra.deg)!r}, {float(source.dec.deg)!r}]}}")
        off = []
        for hour in range(0, 24, 4):
            beams, said = site.beams(d, epoch + hour * 60 * SIXTY)
            off.append(apart2(beams[0], source.transform_to(site.frame(epoch + hour * 60 * SIXTY))))
        off = np.array(off) / ARCSEC
        assert np.nanmax(off) < most and np.nanmax(off) >= least, (file, off)
        assert ("Fetch a new finals2000A.all" in said) == (file == old), said
        import harness
        told = harness.beamring("check", "p.yaml", cwd=d)
        assert ("may be off by 14 arc seconds" in told.err) == (file is None), told.err


def apart2(beam, there):
    """As apart(), without demanding an arc second."""
    import numpy as np
    if beam["x"] is None:
        return np.nan
    wanted = np.array([np.cos(there.az.rad) * np.cos(there.alt.rad), np.sin(there.az.rad) * np.cos(there.alt.rad)])
    return np.degrees(np.linalg.norm(np.array([beam["x"], beam["y"]]) - wanted))


def compare():
    import astropy_iers_data
    from astropy.utils import iers

    import harness
    warnings.simplefilter("ignore")
    eop = astropy_iers_data.IERS_A_FILE
    iers.conf.auto_download = False
    iers.earth_orientation_table.set(iers.IERS_A.open(eop))
    with harness.scratch() as d:
        os.symlink(eop, os.path.join(d, "finals2000A.all"))
        sources(d, "finals2000A.all")
        still(d, "finals2000A.all")
        orientation(d, os.path.join(d, "finals2000A.all"))


if __name__ == "__main__":
    sys.exit(run_with("astropy_iers_data", compare))
