"""`convert` and `info`: recordings of bands, of several recorders, damaged, and files that are none."""
import glob
import os
import re
import shutil
import sys

import h5py
import numpy as np

import harness
from files_common import CTIME, replay, same, STREAM, write

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import recordings as other  # noqa: E402


def band(d, name, e, valid, first, mhz, epoch):
    """A DADA recording of ours, in Python."""
    dada(d, e, valid, first, mhz, epoch=epoch)
    for end in ("", ".gaps"):
        os.rename(os.path.join(d, "in.dada" + end), os.path.join(d, name + end))


def test_dada_bands():
    """DADA files of different channels, whose samples count from different epochs: side by side, with their
    gaps."""
    with harness.scratch() as d:
        epoch = 1600000000123456789
        e = other.noise((300, 5, 2, 3), 2)
        valid = np.random.default_rng(1).random((300, 5)) < 0.9
        valid[200:, :2] = False
        valid[:30, 2:] = False
        valid[150:170, 2:] = False
        e *= valid[..., None, None]
        mhz = [400.0, 401.0, 500.0, 501.0, 502.0]
        band(d, "a.dada", e[:200, :2], valid[:200, :2], 1000, mhz[:2], epoch)
        band(d, "b.dada", e[30:150, 2:], valid[30:150, 2:], 1030, mhz[2:], epoch)
        band(d, "c.dada", e[170:, 2:], valid[170:, 2:], 1170 - 400, mhz[2:], epoch + 400 * 2560)
        for extra in ("", ", frame_samples: 41", ", frame_samples: 1000, readers: 3"):
            same(replay(d, '"*.dada"', "", extra), e, valid, 1000, epoch, mhz)
        got = replay(d, '"*.dada"', "", ", loop: 3, frame_samples: 700")
        same(got, np.tile(e, (3, 1, 1, 1)), np.tile(valid, (3, 1)), 1000, epoch, mhz)
        same(replay(d, '"[bc].dada"', ""), e[30:, 2:], valid[30:, 2:], 1030, epoch, mhz[2:])
        band(d, "c.dada", e[170:, 2:], valid[170:, 2:], 1170, mhz[2:], epoch + 1)
        assert "EPOCH_NS" in replay(d, '"*.dada"', "", status=2).err
        band(d, "c.dada", e[170:, 1:4], valid[170:, 1:4], 1170, mhz[1:4], epoch)
        assert "twice" in replay(d, '"*.dada"', "", status=2).err


def test_bands_of_fields_only():
    """Only the telescope's own channels are put side by side: finer ones are files of two recordings."""
    with harness.scratch() as d:
        for name, first in (("a", 400.0), ("b", 500.0)):
            dada(d, other.noise((480, 2, 2, 3), 2), np.ones((480, 2), bool), 0, [first, first + 0.5])
            harness.run(d, f"""
pipeline:
  - {{stage: replay, files: in.dada, out: field}}
  - {{stage: upchannelize, in: field, out: fine, factor: 4}}
  - {{stage: record, in: fine, directory: fine, prefix: {name}}}
""")
        assert "replay others separately" in replay(d, '"fine/*.dada"', "", status=2).err


def read_dada(d, pattern):
    (path,) = glob.glob(os.path.join(d, pattern))
    e, valid, first, keys = harness.read_e(path)
    return e, valid, first, keys


def dada(d, e, valid, first, mhz, sample_ns="2560", width=0.390625, epoch=1600000000123456789):
    """A recording of ours, written in Python."""
    keys = {
        "HEADER": "DADA", "HDR_SIZE": 4096, "DTYPE": "int4x2", "AXES": "time,freq,pol,dish",
        "SHAPE": "0," + ",".join(map(str, e.shape[1:])), "FRAME_SAMPLES": 32, "SAMPLE0": first,
        "SAMPLE_NS": sample_ns, "EPOCH_NS": epoch, "FREQ_MHZ": ",".join(map(repr, mhz)), "WIDTH_MHZ": width
    }
    head = "".join(f"{k} {v}\n" for k, v in keys.items()).encode().ljust(4096, b"\0")
    write(d, "in.dada", head + other.pack_int4x2(e).tobytes())
    with open(os.path.join(d, "in.dada.gaps"), "w") as f:
        for t, c in np.argwhere(~valid):
            f.write(f"{first + t} 1 {c} 1 0\n")


STREAM_ARGS = ("--stream", "sample_ns: 2560, epoch_ns: 1600000000123456789, npol: 2")


def convert(d, to, *args, status=0, source="in.dada"):
    shutil.rmtree(os.path.join(d, "to"), ignore_errors=True)
    result = harness.beamring("convert", "--to", to, *args, source, "to/x", cwd=d)
    assert result.status == status, result
    return result


