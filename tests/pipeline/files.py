"""What other systems record, replayed: files written by tests/oracle/recordings.py against what `record` then has in its DADA file,
value by value, mask by mask, nanosecond by nanosecond."""
import glob
import os
import shutil
import sys

import numpy as np

import harness

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import recordings as other  # noqa: E402

STREAM = "stream: {sample_ns: 5120, epoch_ns: 1700000000000000000}\n"


def replay(d, pattern, stream="", extra="", status=0, **more):
    """Replays and records; the recording's E, its mask, first sample and header."""
    out = os.path.join(d, "out")
    shutil.rmtree(out, ignore_errors=True)
    result = harness.run(d, stream + f"""
pipeline:
  - {{stage: replay, files: {pattern}, out: field{extra}}}
  - {{stage: record, in: field, directory: out, prefix: field}}
""", status=status, **more)
    if status != 0:
        return result
    (path,) = glob.glob(os.path.join(out, "*.dada"))
    keys, size = harness.header(path)
    shape = [int(x) for x in keys["SHAPE"].split(",")]
    if keys["DTYPE"] == "int8x2":
        raw = np.fromfile(path, np.int8, offset=size).reshape(-1, *shape[1:], 2).astype(float)
        e = raw[..., 0] + 1j * raw[..., 1]
    else:
        e = harness.unpack(np.fromfile(path, np.uint8, offset=size).reshape(-1, *shape[1:]))
    first = int(keys["SAMPLE0"])
    valid = harness.read_gaps(path, first, len(e), shape[1], 1) == 255
    assert not e[~valid].any(), "data under missing samples"
    return e, valid, first, keys, result


def same(got, e, valid, first, epoch=None, mhz=None):
    ge, gvalid, gfirst, keys, _ = got
    assert gfirst == first, (gfirst, first)
    assert ge.shape == e.shape, (ge.shape, e.shape)
    assert np.array_equal(gvalid, valid), f"masks differ in {np.argwhere(gvalid != valid)[:5]}"
    assert np.array_equal(ge * gvalid[..., None, None], e * valid[..., None, None])
    if epoch is not None:
        assert int(keys["EPOCH_NS"]) == epoch, (keys["EPOCH_NS"], epoch)
    if mhz is not None:
        text = keys["FREQ_MHZ"]
        if ":" in text:
            a, b, n = text.split(":")
            values = [float(a) + float(b) * i for i in range(int(n))]
        else:
            values = [float(x) for x in text.split(",")]
        assert np.allclose(values, mhz, rtol=0, atol=1e-9), (values, mhz)


def write(d, name, data):
    with open(os.path.join(d, name), "wb") as f:
        f.write(data)


def put(e, valid, first, full, full_valid, at, channels):
    full[at - first:at - first + len(e), channels] = e
    full_valid[at - first:at - first + len(e), channels] = True


# --- kotekan ----------------------------------------------------------------------------------------------------------
def test_kotekan():
    """Two nodes' channels, frames lost on one of them, both dimension orders, both codings; node b starts later."""
    for kind, order in [("int4p4", "TFPD"), ("int4p4", "FTPD"), ("int4p4chime", "TFPD"), ("int4p4chime", "FTPD")]:
        with harness.scratch() as d:
            e = np.zeros((500, 5, 2, 6), complex)
            valid = np.zeros((500, 5), bool)
            first, n = 7 * 10**11 + 3, 0
            for k in range(10):
                if k != 4:
                    part = other.noise((50, 3, 2, 6), k)
                    write(d, f"a_{k:07}.raw", other.kotekan_frame(part, [1600, 1728, 1856], first + 50 * k, kind, order))
                    put(part, None, first, e, valid, first + 50 * k, slice(0, 3))
            for k in range(0, 24):
                at = first + 20 + 20 * k
                if k not in (3, 4, 23):
                    part = other.noise((20, 2, 2, 6), 100 + k)
                    n += 1
                    write(d, f"b_{k:07}.raw", other.kotekan_frame(part, [1601, 1729], at, kind, order, counter=n))
                    put(part, None, first, e, valid, at, slice(3, 5))
            mhz = np.array([1600, 1728, 1856, 1601, 1729]) * 0.1953125
            if kind == "int4p4chime":
                mhz = 800 - 0.390625 * np.array([1600, 1728, 1856, 1601, 1729])
                continue_with = "stream: {sample_ns: 5120, epoch_ns: 1700000000000000000, freq_mhz: [500, 501, 502, 503, 504]}\n"
                mhz = np.arange(500, 505)
            else:
                continue_with = STREAM
            for extra in ("", ", frame_samples: 64", ", frame_samples: 7, readers: 3"):
                same(replay(d, "\"*.raw\"", continue_with, extra), e, valid, first, 1700000000000000000, mhz)


