"""Recordings of other systems, replayed: files written by tests/oracle/recordings.py against what `record`
then has in its DADA file, value by value, mask by mask, nanosecond by nanosecond."""
import os
import sys

import numpy as np

import harness
from files_common import CTIME, put, replay, same, STREAM, write

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import recordings as other  # noqa: E402


# --- kotekan --------------------------------------------------------------------------------------
def test_kotekan():
    """Two nodes' channels, frames lost on one of them, both dimension orders, both codings; node b starts
    later."""
    for kind, order in [("int4p4", "TFPD"), ("int4p4", "FTPD"), ("int4p4chime", "TFPD"),
                        ("int4p4chime", "FTPD")]:
        with harness.scratch() as d:
            e = np.zeros((500, 5, 2, 6), complex)
            valid = np.zeros((500, 5), bool)
            first, n = 7 * 10**11 + 3, 0
            for k in range(10):
                if k != 4:
                    part = other.noise((50, 3, 2, 6), k)
                    write(d, f"a_{k:07}.raw",
                          other.kotekan_frame(part, [1600, 1728, 1856], first + 50 * k, kind, order))
                    put(part, None, first, e, valid, first + 50 * k, slice(0, 3))
            for k in range(0, 24):
                at = first + 20 + 20 * k
                if k not in (3, 4, 23):
                    part = other.noise((20, 2, 2, 6), 100 + k)
                    n += 1
                    write(d, f"b_{k:07}.raw",
                          other.kotekan_frame(part, [1601, 1729], at, kind, order, counter=n))
                    put(part, None, first, e, valid, at, slice(3, 5))
            mhz = np.array([1600, 1728, 1856, 1601, 1729]) * 0.1953125
            for extra in ("", ", frame_samples: 64", ", frame_samples: 7, readers: 3"):
                same(replay(d, "\"*.raw\"", STREAM, extra), e, valid, first, 1700000000000000000, mhz)


def test_kotekan_one_file_and_loop():
    """Several frames in one file; a loop follows on itself; a truncated last frame keeps its whole
    samples."""
    with harness.scratch() as d:
        e = other.noise((90, 2, 2, 3), 1)
        data = b"".join(
            other.kotekan_frame(e[30 * k:30 * k + 30], [2000, 2001], 1000 + 30 * k) for k in range(3))
        write(d, "x.raw", data)
        whole = np.ones((90, 2), bool)
        same(replay(d, "x.raw", STREAM), e, whole, 1000)
        same(replay(d, "x.raw", STREAM, ", loop: 3, frame_samples: 64"), np.tile(e, (3, 1, 1, 1)),
             np.tile(whole, (3, 1)), 1000)
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
                write(d, f"{k}.raw",
                      other.kotekan_frame(e[:, 20 * k:20 * k + 20], ids[20 * k:20 * k + 20], 7, order=order))
            same(replay(d, '"*.raw"', STREAM), e, np.ones((6, 40), bool), 7)


