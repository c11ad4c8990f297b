"""`beamring calibrate` with a source on the sky: one that moves between integrations, and the Sun as another
telescope's software recorded it."""
import os
import shutil

import h5py
import numpy as np

import circle_common as circle
import harness
from circle_common import PATHFINDER

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
    if not circle.has_erfa():
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


AAVS3 = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "aavs3_sun.uvh5")
SUN = np.array([0.38949, 0.10718, np.sqrt(1 - 0.38949 ** 2 - 0.10718 ** 2)])  # east, north, up, by astropy
NO_POWER = [0, 72, 73, 85, 98, 155, 188, 242, 244]                           # below 5 % of the median


def aavs3(path):
    """Positions [antenna][east, north, up], and normalised matrices [pol][antenna][antenna] of the field's
    E_i conj(E_j) in an upper sideband, without their diagonals."""
    with h5py.File(path) as f:
        h, vis = f["Header"], f["Data/visdata"][:, 0]
        lat, lon = np.radians([h["latitude"][()], h["longitude"][()]])
        up = np.array([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])
        east = np.array([-np.sin(lon), np.cos(lon), 0])
        places = h["antenna_positions"][()] @ np.stack([east, np.cross(up, east), up], axis=1)
        a, b = h["ant_1_array"][()] - 1, h["ant_2_array"][()] - 1
    matrices = []
    for v in vis.conj().T:
        R = np.zeros((256, 256), complex)
        R[a, b], R[b, a] = v, v.conj()
        power = R.diagonal().real.copy()
        R /= np.sqrt(np.outer(power, power))
        np.fill_diagonal(R, 0)
        matrices.append(R)
    return places, matrices


def test_sun():
    """Real visibilities that other software wrote: the Sun over the 256 antennas of AAVS3. Its direction is
    the one by which they are coherent, and with the gains they are as coherent as they can be."""
    if not circle.has_erfa():
        return
    with harness.scratch() as d:
        done = circle.calibrate(d, AAVS3, "--source", "sun")
        assert "warning" not in done.err and "upper is assumed" in done.err, done
        gain, flag, sets, attributes = circle.read_gains(os.path.join(d, "gains.h5"))
        assert attributes["sideband"] == b"upper" and attributes["polarisations"] == b"xx yy"
        assert attributes["source"] == b"sun" and np.array_equal(sets["antenna_numbers"], 1 + np.arange(256))
        want = np.zeros((1, 2, 256), int)
        want[:, :, NO_POWER] = 1
        want[0, 1, 88] = 2                                 # 16 % of the others' power, and no Sun in it
        assert np.array_equal(flag, want), np.argwhere(flag != want)
        places, matrices = aavs3(AAVS3)
        wave = np.exp(2j * np.pi * places @ SUN * 159.375e6 / harness.C_M_PER_S)
        for p, R in enumerate(matrices):
            good = flag[0, p] == 0
            most = np.linalg.eigvalsh(R[np.ix_(good, good)])[-1]
            coherence = []
            R, g = R[np.ix_(good, good)], gain[0, p, good]
            for w in (wave[good], wave[good] * abs(g) / g):
                coherence.append((w.conj() @ R @ w).real / len(w) / most)
            print(f"     {'xy'[p]}: coherence {coherence[1]:.3f} of the largest eigenvalue {most:.1f}, "
                  f"without gains {coherence[0]:.3f}")
            assert coherence[1] > 0.98 and 0.7 < coherence[0] < 0.8, coherence
        # of a lower sideband the gains are the conjugates
        circle.calibrate(d, AAVS3, "--source", "sun", "--sideband", "lower", "--out", "lower.h5")
        lower, _, _, attributes = circle.read_gains(os.path.join(d, "lower.h5"))
        assert attributes["sideband"] == b"lower" and abs(lower - gain.conj()).max() < 1e-4
        # a file of conjugates, and a wrong direction, in which the fit alone sees nothing
        shutil.copy(AAVS3, os.path.join(d, "conjugated.uvh5"))
        with h5py.File(os.path.join(d, "conjugated.uvh5"), "a") as f:
            f["Data/visdata"][...] = f["Data/visdata"][()].conj()
        for arguments, words in (
            (("conjugated.uvh5", "--source", "sun"), "in the mirror image of the direction"),
            ((AAVS3, "--direction", "-0.5,0.1"), "at direction cosines 0.11"),
        ):
            done = circle.calibrate(d, *arguments, "--overwrite")
            assert done.err.count(words) == 2, done


if __name__ == "__main__":
    harness.main([test_sky, test_sun])