def test_kotekan_one_file_and_loop():
    """Several frames in one file; a loop follows on itself; a truncated last frame keeps its whole samples."""
    with harness.scratch() as d:
        e = other.noise((90, 2, 2, 3), 1)
        data = b"".join(other.kotekan_frame(e[30 * k:30 * k + 30], [2000, 2001], 1000 + 30 * k) for k in range(3))
        write(d, "x.raw", data)
        whole = np.ones((90, 2), bool)
        same(replay(d, "x.raw", STREAM), e, whole, 1000)
        same(replay(d, "x.raw", STREAM, ", loop: 3, frame_samples: 64"), np.tile(e, (3, 1, 1, 1)), np.tile(whole, (3, 1)), 1000)
        write(d, "x.raw", data[:-12 * 5 - 7])
        got = replay(d, "x.raw", STREAM)
        assert "truncated" in got[4].err, got[4]
        same(got, e[:84], whole[:84], 1000)
        write(d, "y.raw", other.kotekan_frame(e[80:], [2000, 2001], 1080))  # comes again in part, and goes on
        same(replay(d, "[x.raw, y.raw]", STREAM), e, whole, 1000)


def test_kotekan_long_rows():
    """Rows and cells that are longer than what is read at once."""
    for order in ("TFPD", "FTPD"):
        with harness.scratch() as d:
            e = other.noise((6, 40, 2, 9000), 3)
            ids = list(range(1000, 1040))
            for k in range(2):
                write(d, f"{k}.raw", other.kotekan_frame(e[:, 20 * k:20 * k + 20], ids[20 * k:20 * k + 20], 7, order=order))
            same(replay(d, '"*.raw"', STREAM), e, np.ones((6, 40), bool), 7)


def test_kotekan_refused():
    e = other.noise((10, 2, 2, 3), 1)
    good = other.kotekan_frame(e, [2000, 2001], 1000)
    cases = {
        "sample_ns": (good, "stream: {epoch_ns: 0}\n"),
        "epoch_ns": (good, "stream: {sample_ns: 5120}\n"),
        "3 dishes": (good, STREAM + "telescope: {name: t, grid: {m: 1, n: 2}, spacing_m: {m: 1, n: 1}, dishes: [[0, 0], [0, 1]], "
                     "latitude_deg: 0, longitude_deg: 0}\n"),
        "upchannelized": (other.kotekan_frame(e, [2000, 2001], 1000, upchan=2), STREAM),
        "time_downsampling_fpga": (other.kotekan_frame(e, [2000, 2001], 1000, downsampling=4, half=3), STREAM),
        "[P 2][X 3]": (good.replace(b"D" + bytes(19), b"X" + bytes(19)), STREAM),
        "float16": (good[:4 + 36] + b"\x0c" + good[4 + 37:] + bytes(120), STREAM),
        "no metadata": (bytes(4) + good, STREAM),
        "nfreq": (other.kotekan_frame(e, [2000, 2001, 2002], 1000), STREAM),
    }
    for word, (data, stream) in cases.items():
        with harness.scratch() as d:
            write(d, "x.raw", data)
            result = replay(d, "x.raw", stream, ", format: kotekan", status=2)
            assert word in result.err and "x.raw" in result.err, (word, result)
    with harness.scratch() as d:
        write(d, "a.raw", good)
        write(d, "b.raw", other.kotekan_frame(e, [2001, 2002], 1000))
        assert "channel 2001 twice" in replay(d, '"*.raw"', STREAM, status=2).err
        write(d, "b.raw", other.kotekan_frame(e, [2000, 2001], 10**9))
        assert "max_gap_s" in replay(d, '"*.raw"', STREAM, status=2).err
        write(d, "b.raw", other.kotekan_frame(e[:, :, :, :2], [2000, 2001], 1010))
        assert "one recording" in replay(d, '"*.raw"', STREAM, status=2).err


