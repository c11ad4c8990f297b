"""Recordings: against the reader that docs/recordings.md prints, h5py, and the frames themselves."""

import os
import pathlib
import re
import struct
import subprocess
import sys
import time

import numpy as np
import pytest

import beamring as br
from conftest import EPOCH_NS, TELESCOPE, same

DOCS = pathlib.Path(os.environ.get("BEAMRING_SOURCE", pathlib.Path(__file__).resolve().parents[2])) / "docs"


@pytest.fixture(scope="session")
def reader():
    """The reader of the documents, which knows nothing of this package."""
    text = re.search(r"## A reader.*?```python\n(.*?)```", (DOCS / "recordings.md").read_text(), re.S).group(
        1
    )
    names = {}
    exec(text, names)
    return names["read"]


def documented(reader, paths, z=0, side=False):
    """All files joined along time, by the documents' reader."""
    values, sides = [], []
    for path in sorted(paths):
        header, frames = reader(path)
        axis = header["AXES"].split(",").index("time")
        values += [parts[z] for _, parts, _ in frames]
        sides += [s for _, _, s in frames]
    return np.concatenate(values, axis), sides


@pytest.mark.parametrize("name", ["field", "beams", "levels", "vis"])
def test_every_kind_has_the_values_of_the_documents_reader(made, reader, name):
    folder, result = made
    paths = sorted(map(str, folder.glob(name + "_*.dada")))
    assert len(paths) > (name == "field")  # several files are joined
    r = br.open(str(folder / (name + "_*.dada")))
    want, sides = documented(reader, paths)
    assert r.shape == want.shape and same(r.decoded(), want.astype(r.dtype))
    assert same(r.data, r.decoded() * np.float32(r.stream.scale))
    assert same(r.data, result[name].data) and same(r.valid, result[name].valid)
    assert same(r.times_ns, result[name].times_ns) and same(r.freqs_mhz, result[name].freqs_mhz)
    if name == "levels":
        assert same(
            np.array([s for _, _, s in r.side]),
            np.array(sides).view(np.float32).reshape(len(sides), *r.stream.side[2]),
        )


def test_zones_are_recordings_of_their_own(made, reader):
    folder, result = made
    paths = sorted(map(str, folder.glob("fine_*.dada")))
    zones = br.open(paths)
    assert len(zones) == 2 == len(result["fine"])
    for z, zone in enumerate(zones):
        assert same(zone.decoded(), documented(reader, paths, z)[0].astype(np.complex64))
        assert same(zone.data, result["fine"][z].data) and same(zone.valid, result["fine"][z].valid)
        assert zone.stream.downsample == (16, 4)[z]


def test_times_and_validity(made):
    folder, _ = made
    r = br.open(str(folder / "field_*.dada"))
    k = np.arange(20000)
    assert same(r.times_ns, EPOCH_NS + 2560 * k) and r.times.dtype == "datetime64[ns]"
    missing = ((k >= 5000) & (k < 5300)) | ((k >= 9000) & (k < 9010))
    assert same(r.valid, np.where(missing, 0, 255)[:, None] * np.ones(4))
    assert (r.telescope, r.sideband, r.axes) == ("toy", "upper", ("time", "freq", "pol", "dish"))


def test_slices_read_what_they_say(made):
    folder, _ = made
    r = br.open(str(folder / "field_*.dada"))
    whole, valid = r.data, r.valid
    part = r.sel(time=slice(r.times[4990], r.times[5400]), freq=slice(401, 402)).isel(
        dish=slice(1, 6, 2), time=slice(3, None, 7)
    )
    assert same(part.data, whole[4993:5400:7, 1:3, :, 1:6:2]) and same(part.valid, valid[4993:5400:7, 1:3])
    assert same(part.times_ns, r.times_ns[4993:5400:7]) and same(part.freqs_mhz, [401, 402])
    assert same(r.isel(dish=-1).data, whole[..., -1:]) and same(r.sel(freq=402.4).data, whole[:, 2:3])
    assert same(r[100:200, 1].data, whole[100:200, 1:2]) and same(r.sel(time=r.times[77]).data, whole[77:78])
    one = r.isel(time=slice(10, 20)).raw  # of one file: a map, not a copy
    assert isinstance(one, np.memmap) or isinstance(one.base, np.memmap)
    assert not one.flags.writeable
    with pytest.raises(KeyError, match="not an axis 'beam'"):
        r.isel(beam=0)
    with pytest.raises(IndexError):
        r.isel(freq=4)


