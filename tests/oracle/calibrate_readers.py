"""`beamring calibrate` on UVH5 files that pyuvdata writes, against gains that are known.

The field is made from the wave alone: a source in direction s gives the dish at r the phase exp(+2 pi i r.s /
lambda) in an upper sideband and the conjugate in a lower one, times the receiver's gain. Where the source is
is astropy's to say, and what a UVH5 file holds is pyuvdata's: exp(+2 pi i (r_2 - r_1).s / lambda).

Needs BEAMRING (the program) and BEAMRING_READERS_PYTHON (an interpreter that has pyuvdata and astropy); skips
without."""
import os
import shutil
import sys
import warnings

from external import HERE, run_with

sys.path.insert(0, os.path.join(HERE, "..", "pipeline"))
ND, NF, LAT, LON, HEIGHT = 14, 3, 37.23, -118.28, 1200.0
SOURCE = (299.868, 40.734)  # ICRS, degrees
PLACE = ("--source", "299.868,40.734")
TIMES = [2460263.50, 2460263.54, 2460263.61]
FREQ = [150e6, 157e6, 171e6]
SILENT = 5                  # an antenna of the telescope that no baseline has


class Case:
    """Visibilities of a source by an array of `nd` dishes within `size` metres, and the receivers' gains."""

    def __init__(self, seed, sideband="upper", pols=("xx", "yy", "xy", "yx"), source=SOURCE, size=60.0,
                 times=TIMES, freq=FREQ):
        import numpy as np
        from astropy.coordinates import EarthLocation
        self.np, self.sideband, self.pols, self.times, self.freq = np, sideband, pols, times, np.array(freq)
        rng = self.rng = np.random.default_rng(seed)
        self.location = EarthLocation.from_geodetic(LON, LAT, HEIGHT)
        self.numbers = np.sort(rng.choice(400, ND, replace=False))
        rng.shuffle(self.numbers)
        self.enu = rng.uniform(-size, size, (ND, 3)) * [1, 1, 0.2]
        shape = (len(freq), 2, ND)
        self.gain = np.exp(rng.normal(0, 0.2, shape) + 2j * np.pi * rng.uniform(size=shape))
        self.place = source
        self.dead = [SILENT]

    def directions(self):
        """[time][east, north, up]"""
        from astropy import units
        from astropy.coordinates import AltAz, get_sun, SkyCoord
        from astropy.time import Time
        np, out = self.np, []
        for t in self.times:
            frame = AltAz(obstime=Time(t, format="jd"), location=self.location)
            place = get_sun(frame.obstime) if self.place == "sun" else SkyCoord(*self.place, unit=units.deg)
            p = place.transform_to(frame)
            out.append([np.sin(p.az) * np.cos(p.alt), np.cos(p.az) * np.cos(p.alt), np.sin(p.alt)])
        return np.array(out)

    def observe(self):
        """UVData, unprojected, antenna 1 before antenna 2 in the order of antenna_numbers."""
        from astropy.time import Time
        from pyuvdata import Telescope, UVData, utils
        np = self.np
        xyz = np.array([x.value for x in self.location.geocentric])
        lat, lon = np.radians([LAT, LON])
        ecef = utils.ECEF_from_ENU(self.enu, center_loc=self.location) - xyz
        letters = sorted(set("".join(self.pols)))
        telescope = Telescope.new(name="random", location=self.location, antenna_positions=ecef,
                                  antenna_numbers=self.numbers, antenna_names=[f"a{n}" for n in self.numbers],
                                  instrument="none", feeds=letters, mount_type="fixed",
                                  **({"x_orientation": "east"} if "x" in letters else {}))
        pairs = [(i, j) for i in range(ND) for j in range(i, ND) if SILENT not in (i, j)]
        uv = UVData.new(freq_array=self.freq, channel_width=1e5, times=np.array(self.times),
                        polarization_array=list(self.pols), telescope=telescope, integration_time=2.0,
                        antpairs=[(self.numbers[i], self.numbers[j]) for i, j in pairs],
                        do_blt_outer=True, time_axis_faster_than_bls=False, empty=True)
        uv.polarization_array = np.array(uv.polarization_array)
        index = {n: k for k, n in enumerate(self.numbers)}
        direction = self.directions()
        for row in range(uv.Nblts):
            i, j = index[uv.ant_1_array[row]], index[uv.ant_2_array[row]]
            s = direction[np.argmin(abs(np.array(self.times) - uv.time_array[row]))]
            cycles = (self.enu @ s)[:, None] * self.freq / 299792458.0          # [dish][freq]
            wave = np.exp(2j * np.pi * cycles)
            field = wave if self.sideband == "upper" else wave.conj()           # before the receivers
            for p, name in enumerate(self.pols):
                a, b = (int(c in "yl") for c in name)
                g, h = self.gain[:, a, i], self.gain[:, b, j]
                v = 0.4 * g * h.conj() * field[i] * field[j].conj() * (a == b)
                v += (i == j and a == b) * abs(g) ** 2
                uv.data_array[row, :, p] = v.conj() if self.sideband == "upper" else v
        uv.nsample_array[...] = self.rng.uniform(0.5, 1, uv.nsample_array.shape)
        uv.data_array *= 20000
        return uv

    def check(self, d, name="a.uvh5", *arguments, tolerance=0.02, pols=(0, 1)):
        """Calibrates the file and compares: phases within `tolerance` degrees, amplitudes alike."""
        import h5py
        import harness
        np = self.np
        place = self.place if self.place == "sun" else f"{self.place[0]},{self.place[1]}"
        done = harness.beamring("calibrate", name, "--source", place, "--overwrite", "--sideband",
                                self.sideband, *arguments, cwd=d)
        assert done.status == 0, done
        with h5py.File(os.path.join(d, "gains.h5")) as f:
            gain, flag, numbers = f["gain"][()], f["flag"][()], f["antenna_numbers"][()]
            assert f.attrs["sideband"] == self.sideband.encode()
            self.named = f.attrs["polarisations"].decode()
        assert list(numbers) == list(self.numbers)
        want = np.isin(np.arange(ND), self.dead) * np.ones_like(flag)
        assert np.array_equal(flag, want), (name, np.argwhere(flag != want), done)
        live = np.setdiff1d(np.arange(ND), self.dead)
        product = gain[:, :, live] * self.gain[:, list(pols)][:, :, live]
        product *= (product[:, :, :1] / abs(product[:, :, :1])).conj()
        assert np.degrees(abs(np.angle(product))).max() < tolerance, (name, np.degrees(np.angle(product)))
        assert (abs(product) / abs(product).mean(axis=2, keepdims=True)).std() < 1e-3 + tolerance / 50, name
        return done