def test_convert():
    """There and back: the field, its mask, its times and frequencies."""
    e = other.noise((200, 4, 2, 3), 9, -8, 7)
    e[e == -8 - 8j] = 0
    whole = np.ones((200, 4), bool)
    lost = whole.copy()
    lost[32:64] = False  # a frame, and one behind
    lost[96:128] = False
    holes = lost.copy()
    holes[130:140, 2] = False
    coarse = [1024, 1025, 1026, 1030]
    cases = [("kotekan", [c * 0.390625 for c in coarse], [whole, lost], (holes, "missing or flagged")),
             ("guppi", [400.0 + 0.390625 * k for k in range(4)], [whole,
                                                                  lost], (holes, "missing or flagged")),
             ("chime", [800 - 0.390625 * c for c in (5, 6, 7, 100)], [whole, lost, holes], None)]
    for to, mhz, good, bad in cases:
        for valid in good:
            with harness.scratch() as d:
                field = e * valid[..., None, None]
                dada(d, field, valid, 1000000 * 32, mhz)
                convert(d, to)
                if to == "kotekan":
                    frames = [
                        f for p in sorted(glob.glob(os.path.join(d, "to/x_*.raw")))
                        for f in other.read_kotekan(open(p, "rb").read())
                    ]
                    for dims, ids, sample0, code, data in frames:
                        assert list(dims) == ["T", "F", "P", "D"] and ids == coarse and code == 7, (dims, ids,
                                                                                                    code)
                        at = sample0 - 1000000 * 32
                        assert data == other.pack_chime(field[at:at + dims["T"]]).tobytes()
                if to == "chime":
                    import h5py
                    for c, freq_id in enumerate((5, 6, 7, 100)):
                        with h5py.File(os.path.join(d, f"to/x_{freq_id:07}.h5")) as f:
                            raw = f["baseband"][:]
                            assert f.attrs["freq_id"] == freq_id and f.attrs["time0_fpga_count"] == 32000000
                            assert f.attrs["freq"] == 800 - 0.390625 * freq_id and \
                                f.attrs["delta_time"] == 2.56e-6
                            want = np.where(valid[:, c, None], other.pack_chime(e[:, c].reshape(200, 6)), 0)
                            assert np.array_equal(raw, want)
                result = harness.beamring("convert", "--to", "dada", *STREAM_ARGS, "to/x*", "back/x", cwd=d)
                assert result.status == 0, result
                if to == "guppi":
                    (path,) = glob.glob(os.path.join(d, "back/*.dada"))
                    keys, size = harness.header(path)
                    raw = np.fromfile(path, np.int8, offset=size).reshape(-1, 4, 2, 3, 2).astype(float)
                    ge, first = raw[..., 0] + 1j * raw[..., 1], int(keys["SAMPLE0"])
                    gvalid = harness.read_gaps(path, first, len(ge), 4, 1) == 255
                else:
                    ge, gvalid, first, keys = read_dada(d, "back/*.dada")
                same((ge, gvalid, first, keys, None), field, valid, 1000000 * 32, 1600000000123456789, mhz)
                assert keys["SAMPLE_NS"].split("/")[0] == "2560"
        if bad is not None:
            with harness.scratch() as d:
                dada(d, e * bad[0][..., None, None], bad[0], 1000000 * 32, mhz)
                assert bad[1] in convert(d, to, status=1).err
                convert(d, to, "--lossy")


def test_kotekan_codings():
    """-8 - 8i is the missing sample of int4p4chime: refused there, itself in int4p4, another value with
    --lossy."""
    e = other.noise((50, 2, 2, 3), 4, -8, 7)
    e[7, 1, 1, 2] = -8 - 8j
    mhz = [400.0, 400.390625]
    with harness.scratch() as d:
        dada(d, e, np.ones((50, 2), bool), 0, mhz)
        assert "-8 - 8i" in convert(d, "kotekan", status=1).err
    for args, want in ((("--coding", "int4p4"), e), (("--lossy",), np.where(e == -8 - 8j, -7 - 8j, e))):
        with harness.scratch() as d:
            dada(d, e, np.ones((50, 2), bool), 0, mhz)
            convert(d, "kotekan", *args)
            result = harness.beamring("convert", "--to", "dada", *STREAM_ARGS, "to/x*", "back/x", cwd=d)
            assert result.status == 0, result
            assert np.array_equal(read_dada(d, "back/*.dada")[0], want), args
    with harness.scratch() as d:
        dada(d, e, np.ones((50, 2), bool), 0, mhz)
        assert "coding" in convert(d, "guppi", "--coding", "int4p4", status=2).err