# --- CHIME ------------------------------------------------------------------------------------------------------------
CTIME, COUNT = 1600000000.25, 3 * 10**9


def chime_epoch(count0):
    return 1600000000250000000 - count0 * 2560


def test_chime():
    """Three frequencies of one event, each with its own start, length and unwritten samples."""
    ways = [dict(), dict(chunks=(64, 12)), dict(chunks=(50, 5)), dict(chunks=(64, 12), shuffle="lz4"), dict(chunks=(33, 12), shuffle="runs"),
            dict(chunks=(64, 7), shuffle="plain"), dict(chunks=(1024, 12), shuffle="lz4")]
    for way in ways:
        with harness.scratch() as d:
            first = COUNT + 100
            e = np.zeros((400, 3, 2, 6), complex)
            valid = np.zeros((400, 3), bool)
            for c, (freq_id, late, n) in enumerate([(10, 40, 300), (11, 0, 400), (900, 7, 250)]):
                part = other.noise((n, 12), c)
                raw = other.pack_chime(part)
                good = np.ones(n, bool)
                raw[20:30] = 0
                good[20:30] = False
                raw[33, :11] = 0  # one input is there: a valid sample, zeros for the others
                part[33, :11] = 0
                if "shuffle" in way:
                    raw[64:200] = raw[64]  # something to compress
                    part[64:200] = part[64]
                seconds = CTIME + 2.56e-6 * (late + 100)
                other.write_chime(os.path.join(d, f"baseband_42_{freq_id}.h5"), raw, freq_id, first + late, seconds, **way)
                e[late:late + n, c] = part.reshape(n, 2, 6)
                valid[late:late + n, c] = good
            for extra in ("", ", frame_samples: 37, readers: 3", ", readers: 2"):
                got = replay(d, '"*.h5"', "", extra)
                same(got, e, valid, first, None, 800 - 0.390625 * np.array([10, 11, 900]))
                # a double holds Unix seconds to 1.2e-7
                assert abs(int(got[3]["EPOCH_NS"]) - chime_epoch(COUNT)) < 300, got[3]["EPOCH_NS"]


def test_chime_unwritten_chunk_and_offset():
    with harness.scratch() as d:
        part = other.noise((128, 12), 3)
        for shuffle in (None, "lz4"):
            other.write_chime(os.path.join(d, "x.h5"), other.pack_chime(part), 5, 77, CTIME, chunks=(32, 12), shuffle=shuffle,
                              skip={(1, 0)}, offset=1.5e-9)
            valid = np.ones((128, 1), bool)
            valid[32:64] = False
            same(replay(d, "x.h5"), part.reshape(128, 1, 2, 6), valid, 77, 1600000000250000000 + 2 - 77 * 2560)


