"""What `stream:` says against what a recording says itself: each key, for each format, equal (replayed as it
is), different (refused with both values and how to insist), and insisted on (the user's value holds). And
finer: a header of few digits and a hint that agrees within them."""
import os
import sys

import numpy as np

import harness
from files_common import CTIME, replay, write

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import recordings as other  # noqa: E402

NTIME, NCHAN, NPOL, NDISH = 48, 2, 2, 3
EPOCH = 1709208000 * 10**9  # 2024-02-29-12:00:00
MHZ = [600.1953125, 599.8046875]


def ours(**more):
    keys = {
        "HEADER": "DADA", "HDR_SIZE": 4096, "DTYPE": "int4x2", "AXES": "time,freq,pol,dish",
        "SHAPE": f"0,{NCHAN},{NPOL},{NDISH}", "FRAME_SAMPLES": 16, "SAMPLE0": 32, "SAMPLES": NTIME,
        "SAMPLE_NS": 2560, "EPOCH_NS": EPOCH, "FREQ_MHZ": ",".join(map(repr,
                                                                       MHZ)), "WIDTH_MHZ": 0.390625, **more
    }
    return keys


def theirs(**more):
    keys = {
        "HEADER": "DADA", "HDR_SIZE": 4096, "NBIT": 4, "NDIM": 2, "NPOL": NPOL, "NCHAN": NCHAN, "NANT": NDISH,
        "ORDER": "TFPA", "FREQ": "600.0", "BW": -0.78125, "TSAMP": 2.56, "UTC_START": "2024-02-29-12:00:00",
        **more
    }
    return keys


def dada(keys, e):
    text = "".join(f"{k} {v}\n" for k, v in keys.items() if v is not None)
    return text.encode().ljust(4096, b"\0") + other.pack_int4x2(e).tobytes()


def first_value(key, keys):
    text = keys[key].split(",")[0].split(":")[0]
    a, b = (text + "/1").split("/")[:2]
    return float(a) / float(b)


def check(d, pattern, key, good, bad, header, word):
    """`good` and `bad` are values of a key of `stream:`; `header`: the key of what `record` writes of it."""
    also = getattr(check, "also", "")
    replay(d, pattern, f"stream: {{{key}: {good}{also}}}\n")
    refused = replay(d, pattern, f"stream: {{{key}: {bad}{also}}}\n", status=2)
    for text in (key, f"override: [{key}]", word):
        assert text in refused.err, (key, text, refused)
    got = replay(d, pattern, f"stream: {{{key}: {bad}, override: [{key}]{also}}}\n")
    wanted = float(str(bad).strip("[").split(",")[0].strip("]"))
    assert abs(first_value(header, got[3]) / wanted - 1) < 1e-12, (key, got[3][header], wanted)


def test_dada():
    e = other.noise((NTIME, NCHAN, NPOL, NDISH), 3)
    for keys in (ours(), theirs()):
        own = "DTYPE" in keys
        with harness.scratch() as d:
            write(d, "x.dada", dada(keys, e))
            check(d, "x.dada", "sample_ns", 2560, 2561, "SAMPLE_NS", "2560 ns")
            check(d, "x.dada", "epoch_ns", EPOCH, EPOCH + 5 * 10**9, "EPOCH_NS", str(EPOCH))
            check(d, "x.dada", "freq_mhz", MHZ, [601.5, 601.1], "FREQ_MHZ", "601.5 MHz")
            check(d, "x.dada", "width_mhz", 0.390625, 0.25, "WIDTH_MHZ", "0.390625 MHz")
            assert "contradicts" in replay(d, "x.dada", "stream: {freq_mhz: [601, 602, 603]}\n", status=2).err
            assert "contradicts" in replay(d, "x.dada", "stream: {npol: 1}\n", status=2).err
            if own:  # its type is its coding, and its count its own
                refused = replay(d, "x.dada", "stream: {coding: chime}\n", status=2)
                assert "override: [coding]" in refused.err and "int4x2" in refused.err, refused
                refused = replay(d, "x.dada", "", ", coding: chime", status=2)
                assert "int4x2" in refused.err, refused
                refused = replay(d, "x.dada", "stream: {sample0: 31}\n", status=2)
                assert "32" in refused.err and "31" in refused.err, refused
                replay(d, "x.dada", "stream: {sample0: 32}\n")
                exact = replay(d, "x.dada", f"stream: {{epoch_ns: {EPOCH + 1}}}\n", status=2)
                assert f"{EPOCH + 1}" in exact.err


def test_finer():
    """TSAMP of seven digits, UTC_START without a fraction, FREQ of few decimals: a hint within them is
    taken."""
    e = other.noise((NTIME, NCHAN, NPOL, NDISH), 3)
    with harness.scratch() as d:
        write(d, "x.dada", dada(theirs(TSAMP=1.706667, BW=-1.171875), e))
        got = replay(d, "x.dada", f"stream: {{sample_ns: 5120/3, epoch_ns: {EPOCH + 123456789}}}\n")
        assert got[3]["SAMPLE_NS"] == "5120/3" and int(got[3]["EPOCH_NS"]) == EPOCH + 123456789, got[3]
        refused = replay(d, "x.dada", "stream: {sample_ns: 1706.66}\n", status=2)
        assert "1706.667 ns" in refused.err and "1706.66 ns" in refused.err, refused
        write(d, "x.dada", dada(theirs(TSAMP=1.706667, UTC_START="2024-02-29-12:00:00.250"), e))
        replay(d, "x.dada", f"stream: {{epoch_ns: {EPOCH + 250400000}}}\n")
        replay(d, "x.dada", f"stream: {{epoch_ns: {EPOCH + 252000000}}}\n", status=2)
        # sample0 says which sample stands at UTC_START: the time of the samples stays
        got = replay(d, "x.dada", "stream: {sample_ns: 5120/3, sample0: 3000}\n")
        assert got[2] == 3000 and int(got[3]["EPOCH_NS"]) == EPOCH + 250000000 - 5120000, got[3]