def test_two_recorders():
    """Two stages that write HDF5 at the same time."""
    with harness.scratch() as d:
        e = other.noise((3000, 3, 2, 3), 9)
        dada(d, e, np.ones((3000, 3), bool), 320, [500.0, 600.0, 700.0])
        names = ("a", "b", "c")
        harness.run(
            d, "pipeline:\n  - {stage: replay, files: in.dada, out: field}\n" +
            "".join(f"  - {{stage: record, name: {n}, in: field, directory: {n}, prefix: x, format: chime}}\n"
                    for n in names))
        for n in names:
            got = replay(d, f"\"{n}/*.h5\"", "")
            same(got, e[:, ::-1], np.ones((3000, 3), bool), 320)


def test_chime_full_disk():
    """Wherever room ends: all channels hold the frames before that, as many as the message names, and what
    others write is whole. Nothing whole: no file."""
    with harness.scratch() as d:
        e = other.noise((3000, 3, 2, 3), 9)
        e[e == -8 - 8j] = 0
        dada(d, e, np.ones((3000, 3), bool), 320, [500.0, 600.0, 700.0])
        text = """
pipeline:
  - {stage: replay, files: in.dada, out: field, frame_samples: 64}
  - {stage: record, in: field, directory: x, prefix: x, format: chime, overwrite: true}
"""
        harness.run(d, text)
        whole = max(os.path.getsize(p) for p in glob.glob(os.path.join(d, "x", "*.h5")))

        def check(**more):
            for path in glob.glob(os.path.join(d, "x", "*.h5")):
                os.remove(path)
            result = harness.run(d, text, status=1, **more)
            words = re.search(
                r"cannot write channel \d+ to \S+: (.*?); the (\d+) samples before this are there",
                result.err)
            assert words and words[1] in ("File too large", "No space left on device"), result
            count, files = int(words[2]), glob.glob(os.path.join(d, "x", "*.h5"))
            assert count % 64 == 0 and len(files) == (3 if count else 0), (result, files)
            for path in files:
                with h5py.File(path) as f:
                    assert f["baseband"].shape == (count, 6) and f["baseband"][()].any(axis=1).all()
            if files:
                same(replay(d, "\"x/*.h5\"", ""), e[:count, ::-1], np.ones((count, 3), bool), 320)
            return count

        counts = [check(file_bytes=n) for n in (3000, 4500, 9000, whole - 1)]
        assert counts[0] == counts[1] == 0 < counts[2] < counts[3] < 3000, counts
        shutil.rmtree(os.path.join(d, "x"))
        with harness.small_disk(os.path.join(d, "x"), 40 << 10) as disk:
            if disk:
                text += "  - {stage: record, name: other, in: field, directory: y, prefix: y}\n"
                count = check()
                got, valid, first, _ = harness.read_e(os.path.join(d, "y", "y_000000.dada"))
                assert 0 < count < 3000 and first == 320 and valid.all() and len(got) >= count
                assert np.array_equal(got, e[:len(got)])


def test_convert_refused():
    e = other.noise((64, 3, 2, 3), 9)
    whole = np.ones((64, 3), bool)
    with harness.scratch() as d:
        for to, mhz, more, word in [("kotekan", [400.1, 400.2, 400.3], {}, "frequencies"),
                                    ("guppi", [400.0, 400.5, 407.0], {}, "frequencies"),
                                    ("guppi", [400.0, 400.5, 401.0], {}, "channel widths"),
                                    ("chime", [400.1, 400.2, 400.3], {}, "channel numbers"),
                                    ("chime", [500.0, 600.0, 700.0], {"width": 0.2}, "channel width"),
                                    ("guppi", [400.0, 400.3, 400.6], {"sample_ns": "5120/3",
                                                                      "width": 0.3}, "sample time"),
                                    ("chime", [500.0, 600.0, 700.0], {"sample_ns": "5120/3"}, "sample time")]:
            dada(d, e, whole, 320, mhz, **more)
            result = convert(d, to, status=2)
            assert "would lose: " in result.err and word in result.err, (to, word, result)
            assert not os.path.exists(os.path.join(d, "to"))
            assert "is lost" in convert(d, to, "--lossy").err
        e[5, 1, 1, 2] = -8 - 8j
        dada(d, e, whole, 320, [500.0, 600.0, 700.0])
        assert "-8 - 8i" in convert(d, "chime", status=1).err
        assert convert(d, "vdif", status=2).err and harness.beamring("convert", "x", cwd=d).status == 2
        assert "no file" in convert(d, "dada", source="nothing", status=2).err


