"""VDIF recordings of several files, threads and bands, joined by their times: values, masks and counts are
compared exactly with what was written. And what replaying takes of memory, whatever the format and length of
a file."""
import os
import sys

import numpy as np

import harness
from files_common import replay, same, write

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import recordings as other  # noqa: E402

RATE, SECOND, EPOCH = 10**6, 1000, 41
# base sample, from the start of the second SECOND, where all recordings of the tests begin
FIRST = 99900 * 10


def stream(nchan):
    return f"stream: {{sample_ns: 1000, freq_mhz: {{first: 400, step: 1, count: {nchan}}}}}\n"


def frames(e, spread, first, threads=None):
    """VDIF frames of E[time][freq][pol][dish] from base sample `first` on: [(slot, thread, bytes)]."""
    ntime, nchan = e.shape[:2]
    e = e.reshape(ntime, nchan, -1)
    threads = range(e.shape[2]) if threads is None else threads
    out = []
    for at in range(0, ntime - spread + 1, spread):
        for i, thread in enumerate(threads):
            second, sample = divmod(first + at, RATE)
            data = other.pack_vdif(e[at:at + spread, :, i]).tobytes()
            head = other.vdif_header(SECOND + second, sample // spread, EPOCH, nchan, 32 + len(data), thread)
            out.append(((first + at) // spread, thread, head + data))
    return out


def data_of(some):
    return b"".join(f[2] for f in some)


def lose(some, valid, spread, first, channels, which):
    """Leaves out frames by index, and what they make missing out of the mask."""
    for i in which:
        at = some[i][0] * spread - first
        valid[at:at + spread, channels] = False
    return [f for i, f in enumerate(some) if i not in which]


def shuffled(some, seed, reach=12):
    """Frames that change places with others not far away."""
    rng = np.random.default_rng(seed)
    order = np.argsort(np.arange(len(some)) + rng.uniform(0, reach, len(some)))
    return [some[i] for i in order]


def test_bands_of_files():
    """Two bands in files of their own with the same threads, each in two files; one begins late and ends
    early; frames are lost, and not in order. Samples miss in the channels of one band only."""
    for spread, nchan, ndish, n in ((1, 8, 1, 3000), (10, 4, 3, 3000), (40, 2, 8, 6000)):
        e = other.noise((n, 2 * nchan, 2, ndish), spread, -8, 7)
        valid = np.zeros((n, 2 * nchan), bool)
        low, high = slice(0, nchan), slice(nchan, 2 * nchan)
        valid[:, low] = True
        valid[520:n - 680, high] = True
        first = FIRST // spread * spread
        a = frames(e[:, low], spread, first)
        b = frames(e[520:n - 680, high], spread, first + 520)
        a = lose(a, valid, spread, first, low, {3, 50, 51, len(a) // 2})
        b = lose(b, valid, spread, first, high, {0, 7, len(b) - 1, len(b) // 3})
        a, b = shuffled(a, 1), shuffled(b, 2)
        with harness.scratch() as d:
            for name, some in (("low", a), ("high", b)):
                cut = len(some) // 3
                cut -= cut % (2 * ndish)
                write(d, f"{name}_0.vdif", data_of(sorted(some)[:cut]))  # files begin and end in order
                write(d, f"{name}_1.vdif", data_of(sorted(some)[cut:]))
            write(d, "low_0.vdif", data_of(shuffled(sorted(a)[:len(a) // 3 - len(a) // 3 % (2 * ndish)], 3)))
            # the whole first sample of the second band is lost with its frame: nothing says that it was there
            last = n if valid[n - 1].any() else int(np.flatnonzero(valid.any(1))[-1]) + 1
            for extra in ("", ", frame_samples: 64", ", frame_samples: 37, readers: 3",
                          ", frame_samples: 500, readers: 1"):
                got = replay(d, "\"*.vdif\"", stream(2 * nchan), ", bands: [\"low*\", \"high*\"]" + extra)
                same(got, e[:last], valid[:last], first)
                assert "late" not in got[4].out and "corrupt" not in got[4].out, got[4]
            got = replay(d, "\"*.vdif\"", stream(2 * nchan),
                         ", bands: [\"high_?.vdif\", \"*\"]")  # the other way round
            same(got, np.concatenate([e[:last, high], e[:last, low]], 1),
                 np.concatenate([valid[:last, high], valid[:last, low]], 1), first)


def test_bands_of_threads():
    """Threads that are bands: more frequencies than a thread has channels. A lost frame is missed in its band
    alone."""
    n, nchan, spread = 2000, 4, 10
    e = other.noise((n, 3 * nchan, 2, 2), 9, -8, 7)
    valid = np.ones((n, 3 * nchan), bool)
    ids = np.array([[10, 11, 12, 13], [3, 2, 1, 0], [900, 7, 1023, 6]])  # [band][pol and dish]
    parts = [frames(e[:, k * nchan:(k + 1) * nchan], spread, FIRST, ids[k]) for k in range(3)]
    parts = [
        lose(p, valid, spread, FIRST, slice(k * nchan, (k + 1) * nchan), {40 + k, 80 + 9 * k})
        for k, p in enumerate(parts)
    ]
    everything = sorted(f for p in parts for f in p)
    with harness.scratch() as d:
        write(d, "x.vdif", data_of(shuffled(everything, 1)))
        threads = ", threads: [" + ", ".join(str(i) for i in ids.reshape(-1)) + "]"
        for extra in ("", ", frame_samples: 33", ", frame_samples: 64, readers: 4"):
            same(replay(d, "x.vdif", "stream: {npol: 2, " + stream(3 * nchan)[9:], threads + extra), e, valid,
                 FIRST)
        # the order of their ids, where none is given
        order = np.argsort(ids.reshape(-1))
        e2 = e.reshape(n, 3, nchan, 4).transpose(0, 1, 3, 2).reshape(n, 12, nchan)[:, order]
        of_thread = np.ones((n, 3, 4), bool)
        for k, i in ((k, i) for k in range(3) for i in (40 + k, 80 + 9 * k)):  # those left out above
            of_thread[i // 4 * spread:i // 4 * spread + spread, k, i % 4] = False
        v2 = of_thread.reshape(n, 12)[:, order].reshape(n, 3, 4).all(2)
        e2 = e2.reshape(n, 3, 4, nchan).transpose(0, 1, 3, 2).reshape(n, 3 * nchan, 2, 2)
        same(replay(d, "x.vdif", "stream: {npol: 2, " + stream(3 * nchan)[9:]), e2, np.repeat(v2, nchan, 1),
             FIRST)


def test_threads_of_files():
    """A file for each of many threads, of different lengths and starts; again in turn."""
    n, nchan, spread, nthreads = 1200, 4, 4, 22
    e = other.noise((n, nchan, 2, nthreads // 2), 3, -8, 7)
    valid = np.zeros((n, nchan), bool)
    valid[40:n - 80] = True
    valid[400:404] = valid[800:804] = False
    flat = e.reshape(n, nchan, nthreads)
    with harness.scratch() as d:
        for i in range(nthreads):
            begin, end = 40 * (i % 2), n - 80 * (i == 5)
            some = frames(flat[begin:end, :, i:i + 1], spread, FIRST + begin, [3 * i])
            gone = {4: 400, 9: 800}.get(i)
            write(d, f"{i}.vdif", data_of(f for f in some if gone is None or f[0] * spread - FIRST != gone))
        for extra in ("", ", frame_samples: 50, readers: 3"):
            same(replay(d, "\"*.vdif\"", stream(nchan), extra), e, valid, FIRST)
        again = replay(d, "\"*.vdif\"", stream(nchan), ", loop: 3, frame_samples: 170")
        same(again, np.tile(e, (3, 1, 1, 1)), np.tile(valid, (3, 1)), FIRST)


def test_truncated_pieces():
    """Files end in the middle of a frame: what is whole of it stays; a longer copy of it takes its place."""
    n, nchan, spread = 400, 8, 20
    e = other.noise((n, nchan, 1, 1), 4, -8, 7)
    some = frames(e, spread, FIRST)
    size = len(some[0][2])
    with harness.scratch() as d:
        write(d, "a.vdif", data_of(some)[:10 * size - 5 * nchan - 3])  # frame 9 has 14 whole samples
        write(d, "b.vdif", data_of(some[10:]))
        valid = np.ones((n, nchan), bool)
        valid[194:200] = False
        npol = "stream: {npol: 1, " + stream(nchan)[9:]
        for extra in ("", ", frame_samples: 7", ", frame_samples: 195, loop: 2"):
            times = 2 if "loop" in extra else 1
            got = replay(d, "\"?.vdif\"", npol, extra)
            same(got, np.tile(e, (times, 1, 1, 1)), np.tile(valid, (times, 1)), FIRST)
            assert "truncated" in got[4].err
        write(d, "b.vdif", data_of(some[9:]))
        got = replay(d, "\"?.vdif\"", npol)
        same(got, e, np.ones((n, nchan), bool), FIRST)
        assert "duplicate" in got[4].out + got[4].err, got[4]


def test_refused():
    e = other.noise((100, 4, 2, 1), 1, -8, 7)
    some = frames(e, 10, FIRST)
    with harness.scratch() as d:
        write(d, "a.vdif", data_of(some))
        write(d, "b.vdif", data_of(some))
        write(d, "c.vdif", data_of(frames(e, 10, FIRST + 61 * RATE, [5, 6])))
        wrong = [("[a.vdif, b.vdif]", 8, ", bands: [\"a*\"]", "lists 8"),
                 ("[a.vdif, b.vdif]", 4, ", bands: [\"a*\"]", "none of the patterns"),
                 ("[a.vdif, b.vdif]", 8, ", bands: [\"*\", \"b*\"]", "no file"), ("a.vdif", 6, "", "lists 6"),
                 ("a.vdif", 12, "", "2 threads of 4 channels"),
                 ("a.vdif", 8, ", threads: [0, 1, 2]", "3 threads"), ("[a.vdif, c.vdif]", 4, "", "max_gap_s"),
                 ("[a.vdif, b.vdif]", 12, ", bands: [\"a*\", \"b*\"]", "lists 12")]
        for files, nchan, extra, word in wrong:
            result = replay(d, files, stream(nchan), extra, status=2)
            assert word in result.err and (".vdif" in result.err or "bands" in extra), (files, extra, word,
                                                                                        result)
        write(d, "x.raw", other.kotekan_frame(other.noise((10, 2, 1, 2), 1), [2000, 2001], 0))
        result = replay(d, "x.raw", "stream: {sample_ns: 5120, epoch_ns: 0}\n", ", bands: [\"*\"]", status=2)
        assert "only VDIF" in result.err, result
        # later is another matter when the pause is meant
        harness.run(d, stream(4) + """pipeline:
  - {stage: replay, files: "[ac].vdif", out: e, max_gap_s: 100}
  - {stage: record, in: e, directory: o, prefix: x}
""", command="check")


# --- CHIME files of many inputs -------------------------------------------------------------------
def test_chime_many_inputs():
    """Rows that vector code takes as a whole, chunks that have a part of the inputs, frames that cut blocks
    and chunks; rows in which nothing, or but one input, was written."""
    n, inputs = 200, 1024
    for way in (dict(chunks=(64, 1024), shuffle="lz4"), dict(chunks=(48, 1024), shuffle="runs"),
                dict(chunks=(64, 512), shuffle="plain"), dict(chunks=(33, 256), shuffle="lz4"),
                dict(chunks=(40, 320),
                     shuffle="runs"), dict(chunks=(50, 768),
                                           shuffle="runs"), dict(chunks=(64, 1024)), dict()):
        with harness.scratch() as d:
            e = np.zeros((n + 9, 2, 2, inputs // 2), complex)
            valid = np.zeros((n + 9, 2), bool)
            for c, late in ((0, 0), (1, 9)):
                part = other.noise((n, inputs), c + 5)
                raw = other.pack_chime(part)
                raw[70:90] = raw[70]
                part[70:90] = part[70]
                for rows, columns in ((slice(20, 30), slice(None)), (slice(99, 100), slice(0, inputs - 1)),
                                      (slice(120, 121), slice(1, None))):
                    raw[rows, columns] = 0
                    part[rows, columns] = 0
                other.write_chime(os.path.join(d, f"x_{c}.h5"), raw, 10 + c, 1000 + late,
                                  1600000000 + 2.56e-6 * late, **way)
                e[late:late + n, c] = part.reshape(n, 2, -1)
                valid[late:late + n, c] = True
                valid[late + 20:late + 30, c] = False
            for extra in ("", ", frame_samples: 37, readers: 3", ", frame_samples: 4, readers: 2",
                          ", readers: 1"):
                same(replay(d, '"*.h5"', "", extra), e, valid, 1000)


# --- memory ---------------------------------------------------------------------------------------
BYTES = 160 << 20


def sparse(d, name, block, heads):
    """Headers with `block` bytes of nothing behind each: files as long as real ones that take no time to
    write."""
    with open(os.path.join(d, name), "wb") as f:
        for head in heads:
            f.write(head)
            f.seek(block, os.SEEK_CUR)
        f.truncate(f.tell())


def write_dada(d):
    head = "HEADER DADA\nHDR_SIZE 4096\nNBIT 4\nNDIM 2\nNPOL 2\nNCHAN 16\nNANT 64\nORDER TFPA\n".encode(
    ).ljust(4096, b"\0")
    sparse(d, "x.dada", BYTES, [head])


def write_kotekan(d):
    n = (16 << 20) // 2048

    def head(k):
        frame = other.chord_metadata([("T", n), ("F", 16), ("P", 2), ("D", 64)], list(range(2000, 2016)),
                                     k * n)
        return len(frame).to_bytes(4, "little") + bytes(frame)
    sparse(d, "x.raw", 16 << 20, [head(k) for k in range(BYTES >> 24)])


def write_guppi(d):
    sparse(d, "x.raw", 16 << 20, [
        other.guppi_header(BLOCSIZE=16 << 20, PIPERBLK=1, PKTIDX=k, OBSFREQ=500.0, OBSBW=25.0, OBSNCHAN=64,
                           NPOL=4, NBITS=8, TBIN=2.56e-6, STT_IMJD=60000, STT_SMJD=0, STT_OFFS=0.0,
                           DIRECTIO=1) for k in range(BYTES >> 24)
    ])


def write_vdif(d):
    spread, heads = 10000, []
    for k in range(BYTES // (spread * 8 * 2)):
        second, sample = divmod(k * spread, RATE)
        heads += [
            other.vdif_header(SECOND + second, sample // spread, EPOCH, 8, 32 + 8 * spread, t)
            for t in range(2)
        ]
    sparse(d, "x.vdif", 8 * spread, heads)


def write_chime(d):
    block = other.lz4_runs(np.zeros(8192, np.uint8).tobytes())
    import h5py
    rows, inputs, down = 512, 2048, BYTES >> 22
    chunk = (rows * inputs).to_bytes(8, "big") + (8192).to_bytes(
        4, "big") + (len(block).to_bytes(4, "big") + block) * (rows * inputs // 8192)
    for k in range(4):
        other.write_chime(os.path.join(d, f"x.{k}.h5"), np.zeros((1, inputs), np.uint8), 10 + k,
                          1000 + 77 * k, 1600000000.0 + 77 * k * 2.56e-6)
        with h5py.File(os.path.join(d, f"x.{k}.h5"), "a") as f:
            del f["baseband"]
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_chunk((rows, inputs))
            plist.set_filter(32008, h5py.h5z.FLAG_OPTIONAL, (0, 3, 1, 0, 2))
            space = h5py.h5s.create_simple((down * rows, inputs))
            data = h5py.Dataset(h5py.h5d.create(f.id, b"baseband", h5py.h5t.STD_U8LE, space, plist))
            for i in range(down):
                data.id.write_direct_chunk((i * rows, 0), chunk)


ROOM = 120 << 20  # the program itself (under a sanitizer, too), and what a reader has in memory of a file


def test_memory():
    """Queues, and what does not depend on the length of a file."""
    for make, nchan in ((write_dada, 16), (write_kotekan, 16), (write_guppi, 64), (write_vdif, 8),
                        (write_chime, 4)):
        with harness.scratch() as d:
            make(d)
            text = (
                f"stream: {{sample_ns: {1000 if make is write_vdif else 2560}, epoch_ns: 0, freq_mhz: "
                f"{{first: 400, step: 1, count: {nchan}}}, "
                "override: [sample_ns, epoch_ns, freq_mhz]}\n"
                if make is not write_vdif else stream(nchan)) + """pipeline:
  - {stage: replay, files: "x.*", out: field}
  - {stage: record, in: field, directory: out, prefix: y}
"""
            promised, resident = harness.promised_and_resident(d, text)
            written = sum(
                os.path.getsize(os.path.join(d, "out", f)) for f in os.listdir(os.path.join(d, "out")))
            print(
                f"{make.__name__[6:]}: promised {promised / 2**20:.1f} MiB, resident {resident / 2**20:.1f} "
                f"MiB, written {written / 2**20:.0f} MiB"
            )
            assert written >= BYTES - (1 << 20)
            assert resident <= promised + ROOM, (make.__name__, promised, resident)


if __name__ == "__main__":
    harness.main([f for name, f in sorted(globals().items()) if name.startswith("test_")])