def test_guppi():
    v = other.noise((96, 4, 2, 1), 5, -128, 127)
    epoch = (60000 - 40587) * 86400 * 10**9 + 3600 * 10**9 + 250000000
    mhz = [1400 + 0.390625 * (i - 1.5) for i in range(4)]
    with harness.scratch() as d:
        write(d, "g.raw", b"".join(other.guppi_blocks(v, 48, first_packet=480)))
        check(d, "g.raw", "sample_ns", 2560, 2561, "SAMPLE_NS", "2560 ns")
        check(d, "g.raw", "epoch_ns", epoch, epoch + 10**9, "EPOCH_NS", str(epoch))
        check(d, "g.raw", "freq_mhz", mhz, [m + 1 for m in mhz], "FREQ_MHZ", "1399.4140625 MHz")
        check(d, "g.raw", "width_mhz", 0.390625, 0.25, "WIDTH_MHZ", "0.390625 MHz")
        assert "480" in replay(d, "g.raw", "stream: {sample0: 7}\n", status=2).err
        assert "no coding" in replay(d, "g.raw", "stream: {coding: chime}\n", status=2).err
        assert "order" in replay(d, "g.raw", "stream: {order: TFPA}\n", status=2).err


def test_chime():
    with harness.scratch() as d:
        for freq_id in (10, 11):
            part = other.pack_chime(other.noise((64, 12), freq_id))
            other.write_chime(os.path.join(d, f"{freq_id}.h5"), part, freq_id, 1000, CTIME)
        epoch = 1600000000250000000 - 1000 * 2560
        mhz = [800 - 0.390625 * 10, 800 - 0.390625 * 11]
        check(d, '"*.h5"', "sample_ns", 2560, 2561, "SAMPLE_NS", "2560 ns")
        check(d, '"*.h5"', "epoch_ns", epoch, epoch + 10**6, "EPOCH_NS", "time0_ctime")
        check(d, '"*.h5"', "freq_mhz", mhz, [m + 1 for m in mhz], "FREQ_MHZ", "796.09375 MHz")
        assert "override: [coding]" in replay(d, '"*.h5"', "stream: {coding: vdif}\n", status=2).err
        assert "1000" in replay(d, '"*.h5"', "stream: {sample0: 7}\n", status=2).err


def test_vdif():
    e = other.noise((200, 4, 2, 1), 9)
    with harness.scratch() as d:
        write(d, "x.vdif", b"".join(other.vdif_file(e, 50, 1000, 0, 44, 10**6, edv=1, rate=1 << 23 | 1)))
        check.also = ", freq_mhz: [400, 401, 402, 403]"
        try:
            check(d, "x.vdif", "sample_ns", 1000, 500, "SAMPLE_NS", "1000 ns")
        finally:
            check.also = ""
        stream = "stream: {freq_mhz: [400, 401, 402, 403], coding: chime}\n"
        assert "vdif" in replay(d, "x.vdif", stream, status=2).err


def test_kotekan():
    e = other.noise((10, 2, 2, 3), 1)
    times = "sample_ns: 5120, epoch_ns: 0"
    with harness.scratch() as d:
        write(d, "x.raw", other.kotekan_frame(e, [2000, 2001], 1000))
        replay(d, "x.raw", f"stream: {{{times}, sample0: 1000, coding: int4x2}}\n")
        assert "1000" in replay(d, "x.raw", f"stream: {{{times}, sample0: 7}}\n", status=2).err
        refused = replay(d, "x.raw", f"stream: {{{times}, coding: chime}}\n", status=2)
        assert "override: [coding]" in refused.err, refused
        got = replay(d, "x.raw", f"stream: {{{times}, coding: chime, override: [coding]}}\n")
        raw = other.pack_int4x2(e)
        assert np.array_equal(got[0], other.unpack_chime(raw)), "insisted, and not read so"


def test_override():
    """A key that nobody can insist on, or that is not given."""
    e = other.noise((NTIME, NCHAN, NPOL, NDISH), 3)
    with harness.scratch() as d:
        write(d, "x.dada", dada(ours(), e))
        assert "'npol'" in replay(d, "x.dada", "stream: {npol: 1, override: [npol]}\n", status=2).err
        assert "not given" in replay(d, "x.dada", "stream: {override: [freq_mhz]}\n", status=2).err


def test_telescopes_say_no_times():
    """A recording of another sample time than usual is replayed with the telescope's file included."""
    e = other.noise((NTIME, NCHAN, NPOL, 64), 3)
    with harness.scratch() as d:
        write(d, "x.dada", dada(ours(SHAPE=f"0,{NCHAN},{NPOL},64", SAMPLE_NS="5120/3", WIDTH_MHZ=0.5859375),
                                e))
        got = replay(d, "x.dada", f"include: {harness.CONFIG}/telescopes/pathfinder.yaml\n")
        assert got[3]["SAMPLE_NS"] == "5120/3" and "width x sample time" not in got[4].err, got
        write(d, "x.dada", dada(ours(SAMPLE_NS="2.56"), e[..., :3]))
        got = replay(d, "x.dada")
        assert "2.56 ns" in got[4].err and "0.390625 MHz" in got[4].err, got[4]


if __name__ == "__main__":
    harness.main([f for name, f in sorted(globals().items()) if name.startswith("test_")])