def test_kotekan_refused():
    e = other.noise((10, 2, 2, 3), 1)
    good = other.kotekan_frame(e, [2000, 2001], 1000)
    cases = {
        "sample_ns": (good, "stream: {epoch_ns: 0}\n"),
        "epoch_ns": (good, "stream: {sample_ns: 5120}\n"),
        "3 dishes": (
            good, STREAM +
            "telescope: {name: t, grid: {m: 1, n: 2}, spacing_m: {m: 1, n: 1}, dishes: [[0, 0], [0, 1]], "
            "latitude_deg: 0, longitude_deg: 0}\n"),
        "upchannelized": (other.kotekan_frame(e, [2000, 2001], 1000, upchan=2), STREAM),
        "time_downsampling_fpga": (other.kotekan_frame(e, [2000, 2001], 1000, downsampling=4,
                                                       half=3), STREAM),
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


# --- CHIME ----------------------------------------------------------------------------------------
COUNT = 3 * 10**9


def chime_epoch(count0):
    return 1600000000250000000 - count0 * 2560


def test_chime():
    """Three frequencies of one event, each with its own start, length and unwritten samples."""
    ways = [
        dict(),
        dict(chunks=(64, 12)),
        dict(chunks=(50, 5)),
        dict(chunks=(64, 12), shuffle="lz4"),
        dict(chunks=(33, 12), shuffle="runs"),
        dict(chunks=(64, 7), shuffle="plain"),
        dict(chunks=(1024, 12), shuffle="lz4")
    ]
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
                other.write_chime(os.path.join(d, f"baseband_42_{freq_id}.h5"), raw, freq_id, first + late,
                                  seconds, **way)
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
            other.write_chime(os.path.join(d, "x.h5"), other.pack_chime(part), 5, 77, CTIME, chunks=(32, 12),
                              shuffle=shuffle, skip={(1, 0)}, offset=1.5e-9)
            valid = np.ones((128, 1), bool)
            valid[32:64] = False
            same(replay(d, "x.h5"), part.reshape(128, 1, 2, 6), valid, 77,
                 1600000000250000000 + 2 - 77 * 2560)


def test_chime_refused():
    raw = other.pack_chime(other.noise((64, 12), 3))
    wrong = {
        "freq_id": [None, -1, 2**31, -2**63,
                    "x"], "delta_time": [None, 0.0, -2.56e-6, 1e300,
                                         float("nan"), "x"],
        "time0_fpga_count": [None, -1, np.uint64(2**64 - 1), 2**63 - 1,
                             float("inf"), "x"], "freq": [0.0, -5.0, 1e300, "x"],
        "time0_ctime": [None, 1e300, float("inf"), "x"], "time0_ctime_offset": [2.0, float("nan"),
                                                                                "x"], "event_id": ["x"]
    }
    with harness.scratch() as d:
        for key, values in wrong.items():
            for value in values:
                other.write_chime(os.path.join(d, "x.h5"), raw, 5, 77, CTIME, attributes={key: value})
                result = replay(d, "x.h5", status=2)
                assert key in result.err and "x.h5" in result.err, (key, value, result)
        import h5py
        for name, data in [("other", raw), ("baseband", raw[0]), ("baseband", raw.astype("u2")),
                           ("baseband", raw[:0]), ("baseband", raw[:, :0])]:
            other.write_chime(os.path.join(d, "x.h5"), raw, 5, 77, CTIME)
            with h5py.File(os.path.join(d, "x.h5"), "a") as f:
                del f["baseband"]
                f.create_dataset(name, data=data)
            assert "/baseband" in replay(d, "x.h5", status=2).err
        other.write_chime(os.path.join(d, "x.h5"), raw, 5, 77, CTIME)
        for way in harness.send_outside(os.path.join(d, "x.h5"), "baseband"):
            result = replay(d, "x.h5", status=2)
            assert "x.h5: /baseband refers to another file" in result.err, (way, result)
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


# --- GUPPI ----------------------------------------------------------------------------------------
GUPPI_EPOCH = (60000 - 40587) * 86400 * 10**9 + 3600 * 10**9 + 250000000


def guppi_mhz(nchan, centre=1400.0):
    return centre + 0.390625 * (np.arange(nchan) + 0.5 - nchan / 2)


def test_guppi():
    for nchan, npol, nants, overlap, directio in [(8, 2, 1, 0, True), (8, 2, 1, 16, True),
                                                  (20, 1, 1, 16, False), (5, 2, 3, 0, True)]:
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
        write(
            d, "a.raw", b"".join(
                other.guppi_blocks(v[:, :4], 48, first_packet=20, packets=4, skip={3, 4}, centre=1400.0,
                                   band=1.5625)))
        write(
            d, "b.raw", b"".join(
                other.guppi_blocks(v[:, 4:], 48, first_packet=20, packets=4, skip={0, 9}, centre=1401.5625,
                                   band=1.5625)))
        valid = np.ones((480, 8), bool)
        valid[3 * 48:5 * 48, :4] = False
        valid[:48, 4:] = valid[9 * 48:, 4:] = False
        same(replay(d, '"*.raw"'), v, valid, 240, GUPPI_EPOCH)


def test_guppi_refused():
    v = other.noise((96, 4, 2, 1), 5, -128, 127)
    wrong = {
        "BLOCSIZE": [None, 0, -1, 2**31 + 1, 2**63 - 1, 2**64, "x", 1.5,
                     767], "OBSNCHAN": [None, 0, -4, 2**31, "x"], "NPOL": [None, 0, 3, 5, -2],
        "NBITS": [None, 4, 2, 16, 0, -8,
                  "x"], "OVERLAP": [-1, 48, 2**63 - 1, "x"], "OBSBW": [None, 0.0,
                                                                       float("inf"), "x", 1e300],
        "OBSFREQ": [None, 0.0, -1400.0, "x", 1e300], "TBIN": [0.0, -1.0, "x",
                                                              1e300], "PKTIDX": [-1, 2**63 - 1, "x", 1.5],
        "PIPERBLK": [0, -1, 2**63, "x"], "STT_IMJD": [-1, 2**31, "x", None], "STT_SMJD": [-1, 2**31, "x"],
        "STT_OFFS": [5.0, "x"], "NANTS": [0, -1, 3, 2**31], "DIRECTIO": [2, -1, "x"]
    }
    with harness.scratch() as d:
        for key, values in wrong.items():
            for value in values:
                keys = {key: value}
                block = other.guppi_blocks(v, 48, **{"first_packet": 0})[0]
                text, data = block[:-1536 * 0 - 48 * 4 * 2 * 2], block[-48 * 4 * 2 * 2:]
                cards = [text[i:i + 80] for i in range(0, len(text), 80)]
                cards = [
                    c for c in cards
                    if not c.startswith(key.ljust(8).encode()) and c.strip() and not c.startswith(b"END")
                ]
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


if __name__ == "__main__":
    harness.main([f for name, f in sorted(globals().items()) if name.startswith("test_")])