def test_chime_refused():
    raw = other.pack_chime(other.noise((64, 12), 3))
    wrong = {"freq_id": [None, -1, 2**31, -2**63, "x"], "delta_time": [None, 0.0, -2.56e-6, 1e300, float("nan"), "x"],
             "time0_fpga_count": [None, -1, np.uint64(2**64 - 1), 2**63 - 1, float("inf"), "x"], "freq": [0.0, -5.0, 1e300, "x"],
             "time0_ctime": [None, 1e300, float("inf"), "x"], "time0_ctime_offset": [2.0, float("nan"), "x"], "event_id": ["x"]}
    with harness.scratch() as d:
        for key, values in wrong.items():
            for value in values:
                other.write_chime(os.path.join(d, "x.h5"), raw, 5, 77, CTIME, attributes={key: value})
                result = replay(d, "x.h5", status=2)
                assert key in result.err and "x.h5" in result.err, (key, value, result)
        import h5py
        for name, data in [("other", raw), ("baseband", raw[0]), ("baseband", raw.astype("u2")), ("baseband", raw[:0]), ("baseband", raw[:, :0])]:
            other.write_chime(os.path.join(d, "x.h5"), raw, 5, 77, CTIME)
            with h5py.File(os.path.join(d, "x.h5"), "a") as f:
                del f["baseband"]
                f.create_dataset(name, data=data)
            assert "/baseband" in replay(d, "x.h5", status=2).err
        with h5py.File(os.path.join(d, "x.h5"), "a") as f:
            del f["baseband"]
            f.create_dataset("baseband", data=raw, compression="gzip")
        assert "expected none, or bitshuffle" in replay(d, "x.h5", status=2).err
        other.write_chime(os.path.join(d, "x.h5"), raw, 5, 77, CTIME, chunks=(16, 12), shuffle="lz4")
        data = open(os.path.join(d, "x.h5"), "rb").read()
        for n in list(range(1, 600, 23)) + [len(data) // 2, len(data) - 1]:
            write(d, "x.h5", data[:n])
            result = replay(d, "x.h5", status=2)
            assert "x.h5" in result.err, result
        write(d, "x.h5", data)
        for at in harness.damage_hdf5(os.path.join(d, "x.h5")):
            result = replay(d, "x.h5", status=2)
            assert "x.h5" in result.err and "closing library" not in result.err, (at, result)


def test_chime_damaged_chunk():
    """A chunk that does not decompress stops the run with the file's name; it is not taken for data."""
    raw = other.pack_chime(other.noise((64, 12), 3))
    with harness.scratch() as d:
        other.write_chime(os.path.join(d, "x.h5"), raw, 5, 77, CTIME, chunks=(16, 12), shuffle="lz4")
        data = bytearray(open(os.path.join(d, "x.h5"), "rb").read())
        at = bytes(data).index(b"\0\0\0\0\0\0\0\xc0\0\0\x20\0")
        for where, value in [(7, 0xc1), (11, 7), (15, 255), (12, 127), (16, 0x00), (16, 0x1f)]:
            worse = bytearray(data)
            worse[at + where] = value
            write(d, "x.h5", bytes(worse))
            result = replay(d, "x.h5", status=1)
            assert "x.h5" in result.err and "chunk" in result.err, (where, result)


# --- GUPPI ------------------------------------------------------------------------------------------------------------
GUPPI_EPOCH = (60000 - 40587) * 86400 * 10**9 + 3600 * 10**9 + 250000000


def guppi_mhz(nchan, centre=1400.0):
    return centre + 0.390625 * (np.arange(nchan) + 0.5 - nchan / 2)


def test_guppi():
    for nchan, npol, nants, overlap, directio in [(8, 2, 1, 0, True), (8, 2, 1, 16, True), (20, 1, 1, 16, False), (5, 2, 3, 0, True)]:
        with harness.scratch() as d:
            v = other.noise((7 * 48 + overlap, nchan, npol, nants), 5, -128, 127)
            blocks = other.guppi_blocks(v, 48 + overlap, overlap, first_packet=480, directio=directio)
            write(d, "g.0000.raw", b"".join(blocks[:4]))
            write(d, "g.0001.raw", b"".join(blocks[4:]))
            whole = np.ones((len(v), nchan), bool)
            for extra in ("", ", frame_samples: 37, readers: 3"):
                got = replay(d, '"*.raw"', "", extra)
                same(got, v, whole, 480, GUPPI_EPOCH, guppi_mhz(nchan))
                assert got[3]["SAMPLE_NS"] in ("2560", "2560/1"), got[3]["SAMPLE_NS"]
                assert "again" not in got[4].err and "duplicate" not in got[4].out


def test_guppi_lost_blocks_and_nodes():
    """Blocks lost on one of two nodes; the other node's band joins on."""
    with harness.scratch() as d:
        v = other.noise((480, 8, 2, 1), 5, -128, 127)
        write(d, "a.raw", b"".join(other.guppi_blocks(v[:, :4], 48, first_packet=20, packets=4, skip={3, 4}, centre=1400.0, band=1.5625)))
        write(d, "b.raw", b"".join(other.guppi_blocks(v[:, 4:], 48, first_packet=20, packets=4, skip={0, 9}, centre=1401.5625, band=1.5625)))
        valid = np.ones((480, 8), bool)
        valid[3 * 48:5 * 48, :4] = False
        valid[:48, 4:] = valid[9 * 48:, 4:] = False
        same(replay(d, '"*.raw"'), v, valid, 240, GUPPI_EPOCH)


def test_guppi_refused():
    v = other.noise((96, 4, 2, 1), 5, -128, 127)
    wrong = {"BLOCSIZE": [None, 0, -1, 2**31 + 1, 2**63 - 1, 2**64, "x", 1.5, 767], "OBSNCHAN": [None, 0, -4, 2**31, "x"],
             "NPOL": [None, 0, 3, 5, -2], "NBITS": [None, 4, 2, 16, 0, -8, "x"], "OVERLAP": [-1, 48, 2**63 - 1, "x"],
             "OBSBW": [None, 0.0, float("inf"), "x", 1e300], "OBSFREQ": [None, 0.0, -1400.0, "x", 1e300], "TBIN": [0.0, -1.0, "x", 1e300],
             "PKTIDX": [-1, 2**63 - 1, "x", 1.5], "PIPERBLK": [0, -1, 2**63, "x"], "STT_IMJD": [-1, 2**31, "x", None],
             "STT_SMJD": [-1, 2**31, "x"], "STT_OFFS": [5.0, "x"], "NANTS": [0, -1, 3, 2**31], "DIRECTIO": [2, -1, "x"]}
    with harness.scratch() as d:
        for key, values in wrong.items():
            for value in values:
                keys = {key: value}
                block = other.guppi_blocks(v, 48, **{"first_packet": 0})[0]
                text, data = block[:-1536 * 0 - 48 * 4 * 2 * 2], block[-48 * 4 * 2 * 2:]
                cards = [text[i:i + 80] for i in range(0, len(text), 80)]
                cards = [c for c in cards if not c.startswith(key.ljust(8).encode()) and c.strip() and not c.startswith(b"END")]
                header = b"".join(cards) + other.guppi_header(False, **keys)
                header += b" " * (-len(header) % 512)
                write(d, "x.raw", header + data)
                result = replay(d, "x.raw", "", ", format: guppi", status=2)
                assert key in result.err and "x.raw" in result.err, (key, value, result)
        blocks = other.guppi_blocks(v, 48)
        head = len(blocks[0]) - 768
        for n in list(range(0, 170, 7)) + list(range(200, head, 311)) + [head, head + 1, len(blocks[0]) - 1]:
            write(d, "x.raw", blocks[0][:n])
            result = replay(d, "x.raw", "", ", format: guppi", status=2)
            assert "x.raw" in result.err, (n, result)
        for n in (1, 79, 81, head - 1, head, head + 5):  # the first block is there
            write(d, "x.raw", blocks[0] + blocks[1][:n])
            got = replay(d, "x.raw")
            assert "truncated" in got[4].err, (n, got[4])
            same(got, v[:48], np.ones((48, 4), bool), 0)


def band(d, name, e, valid, first, mhz, epoch):
    """A DADA recording of ours, in Python."""
    dada(d, e, valid, first, mhz, epoch=epoch)
    for end in ("", ".gaps"):
        os.rename(os.path.join(d, "in.dada" + end), os.path.join(d, name + end))


def test_dada_bands():
    """DADA files of different channels, whose samples count from different epochs: side by side, with their gaps."""
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


def read_dada(d, pattern):
    (path,) = glob.glob(os.path.join(d, pattern))
    e, valid, first, keys = harness.read_e(path)
    return e, valid, first, keys


def dada(d, e, valid, first, mhz, sample_ns="2560", width=0.390625, epoch=1600000000123456789):
    """A recording of ours, written in Python."""
    keys = {"HEADER": "DADA", "HDR_SIZE": 4096, "DTYPE": "int4x2", "AXES": "time,freq,pol,dish",
            "SHAPE": "0," + ",".join(map(str, e.shape[1:])), "FRAME_SAMPLES": 32, "SAMPLE0": first, "SAMPLE_NS": sample_ns,
            "EPOCH_NS": epoch, "FREQ_MHZ": ",".join(map(repr, mhz)), "WIDTH_MHZ": width}
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
             ("guppi", [400.0 + 0.390625 * k for k in range(4)], [whole, lost], (holes, "missing or flagged")),
             ("chime", [800 - 0.390625 * c for c in (5, 6, 7, 100)], [whole, lost, holes], None)]
    for to, mhz, good, bad in cases:
        for valid in good:
            with harness.scratch() as d:
                field = e * valid[..., None, None]
                dada(d, field, valid, 1000000 * 32, mhz)
                convert(d, to)
                if to == "kotekan":
                    frames = [f for p in sorted(glob.glob(os.path.join(d, "to/x_*.raw"))) for f in other.read_kotekan(open(p, "rb").read())]
                    for dims, ids, sample0, code, data in frames:
                        assert list(dims) == ["T", "F", "P", "D"] and ids == coarse and code == 6, (dims, ids, code)
                        at = sample0 - 1000000 * 32
                        assert data == other.pack_int4x2(field[at:at + dims["T"]]).tobytes()
                if to == "chime":
                    import h5py
                    for c, freq_id in enumerate((5, 6, 7, 100)):
                        with h5py.File(os.path.join(d, f"to/x_{freq_id:07}.h5")) as f:
                            raw = f["baseband"][:]
                            assert f.attrs["freq_id"] == freq_id and f.attrs["time0_fpga_count"] == 32000000
                            assert f.attrs["freq"] == 800 - 0.390625 * freq_id and f.attrs["delta_time"] == 2.56e-6
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


