"""Filterbank files as other people's software reads them: a small pipeline writes levels, intensities and
float beams, and blimpy, your and sigpyproc must find the times, frequencies and values that recordings of the
same streams hold. `beamring info` agrees with the files that your and sigpyproc write.

Needs BEAMRING (the program) and BEAMRING_READERS_PYTHON (an interpreter that has numpy, blimpy, your and,
from Python 3.12 on, sigpyproc); skips without the latter. The contents of recordings are checked
elsewhere."""
import glob
import os
import subprocess
import sys
import warnings

SKIP = 77
HERE = os.path.dirname(os.path.abspath(__file__))

SAMPLE_NS, EPOCH_NS, SAMPLE0 = 5120, 1700000000123456789, 96 * 1000 + 17
STEP, BLOCK, TAPS = 48, 32, 4
ZONES = [(2, 16), (3, 4)]
COARSE, FIRST_MHZ = 0.1953125, 400.0

PIPELINE = """
pipeline:
  - {stage: simulate, samples: 7000, seed: 3, missing: [{first: 1483, count: 37}, {first: 2984, count: 700}],
     sources: [{x_deg: 1.1, y_deg: -1.7, flux: 0.3}], out: field}
  - {stage: upchannelize, in: field, out: fine, zones: [{channels: 2, factor: 16}, {channels: 3, factor: 4}]}
  - {stage: frb_grid, in: fine, out: grid, integrate: 48}
  - {stage: frb_beams, in: grid, out: beams, beams: {directions: [[0, 0], [0.02, -0.03], [-0.04, 0.01]]}}
  - {stage: quantize, in: beams, out: levels, bits: 8, block: 32}
  - {stage: quantize, name: quantize4, in: beams, out: levels4, bits: 4, block: 32}
  - {stage: record, name: r1, in: beams, directory: dada, prefix: beams}
  - {stage: record, name: r2, in: levels, directory: dada, prefix: levels}
  - {stage: filterbank, name: f1, in: levels, directory: fil, prefix: level}
  - {stage: filterbank, name: f2, in: levels, directory: fil, prefix: value, values: intensity}
  - {stage: filterbank, name: f3, in: beams, directory: fil, prefix: float, beams: [2, 0], source: Crab,
       src_raj: 53431.97,
     src_dej: 220052.1}
  - {stage: filterbank, name: f4, in: levels4, directory: fil, prefix: four, values: levels}
"""


def fine_mhz():
    """Centre of every fine channel, zone after zone, and the zone it is in."""
    out, zone, c = [], [], 0
    for z, (channels, u) in enumerate(ZONES):
        for _ in range(channels):
            out += [FIRST_MHZ + COARSE * c + (i - (u - 1) / 2) * COARSE / u for i in range(u)]
            zone += [z] * u
            c += 1
    return out, zone


def with_blimpy(path):
    import blimpy
    w = blimpy.Waterfall(path)
    h = w.header
    return {
        "mhz": w.get_freqs(), "tstart": h["tstart"], "tsamp": h["tsamp"], "nbits": h["nbits"],
        "foff": h["foff"],
        "source": h["source_name"] if isinstance(h["source_name"], str) else h["source_name"].decode(),
        "data": w.data[:, 0, :].astype(float)
    }


def with_sigpyproc(path):
    from sigpyproc.readers import FilReader
    r = FilReader(path)
    h = r.header
    data = r.read_block(0, h.nsamples).data  # (channel, time)
    return {
        "mhz": h.fch1 + h.foff * __import__("numpy").arange(h.nchans), "tstart": h.tstart, "tsamp": h.tsamp,
        "nbits": h.nbits, "foff": h.foff, "source": h.source, "data": data.T.astype(float)
    }


def with_your(path):
    from your import Your
    r = Your(path)
    h = r.your_header
    source = h.source_name if isinstance(h.source_name, str) else h.source_name.decode()
    return {
        "mhz": h.fch1 + h.foff * __import__("numpy").arange(h.nchans), "tstart": h.tstart, "tsamp": h.tsamp,
        "nbits": h.nbits, "foff": h.foff, "source": source, "data": r.get_data(0, h.nspectra).astype(float)
    }


def write_with_your(np, path, data):
    from your.formats.filwriter import make_sigproc_object
    f = make_sigproc_object(rawdatafile=path, source_name="B0329+54", nchans=data.shape[1], foff=-0.5,
                            fch1=600.25, tsamp=1e-3, tstart=60000.125, nbits=8, machine_id=0, telescope_id=20,
                            src_raj=33259.4, src_dej=543443.6)
    f.write_header(path)
    f.append_spectra(data, path)


