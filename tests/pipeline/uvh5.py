"""UVH5 files hold the visibilities that a recording of the same stream holds, and a header with all that the
format demands, read with h5py alone; files are divided, kept and refused as they should be."""
import os
import re

import h5py
import numpy as np

import harness
from small import DISHES, SPACING, TELESCOPE, one, record_field

ND, NF = len(DISHES), 5
PAIRS = [(a, b) for a in range(ND) for b in range(a, ND)]
DOWN, STEPS, EPOCH_S, DT = 500, 12, 1700000000, 5.12e-6
INTS = ["Nants_data", "Nants_telescope", "Nbls", "Nblts", "Nfreqs", "Npols", "Nspws", "Ntimes", "Nphase"]
TEXTS = ["history", "instrument", "telescope_name", "telescope_frame", "version", "vis_units"]


def pipeline(more="", correlate=""):
    return TELESCOPE + f"""
pipeline:
  - {{stage: replay, files: field*.dada, out: field}}
  - {{stage: correlate, in: field, out: v, integrate: {DOWN}{correlate}}}
  - {{stage: record, in: v, directory: dada, prefix: v, overwrite: true}}
  - {{stage: uvh5, in: v, directory: out{more}}}
"""


def recorded(d):
    """V[integration][freq][baseline] and its validity [integration][freq], from the recording."""
    path = one(os.path.join(d, "dada"), "v*.dada")
    keys, size = harness.header(path)
    raw = np.fromfile(path, "<i4", offset=size).reshape(STEPS, NF, -1, 2)
    return raw[..., 0] + 1j * raw[..., 1], harness.read_gaps(path, 0, STEPS, NF, DOWN)


def expected(v, autos=False, lower=False):
    """[time, pair][freq][pol] from the recording's baselines, by the definition of xx, yy, xy, yx; an upper
    sideband conjugated."""
    v = v if lower else v.conj()
    full = np.zeros((STEPS, NF, 2 * ND, 2 * ND), complex)
    i, j = (np.arange(2 * ND), ) * 2 if autos else np.triu_indices(2 * ND)
    full[:, :, i, j] = v
    full[:, :, j, i] = v.conj()
    a, b = np.array([(k, k) for k in range(ND)] if autos else PAIRS).T
    pols = [full[:, :, a, b], full[:, :, ND + a, ND + b]]
    pols += [] if autos else [full[:, :, a, ND + b], full[:, :, ND + a, b]]
    return np.moveaxis(np.array(pols), (0, 1, 2, 3), (3, 0, 2, 1)).reshape(-1, NF, len(pols))


def data_of(path):
    with h5py.File(path) as f:
        raw = f["Data/visdata"][()]
        assert raw.dtype == np.dtype([("r", "<i4"), ("i", "<i4")]), raw.dtype
        assert f["Data/flags"].dtype == np.bool_ and f["Data/nsamples"].dtype == np.float32
        return raw["r"] + 1j * raw["i"], f["Data/flags"][()], f["Data/nsamples"][()]


def check_antennas(h):
    """Rotated from east, north, up to the axes of ITRS, by the rotation written as a matrix."""
    lat, lon = np.radians([49.3, -119.6])
    up = np.array([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])
    east = np.array([-np.sin(lon), np.cos(lon), 0])
    north = np.cross(up, east)
    m, n = np.array(DISHES).T
    want = m[:, None] * SPACING[0] * north + n[:, None] * SPACING[1] * east
    assert np.abs(h["antenna_positions"][()] - want).max() < 1e-9
    assert h["latitude"][()] == 49.3 and h["longitude"][()] == -119.6 and h["altitude"][()] == 12.5
    assert list(h["antenna_numbers"][()]) == list(range(ND))
    assert [x.decode() for x in h["antenna_names"][()]] == [f"dish{d}" for d in range(ND)]