def write(uv, d, name="a.uvh5", **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = os.path.join(d, name)
        if os.path.exists(path):
            os.remove(path)
        uv.write_uvh5(path, check_autos=False, **more)


def forms(d):
    """Number types, orders of polarisations and of baselines, missing ones, flags, values that are none."""
    import numpy as np
    case = Case(1, "upper", ("yy", "yx", "xx", "xy"))
    uv = case.observe()
    write(uv, d, data_write_dtype="c8")
    assert "dead (no data)" in case.check(d).out
    for number, (sideband, pols, dtype) in enumerate((
            ("lower", ("xx", "yy"), "c16"), ("upper", ("ll", "rr"), np.dtype([("r", "<i4"), ("i", "<i4")])),
            ("lower", ("rr", "rl", "lr", "ll"), "c8"))):
        case = Case(2 + number, sideband, pols)
        write(case.observe(), d, data_write_dtype=dtype)
        case.check(d, tolerance=0.1 if number == 1 else 0.02)
        assert case.named == ("xx yy" if "xx" in pols else "rr ll")
    # one polarisation, half of the baselines the other way round, times fastest, some baselines missing
    case = Case(7, "upper", ("yx", "yy", "xy"))
    uv = case.observe()
    uv.conjugate_bls(convention=np.arange(0, uv.Nblts, 2))
    uv.reorder_blts(order="baseline", minor_order="time")
    cross = np.flatnonzero(uv.ant_1_array != uv.ant_2_array)
    uv.select(blt_inds=np.setdiff1d(np.arange(uv.Nblts), case.rng.choice(cross, 20, replace=False)))
    write(uv, d)
    case.check(d, pols=(1,))
    assert case.named == "yy"
    # values that are none, flagged rubbish, an antenna flagged throughout, one without autocorrelation
    case = Case(8, "lower", ("xx", "yy"))
    uv = case.observe()
    of = [(uv.ant_1_array == n) | (uv.ant_2_array == n) for n in case.numbers]
    uv.data_array[case.rng.choice(np.flatnonzero(uv.ant_1_array != uv.ant_2_array), 5), 1, 0] = np.nan
    rubbish = case.rng.choice(uv.Nblts, 10)
    uv.data_array[rubbish], uv.flag_array[rubbish] = 1e9, True
    uv.flag_array[of[2]] = True
    uv.nsample_array[of[9] & (uv.ant_1_array == uv.ant_2_array)] = 0
    case.dead = [2, SILENT, 9]
    write(uv, d)
    done = case.check(d)
    assert "not finite numbers" in done.err and "dead (no autocorrelation)" in done.out, done
    assert done.out.count("dead (no data)") == 4, done


def phased(d):
    """Phased to the source, to another place, by halves to both, and to a drifting one: as it was before."""
    import numpy as np
    for number, sideband in enumerate(("upper", "lower")):
        case = Case(20 + number, sideband, ("xx", "yy"))
        for kind in range(4):
            uv = case.observe()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ra, dec = np.radians(SOURCE)
                more = {"cat_type": "sidereal", "phase_frame": "icrs"}
                if kind in (0, 2):
                    uv.phase(lon=ra, lat=dec, cat_name="s", **more,
                             select_mask=uv.time_array < 2460263.55 if kind == 2 else None)
                if kind in (1, 2):
                    uv.phase(lon=ra + 0.3, lat=dec - 0.2, cat_name="t", **more,
                             select_mask=uv.time_array > 2460263.55 if kind == 2 else None)
                if kind == 3:
                    uv.phase(lon=0.5, lat=1.1, cat_name="z", cat_type="driftscan", phase_frame="altaz")
            if kind == 0:  # and it is flat, so that the gains alone are left
                v = uv.get_data((int(case.numbers[0]), int(case.numbers[1]), -5))
                g = case.gain[:, 0, 0] * case.gain[:, 0, 1].conj()
                g = g.conj() if sideband == "upper" else g
                assert abs(np.angle(v / g)).max() < 2e-3, np.angle(v / g)
            write(uv, d)
            case.check(d, tolerance=0.05)


def old_forms(d):
    """As files before 2022 have it, and as other writers do."""
    import h5py
    import numpy as np
    case = Case(30, "upper", ("xx", "yy"))
    write(case.observe(), d)
    path = os.path.join(d, "a.uvh5")
    with h5py.File(path, "a") as f:
        h = f["Header"]
        place = np.array([x.value for x in case.location.geocentric])
        for key, value in (("telescope_location", place), ("latitude", None), ("longitude", None),
                           ("altitude", None), ("channel_width", 1e5),
                           ("freq_array", h["freq_array"][()][None]), ("telescope_name", "variable"),
                           ("history", "of variable length"), ("phase_type", "drift"),
                           ("phase_center_catalog", None), ("phase_center_id_array", None)):
            if key in h:
                del h[key]
            if value is not None:
                h[key] = value
        for key in ("visdata", "flags", "nsamples"):
            value = f["Data"][key][()][:, None]
            del f["Data"][key]
            f["Data"][key] = value.astype(np.uint8) if key == "flags" else value
    assert "variable: " in case.check(d).out
    # phased, in that old way: one place for all
    uv = case.observe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        uv.phase(lon=1.0, lat=0.7, cat_name="t", cat_type="sidereal", phase_frame="icrs")
    write(uv, d)
    with h5py.File(path, "a") as f:
        del f["Header/phase_center_catalog"]
        f["Header/phase_type"] = np.bytes_("phased")
    case.check(d, tolerance=0.05)


def sun(d):
    """--source sun within an arc second of astropy: 1 km at 1 GHz is 5.8 degrees an arc second."""
    import numpy as np
    from astropy.time import Time
    for number, times in enumerate(([2460263.25, 2460263.4], [2458849.32], [2461221.2], [2456293.38])):
        case = Case(40 + number, "lower", ("xx", "yy"), "sun", size=500.0, times=times,
                    freq=[1e9])
        up = case.directions()[:, 2]
        assert (up > 0.2).all(), up
        uv = case.observe()
        uv.dut1 = float(np.ravel(Time(case.times[0], format="jd").delta_ut1_utc)[0])
        write(uv, d)
        case.check(d, tolerance=3.0)


def direction(d):
    """A wrong direction raises the residual where the source moves, and in a snapshot leaves only gains that
    wind, which is said where the receivers' phases are alike; so are conjugated visibilities."""
    import h5py
    import harness
    import numpy as np
    wrong = ("--source", f"{SOURCE[0] - 1},{SOURCE[1] + 0.7}")
    for times, alike in ((TIMES, False), (TIMES[:1], False), (TIMES[:1], True)):
        case = Case(60, "upper", ("xx", "yy"), times=times)
        if alike:
            case.gain = abs(case.gain) * np.exp(1j * case.rng.uniform(-0.1, 0.1, case.gain.shape))
        uv = case.observe()
        noise = case.rng.normal(size=(2, *uv.data_array.shape))
        uv.data_array += 200 * (noise[0] + 1j * noise[1]) * (uv.ant_1_array != uv.ant_2_array)[:, None, None]
        write(uv, d)
        case.check(d, tolerance=5)
        residual = []
        for place in (PLACE, wrong):
            done = harness.beamring("calibrate", "a.uvh5", *place, "--overwrite", "--sideband", "upper",
                                    "--min-snr", 0, cwd=d)
            assert done.status == 0, done
            assert done.err.count("warning") == (2 if alike and place == wrong else 0), done
            with h5py.File(os.path.join(d, "gains.h5")) as f:
                residual.append(f["residual"][()].max(axis=(1, 2)))
        ratio = residual[1] / residual[0]
        assert (ratio > 5).all() if len(times) > 1 else (abs(ratio - 1) < 0.01).all(), ratio
    uv.data_array = uv.data_array.conj()
    write(uv, d)
    done = harness.beamring("calibrate", "a.uvh5", *PLACE, "--overwrite", cwd=d)
    assert done.status == 0 and done.err.count("in the mirror image") == 2, done


def refused(d):
    """Unusable files, each with a word of the reason; nothing is written."""
    import h5py
    import harness
    import numpy as np
    case = Case(50, "upper", ("xx", "yy"))
    write(case.observe(), d, "good.uvh5")
    write(case.observe(), d, "other.uvh5")
    good, bad = os.path.join(d, "good.uvh5"), os.path.join(d, "bad.uvh5")
    os.mkfifo(os.path.join(d, "fifo"))

    def fill(dataset, value):
        dataset[...] = np.full(dataset.shape, value, dataset.dtype)

    def replace(f, key, value):
        del f[key]
        f[key] = value

    def without_autos(f):
        same = f["Header/ant_1_array"][()] == f["Header/ant_2_array"][()]
        n = f["Data/nsamples"][()]
        n[same] = 0
        f["Data/nsamples"][...] = n

    def outside(f):
        shape = f["Data/nsamples"].shape
        del f["Data/nsamples"]
        layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        layout.set_external(os.path.join(d, "text").encode(), 0, 4 * int(np.prod(shape)))
        h5py.h5d.create(f["Data"].id, b"nsamples", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple(shape), layout)

    def view(f):
        layout = h5py.VirtualLayout(f["Data/flags"].shape, f["Data/flags"].dtype)
        layout[...] = h5py.VirtualSource("other.uvh5", "Data/flags", f["Data/flags"].shape)
        del f["Data/flags"]
        f["Data"].create_virtual_dataset("flags", layout)

    def move(f, key, where):  # a soft link to it stays
        f.move(key, where)
        f[key] = h5py.SoftLink(where)

    def detour(f):
        f["elsewhere"] = h5py.ExternalLink("other.uvh5", "/")
        replace(f, "Header/time_array", h5py.SoftLink("/elsewhere/Header/time_array"))

    def site(f):  # what may be missing
        replace(f, "Header/telescope_name", h5py.ExternalLink("other.uvh5", "Header/telescope_name"))

    def centres(f, key="Header/phase_center_catalog"):
        replace(f, key, h5py.ExternalLink("other.uvh5", key))

    def far_centres(f, key="Header/phase_center_catalog"):
        f["elsewhere"] = h5py.ExternalLink("other.uvh5", "/")
        replace(f, key, h5py.SoftLink("/elsewhere/" + key))

    def twice(f):
        f["Header/antenna_numbers"][1] = f["Header/antenna_numbers"][0]

    for change, words in (
        (lambda f: fill(f["Data/nsamples"], 0), "have no samples"),
        (lambda f: fill(f["Data/flags"], True), "are flagged"),
        (lambda f: fill(f["Data/visdata"], np.nan + 0j), "not finite"),
        (without_autos, "has no autocorrelations"),
        (lambda f: replace(f, "Data/visdata", np.zeros((10, NF, 2), complex)), "Data/visdata is missing"),
        (lambda f: replace(f, "Data/visdata", f["Data/visdata"][()].real), "complex numbers {r, i}"),
        (lambda f: replace(f, "Data/flags", f["Data/flags"][()][:, :, 0]), "Data/nsamples or flags"),
        (lambda f: replace(f, "Data/visdata", h5py.ExternalLink("other.uvh5", "Data/visdata")),
         "refers to another file"),
        (lambda f: replace(f, "Header", h5py.ExternalLink("other.uvh5", "Header")), "another file"),
        (lambda f: replace(f, "Header/uvw_array", h5py.SoftLink("/Data/visdata")), None),
        (lambda f: replace(f, "Header/time_array", h5py.SoftLink("/Data/visdata")), "Header/time_array"),
        (lambda f: move(f, "Header/time_array", "/Header/times"), None),
        (detour, "refers to another file"), (site, "Header/telescope_name refers to another file"),
        (centres, "phase_center_catalog refers to another file"),
        (far_centres, "phase_center_catalog refers to another file"),
        (outside, "refers to another file"), (view, "refers to another file"), (twice, "every number once"),
        (lambda f: replace(f, "Header/ant_1_array", f["Header/ant_1_array"][()] + 1000), "does not have"),
        (lambda f: replace(f, "Header/polarization_array", np.array([1, 2])), "has none of xx (-5)"),
        (lambda f: replace(f, "Header/freq_array", -f["Header/freq_array"][()]), "Hz above 0"),
        (lambda f: replace(f, "Header/antenna_positions", np.full((ND, 3), np.nan)), "finite numbers"),
    ):
        shutil.copy(good, bad)
        with h5py.File(bad, "a") as f:
            change(f)
        done = harness.beamring("calibrate", "bad.uvh5", *PLACE, "--out", "out.h5", cwd=d)
        if words is None:  # the file is not phased: its uvw are not wanted
            os.remove(os.path.join(d, "out.h5"))
            continue
        assert done.status == 1 and words in done.err and "bad.uvh5" in done.err, (words, done)
        assert not os.path.exists(os.path.join(d, "out.h5")), words
    raw = open(good, "rb").read()
    for part in (0.3, 0.9, 0.999):
        with open(bad, "wb") as f:
            f.write(raw[:int(len(raw) * part)])
        done = harness.beamring("calibrate", "bad.uvh5", *PLACE, "--out", "out.h5", cwd=d)
        assert done.status == 1 and "bad.uvh5" in done.err and "cut off" in done.err, done
    for name, words in (("fifo", "is not a regular file"), (".", "is not a regular file")):
        done = harness.beamring("calibrate", name, *PLACE, cwd=d)
        assert done.status == 1 and words in done.err, done


def compare():
    from astropy.utils import iers
    import harness
    iers.conf.auto_download = False
    warnings.simplefilter("ignore")
    if "without ERFA" in harness.beamring("calibrate", "x", "--source", "1,2").err:
        print("skipped: this beamring was built without ERFA")
        return
    for part in (forms, phased, old_forms, sun, direction, refused):
        with harness.scratch() as d:
            part(d)
        print(f"ok   {part.__name__}")


if __name__ == "__main__":
    sys.exit(run_with("pyuvdata", compare))
