"""Parts of a recording by frequency: for every format that has bands, each part is what the whole recording
has in its channels, from the same first sample on, with the same mask; and what a part cannot be."""
import os
import sys

import numpy as np

import harness
from files_axes import header, payload
from files_common import CTIME, put, replay, same, STREAM, write
from files_hints import dada, ours
from files_joined import FIRST, data_of, frames, stream

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import recordings as other  # noqa: E402


def part(r, n):
    return f', part: "{r}/{n}"'


def channels(got):
    text = got[3]["FREQ_MHZ"]
    if ":" not in text:
        return [float(x) for x in text.split(",")]
    first, step, count = text.split(":")
    return [float(first) + float(step) * i for i in range(int(count))]


def check(d, files, text, edges, extra="", trim=False):
    """Parts r of n are channels [edges[r], edges[r + 1]) of the whole. `trim`: a part may begin late or end
    early."""
    whole = replay(d, files, text, extra, zeros=False)
    e, valid, first = whole[:3]
    frame = None
    for r, (a, b) in enumerate(zip(edges, edges[1:])):
        got = replay(d, files, text, extra + part(r, len(edges) - 1), zeros=False)
        if trim and len(got[0]) < len(e):
            assert not valid[len(got[0]):, a:b].any(), (r, len(got[0]))
        n = len(got[0])
        assert trim or n == len(e), (r, n, len(e))
        same(got, e[:n, a:b], valid[:n, a:b], first, int(whole[3]["EPOCH_NS"]), channels(whole)[a:b])
        assert got[3]["WIDTH_MHZ"] == whole[3]["WIDTH_MHZ"], r
        assert frame in (None, got[3]["FRAME_SAMPLES"]), "frames are of the same length in all parts"
        frame = got[3]["FRAME_SAMPLES"]
    return whole