def test_times_stay_exact_for_fractions_and_large_counters():
    from fractions import Fraction

    from beamring._stream import exact_times

    for num, den, first in ((5120, 3, 0), (5120, 3, 10**15 + 1), (10**9, 390625, 7), (10**12 - 1, 7, 2**62)):
        got = exact_times(0, Fraction(num, den), first, 5, 9) if first < 2**60 else None
        want = [
            (2 * (first + 5 * i) * Fraction(num, den).numerator + Fraction(num, den).denominator)
            // (2 * Fraction(num, den).denominator)
            for i in range(9)
        ]
        assert got is None or list(map(int, got)) == want


def test_a_sparse_recording_of_16_gib_opens_at_once(tmp_path, made):
    folder, _ = made
    header = (folder / "field_000000.dada").read_bytes()[:4096]
    samples = (16 << 30) // 48
    header = re.sub(rb"SAMPLES  .*", b"SAMPLES         %d" % samples, header.rstrip(b"\0"))
    header = re.sub(rb"FILE_SIZE .*", b"FILE_SIZE       %d" % (samples * 48), header).ljust(4096, b"\0")
    path = tmp_path / "large.dada"
    path.write_bytes(header)
    os.truncate(path, 4096 + samples * 48)
    code = (
        "import resource, time, beamring as br; before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"t = time.process_time(); r = br.open({str(path)!r}); spent = time.process_time() - t\n"
        f"assert r.shape[0] == {samples}, r.shape; x = r.isel(time=slice({samples} - 100, None)).data\n"
        "print(spent, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)"
    )
    spent, mib = map(
        float,
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split(),
    )
    print(f"open: {spent * 1e3:.1f} ms of processor time, {mib:.1f} MiB")
    assert mib < 64 and spent < 0.05


def test_where_it_is(made, tmp_path):
    """The dishes' places, the site and the beams' coordinates: of files, and of a pipeline's queues."""
    folder, result = made
    cells = np.array([[m, n] for m in range(2) for n in range(3)])
    east_north_up = np.column_stack([cells[:, 1] * 6.3, cells[:, 0] * 8.5, np.zeros(6)])
    for r in (br.open(str(folder / "field_*.dada")), result["field"]):
        assert np.array_equal(r.positions_m, east_north_up) and r.site == (49.3, -119.6, None)
        assert np.array_equal(r.isel(dish=slice(1, 3)).positions_m, east_north_up[1:3])
    beams = br.open(str(folder / "beams_*.dada"))
    assert beams.positions_m is None and beams.site == (49.3, -119.6, None)
    text = beams.headers[0]["BEAMS_RADEC"]
    assert beams.beams_radec.shape == (4, 2) and np.array_equal(beams.beams_radec.ravel(), eval(f"[{text}]"))
    assert np.array_equal(beams.isel(beam=2).beams_radec, beams.beams_radec[2:3])
    places = [[1, 2, 0.5], [-3, 4, -0.25]]
    os.chdir(tmp_path)
    br.Pipeline(f"""
telescope: {{name: any, positions_m: {places}}}
stream: {{sample_ns: 2560, epoch_ns: {EPOCH_NS}, freq_mhz: [400], sideband: upper}}
pipeline:
  - {{stage: simulate, out: field, samples: 100, seed: 3}}
  - {{stage: record, in: field, prefix: any}}
""").run()
    r = br.open("any_000000.dada")
    assert np.array_equal(r.positions_m, places) and r.site is None and r.beams_radec is None


def test_filterbank(made):
    folder, result = made
    r = br.open(str(folder / "fil" / "*.fil"))
    beams = result["beams"]
    assert r.axes == ("time", "beam", "freq") and r.shape[1:] == (4, 4)
    want = beams.data.transpose(1, 2, 0)
    order = [list(beams.freqs_mhz).index(f) for f in r.freqs_mhz]
    full = (beams.valid == 255).T[:, order].all(1)
    assert full.sum() > 50
    assert same(r.data[full], want[:, :, order][full])
    one = sorted((folder / "fil").glob("*.fil"))[0].read_bytes()
    assert struct.unpack_from("<i", one, one.index(b"nchans") + 6)[0] == r.shape[2] or len(r.files) == 16
    assert abs(r.times_ns[0] - beams.times_ns[0]) < 10**6


