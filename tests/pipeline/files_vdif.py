"""VDIF: what `record` writes, read by a decoder of the test's own; what is wrong with a file, header field by
header field."""
import calendar
import contextlib
import os
import shutil
import socket
import sys

import numpy as np

import harness
from files_common import replay, same, write
from files_convert import convert, dada, read_dada

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import recordings as other  # noqa: E402

# Unix times of the seconds that follow leap seconds of this century.
LEAPS = [
    calendar.timegm(t + (0, 0, 0))
    for t in ((2006, 1, 1), (2009, 1, 1), (2012, 7, 1), (2015, 7, 1), (2017, 1, 1))
]
EPOCH = 1600000000 * 10**9  # 2020-09-13: half year 41


def epoch_start(half):
    return calendar.timegm((2000 + half // 2, 7 if half % 2 else 1, 1, 0, 0, 0))


def unix_second(frame):
    """Seconds since the epoch count leap seconds, Unix time does not."""
    start = epoch_start(frame["epoch"])
    now = start + frame["seconds"]
    for leap in LEAPS:
        now -= start < leap < now
    return now


def vdif_dada(d, e, valid, first, epoch=EPOCH, sample_ns="2560", mhz=None, **more):
    mhz = [400.0 + 0.390625 * k for k in range(e.shape[1])] if mhz is None else mhz
    dada(d, e, valid, first, mhz, sample_ns=sample_ns, epoch=epoch, **more)
    return mhz


def record(d, *lines, status=0):
    """in.dada as VDIF, with parameters of `record`."""
    shutil.rmtree(os.path.join(d, "to"), ignore_errors=True)
    return harness.run(
        d, "pipeline:\n  - {stage: replay, files: in.dada, out: e}\n  - {" +
        ", ".join(["stage: record", "in: e", "directory: to", "prefix: x", "format: vdif", *lines]) + "}\n",
        status=status)


def frames_of(d):
    with open(os.path.join(d, "to/x_0000000.vdif"), "rb") as f:
        return other.read_vdif(f.read())


def check_frames(frames, e, valid, first, spread, sample_ns=2560, epoch=EPOCH, bits=4):
    """Every value in its place; a frame for each thread; invalid where nothing is."""
    nchan, npol, ndish = e.shape[1:]
    rate = 10**9 // sample_ns
    got, seen = np.zeros_like(e), np.zeros(len(e), bool)
    for i, f in enumerate(frames):
        assert f["thread"] == i % (npol * ndish) and f["legacy"] == 0 and f["bits"] == bits
        assert f["complex"] == 1 and f["version"] == 1 and f["number"] < rate // spread, f
        assert f["nchan"] == nchan and f["bytes"] == 32 + nchan * spread * bits // 4, f
        ns = unix_second(f) * 10**9 + f["number"] * spread * sample_ns - epoch
        assert ns % sample_ns == 0
        at = ns // sample_ns - first
        rows = slice(max(at, 0), min(at + spread, len(e)))
        got[rows, :, f["thread"] // ndish, f["thread"] % ndish] = f["data"][rows.start - at:rows.stop - at]
        if f["invalid"]:
            assert not f["data"].any() and not valid[rows].any()
        else:
            seen[rows] = True
    assert np.array_equal(seen, valid), np.argwhere(seen != valid)[:5]
    assert np.array_equal(got, e * valid[:, None, None, None])


def test_values():
    """Over the end of a second, of a half year with a leap second, and of one without; frames of one sample,
    and of many."""
    starts = [(EPOCH, 390625 * 1000 - 40), (1483228799 * 10**9, 390625 - 40), (1593561599 * 10**9, 390600),
              (1230768000 * 10**9, 0)]
    for epoch, first in starts:
        for nchan, npol, ndish in ((8, 2, 3), (64, 1, 1)):
            with harness.scratch() as d:
                e = other.noise((100, nchan, npol, ndish), 3, -8, 7)
                valid = np.ones(100, bool)
                valid[32:45] = False  # more than a frame of the recording, and a part of one
                e *= valid[:, None, None, None]
                both = np.repeat(valid[:, None], nchan, axis=1)
                mhz = vdif_dada(d, e, both, first, epoch)
                result = convert(d, "vdif")
                assert f"freq_mhz: {{first: 400, step: 0.390625, count: {nchan}}}" in result.err and \
                    f"npol: {npol}" in result.err, result
                frames = frames_of(d)
                check_frames(frames, e, valid, first, 1, epoch=epoch)
                assert all(f["edv"] == 0 for f in frames), "VDIF has no word for a rate of 390.625 kHz"
                stream = (
                    f"sample_ns: 2560, epoch_ns: {epoch}, npol: {npol}, freq_mhz: {{first: 400, step: "
                    f"0.390625, count: {nchan}}}"
                )
                result = harness.beamring("convert", "--to", "dada", "--stream", stream, "to/x_0000000.vdif",
                                          "back/x", cwd=d)
                assert result.status == 0, result
                same((*read_dada(d, "back/*.dada"), None), e, both, first, epoch, mhz)


def test_frames():
    """Longer VDIF frames, whose borders are not those of the recording; rates that the header can say."""
    for sample_ns, spread, rate in ((1000, 50, 1 << 23 | 1), (8000, 40, 125), (1000, 0, 1 << 23 | 1)):
        with harness.scratch() as d:
            first, per = 10**9 // sample_ns - 200, spread or 1
            e = other.noise((400, 16, 2, 1), 5, -8, 7)
            valid = np.ones(400, bool)
            valid[200:200 + 3 * per] = False
            e *= valid[:, None, None, None]
            vdif_dada(d, e, np.repeat(valid[:, None], 16, axis=1), first, sample_ns=str(sample_ns))
            record(d, f"vdif_samples: {spread}")
            frames = frames_of(d)
            check_frames(frames, e, valid, first, per, sample_ns)
            assert all(f["edv"] == 1 and f["rate"] == rate and f["sync"] == 0xacabfeed
                       for f in frames), frames[0]
            got = replay(
                d, "to/x_0000000.vdif",
                f"stream: {{epoch_ns: {EPOCH}, freq_mhz: {{first: 400, step: 0.390625, count: 16}}}}\n")
            same(got, e, np.repeat(valid[:, None], 16, axis=1), first, EPOCH)


def test_parts():
    """A long frame that the recording fills in part is refused, or filled with zeros."""
    e = other.noise((400, 16, 2, 1), 5, -8, 7)
    for late, hole in ((7, None), (0, 210)):
        with harness.scratch() as d:
            first = 10**6 - 200 + late
            valid = np.ones((400 - 2 * late, 16), bool)
            if hole is not None:
                valid[hole] = False
            vdif_dada(d, e[late:400 - late] * valid[..., None, None], valid, first, sample_ns="1000")
            result = record(d, "vdif_samples: 50", status=1)
            assert "vdif_samples" in result.err and "lossy" in result.err and \
                f"sample {first + (200 if hole else 0)}" in result.err, result
            result = record(d, "vdif_samples: 50", "lossy: true")
            assert f"{2 * late * 16 if hole is None else 16} samples of a channel" in result.err, result
            whole = e.copy()
            if hole is None:
                whole[:late] = whole[400 - late:] = 0
            else:
                whole[hole] = 0
            check_frames(frames_of(d), whole, np.ones(400, bool), 10**6 - 200, 50, 1000)
            record(d, "vdif_samples: 0")
            check_frames(frames_of(d), e[late:400 - late] * valid[..., None, None], valid[:, 0], first, 1,
                         1000)


def test_refused():
    e = other.noise((64, 8, 2, 3), 9)
    whole = np.ones((64, 8), bool)
    with harness.scratch() as d:
        for nchan, more, word in [(3, {}, "power of two"), (8, {"sample_ns": "5120"}, "195312.5"),
                                  (8, {"sample_ns": "5120/3"}, "585937.5"), (4, {}, "8 bytes"),
                                  (8, {"epoch": EPOCH + 1}, "1 ns of the epoch"),
                                  (8, {"epoch": EPOCH - 3 * 2560 // 4}, "ns of the epoch")]:
            vdif_dada(d, e[:, :nchan], whole[:, :nchan], 320, **more)
            result = convert(d, "vdif", status=2)
            assert word in result.err and not os.path.exists(os.path.join(d, "to")), (word, result)
            if "lost" in result.err:
                result = convert(d, "vdif", "--lossy")
                assert "is lost" in result.err
                assert len(frames_of(d)) == 64 * 6
        dada_with_widths = vdif_dada(d, e, whole, 320, width="0.390625," * 7 + "0.2")
        assert dada_with_widths and "channel widths" in convert(d, "vdif", status=2).err
        for epoch, second in ((-10**9, "1970"), (946684799 * 10**9, "2000"), (1956528000 * 10**9, "2031")):
            vdif_dada(d, e, whole, 0, epoch)
            assert "2000 to 2031" in convert(d, "vdif", status=1).err, second
        holes = whole.copy()
        holes[20, 3] = False
        vdif_dada(d, e * holes[..., None, None], holes, 320)
        assert "missing or flagged in some channels" in convert(d, "vdif", status=1).err
        assert "1 samples of a channel" in convert(d, "vdif", "--lossy").err
        vdif_dada(d, e, whole, 320)
        for samples in (2, 3, 390625 * 2, 390625):
            result = record(d, f"vdif_samples: {samples}", status=2 if samples != 390625 else 1)
            assert "vdif_samples" in result.err, result
        result = harness.run(
            d, "pipeline:\n  - {stage: replay, files: in.dada, out: e}\n"
            "  - {stage: record, in: e, prefix: x, directory: to, vdif_samples: 1}\n", status=2)
        assert "not for format dada" in result.err
        convert(d, "vdif")
        again = harness.beamring("convert", "--to", "vdif", "in.dada", "to/x", cwd=d)
        assert again.status != 0 and "exists already" in again.err, again


# --- beams ----------------------------------------------------------------------------------------
def beams_dada(d, j, bits, first, missing, per=32, sample_ns="2560"):
    """A recording of J[beam][freq][pol][time] from a frame's first sample on; `missing` [time] are missing in
    all beams, and in the sidecar."""
    out = []
    for a in range(0, j.shape[-1], per):
        piece = j[..., a:a + per]
        pairs = np.stack([piece.real, piece.imag], -1).astype(np.int8)
        out.append(other.pack_int4x2(piece).tobytes() if bits == 4 else pairs.tobytes())
    keys = {
        "HEADER": "DADA", "HDR_SIZE": 4096, "DTYPE": f"int{bits}x2", "AXES": "beam,freq,pol,time",
        "SHAPE": ",".join(map(str, j.shape[:3])) + ",0", "FRAME_SAMPLES": per, "SAMPLE0": first,
        "SAMPLE_NS": sample_ns, "EPOCH_NS": EPOCH, "WIDTH_MHZ": 0.390625, "FREQ_MHZ":
        f"400:0.390625:{j.shape[1]}", "BEAMS_XY": ",".join(f"{b / 100},0" for b in range(len(j)))
    }
    head = "".join(f"{k} {v}\n" for k, v in keys.items()).encode().ljust(4096, b"\0")
    write(d, "in.dada", head + b"".join(out))
    write(d, "in.dada.gaps", "".join(f"{first + t} 1\n" for t in np.flatnonzero(missing)).encode())


def beams(bits, nchan=8, ntime=128):
    """J, 3 beams, missing steps of all of them, and of each: beam 1 is below the horizon for a while."""
    most = 7 if bits == 4 else 127
    j = other.noise((3, nchan, 2, ntime), 11, -most, most)
    valid = np.ones((3, ntime), bool)
    valid[:, 32:64] = valid[:, 68:72] = valid[1, 80:100] = False
    j[np.broadcast_to(~valid[:, None, None], j.shape)] = -(most + 1) * (1 + 1j)
    return j, valid


def test_beams():
    """A file for each beam, a thread for each polarisation, 4 and 8 bits; and back as the field of a dish."""
    for bits, sample_ns, spread in ((4, 2560, 1), (8, 2560, 1), (8, 1000, 4)):
        with harness.scratch() as d:
            j, valid = beams(bits)
            first = 10**9 // sample_ns // 32 * 32  # the next second begins within
            beams_dada(d, j, bits, first, ~valid.any(axis=0), sample_ns=str(sample_ns))
            result = record(d, f"vdif_samples: {spread}", "vdif_station: Cd")
            assert "npol: 2" in result.err and "each beam has a file" in result.err, result
            assert "3 files" in result.err, result
            names = sorted(os.listdir(os.path.join(d, "to")))
            assert names == [f"x_000000{b}.vdif" for b in range(3)] + ["x_beams.csv"], names
            for b in range(3):
                with open(os.path.join(d, f"to/x_000000{b}.vdif"), "rb") as f:
                    frames = other.read_vdif(f.read())
                assert {f["station"] for f in frames} == {ord("C") + 256 * ord("d")}
                e = j[b].transpose(2, 0, 1)[..., None] * valid[b][:, None, None, None]
                check_frames(frames, e, valid[b], first, spread, sample_ns, bits=bits)
            stream = (f"stream: {{sample_ns: {sample_ns}, epoch_ns: {EPOCH}, "
                      "freq_mhz: {first: 400, step: 0.390625, count: 8}}\n")
            got = replay(d, "to/x_0000001.vdif", stream)
            e, gvalid = j[1].transpose(2, 0, 1)[..., None], np.repeat(valid[1][:, None], 8, axis=1)
            same(got, e * gvalid[..., None, None], gvalid, first, EPOCH)
            assert got[3]["DTYPE"] == f"int{bits}x2"
            info = harness.beamring("info", "to/x_0000001.vdif", cwd=d)
            assert "(Cd)" in info.out and f"complex {bits}-bit" in info.out, info


def test_beams_are_made():
    """baseband_beamform's own, as `record` writes them at once and as `convert` does from the recording of
    them: a channel that is missing alone is refused, or zero."""
    text = """
telescope: {name: t, grid: {m: 1, n: 2}, spacing_m: {m: 8, n: 6}, dishes: [[0, 0], [0, 1]]}
stream: {freq_mhz: {first: 400, step: 0.390625, count: 16}, sample_ns: 2560, epoch_ns: 1600000000000000000}
pipeline:
  - {stage: simulate, samples: 300, frame_samples: 64, missing: [{first: 70, count: 5}], seed: 7, out: e}
  - {stage: baseband_beamform, in: e, out: j, beams: {directions: [[0, 0], [0.1, 0]]}}
  - {stage: record, in: j, directory: ., prefix: j}
  - {stage: record, name: v, in: j, directory: ., prefix: v, format: vdif}
"""
    with harness.scratch() as d:
        harness.run(d, text)
        j, first, _, _ = harness.read_frames(os.path.join(d, "j_000000.dada"))
        missing = j == 0x88
        assert missing.any() and (missing == missing[0, 0, 0]).all()
        j = harness.unpack(j)
        convert(d, "vdif", source="j_000000.dada")
        for b in range(2):
            with open(os.path.join(d, f"v_000000{b}.vdif"), "rb") as f:
                data = f.read()
            valid = ~missing[b, 0, 0]
            check_frames(other.read_vdif(data), (j[b] * valid).transpose(2, 0, 1)[..., None], valid, 0, 1)
            with open(os.path.join(d, f"to/x_000000{b}.vdif"), "rb") as f:
                assert f.read() == data
        with open(os.path.join(d, "j_000000.dada.gaps"), "w") as f:
            f.write("70 5\n100 1 3 1 0\n200 1 4 1 17\n")
        result = convert(d, "vdif", source="j_000000.dada", status=1)
        assert "sample 100 is missing or flagged in some channels" in result.err, result
        assert "2 samples of a channel" in convert(d, "vdif", "--lossy", source="j_000000.dada").err


def packets(sockets):
    """The packets that wait in each socket: all of them, once the sender has ended."""
    got = []
    for s in sockets:
        s.setblocking(False)
        got.append([])
        with contextlib.suppress(BlockingIOError):
            while True:
                got[-1].append(s.recv(1 << 16))
    return got


def test_beams_on_the_wire():
    """A packet is a VDIF frame: one beam to one destination, two to another, with a number in front or not. A
    frame of a thread without a sample is marked; other missing samples are zeros, which are counted."""
    for bits, vtp, samples, spread in ((4, "false", 0, 125), (8, "true", 25, 25)):
        with harness.scratch() as d, contextlib.ExitStack() as stack:
            j, valid = beams(bits, 16, 256)
            first = 390625 // 32 * 32
            beams_dada(d, j, bits, first, ~valid.any(axis=0))
            sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
            for s in map(stack.enter_context, sockets):
                s.bind(("127.0.0.1", 0))
            to = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
            result = harness.run(d, f"""
pipeline:
  - {{stage: replay, files: in.dada, out: j}}
  - {{stage: packetize, in: j, format: vdif, vtp: {vtp}, vdif_station: 77, vdif_samples: {samples},
     destinations: [{{address: "{to[0]}", beams: 1}}, {{address: "{to[1]}", first_beam: 1, beams: 2}}]}}
""")
            zeros = 0
            for got, some in zip(packets(sockets), ([0], [1, 2])):
                if vtp == "true":
                    assert [int.from_bytes(p[:8], "little") for p in got] == list(range(len(got)))
                    got = [p[8:] for p in got]
                frames = [f for p in got for f in other.read_vdif(p)]
                assert len(frames) == len(got) and {f["station"] for f in frames} == {77}
                assert [f["thread"] for f in frames] == [i % (2 * len(some)) for i in range(len(frames))]
                for k, b in enumerate(some):
                    mine = [{**f, "thread": f["thread"] - 2 * k} for f in frames if f["thread"] // 2 == k]
                    number = (np.arange(256) + first) // spread
                    there = np.array([valid[b, number == n].any() for n in number])
                    e = (j[b] * valid[b]).transpose(2, 0, 1)[..., None]
                    check_frames(mine, e, there, first, spread, bits=bits)
                    whole = len(np.unique(number[there])) * spread
                    zeros += 2 * 16 * (whole - np.count_nonzero(valid[b]))
            assert f"{zeros} samples of a channel and polarisation were" in result.err, (zeros, result)


def test_beams_on_the_wire_refused():
    j, valid = beams(8, 12)
    line = "packetize, in: j, format: vdif, destinations: [{address: '127.0.0.1:9'}]"
    with harness.scratch() as d:
        text = f"pipeline:\n  - {{stage: replay, files: in.dada, out: j}}\n  - {{stage: {line}MORE}}\n"
        for channels, more, word in ((12, "", "power of two"), (8, ", vdif_samples: 3", "divisor"),
                                     (8, ", vdif_station: C", "vdif_station"),
                                     (8, ", rate: 1e6, burst: 100", "burst"),
                                     (8, ", steps: 8", "not for format vdif")):
            beams_dada(d, j[:, :channels], 8, 0, ~valid[0])
            result = harness.run(d, text.replace("MORE", more), status=2)
            assert word in result.err, (word, result)
        vdif_dada(d, np.zeros((64, 8, 2, 1)), np.ones((64, 8), bool), 0)
        assert "J[beam]" in harness.run(d, text.replace("MORE", ""), status=2).err


def test_beams_refused():
    """Numbers of channels, rates and stations that VDIF does not have; 8 bits where only 4 go."""
    j, valid = beams(8, 12)
    with harness.scratch() as d:
        beams_dada(d, j, 8, 0, ~valid[0])
        result = record(d, status=2)
        assert "the input has 12" in result.err and "count: 3}" in result.err, result
        for to, word in (("kotekan", "int8x2"), ("guppi", "time"), ("chime", "time")):
            assert word in convert(d, to, status=2).err
        convert(d, "dada")
        got, first, keys, _ = harness.read_frames(os.path.join(d, "to/x_000000.dada"))
        assert keys["DTYPE"] == "int8x2" and keys["NBIT"] == "8"
        assert np.array_equal(got[..., 0] + 1j * got[..., 1], j)
        beams_dada(d, j[:, :8], 8, 0, ~valid[0], sample_ns="5120")
        assert "195312.5" in record(d, status=2).err
        beams_dada(d, j[:, :8], 8, 0, ~valid[0])
        for station in ("C", "Cdx", "65536", "-1"):
            assert "vdif_station" in record(d, f'vdif_station: "{station}"', status=2).err, station
        record(d, "vdif_station: 65535")


# --- what is wrong with a file --------------------------------------------------------------------
STREAM = "stream: {sample_ns: 1000, freq_mhz: {first: 400, step: 1, count: 8}}\n"
SPREAD, RATE = 10, 10**6


def good(e, **more):
    return other.vdif_file(e, SPREAD, 1000, 99900, 41, RATE, **more)


def test_first_header():
    """Each field of the first frame's header is wrong in turn: an error that names the file, or, where the
    field could be right, what follows tells the difference. Nothing that is wrong is taken for data."""
    e = other.noise((200, 8, 2, 1), 5, -8, 7)
    frames = good(e)
    wrong = {
        "bits": [1, 2, 3, 8, 32], "complex_data": [0], "legacy": [1], "log2": [0, 2, 4, 5, 20, 31],
        "epoch": [0, 63], "length": [0, 1, 3, 4, 5, 13, 15, (112 + 32) // 8, 2**24 - 1]
    }
    with harness.scratch() as d:
        for key, values in wrong.items():
            for value in values:
                keys = {"epoch": 41, **{key: value}}
                head = other.vdif_header(1000, 99900, keys.pop("epoch"), 8, 112, **keys).ljust(32, b"\0")
                write(d, "x.vdif", head + frames[0][32:] + b"".join(frames[1:]))
                result = replay(d, "x.vdif", STREAM, ", format: vdif", status=2)
                assert "x.vdif" in result.err, (key, value, result)
        # a number that is not in the second, by the sample time given
        head = other.vdif_header(1000, 100000, 41, 8, 112)
        write(d, "x.vdif", head + frames[0][32:] + b"".join(frames[1:]))
        got = replay(d, "x.vdif", STREAM)
        assert got[2] == 99900 * 10 and "corrupt" in got[4].out + got[4].err, got[4]
        # a rate of nothing, or one that makes no whole number of frames
        for edv, rate, word in ((1, 0, "sample time"), (3, 0, "sample time"), (1, 1, "frames")):
            write(d, "x.vdif", b"".join(good(e, edv=edv, rate=rate)))
            result = replay(d, "x.vdif", "stream: {freq_mhz: {first: 400, step: 1, count: 8}}\n",
                            status=1 if rate else 2) if not rate else None
            if result is not None:
                assert word in result.err and "x.vdif" in result.err, result
        # fields that say nothing about the samples
        for key, value in (("station", 65535), ("version", 7), ("edv", 255), ("rate", 2**24 - 1)):
            write(d, "x.vdif", b"".join(good(e, **{key: value})))
            same(replay(d, "x.vdif", STREAM), e, np.ones((200, 8), bool), 999000)


def test_later_headers():
    """The same in the middle of a file: the frame is counted as corrupt (or is another time's or thread's),
    the others stay."""
    e = other.noise((200, 8, 2, 1), 5, -8, 7)
    valid = np.ones((200, 8), bool)
    valid[90:100] = False
    with harness.scratch() as d:
        cases = [{"bits": 8}, {"complex_data": 0}, {"legacy": 1}, {"log2": 2}, {"length": 15}, {"length": 0},
                 {"epoch": 40}, {"thread": 700}, {"number": 2**24 - 1}, {"seconds": 0},
                 {"seconds": 2**30 - 1}, {"invalid": 1}]
        for case in cases:
            frames = good(e)
            keys = {"seconds": 1000, "number": 99909, "epoch": 41, "thread": 1, **case}
            head = other.vdif_header(keys.pop("seconds"), keys.pop("number"), keys.pop("epoch"), 8, 112,
                                     **keys).ljust(32, b"\0")
            frames[19] = head + frames[19][32:]
            write(d, "x.vdif", b"".join(frames))
            got = replay(d, "x.vdif", STREAM)
            same(got, e * valid[..., None, None], valid, 999000)
            text = got[4].out + got[4].err
            kind = "late" if "seconds" in case and case["seconds"] == 0 else "corrupt"
            assert kind in text or "invalid" in case or "thread" in case, (case, got[4])


def test_truncated():
    """A file that ends in every byte of the first two headers, and around the ends of frames."""
    e = other.noise((40, 8, 2, 1), 5, -8, 7)
    data = b"".join(good(e))
    with harness.scratch() as d:
        for n in list(range(0, 40)) + list(range(112, 112 + 33)):
            write(d, "x.vdif", data[:n])
            result = replay(d, "x.vdif", STREAM, ", format: vdif", status=2) if n < 40 else harness.run(
                d, STREAM + "pipeline:\n  - {stage: replay, files: x.vdif, out: e, threads: [0, 1]}\n"
                "  - {stage: record, in: e, directory: out, prefix: y, overwrite: true}\n")
            assert n == 112 or "x.vdif" in result.err, (n, result)
            assert harness.beamring("info", "x.vdif", cwd=d).status == (1 if n < 40 else 0), n
        for n in (111, 113, 200):
            write(d, "x.vdif", data[:len(data) - n])
            got = replay(d, "x.vdif", STREAM)
            assert "truncated" in got[4].err, (n, got[4])
            e2, valid = got[0], got[1]
            assert valid[:30].all() and np.array_equal(e2[:30], e[:30]) and \
                np.array_equal(e2[valid], e[:len(e2)][valid])


if __name__ == "__main__":
    harness.main([f for name, f in sorted(globals().items()) if name.startswith("test_")])