def edges(widths, n):
    """Where the parts of bands of these widths begin: rank r has bands [r N / n, (r + 1) N / n)."""
    ends = np.concatenate([[0], np.cumsum(widths)])
    return [int(ends[r * len(widths) // n]) for r in range(n + 1)]


def field(nchan, seed, first_mhz, at=32, n=300, **more):
    e = other.noise((n, nchan, 2, 3), seed)
    return dada(ours(SHAPE=f"0,{nchan},2,3", SAMPLE0=at, SAMPLES=n, WIDTH_MHZ=0.5,
                     FREQ_MHZ=f"{first_mhz}:0.5:{nchan}", **more), e)


def test_bands_of_dada():
    """Bands of different widths in files whose names say nothing, with other starts, ends and gaps."""
    with harness.scratch() as d:
        write(d, "zebra.dada", field(3, 1, 400))
        write(d, "apple.dada", field(2, 2, 401.5, at=40))
        write(d, "mango.dada", field(5, 3, 402.5, n=200))
        write(d, "mango2.dada", field(5, 4, 402.5, at=240, n=60))
        write(d, "lemon.dada", field(1, 5, 405))
        write(d, "lemon.dada.gaps", b"40 10\n")
        write(d, "mango.dada.gaps", b"50 5 1 2 0\n60 7\n")
        for n in (1, 2, 3, 4):
            for extra in ("", ", frame_samples: 37", ", loop: 3, frame_samples: 64"):
                check(d, '"*.dada"', "", edges([3, 2, 5, 1], n), extra)
        result = replay(d, '"*.dada"', "", part(0, 5), status=2)
        for word in (": part: ", "pipeline.yaml:3:", "5 parts", "4 bands", "apple.dada"):
            assert word in result.err, (word, result)


def test_channels_of_dada():
    """All files have the same band: its channels are divided, whatever the order of the axes."""
    with harness.scratch() as d:
        write(d, "a.dada", field(7, 1, 400))
        write(d, "b.dada", field(7, 2, 400, at=340))
        write(d, "a.dada.gaps", b"40 10\n60 3 1 4 0\n")
        for n in (1, 2, 3, 7):
            for extra in ("", ", frame_samples: 41, readers: 3", ", loop: 2"):
                check(d, '"*.dada"', "", edges([1] * 7, n), extra)
        result = replay(d, '"*.dada"', "", part(0, 8), status=2)
        for word in (": part: ", "pipeline.yaml:3:", "8 parts", "same band, of 7 channels"):
            assert word in result.err, (word, result)
    e = other.noise((96, 5, 2, 3), 1)
    for order in ("TFPA", "FTPA", "TPFA", "TPAF", "ATFP", "PTAF", "APTF", "FATP", "FPAT"):
        for bits in (4, 8):
            with harness.scratch() as d:
                write(d, "x.dada", header(e, ORDER=order, NBIT=bits) + payload(e, order, bits=bits))
                for n in (1, 2, 5):
                    check(d, "x.dada", "", edges([1] * 5, n), ", frame_samples: 25")
        with harness.scratch() as d:  # heaps, and a sidecar that speaks of one file's channels
            text = ",".join({"T": "time:16", "F": "freq", "P": "pol", "A": "dish"}[a] for a in order)
            write(d, "x.dada", header(e, ORDER=None) + payload(e, order, 16))
            write(d, "x.dada.gaps", b"3 4 1 3 0\n40 20\n")
            for n in (1, 3):
                check(d, "x.dada", f'stream: {{order: "{text}"}}\n', edges([1] * 5, n), ", frame_samples: 23")


def test_long_rows():
    """Parts of rows that are read one by one, and rows longer than what is read at once."""
    for nchan, ndish in ((4, 5000), (64, 700), (40, 30)):
        e = other.noise((33, nchan, 2, ndish), 3)
        for order in ("TFPA", "TPFA"):
            with harness.scratch() as d:
                write(d, "x.dada", header(e, ORDER=order) + payload(e, order))
                check(d, "x.dada", "", edges([1] * nchan, 3), ", frame_samples: 10")


def test_gaps_of_heaps():
    """Lines of a sidecar beside files of heaps, in the second of two bands: each line counts once."""
    e = other.noise((64, 4, 2, 3), 1)
    with harness.scratch() as d:
        for k, name in enumerate("ab"):
            write(d, f"{name}.dada", header(e[:, :2], ORDER="TFT:16PA", FREQ=f"{600 + 0.78125 * k}") +
                  payload(e[:, 2 * k:2 * k + 2], "FTPA", 16))
        write(d, "b.dada.gaps", b"3 40 1 1 0\n")
        valid = np.ones((64, 4), bool)
        valid[3:43, 3] = False
        got = replay(d, '"*.dada"', zeros=False)
        same(got, e, valid, 0)
        check(d, '"*.dada"', "", [0, 2, 4])


def test_kotekan():
    """Channels of nodes interleave; the bands are in the order of their first channels."""
    for kind, order in (("int4p4", "TFPD"), ("int4p4chime", "FTPD")):
        with harness.scratch() as d:
            for k, (name, ids) in enumerate((("c", [1601, 1729]), ("a", [1602, 1730, 1858]), ("b", [1600]))):
                for i in range(4):
                    if (k, i) != (1, 2):
                        write(d, f"{name}_{i}.raw",
                              other.kotekan_frame(other.noise((30, len(ids), 2, 3), 10 * k + i), ids,
                                                  1000 + 30 * i + 7 * k, kind, order))
            for n in (1, 2, 3):
                for extra in ("", ", frame_samples: 17"):
                    check(d, '"*.raw"', STREAM, edges([1, 2, 3], n), extra)
            assert "4 parts" in replay(d, '"*.raw"', STREAM, part(3, 4), status=2).err
            check(d, '"a_*.raw"', STREAM, [0, 1, 2, 3])
    with harness.scratch() as d:  # beams of kotekan are not divided
        write(d, "x.raw", other.kotekan_frame(other.noise((10, 2, 2, 3), 1), [2000, 2001], 0, upchan=2))
        check_refused(d, "x.raw", STREAM, part(0, 2))


def check_refused(d, files, text, extra, *words):
    result = replay(d, files, text, extra, status=2)
    for word in words:
        assert word in result.err, (word, result)
    return result


def test_chime():
    """A file for each frequency; numbers go down from 800 MHz, and so do the bands."""
    for way in (dict(), dict(chunks=(33, 12), shuffle="lz4")):
        with harness.scratch() as d:
            for c, (freq_id, late, n) in enumerate([(900, 7, 250), (10, 40, 300), (11, 0, 400)]):
                raw = other.pack_chime(other.noise((n, 12), c))
                raw[20:30] = 0
                other.write_chime(os.path.join(d, f"x_{c}.h5"), raw, freq_id, 5000 + late,
                                  CTIME + 2.56e-6 * late, **way)
            for n in (1, 2, 3):
                for extra in ("", ", frame_samples: 37, readers: 2", ", loop: 2"):
                    check(d, '"*.h5"', "", edges([1, 1, 1], n), extra)
            check_refused(d, '"*.h5"', "", part(0, 4), "4 parts", "3 bands")
            check_refused(d, "x_0.h5", "", part(0, 2), "2 parts", "of 1 channels")


def test_guppi():
    v = other.noise((480, 6, 2, 2), 1, -128, 127)
    with harness.scratch() as d:
        for name, k in (("b", 0), ("a", 1), ("c", 2)):
            write(d, f"{name}.raw", b"".join(
                other.guppi_blocks(v[:, 2 * k:2 * k + 2], 48 + 8, 8, first_packet=20, packets=4, skip={k},
                                   centre=1400 + 2 * 0.390625 * k)))
        for n in (1, 2, 3):
            for extra in ("", ", frame_samples: 37, readers: 3"):
                check(d, '"*.raw"', "", edges([2, 2, 2], n), extra)
        check(d, "a.raw", "", [0, 1, 2])


def test_vdif():
    """Bands of files, bands of threads, and channels of the only band; the last end where they end."""
    n, nchan, spread, ids = 600, 4, 10, np.array([[10, 11, 12, 13], [3, 2, 1, 0], [900, 7, 1023, 6]])
    e = other.noise((n, 3 * nchan, 2, 2), 9, -8, 7)
    pieces = [frames(e[60 * k:n - 90 * k, k * nchan:(k + 1) * nchan], spread, FIRST + 60 * k, ids[k])
              for k in range(3)]
    pieces = [[f for i, f in enumerate(p) if i not in {40 + k, 80}] for k, p in enumerate(pieces)]
    text, once = "stream: {npol: 2, " + stream(3 * nchan)[9:], ", loop: 2"
    threads = ", threads: [" + ", ".join(str(i) for i in ids.reshape(-1)) + "]"
    with harness.scratch() as d:
        write(d, "x.vdif", data_of(sorted(f for p in pieces for f in p)))
        for parts in (1, 2, 3):
            for extra in ("", ", frame_samples: 33"):
                check(d, "x.vdif", text, edges([nchan] * 3, parts), threads + extra, trim=True)
        check_refused(d, "x.vdif", text, threads + part(0, 4), "4 parts", "3 bands")
        check_refused(d, "x.vdif", text, threads + once + part(0, 2), ": loop: ", "loop: 1 with `part`")
    with harness.scratch() as d:  # the same in files of their own, whose names say nothing
        for name, p in zip("zay", pieces):
            write(d, f"{name}.vdif", data_of(p))
        check(d, '"*.vdif"', text, edges([nchan] * 3, 3), threads, trim=True)
    with harness.scratch() as d:  # bands by names, with the same threads
        for k, name in enumerate("zay"):
            lone = frames(e[60 * k:n - 90 * k, k * nchan:(k + 1) * nchan], spread, FIRST + 60 * k, range(4))
            write(d, f"{name}.vdif", data_of(lone))
        for parts in (1, 2, 3):
            check(d, '"*.vdif"', text, edges([nchan] * 3, parts), ', bands: ["z*", "a*", "y*"]', trim=True)
        for parts in (1, 2, 3, 4):
            for extra in ("", ", frame_samples: 33, loop: 2"):
                check(d, "a.vdif", "stream: {npol: 2, " + stream(nchan)[9:], edges([1] * nchan, parts), extra)
        check_refused(d, "a.vdif", "stream: {npol: 2, " + stream(nchan)[9:], part(4, 5), "5 parts",
                      "of 4 channels")


def test_nonsense():
    with harness.scratch() as d:
        write(d, "a.dada", field(3, 1, 400))
        write(d, "b.dada", field(2, 2, 401.5))
        for text, word in (("2/2", "R below N"), ("0/0", "R below N"), ("7/3", "R below N"), ("1", "R/N"),
                           ("", "R/N"), ("/", "R/N"), ("a/b", "R/N"), ("0/2.0", "R/N"), ("0.5/2", "R/N"),
                           ("-1/2", "R/N"), ("0/-2", "R/N"), ("+0/2", "R/N"), ("0/2/3", "R/N"),
                           (" 0/2", "R/N"), ("0 / 2", "R/N"), ("0/2 ", "R/N"), ("0x1/2", "R/N"),
                           ("1/1e3", "R/N"),
                           ("0/99999999999999999999", "R/N"), ("99999999999999999999/1", "R/N"),
                           ("0/999999999", "999999999 parts"), ("0/${NOTHING_OF_THE_KIND:-}", "R/N")):
            result = replay(d, '"*.dada"', "", f', part: "{text}"', status=2)
            for expected in ("pipeline.yaml:3:", ": part: ", word):
                assert expected in result.err, (text, expected, result)
        for text in ("[0, 2]", "{r: 0}", "[a, b]"):
            result = replay(d, '"*.dada"', "", f", part: {text}", status=2)
            assert "part" in result.err and "pipeline.yaml:3:" in result.err, (text, result)
        check(d, '"*.dada"', "", [0, 5])  # alone, ${RANK}/${RANKS} is 0/1
        whole = replay(d, '"*.dada"', "", ', part: "${RANK}/${RANKS}"')
        assert whole[0].shape[1] == 5
        result = replay(d, "a.dada", "", part(0, 2) + ", direct: true", status=2)
        assert ": direct: " in result.err and "part" in result.err, result


def test_products_are_not_divided():
    """Beams that `record` wrote: each rank's files are named, or the program is alone."""
    with harness.scratch() as d:
        keys = ours(DTYPE="f32", AXES="freq,time,beam", SHAPE="2,0,3", FRAME_SAMPLES=16, SAMPLES=48)
        write(d, "x.dada", dada(keys, np.zeros((0, 1, 1, 1), complex)) + bytes(4 * 2 * 48 * 3))
        text = """
pipeline:
  - {stage: replay, files: x.dada, out: j, part: "%s"}
  - {stage: record, in: j, directory: out, prefix: y}
"""
        result = harness.run(d, text % "0/2", command="check", status=2)
        for word in (": part: ", "${RANK}", "pipeline.yaml:3:"):
            assert word in result.err, (word, result)
        harness.run(d, text % "0/1")
        # what is wrong with the file comes first
        write(d, "x.dada", b"HEADER DADA\nHDR_SIZE 4096\n".ljust(4096, b"\0"))
        result = harness.run(d, text % "0/2", command="check", status=2)
        assert "x.dada" in result.err and ": part: " not in result.err, result


def test_check_shows_the_bands():
    with harness.scratch() as d:
        write(d, "z.dada", field(4, 1, 400))
        write(d, "a.dada", field(4, 2, 402))
        write(d, "m.dada", field(4, 3, 404))
        text = """
pipeline:
  - {stage: replay, files: "*.dada", out: field, part: "${RANK}/${RANKS}"}
  - {stage: record, in: field, directory: "out${RANK}", prefix: x}
"""
        for n, bands in ((1, ["399.75 to 405.75"]), (2, ["399.75 to 401.75", "401.75 to 405.75"]),
                         (3, ["399.75 to 401.75", "401.75 to 403.75", "403.75 to 405.75"])):
            out = harness.run(d, text, "--ranks", n, command="check").out
            ranks = out.split("rank ")[1:] if n > 1 else [out]
            assert len(ranks) == n and all(f"{b} MHz" in r for b, r in zip(bands, ranks)), (n, out)
        result = harness.run(d, text, "--ranks", 4, command="check", status=2)
        for word in ("pipeline.yaml:3:", "4 parts", "3 bands"):
            assert word in result.err, (word, result)
        for r, first in enumerate(("400", "402", "404")):  # what a rank wrote says its band
            harness.run(d, text, env={"RANK": str(r), "RANKS": "3"})
            info = harness.beamring("info", f"out{r}/x_000000.dada", cwd=d)
            assert f"4, centres {first} to" in info.out, info


if __name__ == "__main__":
    harness.main([f for name, f in sorted(globals().items()) if name.startswith("test_")])
