"""Where beams that follow the sky look, as astropy has it: random sources, sites and dates, over 24 hours,
with the same IERS file; RA and Dec of beams that stand still; and the sky without the file, or behind its
end.

The Moon's oracle has the same theory (Meeus' series, in ERFA): what is tested is its parallax, light time and
aberration. Against modern ephemerides that theory is off by some 10 seconds of arc. For the
Sun astropy adds the light deflection of something within its disc, which has none: up to 0.3 seconds of arc.

Needs BEAMRING (the program) and BEAMRING_READERS_PYTHON (an interpreter that has astropy and its IERS data);
skips without."""
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
    """Degrees between a beam's direction cosines and astropy's AltAz; NaN where both are below."""
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
            for i, name in enumerate(("sun", "moon")):
                body = get_body(name, frame.obstime, site.place, ephemeris="builtin")
                off.append(apart(beams[4 + i], body.transform_to(frame)))
            for i, value in enumerate(off):
                kind = max(0, i - 3)
                seen[kind] += np.isfinite(value)
                worst[kind] = np.fmax(worst[kind], value / ARCSEC)
            for i in range(4):
                if beams[i]["ra_deg"] is not None:
                    east = abs((beams[i]["ra_deg"] - ra[i] + 180) % 360 - 180) * np.cos(np.radians(dec[i]))
                    assert np.hypot(east, beams[i]["dec_deg"] - dec[i]) < 1e-3 * ARCSEC, (beams[i], ra[i])
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
    """Without a file the program says by how much it may be off, and is not off by more; the same behind the
    end of a file that is old; a later file makes it right again."""
    import numpy as np
    from astropy.coordinates import SkyCoord
    rng = np.random.default_rng(43)
    epoch = 1136073600 * 10**9 - DAY  # 2005-12-31: a leap second takes UT1 - UTC from -0.66 to 0.34 s
    old = os.path.join(d, "old.all")
    lines = open(eop, encoding="ascii").readlines()
    with open(old, "w", encoding="ascii") as f:
        f.writelines(line for line in lines if float(line[7:15]) <= 53735 - 100)
    for file, least, most in ((None, 4, 14.2), (old, 0.05, 3.7), (eop, 0, 0.05)):
        site = Site(np.random.default_rng(7), epoch, file, ["{azel: [0, 90]}"])
        source = SkyCoord(float(rng.uniform(0, 360)), site.lat * 0.5, unit="deg")
        radec = f"{{radec: [{float(source.ra.deg)!r}, {float(source.dec.deg)!r}]}}"
        site.text = site.text.replace("{azel: [0, 90]}", radec)
        off = []
        for hour in range(0, 24, 4):
            ns = epoch + hour * 60 * SIXTY
            beams, said = site.beams(d, ns)
            off.append(apart2(beams[0], source.transform_to(site.frame(ns))))
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
    wanted = np.array([np.cos(there.az.rad), np.sin(there.az.rad)]) * np.cos(there.alt.rad)
    return np.degrees(np.linalg.norm(np.array([beam["x"], beam["y"]]) - wanted))


HOUR = """
telescope: {{name: t, grid: {{m: 4, n: 4}}, spacing_m: {{m: 15, n: 13}}, dishes: {dishes},
  latitude_deg: 37.2, longitude_deg: -118.3, height_m: 1200, eop: finals2000A.all}}
stream: {{sample_ns: 500000000, epoch_ns: {epoch}, freq_mhz: [300, 302]}}
pipeline:
  - {{stage: simulate, samples: 7200, noise: 0.001, seed: 3, out: field,
     sources: [{{radec: [{ra!r}, {dec!r}], flux: 4.0e+6}}]}}
  - {{stage: power_beams, name: b, in: field, out: i, integrate: 2,
     beams: {{towards: [{towards}]}}}}
  - {{stage: record, in: field, directory: ., prefix: field}}
  - {{stage: record, name: r, in: i, directory: ., prefix: i}}
"""


def hour(d):
    """A simulated source for an hour of file time: its phases are those of astropy's places, and the beam
    that follows it keeps 0.999 of the power of one that has these phases in every sample; one that stands
    still loses the source. Directions of an interval's middle are within 1 degree of phase at its ends, on
    the longest baseline."""
    import harness
    import numpy as np
    from astropy.coordinates import AltAz, EarthLocation, SkyCoord
    from astropy.time import Time
    epoch, ra, dec = 1700000000 * 10**9, 299.868, 40.734
    dishes = [[m, n] for m in range(4) for n in range(4)]
    told = harness.run(d, HOUR.format(dishes=dishes, epoch=epoch, ra=ra, dec=dec, towards=(
        f"{{radec: [{ra}, {dec}]}}, {{azel: [300, 60]}}")))
    samples = int(told.err.split(" s (")[1].split(" base samples")[0])
    place = EarthLocation.from_geodetic(-118.3, 37.2, 1200)
    clock = Time(epoch // DAY + 40587, (epoch % DAY + (np.arange(7200) + 0.5) * 5e8) / DAY, format="mjd")
    there = SkyCoord(ra, dec, unit="deg").transform_to(AltAz(obstime=clock, location=place))
    north, east = np.array([np.cos(there.az.rad), np.sin(there.az.rad)]) * np.cos(there.alt.rad)
    field = harness.read_e(os.path.join(d, "field_000000.dada"))[0]
    m, n = np.array(dishes).T
    path = np.multiply.outer(north, 15 * m) + np.multiply.outer(east, 13 * n)
    power, best = 0, 0
    intensity, _, keys, _ = harness.read_frames(os.path.join(d, "i_000000.dada"))
    for channel, mhz in enumerate((300, 302)):
        e = field[:, channel] * np.exp(-2j * np.pi * path * mhz / 299.792458)[:, None]
        best += (abs(e.sum(2)) ** 2).sum()
        assert abs(np.angle((e * e[..., :1].conj()).sum((0, 1)))).max() < np.radians(0.5)
        power = power + intensity[channel].astype(float).sum(0) * float(keys["SCALE"]) / 127**2
    print(f"power: following {power[0] / best:.5f}, standing still {power[1] / best:.5f}")
    assert samples == 2
    assert 0.999 < power[0] / best < 1.001 and power[1] < 0.5 * best, power / best
    # Along both diagonals, from the middle of an interval to its end.
    rate = max(abs(np.diff(b)).max() for b in (path[:, -1], path[:, 3] - path[:, 12])) * 302 / 299.792458
    assert 0.2 < 360 * rate * samples / 2 < 1, (rate, samples)


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
        hour(d)
        sources(d, "finals2000A.all")
        still(d, "finals2000A.all")
        orientation(d, os.path.join(d, "finals2000A.all"))


if __name__ == "__main__":
    sys.exit(run_with("astropy_iers_data", compare))
