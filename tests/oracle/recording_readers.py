"""GUPPI RAW as others have it: the files that the packages baseband and blimpy read are those that beamring writes, and those that
baseband writes are what beamring replays. VDIF and DADA of baseband's likewise. Values, times and frequencies are compared exactly.

Needs BEAMRING (the program) and BEAMRING_READERS_PYTHON (an interpreter that has numpy, baseband and blimpy); skips without the latter."""
import glob
import os
import subprocess
import sys
import tempfile

SKIP = 77
HEADER = 4096


def main():
    python = os.environ.get("BEAMRING_READERS_PYTHON")
    if not python:
        print("skipped: BEAMRING_READERS_PYTHON does not name a Python that has the package baseband")
        return SKIP
    if os.environ.get("BEAMRING_INSIDE") != "1":
        return subprocess.run([python, __file__], env={**os.environ, "BEAMRING_INSIDE": "1"}, check=False).returncode
    here = os.path.dirname(os.path.abspath(__file__))  # has a baseband.py of its own
    sys.path = [p for p in sys.path if os.path.abspath(p) != here]
    try:
        import baseband  # noqa: F401
    except ImportError as error:
        print(f"skipped: {python}: {error}")
        return SKIP
    program = os.path.abspath(os.environ["BEAMRING"])
    with tempfile.TemporaryDirectory(prefix="beamring-") as directory:
        os.chdir(directory)
        ours_by_baseband(program)
        ours_by_blimpy()
        theirs_by_us(program)
    return 0


def beamring(program, *args):
    done = subprocess.run([program, *args], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done
    return done


def dada(path, raw, dtype, mhz, sample0):
    """raw: bytes [time][freq][pol][dish](2)."""
    keys = {"HEADER": "DADA", "HDR_SIZE": HEADER, "DTYPE": dtype, "AXES": "time,freq,pol,dish",
            "SHAPE": f"0,{raw.shape[1]},{raw.shape[2]},{raw.shape[3]}", "FRAME_SAMPLES": 256, "SAMPLE0": sample0, "SAMPLE_NS": 2560,
            "EPOCH_NS": 1600000000250000000, "FREQ_MHZ": ",".join(map(repr, mhz)), "WIDTH_MHZ": 0.390625}
    with open(path, "wb") as f:
        f.write("".join(f"{k} {v}\n" for k, v in keys.items()).encode().ljust(HEADER, b"\0") + raw.tobytes())


def field(ntime, nchan, npol):
    import numpy as np
    rng = np.random.default_rng(4)
    return rng.integers(-128, 128, (ntime, nchan, npol, 1, 2)).astype(np.int8)


def ours_by_baseband(program):
    import numpy as np
    from astropy import units as u
    from astropy.time import Time
    from baseband import guppi

    raw = field(1024, 8, 2)
    dada("in.dada", raw, "int8x2", [400 + 0.390625 * k for k in range(8)], 25600)
    beamring(program, "convert", "--to", "guppi", "in.dada", "out/x")
    with guppi.open("out/x_0000000.raw", "rs") as reader:
        got = reader.read()  # (time, pol, chan)
        start, rate, header = reader.start_time, reader.sample_rate, reader.header0
    want = (raw[..., 0, 0] + 1j * raw[..., 0, 1]).transpose(0, 2, 1)
    assert got.shape == want.shape and np.array_equal(got, want)
    assert abs((rate - 390.625 * u.kHz).to_value(u.Hz)) < 1e-6, rate
    begin = Time(1600000000, 0.25 + 25600 * 2.56e-6, format="unix", scale="utc")
    assert abs((start - begin).to_value(u.ns)) < 1, (start.isot, begin.isot)
    assert abs(header["OBSFREQ"] - (400 + 3.5 * 0.390625)) < 1e-12 and header["OBSBW"] == 3.125
    print("baseband reads our GUPPI RAW")


def ours_by_blimpy():
    import numpy as np
    try:
        from blimpy import GuppiRaw
    except ImportError as error:
        print(f"blimpy is not compared: {error}")
        return
    raw = field(1024, 8, 2)
    reader = GuppiRaw("out/x_0000000.raw")
    blocks = []
    for i in range(reader.n_blocks):
        header, x, y = reader.read_next_data_block_int8()
        assert header["PKTIDX"] == 25600 + 256 * i, header
        blocks.append((x, y))
    for p in (0, 1):
        got = np.concatenate([b[p] for b in blocks], axis=1)  # (chan, time, ReIm)
        assert np.array_equal(got.reshape(8, 1024, 2), raw[:, :, p, 0].transpose(1, 0, 2))
    print("blimpy reads our GUPPI RAW")


def theirs_by_us(program):
    """baseband's own sample of GUPPI RAW, with overlap, against what baseband reads of it."""
    import numpy as np
    from astropy.time import Time
    from baseband import guppi
    from baseband.data import SAMPLE_PUPPI as sample

    with guppi.open(sample, "rs") as reader:
        want, start, header = reader.read(), reader.start_time, reader.header0
        rate = reader.sample_rate.to_value("Hz")
    beamring(program, "convert", "--to", "dada", sample, "back/x")
    (path,) = glob.glob("back/*.dada")
    with open(path, "rb") as f:
        text = f.read(1 << 16)
        size = int(next(line.split()[1] for line in text.decode("latin-1").splitlines() if line.startswith("HDR_SIZE")))
        keys = dict(line.split(None, 1) for line in text[:size].rstrip(b"\0").decode().splitlines() if len(line.split(None, 1)) == 2)
        f.seek(size)
        raw = np.frombuffer(f.read(), np.int8)
    shape = [int(n) for n in keys["SHAPE"].split(",")]
    raw = raw.reshape(-1, *shape[1:], 2).astype(np.float32)
    got = (raw[..., 0, 0] + 1j * raw[..., 0, 1]).transpose(0, 2, 1)
    # what the last block repeats of no next block comes at the end
    assert len(got) >= len(want) and np.array_equal(got[:len(want)], want), (got.shape, want.shape)
    num, den = (int(x) for x in (keys["SAMPLE_NS"] + "/1").split("/")[:2])
    assert abs(num / den * 1e-9 * rate - 1) < 1e-9
    begin = Time(int(keys["EPOCH_NS"]) // 10**9, int(keys["EPOCH_NS"]) % 10**9 * 1e-9 + int(keys["SAMPLE0"]) * num / den * 1e-9, format="unix",
                 scale="utc")
    assert abs((start - begin).to_value("ns")) < 2, (start.isot, begin.isot)
    assert abs(float(keys["FREQ"]) - header["OBSFREQ"]) < 1e-6
    print("we read baseband's GUPPI RAW")


if __name__ == "__main__":
    sys.exit(main())