def test_info():
    with harness.scratch() as d:
        e = other.noise((50, 3, 2, 6), 1)
        write(d, "k.raw", other.kotekan_frame(e, [1600, 1728, 1856], 7 * 10**11) * 2)
        write(
            d, "g.raw", b"".join(
                other.guppi_blocks(other.noise((480, 4, 2, 1), 1, -100, 100), 48, first_packet=480,
                                   skip={3})))
        other.write_chime(os.path.join(d, "c.h5"), other.pack_chime(e[:, 0].reshape(50, 12)), 5, 77, CTIME,
                          chunks=(16, 12), shuffle="lz4")
        wanted = {
            "k.raw": [
                "kotekan", "[T 50][F 3][P 2][D 6]", "1600 1728 1856", "700000000000", "2 of 1800 bytes"
            ], "g.raw": [
                "GUPPI", "9 of 768 bytes", "480 to 960: 480", "48 of them missing", "B0329+54",
                "2023-02-25-01:00:00.251228800"
            ], "c.h5": ["CHIME", "bitshuffle and LZ4", "798.046875", "77 to 127", "2020-09-13-12:26:40.25"]
        }
        for name, words in wanted.items():
            result = harness.beamring("info", name, cwd=d)
            assert result.status == 0 and all(w in result.out for w in words), (words, result)
            data = open(os.path.join(d, name), "rb").read()
            for n in (0, 1, 9, 100, 600):
                write(d, "cut", data[:n])
                result = harness.beamring("info", "cut", cwd=d)
                assert result.status == 1 and "cut" in result.err, (name, n, result)


def test_words_of_options():
    """What `convert` says is said in its own options: no pipeline file, no keys of one."""
    with harness.scratch() as d:
        e = other.noise((480, 3, 2, 6), 1)
        dada(d, e, np.ones((480, 3), bool), 0, [400.0, 400.5, 407.0])
        write(d, "k.raw", other.kotekan_frame(other.noise((50, 3, 2, 6), 1), [1600, 1728, 1856], 700))
        write(d, "file", b"x")
        write(d, "b.fil", b"\x0c\0\0\0HEADER_START" + bytes(500))
        convert(d, "dada")
        cases = (
            (("--to", "guppi", "in.dada", "new/x"), 2, ("--lossy", "frequencies")),
            (("--to", "dada", "in.dada", "to/x"), 2, ("give --overwrite", "to/x_000000.dada")),
            (("--to", "dada", "k.raw", "new/x"), 2, ("--stream 'sample_ns: ...'", "k.raw")),
            (("--to", "dada", "--stream", "npol: 7", "in.dada", "new/x"), 2, ("npol", "from 1 to 2")),
            (("--to", "dada", "--stream", "width_mhz: -1", "in.dada", "new/x"), 2, ("width_mhz", "MHz")),
            (("--to", "dada", "nothing.dada", "new/x"), 2, ("nothing.dada", )),
            (("--to", "dada", "b.fil", "new/x"), 2, ("b.fil is a SIGPROC filterbank file", )),
            (("--to", "dada", "in.dada", "file/x"), 2, ("file is a file; expected a directory", )),
            (("--to", "dada", "in.dada", "file/y/x"), 2, ("file is a file; expected a directory", )),
            (("--to", "guppi", "--lossy", "in.dada", "file/x"), 2,
             ("file is a file; expected a directory", )),
            (("--to", "dada", "to/x_000000.dada", "to/x"), 2, ("a file of IN", "to/x_000000.dada")),
            (("--to", "kotekan", "--lossy", "in.dada", "/proc/x/y"), 1,
             ("cannot write into directory /proc/x", )),
            (("--to", "kotekan", "--lossy", "in.dada", "more/y"), 0, ("sample_ns: 2560/1", )),
            (("--to", "dada", "cut.dada", "more/z"), 0, ("warning: cut.dada is truncated", )),
        )
        with open(os.path.join(d, "in.dada"), "rb") as f:
            write(d, "cut.dada", f.read()[:-5])
        for args, status, words in cases:
            result = harness.beamring("convert", *args, cwd=d)
            assert result.status == status, (args, result)
            for word in ("beamring convert: ", *words):
                assert word in result.err, (args, word, result)
            for word in ("convert:", "stage '", "record:", "replay:", "overwrite: true", "lossy: true",
                         "`stream:", "Permission"):
                assert word not in result.err.replace("beamring convert:", ""), (args, word, result)
        done = harness.beamring("convert", "--to", "dada", "--overwrite", "in.dada", "to/x", cwd=d)
        assert done.status == 0, done


def test_auto_and_unknown():
    with harness.scratch() as d:
        for data in (b"", b"\0", b"\x89HDF\r\n\x1a\n", b"hello world, this is not a recording at all" * 200,
                     bytes(100000)):
            write(d, "x", data)
            result = replay(d, "x", "stream: {sample_ns: 5120, epoch_ns: 0, freq_mhz: [400]}\n", status=2)
            assert "x" in result.err, result
            for form in ("dada", "vdif", "chime", "guppi", "kotekan"):
                assert replay(d, "x", STREAM, f", format: {form}", status=2).err


if __name__ == "__main__":
    harness.main([f for name, f in sorted(globals().items()) if name.startswith("test_")])