def test_visibilities(made):
    h5py = pytest.importorskip("h5py")
    folder, result = made
    path = sorted((folder / "uv").glob("*.uvh5"))[0]
    v = br.open(path)
    with h5py.File(path) as file:
        raw = file["Data/visdata"][()]
        raw = raw["r"] + 1j * raw["i"] if raw.dtype.names else raw
        assert same(v.data.reshape(raw.shape), raw.astype(np.complex64))
        assert same(v.nsamples.reshape(raw.shape), file["Data/nsamples"][()])
    assert same(v.isel(time=slice(1, 3), freq=slice(2, 4)).data, v.data[1:3, :, 2:4])
    assert same(v.freqs_mhz, [400, 401, 402, 403]) and v.telescope == "toy"
    shape = "[time {}][baseline {}][freq {}][pol {}]".format(*v.shape)
    assert repr(v) == f"<beamring.Visibilities toy {shape}, 1 file>"


def test_tables(tmp_path):
    h5py = pytest.importorskip("h5py")
    gain = (np.arange(24) + 1j).astype(np.complex64).reshape(2, 2, 6)
    with h5py.File("gains.h5", "w") as file:
        file["gain"], file["freq_mhz"], file.attrs["sideband"] = gain, [400.0, 401.0], "upper"
    table = br.open("gains.h5")
    assert same(table.gain, gain) and table.attrs["sideband"] == "upper"


@pytest.mark.parametrize("format", ["vdif", "guppi", "kotekan"])
def test_files_of_others_are_played(format):
    """Written by `record` in the formats of others, and read back through our C readers."""
    hints = {
        "sample_ns": 2560,
        "epoch_ns": EPOCH_NS,
        "sideband": "upper",
        "freq_mhz": [400 + 0.390625 * i for i in range(8)],
    }
    document = {
        "include": "t.yaml",
        "stream": hints,
        "pipeline": [
            {"stage": "simulate", "out": "field", "samples": 20000, "seed": 3, "frame_samples": 4096},
            {"stage": "record", "in": "field", "format": format, "prefix": "other", "lossy": True},
        ],
    }
    pathlib.Path("t.yaml").write_text(TELESCOPE)
    want = br.Pipeline(document).run(collect=["field"], on_message=lambda m: None)["field"]
    names = sorted(str(p) for p in pathlib.Path(".").glob("other*") if not p.name.endswith((".gaps", ".csv")))
    r = br.open(names, format=format, stream=hints, telescope="t.yaml")
    first = (r.times_ns[0] - want.times_ns[0]) // 2560
    n = min(r.shape[0], want.shape[0] - first)
    assert n > 19000
    good = (r.valid[:n] == 255).all(1)
    assert good.sum() > 19000
    assert same(
        r.data[:n][good].reshape(good.sum(), -1), want.data[first : first + n][good].reshape(good.sum(), -1)
    )
    assert same(r.isel(time=slice(6000, 6100)).data, r.data[6000:6100])


def test_xarray(made):
    pytest.importorskip("xarray")
    folder, _ = made
    part = br.open(str(folder / "field_*.dada")).isel(time=slice(4900, 5100), freq=slice(1, 3))
    x = part.to_xarray()
    assert x.dims == ("time", "freq", "pol", "dish") and x.shape == part.shape
    assert same(x.time.values, part.times) and same(x.freq.values, [401, 402])
    assert same(x.coords["valid"].values, part.valid) and x.coords["valid"].dims == ("time", "freq")
    assert np.isnan(x.values[100:]).all() and same(x.values[:100], part.data[:100])
    assert (x.attrs["telescope"], x.attrs["sideband"]) == ("toy", "upper")
    assert same(x.sel(freq=402).isel(time=7).values, part.data[7, 1])
    beams = br.open(str(folder / "fil" / "*.fil")).to_xarray()
    assert beams.dims == ("time", "beam", "freq") and beams.dtype == np.float32