def check_header(path, first, count):
    """Every dataset that the format demands, for integrations [first, first + count)."""
    with h5py.File(path) as f:
        h = f["Header"]
        values = {k: int(h[k][()]) for k in INTS}
        assert values == dict(Nants_data=ND, Nants_telescope=ND, Nbls=len(PAIRS), Nblts=count * len(PAIRS),
                              Nfreqs=NF, Npols=4, Nspws=1, Ntimes=count, Nphase=1), values
        texts = {k: bytes(h[k][()]).decode() for k in TEXTS}
        assert texts["telescope_name"] == "small" and texts["telescope_frame"] == "itrs", texts
        assert texts["vis_units"] == "uncalib" and texts["version"] == "1.2", texts
        check_antennas(h)
        a, b = np.tile(np.array(PAIRS), (count, 1)).T
        assert np.array_equal(h["ant_1_array"], a) and np.array_equal(h["ant_2_array"], b)
        places = np.array(DISHES) * SPACING
        uvw = np.stack([*(places[b] - places[a]).T[::-1], 0 * a], axis=1)
        assert np.abs(h["uvw_array"][()] - uvw).max() < 1e-9
        seconds = EPOCH_S + (first + np.arange(count) + 0.5) * DOWN * DT
        off = (h["time_array"][()].reshape(count, -1) - (2440587.5 + seconds[:, None] / 86400)) * 86400
        assert np.abs(off).max() < 1e-4, off
        assert np.abs(h["integration_time"][()] - DOWN * DT).max() < 1e-12
        assert np.abs(h["freq_array"][()] - (400e6 + 195312.5 * np.arange(NF))).max() < 1e-3
        assert np.abs(h["channel_width"][()] - 195312.5).max() < 1e-3
        assert list(h["polarization_array"][()]) == [-5, -6, -7, -8] and list(h["spw_array"][()]) == [0]
        assert bytes(h["phase_center_catalog/0/cat_type"][()]) == b"unprojected"
        assert (h["phase_center_id_array"][()] == 0).all()
        assert np.abs(h["phase_center_app_dec"][()] - np.radians(49.3)).max() < 1e-12
        for key in ("phase_center_app_ra", "phase_center_frame_pa"):
            assert h[key].shape == (count * len(PAIRS), ), key
        return h["lst_array"][()] if "lst_array" in h else None


def test_files():
    with harness.scratch() as d:
        record_field(d, missing="[{first: 1000, count: 37}, {first: 2990, count: 700}]")
        harness.run(d, pipeline(", integrations: 5, altitude_m: 12.5"))
        v, valid = recorded(d)
        assert (valid == 0).any() and ((valid > 0) & (valid < 255)).any()
        names = sorted(os.listdir(os.path.join(d, "out")))
        assert names == [f"vis_{i:06d}.uvh5" for i in range(3)], names
        parts = []
        for i, count in enumerate((5, 5, 2)):
            path = os.path.join(d, "out", names[i])
            assert check_header(path, 5 * i, count) is None
            parts.append(data_of(path))
        vis, flags, samples = (np.concatenate(x) for x in zip(*parts))
        assert np.array_equal(vis, expected(v))
        each = np.repeat(np.repeat(valid, len(PAIRS), axis=0)[..., None], 4, axis=2)
        assert np.array_equal(flags, each == 0)
        assert np.abs(samples - DOWN / 255 * each.astype(float)).max() < 1e-4


def test_autocorrelations():
    with harness.scratch() as d:
        record_field(d)
        harness.run(d, pipeline(", integrations: 0", ", autocorrelations: only"))
        v, _ = recorded(d)
        vis, _, _ = data_of(one(os.path.join(d, "out"), "vis*.uvh5"))
        assert np.array_equal(vis, expected(v, autos=True))


def test_sideband():
    """A lower sideband is written as it is, an upper and an unknown one conjugated; the keyword says which it
    was, and the run says once that it does not know."""
    with harness.scratch() as d:
        field = record_field(d, missing="[]")
        for sideband, stream in (("upper", ""), ("unknown", ""),
                                 ("lower", "stream: {sideband: lower, override: [sideband]}\n")):
            if sideband == "unknown":
                raw = open(field, "rb").read()
                assert raw.count(b"\nSIDEBAND ") == 1
                with open(field, "wb") as f:
                    f.write(raw.replace(b"\nSIDEBAND ", b"\nNOTHING_ "))
            done = harness.run(d, stream + pipeline(f", overwrite: true, directory: {sideband}").replace(
                "directory: out, ", ""))
            said = done.err.count("upper is assumed")
            assert said == (sideband == "unknown"), done
            path = one(os.path.join(d, sideband), "vis*.uvh5")
            assert np.array_equal(data_of(path)[0], expected(recorded(d)[0], lower=sideband == "lower"))
            with h5py.File(path) as f:
                assert f["Header/extra_keywords/sideband"][()] == sideband.encode()


