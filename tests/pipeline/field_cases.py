"""Recordings as they are met in the field: GUPPI RAW of recorders that mean different times by STT_*, that do
not say how many packets a block has, or write numbers as FITS has them; files with something behind their
data."""
import os
import sys

import numpy as np

import harness
from files_common import replay, same, write

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import recordings as other  # noqa: E402

MJD_60000 = (60000 - 40587) * 86400
# Samples and packets of a block; STT_* is MJD 60000 and so many seconds.
PER, STEP, DAY_S = 48, 12, 3600.25
SAMPLE_S = 2.56e-6
STT_NS = MJD_60000 * 10**9 + 3600250000000


def blocks(v, first_packet, start_s=None, keys=(), skip=()):
    """Blocks whose STT_* is `start_s` after MJD 60000; `keys` go over the usual ones, None takes one out."""
    start_s = DAY_S if start_s is None else start_s
    start = (60000 + int(start_s // 86400), int(start_s % 86400), round(start_s % 1, 9))
    return other.guppi_blocks(v, PER, first_packet=first_packet, packets=STEP, skip=skip, start=start,
                              **{"PKTSTART": None, **dict(keys)})


def test_what_stt_means():
    """First packets of half an hour, and of less than a second, after SYNCTIME."""
    v = other.noise((6 * PER, 4, 2, 1), 1, -100, 100)
    whole = np.ones((6 * PER, 4), bool)
    packet_s = PER / STEP * SAMPLE_S
    with harness.scratch() as d:
        for late_s in (1800.0, 0.75, 86400.0):
            p0 = round(late_s / packet_s / STEP) * STEP
            at = p0 * packet_s
            epoch, first = MJD_60000 * 10**9 + 3600 * 10**9, p0 // STEP * PER
            sync = {"SYNCTIME": MJD_60000 + 3600}
            for keys, stt in (({**sync, "PKTSTART": p0}, at), ({**sync}, at), ({**sync}, 0),
                              ({"PKTSTART": p0}, at), ({"PKTSTART": 0}, 0),
                              ({**sync, "PKTSTART": 0}, at), ({**sync, "PKTSTART": 0}, 0),
                              ({**sync, "PKTSTART": p0}, 0)):
                write(d, "g.raw", b"".join(blocks(v, p0, 3600 + stt, keys)))
                got = replay(d, "g.raw")
                same(got, v, whole, first)
                assert abs(int(got[3]["EPOCH_NS"]) - epoch) <= 1000, (late_s, keys, stt, got[3]["EPOCH_NS"])
                assert "first sample" in got[4].err
            # The second file of a recording alone: PKTSTART is that of the first.
            write(d, "g.raw", b"".join(blocks(v, p0 + 5 * STEP, 3600 + at, {**sync, "PKTSTART": p0})))
            got = replay(d, "g.raw")
            assert got[2] == first + 5 * PER and abs(int(got[3]["EPOCH_NS"]) - epoch) <= 1000, got[3]
        # Nothing decides; SYNCTIME is of another day; the user does.
        p0 = round(1800 / packet_s / STEP) * STEP
        zero, begun = STT_NS, STT_NS - round(p0 * packet_s * 1e9)
        for keys in ({}, {"SYNCTIME": MJD_60000 - 40000}):
            write(d, "g.raw", b"".join(blocks(v, p0, keys=keys)))
            result = replay(d, "g.raw", status=2)
            assert "2023-02-25-01:00:00.25" in result.err and "2023-02-25-01:30:00" in result.err, result
            assert str(zero) in result.err and str(begun)[:12] in result.err, result
            for said in (zero, begun):
                got = replay(d, "g.raw", f"stream: {{epoch_ns: {said}}}\n")
                assert int(got[3]["EPOCH_NS"]) == said
            replay(d, "g.raw", "stream: {epoch_ns: 5}\n", status=2)
        write(d, "g.raw", b"".join(blocks(v, 0)))
        same(replay(d, "g.raw"), v, whole, 0, STT_NS)


def test_packets_of_a_block():
    """From the steps of PKTIDX: with holes, in several files, with a PKTSIZE of 0 or one that does not
    fit."""
    n = 8
    v = other.noise((n * PER, 4, 2, 1), 2, -100, 100)
    for keys in ({}, {"PKTSIZE": 0}, {"PKTSIZE": 7777}):
        keys = {"PIPERBLK": None, "PKTSTART": 0, **keys}
        for lost in ((), (3, 4), (2, 3, 5)):
            with harness.scratch() as d:
                made = blocks(v, 0, keys=keys, skip=lost)
                valid = np.repeat([[k not in lost] * 4 for k in range(n)], PER, 0)
                write(d, "a.raw", b"".join(made))
                same(replay(d, "a.raw"), v, valid, 0, STT_NS)
                info = harness.beamring("info", "a.raw", cwd=d).out
                assert f"0 to {n * PER}" in info and f"{len(lost) * PER} of them missing" in info, info
                write(d, "a.raw", b"".join(made[:3]))
                write(d, "b.raw", b"".join(made[3:]))
                same(replay(d, '"*.raw"'), v, valid, 0, STT_NS)
    with harness.scratch() as d:
        keys = {"PIPERBLK": None, "PKTSTART": 0}
        for made in (blocks(v, STEP, keys=keys)[:1], blocks(v, 0, keys=keys, skip=(0, 2, 3, 4, 6)),
                     blocks(v, 5, keys=keys)):
            write(d, "a.raw", b"".join(made))
            result = replay(d, "a.raw", status=2)
            assert "PKTIDX" in result.err and "PIPERBLK" in result.err, result
        for k in range(3):  # without PKTIDX files follow each other
            write(d, f"{k}.raw", b"".join(blocks(v[2 * k * PER:2 * (k + 1) * PER], 0, keys={"PKTIDX": None})))
        os.remove(os.path.join(d, "a.raw"))
        same(replay(d, '"*.raw"'), v[:6 * PER], np.ones((6 * PER, 4), bool), 0)


def cards(v, **forms):
    """A block with these texts as values."""
    block = blocks(v, 0)[0]
    end = block.index(b"END" + b" " * 77)
    lines = [block[i:i + 80] for i in range(0, end, 80)]
    lines = [line for line in lines if line[:8].strip().decode() not in (*forms, "DIRECTIO")]
    more = [f"{key:<8}= {text}".ljust(80)[:80].encode() for key, text in forms.items()]
    return b"".join(lines + more) + b"END".ljust(80) + block[-PER * 4 * 2 * 2:]


def test_numbers_of_fits():
    v = other.noise((PER, 4, 2, 1), 3, -100, 100)
    whole = np.ones((PER, 4), bool)
    mhz = [1400 + 0.390625 * (k - 1.5) for k in range(4)]
    with harness.scratch() as d:
        for forms in ({"TBIN": "2.56D-06"}, {"TBIN": "2.56d-6 / s"},
                      {"TBIN": "'2.56D-06'", "OBSBW": "+1.5625D+00"},
                      {"OBSFREQ": "1.4D3", "OBSNCHAN": "4.0D0", "BLOCSIZE": "7.68E+02", "NBITS": "+8"},
                      {"OBSFREQ": "1400.", "STT_OFFS": ".25", "NPOL": "0.4E1"},
                      {"OBSBW": "0.15625D+01", "OBSFREQ": "0.0014D6", "STT_SMJD": "3600.0"},
                      {"observer": "'O''Brien / x'", "ibvstat": "'on'", "COMMENT": "x"}):
            text = cards(v, **forms)
            comments = b"".join(c.ljust(80) for c in (b"COMMENT any text", b"        blank", b"HISTORY = 5",
                                                      b"HIERARCH A B = 4", b"CONTINUE  'x'"))
            for raw in (text, text[:160] + comments + text[160:]):
                write(d, "g.raw", raw)
                got = replay(d, "g.raw")
                same(got, v, whole, 0, STT_NS, mhz)
                assert got[3]["SAMPLE_NS"] == "2560/1", got[3]
        for forms in ({"TBIN": "2.56D"}, {"TBIN": "D-6"}, {"OBSNCHAN": "4.5D0"}, {"OBSBW": "1.5D0D0"}):
            write(d, "g.raw", cards(v, **forms))
            assert next(iter(forms)) in replay(d, "g.raw", status=2).err, forms


def dada(e, size=4096, **keys):
    """A file of others: E[time][freq][pol][dish] in 4 + 4 bits."""
    n = e.shape
    raw = other.pack_int4x2(e).tobytes()
    words = dict(HEADER="DADA", HDR_VERSION="1.0", HDR_SIZE=size, FILE_SIZE=len(raw), OBS_OFFSET=0,
                 UTC_START="2023-01-01-00:00:00", FREQ=1000, BW=n[1] * 0.5, TSAMP=2.0, NBIT=4, NDIM=2,
                 NPOL=n[2], NCHAN=n[1], NANT=n[3], ORDER="TFPA", **keys)
    text = "".join(f"{key} {value}\n" for key, value in words.items()).encode()
    return text.ljust(size, b"\0") + raw


def test_behind_the_data():
    """Bytes behind FILE_SIZE are left out and said, another header is refused; zeros behind GUPPI's blocks
    are left out, anything else is refused with the place."""
    e = other.noise((500, 4, 2, 3), 4)
    whole = np.ones((500, 4), bool)
    rng = np.random.default_rng(1)
    with harness.scratch() as d:
        for junk in (bytes(24 * 7), rng.integers(0, 256, 24 * 700, np.uint8).tobytes(), b"x" * 11,
                     b"# " * 5000):
            write(d, "a.dada", dada(e) + junk)
            got = replay(d, "a.dada")
            same(got, e, whole, 0)
            assert f"{len(junk)} bytes behind" in got[4].err and "FILE_SIZE" in got[4].err, got[4]
            assert f"{len(junk)} bytes more" in harness.beamring("info", "a.dada", cwd=d).out
        later = e.transpose(1, 0, 2, 3)  # frequency slowest: where the axes lie depends on the length
        write(d, "a.dada", dada(e).replace(b"ORDER TFPA", b"ORDER FTPA")[:4096] + other.pack_int4x2(
            later).tobytes() + b"y" * 24)
        same(replay(d, "a.dada"), e, whole, 0)
        for second in (dada(e), dada(e, 8192), dada(e[:7])):
            write(d, "a.dada", dada(e) + second)
            result = replay(d, "a.dada", status=2)
            assert "another DADA header" in result.err and str(4096 + 500 * 24) in result.err, result
            assert harness.beamring("info", "a.dada", cwd=d).status == 1
        v = other.noise((4 * PER, 4, 2, 1), 2, -100, 100)
        made = b"".join(blocks(v, 0))
        write(d, "g.raw", made + bytes(5000))
        got = replay(d, "g.raw")
        same(got, v, np.ones((4 * PER, 4), bool), 0)
        assert f"from {len(made)} on are zero" in got[4].err, got[4]
        for junk in (b"\xff" * 5000, b"text " * 900):
            write(d, "g.raw", made + junk)
            result = replay(d, "g.raw", status=2)
            assert str(len(made)) in result.err and "cut" in result.err, result


def test_vdif_of_8_bits():
    """MWA's, as int8x2: one thread of one channel, many of many, frames lost, a file that ends early, a part,
    bands by thread, and on to 4 bits."""
    epoch, seconds, rate = 46, 1000, 1280000
    stream = ("stream: {{sample_ns: 781.25, npol: {npol}, "
              "freq_mhz: {{first: 150, step: 1.28, count: {count}}}}}\n")
    for nchan, npol, ndish, legacy in ((1, 1, 1, 0), (1, 2, 1, 1), (4, 2, 3, 0), (2, 1, 5, 1)):
        n, spread = 640, 64
        e = other.noise((n, nchan, npol, ndish), 7, -128, 127)
        frames = other.vdif_file(e, spread, seconds, 3, epoch, rate, bits=8, legacy=legacy)
        threads, whole = npol * ndish, np.ones((n, nchan), bool)
        s = stream.format(npol=npol, count=nchan)
        with harness.scratch() as d:
            write(d, "v.vdif", b"".join(frames))
            for extra in ("", ", frame_samples: 100", ", readers: 2, loop: 2"):
                got = replay(d, "v.vdif", s, extra)
                assert got[3]["DTYPE"] == "int8x2", got[3]
                k = 2 if "loop" in extra else 1
                same(got, np.tile(e, (k, 1, 1, 1)), np.tile(whole, (k, 1)), 3 * spread)
            assert "complex 8-bit" in harness.beamring("info", "v.vdif", cwd=d).out
            write(d, "v.vdif", b"".join(frames[:4 * threads] + frames[5 * threads:]))
            valid = whole.copy()
            valid[4 * spread:5 * spread] = False
            same(replay(d, "v.vdif", s), e, valid, 3 * spread)
            write(d, "v.vdif", b"".join(frames[:-threads]) + frames[-threads][:32 + 10 * 2 * nchan])
            got = replay(d, "v.vdif", s)
            assert "truncated" in got[4].err
            assert np.array_equal(got[0][:n - spread], e[:-spread])
            if nchan == 4:
                write(d, "v.vdif", b"".join(frames))
                for k in (0, 1):
                    same(replay(d, "v.vdif", s, f", part: {k}/2"), e[:, 2 * k:2 * k + 2], whole[:, :2],
                         3 * spread)
                # threads 0 to 2 are a band, 3 to 5 the next one
                bands = stream.format(npol=1, count=2 * nchan)
                want = np.concatenate([e[:, :, :1], e[:, :, 1:]], 1)
                same(replay(d, "v.vdif", bands), want, np.ones((n, 8), bool), 3 * spread)
    for ndish, bits in ((1, 8), (3, 8), (2, 4)):  # a thread's channels are polarisations, as MWA has them
        high = 127 if bits == 8 else 7
        e = other.noise((640, 2, 1, ndish), 8, -high, high)
        frames = other.vdif_file(e, 64, seconds, 0, epoch, rate, bits=bits)
        with harness.scratch() as d:
            write(d, "v.vdif", b"".join(frames[:3 * ndish] + frames[4 * ndish:]))
            valid = np.ones((640, 1), bool)
            valid[192:256] = False
            got = replay(d, "v.vdif", stream.format(npol=2, count=1), ", frame_samples: 100")
            same(got, e.transpose(0, 2, 1, 3), valid, 0)
            result = replay(d, "v.vdif", stream.format(npol=1, count=1), status=2)
            assert "npol" in result.err, result
    with harness.scratch() as d:
        write(d, "v.vdif", b"".join(other.vdif_file(e, 64, seconds, 0, epoch, rate, bits=8, complex_data=0)))
        assert "real 8-bit" in replay(d, "v.vdif", s, ", format: vdif", status=2).err


def test_text_beyond_the_header():
    e = other.noise((100, 4, 2, 3), 5)
    with harness.scratch() as d:
        notes = {f"NOTE_{i}": "x" * 60 for i in range(80)}
        for size in (512, 1000, 4096):
            text = dada(e, 8192, **notes)
            write(d, "a.dada", text.replace(b"HDR_SIZE 8192", b"HDR_SIZE %d" % size, 1))
            result = replay(d, "a.dada", status=2)
            assert "HDR_SIZE" in result.err and str(size) in result.err, result
            assert "HDR_SIZE" in harness.beamring("info", "a.dada", cwd=d).err
        size = len(dada(e, 700).split(b"\0")[0])  # a header that is exactly as long as its text
        write(d, "a.dada", dada(e, size))
        same(replay(d, "a.dada"), e, np.ones((100, 4), bool), 0)


def odd_files(d):
    """Names of what is there and cannot be read as a file: a pipe without another end, a device without an
    end, a folder, and a file of 100 GB of nothing."""
    os.mkfifo(os.path.join(d, "odd_pipe"))
    os.symlink("/dev/zero", os.path.join(d, "odd_zero"))
    os.symlink("/dev/tty", os.path.join(d, "odd_tty"))
    os.mkdir(os.path.join(d, "odd_folder"))
    write(d, "odd_sparse", b"")
    os.truncate(os.path.join(d, "odd_sparse"), 100 << 30)
    return "odd_pipe", "odd_zero", "odd_tty", "odd_folder", "odd_sparse"


def test_only_regular_files():
    """Nothing waits for a pipe, reads a device, or fills the memory: in no format, next to a recording, as
    tables, packets or documents, in no command. (Each run would hang, so that it has 20 s.)"""
    e = other.noise((64, 4, 2, 3), 6)
    telescope = f"include: {harness.CONFIG}/telescopes/pathfinder.yaml\n"
    simulate = "  - {stage: simulate, out: e, duration_s: 0.001, frame_samples: 64"
    beamform = simulate + "}\n  - {stage: baseband_beamform, in: e, out: b"
    stream = "stream: {sample_ns: 5120, epoch_ns: 0, freq_mhz: {first: 600, step: 0.1953125, count: 4}}\n"
    tables = {
        "simulate gains": f"pipeline:\n{simulate}, gains: NAME}}\n",
        "simulate drifts": f"pipeline:\n{simulate}, drifts: NAME}}\n",
        "weights": f"pipeline:\n{beamform}, weights: NAME}}\n",
        "beams": f"pipeline:\n{beamform}, beams: {{file: NAME}}}}\n",
        "grid gains": f"pipeline:\n{simulate}}}\n  - {{stage: frb_grid, in: e, out: i, integrate: 4, "
                      "gains: NAME}\n",
        "document": "pipeline:\n  - {stage: receive, format: frb-node, address: \"127.0.0.1:0\", "
                    "document: NAME, out: b}\n",
        "packet": "pipeline:\n  - {stage: capture, packet: ./NAME, addresses: \"127.0.0.1:0\", out: p}\n",
        "include": "include: NAME\n"}
    with harness.scratch() as d:
        for name in odd_files(d):
            regular = name == "odd_sparse"
            first = name == "odd_pipe"
            forms = ("auto", "dada", "vdif", "chime", "guppi", "kotekan", "pcap")
            for form in forms if first else ("auto", "pcap"):
                packet = ", packet: chord-crs" if form == "pcap" else ""
                result = replay(d, name, stream, f", format: {form}{packet}", status=2, timeout=20)
                assert name in result.err and (regular or "regular file" in result.err), (name, form, result)
            for key, text in tables.items() if first or regular else ():
                text = text.replace("NAME", name)
                text = text if key == "include" else telescope + stream + text
                result = harness.run(d, text, status=2, command="check", timeout=20)
                assert name in result.err, (name, key, result)
            for args in (("info", name), ("convert", "--to", "dada", name, "to/x"),
                         ("calibrate", name, "--source", "10,20", "--telescope", "x", "-o", "g.h5")):
                result = harness.beamring(*args, cwd=d, timeout=20)
                assert result.status in (1, 2) and result.err, (name, args, result)
            # next to a good recording
            write(d, "a.dada", dada(e))
            os.symlink(name, os.path.join(d, "a.dada.gaps"))
            result = replay(d, "a.dada", status=2, timeout=20)
            assert "a.dada.gaps" in result.err, (name, result)
            result = harness.beamring("info", "a.dada", cwd=d, timeout=20)
            assert result.status == 1 and "a.dada.gaps" in result.err, (name, result)
            result = harness.beamring("convert", "--to", "vdif", "a.dada", "to/x", cwd=d, timeout=20)
            assert result.status == 2, (name, result)
            os.remove(os.path.join(d, "a.dada.gaps"))


if __name__ == "__main__":
    harness.main([f for name, f in sorted(globals().items()) if name.startswith("test_")])