def write_with_sigpyproc(np, path, data):
    from sigpyproc.block import FilterbankBlock
    from sigpyproc.header import Header
    header = Header(filename=path, data_type="filterbank", nchans=data.shape[1], foff=-0.5, fch1=600.25,
                    nbits=8, tsamp=1e-3, tstart=60000.125, nsamples=len(data), source="B0329+54",
                    telescope="CHIME")
    FilterbankBlock(data.T.astype(np.float32), header).to_file(path)


def described(np, harness, writers):
    """`beamring info` of the files of others."""
    data = np.arange(40 * 16).reshape(40, 16).astype(np.uint8)
    with harness.scratch() as d:
        for write in writers:
            path = os.path.join(d, write.__name__ + ".fil")
            write(np, path, data)
            result = harness.beamring("info", path, cwd=d)
            words = ["SIGPROC filterbank", "B0329+54", "600.25", "-0.5", "60000.125", "16", "0.001", "40"]
            assert result.status == 0 and all(w in result.out for w in words), (write.__name__, result)


def expected(np, harness, directory):
    """By prefix: the values of every beam, [beam][freq][time] in the stream's channels, and what takes their
    place where they are missing; the validity [freq][time]; the first step."""
    beams, first, keys, _ = harness.read_frames(os.path.join(directory, "dada", "beams_000000.dada"))
    levels, first8, keys8, sides = harness.read_frames(os.path.join(directory, "dada", "levels_000000.dada"))
    assert first == first8 == SAMPLE0 // STEP, (first, first8)
    steps = beams.shape[1]
    valid = harness.read_gaps(os.path.join(directory, "dada", "beams_000000.dada"), first, steps,
                              beams.shape[0], STEP).T
    side = np.array(sides).reshape(-1, 3, beams.shape[0], 2)
    block = (first + np.arange(steps)) // BLOCK - first // BLOCK
    scale, offset = (np.moveaxis(side[block, :, :, i], 0, -1) for i in (0, 1))
    scale, offset = scale * float(keys8["SCALE"]), offset * float(keys8["SCALE"])
    for t in range(1, steps):  # a block without data has no mean: the last one stands
        empty = (scale[..., t] == 0) & (offset[..., t] == 0)
        offset[..., t][empty] = offset[..., t - 1][empty]
    floats = np.moveaxis(beams.astype(float), 2, 0) * float(keys["SCALE"])
    ok = valid > 0
    before = np.cumsum(ok, axis=1) - ok
    mean = (np.cumsum(floats * ok, axis=2) - floats * ok) / np.maximum(before, 1)
    signed = levels.astype(float) - 128
    values = {
        "level": (levels.astype(float), np.full(levels.shape,
                                                128.0)), "value": (scale * signed + offset, offset),
        "float": (floats, mean), "four": (levels.astype(float), np.full(levels.shape, 128.0))
    }
    return {k: np.where(ok, v, fill) for k, (v, fill) in values.items()}, valid, first


def check_file(np, read, path, want, valid, beam, band, first):
    """One file against the rows [freq][time] of its band."""
    mhz, zone = fine_mhz()
    here = [i for i in np.argsort(mhz)[::-1] if zone[i] == band]
    got = read(path)
    what = f"{read.__name__} {os.path.basename(path)}: "
    assert got["nbits"] == (8 if "level" in path or "four" in path else 32), what + str(got["nbits"])
    assert got["foff"] < 0 and \
        len(got["mhz"]) == len(here), what + f"foff {got['foff']}, {len(got['mhz'])} channels"
    assert np.abs(np.array(got["mhz"]) - np.array(mhz)[here]).max() < 1e-9, what + f"{got['mhz']}"
    assert abs(got["tsamp"] - STEP * SAMPLE_NS * 1e-9) < 1e-15, what + f"tsamp {got['tsamp']}"
    delay = (TAPS - 1) * ZONES[band][1] // 2
    ns = EPOCH_NS + (first * STEP - delay) * SAMPLE_NS
    off = (got["tstart"] - 40587) * 86400 - ns / 1e9
    assert abs(off) < 2e-6, what + f"tstart is off by {off} s"
    assert got["data"].shape == want[here].T.shape, \
        what + f"{got['data'].shape}, expected {want[here].T.shape}"
    ok = valid[here].T > 0
    assert ok.any() and not ok.all()
    if "four" in path:
        assert got["data"][ok].min() >= 121 and got["data"][ok].max() <= 135 and \
            np.unique(got["data"][ok]).size > 10
        assert (got["data"][~ok] == 128).all(), what + "missing samples hold the mean level"
    else:
        off = np.abs(got["data"] - want[here].T)
        limit = 1e-5 * np.abs(want).max()
        assert off[ok].max() <= limit, what + f"values differ by {off[ok].max()}"
        assert off[~ok].max(
        ) <= limit, what + f"the means in place of missing values differ by {off[~ok].max()}"
    assert got["source"] == ("Crab" if "float" in path else f"beam {beam}"), what + got["source"]