def test_sidereal_time():
    """Greenwich mean sidereal time by the IAU's polynomial of 1982, to the 1.2 s by which nutation moves
    it."""
    with harness.scratch() as d:
        record_field(d, samples=500, missing="[]")
        text = pipeline(", ut1_utc_s: 0, altitude_m: 12.5")
        with open(os.path.join(d, "asked.yaml"), "w") as f:
            f.write(text)
        if "without ERFA" in harness.beamring("check", "asked.yaml", cwd=d).err:
            return
        harness.run(d, text)
        days = (EPOCH_S + 250 * DT) / 86400 + 2440587.5 - 2451545.0
        gmst = np.radians(280.46061837 + 360.98564736629 * days - 119.6)
        lst = check_header(one(os.path.join(d, "out"), "vis*.uvh5"), 0, 1)
        off = (lst - gmst + np.pi) % (2 * np.pi) - np.pi
        assert np.abs(off).max() < 1.3 * 2 * np.pi / 86400 and (lst >= 0).all() and (lst < 2 * np.pi).all()


def test_refused():
    with harness.scratch() as d:
        record_field(d, samples=600, missing="[]")
        harness.run(d, pipeline())
        before = open(one(os.path.join(d, "out"), "vis*.uvh5"), "rb").read()
        result = harness.run(d, pipeline(), status=1)
        assert "would be lost" in result.err and "overwrite: true" in result.err, result
        assert open(one(os.path.join(d, "out"), "vis*.uvh5"), "rb").read() == before
        harness.run(d, pipeline(", overwrite: true"))
        fresh = pipeline(", prefix: other")
        for text, words in (
            (fresh.replace("latitude_deg: 49.3", ""), "add latitude_deg and longitude_deg"),
            (fresh.replace("prefix: other", "prefix: a/b"), "without '/'"),
            (fresh.replace("prefix: other", "npol: 1"), "there are 300 baselines; expected"),
            (fresh.replace("stage: uvh5, in: v", "stage: uvh5, in: field"), "V[time][freq][baseline]"),
        ):
            result = harness.run(d, text, status=2, command="check")
            assert words in result.err, (words, result)


def check_cut(d, result, vis):
    """The file of a run that met a full disk has the integrations that the message names, and is like that of
    a run that met none; without any it is not there."""
    assert result.status == 1, result
    words = re.search(
        r"cannot write to \S+\.uvh5: (.*?); (?:the (\d+) integrations before this are in it|it is removed)",
        result.err)
    assert words and words[1] in ("File too large", "No space left on device"), result
    count = int(words[2] or 0)
    names = os.listdir(os.path.join(d, "out"))
    assert names == (["vis_000000.uvh5"] if count else []), (names, result)
    if count:
        path = os.path.join(d, "out", names[0])
        check_header(path, 0, count)
        got, flags, samples = data_of(path)
        assert np.array_equal(got, vis[:count * len(PAIRS)]) and len(flags) == len(samples) == len(got)
    return count


def test_full_disk():
    """Wherever room ends: the file holds whole integrations, those that the message names, and what others
    write is whole."""
    with harness.scratch() as d:
        record_field(d)
        text = pipeline(", integrations: 0, overwrite: true, altitude_m: 12.5")
        harness.run(d, text)
        vis, _, _ = data_of(one(os.path.join(d, "out"), "vis*.uvh5"))
        whole = os.path.getsize(one(os.path.join(d, "out"), "vis*.uvh5"))
        alone = "\n".join(line for line in text.splitlines() if "record" not in line)
        parts = {check_cut(d, harness.run(d, alone, status=1, file_bytes=n), vis)
                 for n in [5000, *np.linspace(0.7 * whole, whole - 1, 10, dtype=int).tolist()]}
        assert 0 in parts and len(parts) > 5, parts
    for size in (int(0.85 * whole), int(0.95 * whole)):
        with harness.scratch() as d, harness.small_disk(os.path.join(d, "out"), size) as out:
            if out is None:
                print("no file system can be mounted here: the limit of a file's length had to do")
                return
            record_field(d)
            assert 0 < check_cut(d, harness.run(d, text, status=1), vis) < STEPS
            v, _ = recorded(d)
            assert np.array_equal(expected(v), vis)


if __name__ == "__main__":
    harness.main([
        test_full_disk, test_files, test_autocorrelations, test_sideband, test_sidereal_time, test_refused
    ])