@pytest.mark.parametrize(
    "dtype", ["int4x2", "int8x2", "int8", "uint8", "int4", "f16", "f32", "uint32", "int32x2"]
)
def test_decode_is_the_inverse_of_encode(dtype):
    rng = np.random.default_rng(5)
    shape = (7, 3, 5)
    low, high = {"int4x2": (-7, 8), "int4": (-7, 8), "uint8": (0, 256), "uint32": (0, 1 << 20)}.get(
        dtype, (-100, 101)
    )
    values = rng.integers(low, high, shape).astype(np.float32)
    if dtype.endswith("x2"):
        values = values + 1j * rng.integers(low, high, shape).astype(np.float32)
    assert same(br.decode(br.encode(values, dtype), dtype, shape), values)
    if dtype != "int4":
        every = br.encode(values, dtype)[::2, :, ::2]  # not contiguous
        assert same(br.decode(every, dtype), values[::2, :, ::2])


def test_decoding_is_half_as_fast_as_copying():
    """Processor time of this thread over that of NumPy's copy of the same bytes, each the best of some."""
    stored = np.random.default_rng(1).integers(0, 256, 1 << 21, np.uint8)  # 16 MiB of complex64
    values, copy = np.empty(stored.shape, np.complex64), np.ones(stored.shape, np.complex64)

    def best(work):
        spent = []
        for _ in range(15):
            before = time.thread_time()
            work()
            spent.append(time.thread_time() - before)
        return min(spent)

    ratio = best(lambda: np.copyto(copy, values)) / best(lambda: br.decode(stored, "int4x2", out=values))
    print(f"decoding at {ratio:.2f} of the rate of a copy")
    assert ratio >= 0.5


def test_decoding_all_bytes():
    every = np.arange(256, dtype=np.uint8)
    nibble = lambda b: (b & 15) - 16 * ((b & 15) > 7)
    want = [nibble(int(b)) + 1j * nibble(int(b) >> 4) for b in every]
    assert same(br.decode(every, "int4x2"), np.array(want, np.complex64))


def test_bad_files(made, tmp_path):
    folder, _ = made
    good = (folder / "field_000000.dada").read_bytes()
    with pytest.raises(FileNotFoundError, match="there is no file 'nothing.dada'"):
        br.open("nothing.dada")
    for key, value, words in (
        (rb"DTYPE", b"int5", "DTYPE is 'int5'"),
        (rb"SAMPLE_NS", b"0/0", "SAMPLE_NS"),
        (rb"SHAPE", b"0,4,2", "SHAPE"),
        (rb"SAMPLE0", b"x", "SAMPLE0"),
        (rb"FRAME_SAMPLES", b"0", "FRAME_SAMPLES"),
    ):
        bad = re.sub(rb"\n" + key + rb" .*", b"\n" + key + b"  " + value, good[:4096].rstrip(b"\0"), count=1)
        (tmp_path / "bad.dada").write_bytes(bad.ljust(4096, b"\0") + good[4096:])
        with pytest.raises(br.FormatError, match=words):
            br.open("bad.dada")
    (tmp_path / "bad.dada").write_bytes(
        good[: 4096 + 48 * 100 + 7]
    )  # the writer was killed in the middle of a sample
    assert br.open("bad.dada").shape[0] == 100
    (tmp_path / "bad.dada").write_bytes(good)
    (tmp_path / "bad.dada.gaps").write_text("5 ten\n")
    with pytest.raises(br.FormatError, match=r"bad.dada.gaps:1"):
        br.open("bad.dada").valid
    (tmp_path / "noise").write_bytes(os.urandom(10000))
    with pytest.raises(br.FormatError):
        br.open("noise")
    (tmp_path / "short.fil").write_bytes(sorted((folder / "fil").glob("*.fil"))[0].read_bytes()[:60])
    with pytest.raises(br.FormatError, match="short.fil"):
        br.open("short.fil")
    with pytest.raises(br.FormatError, match="expected a file"):
        br.open(tmp_path)
    os.mkfifo(tmp_path / "pipe.dada")
    with pytest.raises(br.FormatError, match="expected a regular file"):
        br.open("pipe.dada")


def test_import_is_quick():
    code = "import numpy, time; t = time.process_time(); import beamring; print(time.process_time() - t)"
    spent = float(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    )
    print(f"import: {spent:.3f} s of processor time")
    assert spent < 0.2