def check_gaps(np, path, valid, band):
    """The sidecar of the files, in their own samples and channels."""
    mhz, zone = fine_mhz()
    here = [i for i in np.argsort(mhz)[::-1] if zone[i] == band]
    want = valid[here].T
    got = np.full(want.shape, 255)
    for line in open(path):
        v = [int(x) for x in line.split("#")[0].split()]
        if v:
            c0, n, w = v[2:] if len(v) == 5 else (0, want.shape[1], 0)
            got[v[0]:v[0] + v[1], c0:c0 + n] = w
    assert (got == want).all(), f"{path} differs at {np.argwhere(got != want)[:4]}"


def compare(readers):
    import numpy as np
    import harness
    from small import TELESCOPE
    stream = f"""
stream:
  freq_mhz: {{first: {FIRST_MHZ}, step: {COARSE}, count: 5}}
  sample_ns: {SAMPLE_NS}
  epoch_ns: {EPOCH_NS}
  sample0: {SAMPLE0}
"""
    with harness.scratch() as d:
        harness.run(d, TELESCOPE + stream + PIPELINE)
        want, valid, first = expected(np, harness, d)
        assert (valid == 0).any() and ((valid > 0) &
                                       (valid < 255)).any(), "the field has holes and partly valid samples"
        files = glob.glob(os.path.join(d, "fil", "*.fil"))
        assert len(files) == 2 * (3 + 3 + 2 + 3), sorted(os.listdir(os.path.join(d, "fil")))
        for path in sorted(files):
            prefix = os.path.basename(path).split("0")[0]
            beam, band = int(os.path.basename(path)[len(prefix):][:4]), int(path[-5])
            # Bands are numbered by falling frequency, zones here by rising.
            for read in readers:
                check_file(np, read, path, want[prefix][beam], valid, beam, len(ZONES) - 1 - band, first)
        for prefix in want:
            for band in (0, 1):
                check_gaps(np, os.path.join(d, "fil", f"{prefix}_band{band}.gaps"), valid,
                           len(ZONES) - 1 - band)

        # A second run refuses to replace the files, and writes the same bytes elsewhere with few files open.
        result = harness.beamring("run", "pipeline.yaml", cwd=d)
        assert result.status == 1 and "overwrite" in result.err, result
        # The GPU's driver opens more than that itself. Six writers hold a lock each.
        limit = "ulimit -n 27; " if harness.DEVICE == "cpu" else ""
        few = subprocess.run([
            "bash", "-c",
            f"{limit}exec '{os.path.abspath(harness.PROGRAM)}' run pipeline.yaml --set "
            f"device={harness.DEVICE} "
            "--set r1.directory=few --set r2.directory=few --set f1.directory=few --set f2.directory=few "
            "--set f3.directory=few --set f4.directory=few"
        ], cwd=d, capture_output=True, text=True, timeout=100)
        assert few.returncode == 0, few.stderr
        for path in files:
            with open(path, "rb") as a, open(path.replace("/fil/", "/few/"), "rb") as b:
                assert a.read() == b.read(), path


def main():
    python = os.environ.get("BEAMRING_READERS_PYTHON")
    if not python:
        print(
            "skipped: BEAMRING_READERS_PYTHON does not name a Python that has the packages blimpy and "
            "sigpyproc"
        )
        return SKIP
    if os.environ.get("BEAMRING_INSIDE") != "1":
        return subprocess.run([python, __file__], env={**os.environ, "BEAMRING_INSIDE": "1"},
                              check=False).returncode
    sys.path = [os.path.join(HERE, "..", "pipeline")] + [p for p in sys.path if os.path.abspath(p) != HERE]
    warnings.simplefilter("ignore")
    readers = []
    writers = []
    for name, reader, writer in (("blimpy", with_blimpy, None), ("your", with_your, write_with_your),
                                 ("sigpyproc", with_sigpyproc, write_with_sigpyproc)):
        try:
            __import__(name)
            readers.append(reader)
            writers += [writer] if writer else []
        except ImportError as error:
            print(f"not compared with {name}: {python}: {error}")
    if not readers:
        return SKIP
    import numpy
    import harness
    described(numpy, harness, writers)
    compare(readers)
    print("compared with " + " and ".join(r.__name__[5:] for r in readers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