def test_two_recorders():
    """Two stages that write HDF5 at the same time."""
    with harness.scratch() as d:
        e = other.noise((3000, 3, 2, 3), 9)
        dada(d, e, np.ones((3000, 3), bool), 320, [500.0, 600.0, 700.0])
        names = ("a", "b", "c")
        harness.run(d, "pipeline:\n  - {stage: replay, files: in.dada, out: field}\n" + "".join(
            f"  - {{stage: record, name: {n}, in: field, directory: {n}, prefix: x, format: chime}}\n" for n in names))
        for n in names:
            got = replay(d, f"\"{n}/*.h5\"", "")
            same(got, e[:, ::-1], np.ones((3000, 3), bool), 320)


def test_convert_refused():
    e = other.noise((64, 3, 2, 3), 9)
    whole = np.ones((64, 3), bool)
    with harness.scratch() as d:
        for to, mhz, more, word in [
                ("kotekan", [400.1, 400.2, 400.3], {}, "frequencies"), ("guppi", [400.0, 400.5, 407.0], {}, "frequencies"),
                ("guppi", [400.0, 400.5, 401.0], {}, "channel widths"), ("chime", [400.1, 400.2, 400.3], {}, "channel numbers"),
                ("chime", [500.0, 600.0, 700.0], {"width": 0.2}, "channel width"),
                ("guppi", [400.0, 400.3, 400.6], {"sample_ns": "5120/3", "width": 0.3}, "sample time"),
                ("chime", [500.0, 600.0, 700.0], {"sample_ns": "5120/3"}, "sample time")]:
            dada(d, e, whole, 320, mhz, **more)
            result = convert(d, to, status=2)
            assert "would be lost" in result.err and word in result.err, (to, word, result)
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
        write(d, "g.raw", b"".join(other.guppi_blocks(other.noise((480, 4, 2, 1), 1, -100, 100), 48, first_packet=480, skip={3})))
        other.write_chime(os.path.join(d, "c.h5"), other.pack_chime(e[:, 0].reshape(50, 12)), 5, 77, CTIME, chunks=(16, 12), shuffle="lz4")
        wanted = {"k.raw": ["kotekan", "[T 50][F 3][P 2][D 6]", "1600 1728 1856", "700000000000", "2 of 1800 bytes"],
                  "g.raw": ["GUPPI", "9 of 768 bytes, 1 missing", "B0329+54", "2023-02-25-01:00:00.251228800"],
                  "c.h5": ["CHIME", "bitshuffle and LZ4", "798.046875", "77 to 127", "2020-09-13-12:26:40.25"]}
        for name, words in wanted.items():
            result = harness.beamring("info", name, cwd=d)
            assert result.status == 0 and all(w in result.out for w in words), (words, result)
            data = open(os.path.join(d, name), "rb").read()
            for n in (0, 1, 9, 100, 600):
                write(d, "cut", data[:n])
                result = harness.beamring("info", "cut", cwd=d)
                assert result.status == 1 and "cut" in result.err, (name, n, result)


def test_auto_and_unknown():
    with harness.scratch() as d:
        for data in (b"", b"\0", b"\x89HDF\r\n\x1a\n", b"hello world, this is no recording at all" * 200, bytes(100000)):
            write(d, "x", data)
            result = replay(d, "x", "stream: {sample_ns: 5120, epoch_ns: 0, freq_mhz: [400]}\n", status=2)
            assert "x" in result.err, result
            for form in ("dada", "vdif", "chime", "guppi", "kotekan"):
                assert replay(d, "x", STREAM, f", format: {form}", status=2).err


if __name__ == "__main__":
    harness.main([f for name, f in sorted(globals().items()) if name.startswith("test_")])
