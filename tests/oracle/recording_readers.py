"""GUPPI RAW, VDIF and DADA as others have them: the packages baseband and blimpy read what beamring writes,
and beamring replays what baseband ships and writes. Values, times and frequencies are compared exactly.

Needs BEAMRING (the program) and BEAMRING_READERS_PYTHON (an interpreter that has numpy, baseband and blimpy);
skips without the latter."""
import glob
import os
import subprocess
import sys
import tempfile

from external import run_with

HEADER = 4096


def compare():
    program = os.path.abspath(os.environ["BEAMRING"])
    with tempfile.TemporaryDirectory(prefix="beamring-") as directory:
        os.chdir(directory)
        ours_by_baseband(program)
        ours_by_blimpy()
        theirs_by_us(program)
        vdif_by_baseband(program)
        beams_by_baseband(program)
        vdif_of_baseband(program)
        guppi_of_baseband(program)
        dada_of_baseband(program)


def beamring(program, *args):
    done = subprocess.run([program, *args], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done
    return done


def dada(path, raw, dtype, mhz, sample0, sample_ns=2560, offset_ns=250000000):
    """raw: bytes [time][freq][pol][dish](2)."""
    keys = {
        "HEADER": "DADA", "HDR_SIZE": HEADER, "DTYPE": dtype, "AXES": "time,freq,pol,dish",
        "SHAPE": f"0,{raw.shape[1]},{raw.shape[2]},{raw.shape[3]}", "FRAME_SAMPLES": 256, "SAMPLE0": sample0,
        "SAMPLE_NS": sample_ns, "EPOCH_NS": 1600000000 * 10**9 + offset_ns,
        "FREQ_MHZ": ",".join(map(repr, mhz)), "WIDTH_MHZ": 0.390625
    }
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
        size = int(
            next(line.split()[1] for line in text.decode("latin-1").splitlines()
                 if line.startswith("HDR_SIZE")))
        keys = dict(
            line.split(None, 1) for line in text[:size].rstrip(b"\0").decode().splitlines()
            if len(line.split(None, 1)) == 2)
        f.seek(size)
        raw = np.frombuffer(f.read(), np.int8)
    shape = [int(n) for n in keys["SHAPE"].split(",")]
    raw = raw.reshape(-1, *shape[1:], 2).astype(np.float32)
    got = (raw[..., 0, 0] + 1j * raw[..., 0, 1]).transpose(0, 2, 1)
    # what the last block repeats of no next block comes at the end
    assert len(got) >= len(want) and np.array_equal(got[:len(want)], want), (got.shape, want.shape)
    num, den = (int(x) for x in (keys["SAMPLE_NS"] + "/1").split("/")[:2])
    assert abs(num / den * 1e-9 * rate - 1) < 1e-9
    begin = Time(
        int(keys["EPOCH_NS"]) // 10**9,
        int(keys["EPOCH_NS"]) % 10**9 * 1e-9 + int(keys["SAMPLE0"]) * num / den * 1e-9, format="unix",
        scale="utc")
    assert abs((start - begin).to_value("ns")) < 2, (start.isot, begin.isot)
    assert abs(float(keys["FREQ"]) - header["OBSFREQ"]) < 1e-6
    print("we read baseband's GUPPI RAW")


def levels(ntime, nchan, npol, ndish):
    """int4x2 bytes [time][freq][pol][dish] and their values."""
    import numpy as np
    raw = np.random.default_rng(8).integers(0, 256, (ntime, nchan, npol, ndish)).astype(np.uint8)
    re, im = ((raw & 15).astype(int) ^ 8) - 8, ((raw >> 4).astype(int) ^ 8) - 8
    return raw, re + 1j * im


def vdif_by_baseband(program):
    """Frames of one sample, as CHIME has them, over the end of a second, with missing ones; and of 100, whose
    headers say the rate."""
    import numpy as np
    from astropy import units as u
    from astropy.time import Time
    from baseband import vdif

    for sample_ns, spread, first in ((2560, 1, 390625 * 7 - 500), (1000, 100, 10**6 * 7 - 500)):
        raw, want = levels(1000, 16, 2, 3)
        dada("in.dada", raw, "int4x2", [400 + 0.390625 * k for k in range(16)], first, sample_ns, 0)
        with open("in.dada.gaps", "w") as f:
            f.write(f"{first + 100} 100\n")
        with open("vdif.yaml", "w") as f:
            f.write(
                f"pipeline:\n  - {{stage: replay, files: in.dada, out: e}}\n  - {{stage: record, in: e, "
                f"directory: vdif, prefix: x{spread}, "
                f"format: vdif, vdif_samples: {spread}}}\n")
        beamring(program, "run", "vdif.yaml")
        with vdif.open(f"vdif/x{spread}_0000000.vdif", "rb") as reader:
            header = reader.read_frame().header
            assert header.complex_data and header.bps == 4 and header.nchan == 16 and \
                header.samples_per_frame == spread, header
        with vdif.open(f"vdif/x{spread}_0000000.vdif", "rs",
                       sample_rate=1e9 / sample_ns * u.Hz if spread == 1 else None) as reader:
            assert reader.sample_rate == 1e9 / sample_ns * u.Hz, reader.sample_rate
            got, start = reader.read(
            ) * 2.95, reader.start_time  # (time, thread, channel), in baseband's units
        want = want.transpose(0, 2, 3, 1).reshape(1000, 6, 16)
        want[100:200] = 0  # frames that are there, and marked as invalid
        assert got.shape == want.shape and abs(got - want).max() < 1e-3, abs(got - want).max()
        begin = Time(1600000000 + 6, 1 - 500 * sample_ns * 1e-9, format="unix", scale="utc")
        assert abs((start - begin).to_value(u.ns)) < 1, (start.isot, begin.isot)
    print("baseband reads our VDIF")


def beams_by_baseband(program):
    """Beams of 4 and 8 bits: a file for each, a thread for each polarisation, over the end of a second.
    baseband gives 4 bits in units of 1/2.95, 8 bits in units of 1/35.5 and half a level above them."""
    import numpy as np
    from astropy import units as u
    from astropy.time import Time
    from baseband import vdif

    rng, first = np.random.default_rng(8), 390625 * 7 - 500 - (390625 * 7 - 500) % 256
    for bits, unit, above in ((4, 2.95, 0), (8, 35.5, 0.5 + 0.5j)):
        most = (1 << bits - 1) - 1
        parts = rng.integers(-most, most + 1, (3, 16, 2, 1024, 2))
        parts[:, :, :, 100:200] = -most - 1  # missing
        raw = ((parts[..., 0] & 15) | (parts[..., 1] & 15) << 4).astype(np.uint8) if bits == 4 else parts
        mhz = [400 + 0.390625 * k for k in range(16)]
        dada("in.dada", np.zeros((1, 16, 2, 1), np.uint8), f"int{bits}x2", mhz, first, offset_ns=0)
        with open("in.dada", "rb") as f:
            head = f.read(HEADER).rstrip(b"\0").decode()
        head = head.replace("time,freq,pol,dish", "beam,freq,pol,time").replace("0,16,2,1", "3,16,2,0")
        with open("in.dada", "wb") as f:
            f.write(head.encode().ljust(HEADER, b"\0"))
            for a in range(0, 1024, 256):
                f.write(raw[:, :, :, a:a + 256].astype(np.int8 if bits == 8 else np.uint8).tobytes())
        beamring(program, "convert", "--to", "vdif", "in.dada", f"vdif/b{bits}")
        begin = Time(1600000000, first * 2.56e-6, format="unix", scale="utc")
        for beam in range(3):
            with vdif.open(f"vdif/b{bits}_000000{beam}.vdif", "rs", sample_rate=390.625 * u.kHz) as reader:
                assert reader.header0.bps == bits and reader.header0.complex_data, reader.header0
                got, start = reader.read() * unit - above, reader.start_time  # (time, thread, channel)
            want = (parts[beam, ..., 0] + 1j * parts[beam, ..., 1]).transpose(2, 1, 0)
            there = np.ones(1024, bool)
            there[100:200] = False
            assert got.shape == want.shape and abs(got - want)[there].max() < 1e-3, abs(got - want).max()
            assert abs(got[~there] + above).max() < 1e-3, "invalid frames are filled with zero"
            assert abs((start - begin).to_value(u.ns)) < 1, (start.isot, begin.isot)
    print("baseband reads our beams")


def vdif_of_baseband(program):
    """We replay exactly what baseband writes."""
    import numpy as np
    from astropy import units as u
    from astropy.time import Time
    from baseband import vdif

    raw, want = levels(800, 8, 2, 1)
    start = Time("2023-06-30T23:59:59.9996")
    header = vdif.VDIFHeader.fromvalues(edv=1, time=start, nchan=8, bps=4, complex_data=True,
                                        samples_per_frame=50, sample_rate=1 * u.MHz, station="XX",
                                        thread_id=0, frame_rate=20 * u.kHz)
    with vdif.open("theirs.vdif", "ws", header0=header, nthread=2, squeeze=False) as writer:
        writer.write((want[..., 0].transpose(0, 2, 1) / 2.95).astype(np.complex64))
    beamring(program, "convert", "--to", "dada", "--stream", "freq_mhz: {first: 400, step: 1, count: 8}",
             "theirs.vdif", "theirs/x")
    with open("theirs/x_000000.dada", "rb") as f:
        data = f.read()
    keys = dict(
        line.split(None, 1) for line in data[:4096].rstrip(b"\0").decode().splitlines()
        if len(line.split(None, 1)) == 2)
    assert keys["SHAPE"] == "0,8,2,1" and keys["SAMPLE_NS"] in ("1000", "1000/1"), keys
    assert np.array_equal(np.frombuffer(data, np.uint8, offset=int(keys["HDR_SIZE"])), raw.ravel())
    ns = int(keys["EPOCH_NS"]) + int(keys["SAMPLE0"]) * 1000
    assert abs(
        (Time(ns // 10**9, ns % 10**9 * 1e-9, format="unix", scale="utc") - start).to_value(u.ns)) < 1, ns
    print("we read baseband's VDIF")


def header_of(path):
    with open(path, "rb") as f:
        data = f.read()
    size = int(
        next(line.split()[1] for line in data[:1 << 16].decode("latin-1").splitlines()
             if line.startswith("HDR_SIZE")))
    keys = dict(
        line.split(None, 1) for line in data[:size].rstrip(b"\0").decode().splitlines()
        if len(line.split(None, 1)) == 2)
    return keys, data[size:]


def start_of(keys):
    from astropy.time import Time
    num, den = (int(x) for x in (keys["SAMPLE_NS"] + "/1").split("/")[:2])
    ns = int(keys["EPOCH_NS"]) + int(keys["SAMPLE0"]) * num / den
    return Time(ns // 10**9, ns % 10**9 * 1e-9, format="unix", scale="utc")


def guppi_of_baseband(program):
    """GUPPI RAW that baseband writes, in two blocks."""
    import numpy as np
    from astropy import units as u
    from astropy.time import Time
    from baseband import guppi

    raw = field(960, 8, 2)
    want = (raw[..., 0, 0] + 1j * raw[..., 0, 1]).transpose(0, 2, 1).astype(np.complex64)  # (time, pol, chan)
    start = Time("2024-03-01T12:34:56")
    header = guppi.GUPPIHeader.fromvalues(time=start, sample_rate=1 * u.MHz, samples_per_frame=480, overlap=0,
                                          npol=2, nchan=8, bps=8, OBSFREQ=600., PKTSIZE=480 * 8 * 4, PKTIDX=0,
                                          OBSBW=8., TBIN=1e-6, SRC_NAME="x", TELESCOP="GBT")
    with guppi.open("theirs.raw", "ws", header0=header, squeeze=False) as writer:
        writer.write(want)
    beamring(program, "convert", "--to", "dada", "theirs.raw", "guppi_theirs/x")
    keys, data = header_of("guppi_theirs/x_000000.dada")
    got = np.frombuffer(data, np.int8).reshape(-1, 8, 2, 1, 2)
    assert np.array_equal(got, raw), (got.shape, raw.shape)
    assert abs((start_of(keys) - start).to_value(u.ns)) < 1 and keys["DTYPE"] == "int8x2", keys
    print("we read what baseband writes as GUPPI RAW")


def dada_of_baseband(program):
    """DADA that baseband writes (8 bits, one channel), and our 8-bit DADA read by baseband."""
    import numpy as np
    from astropy import units as u
    from astropy.time import Time
    from baseband import dada as psrdada

    raw = field(800, 1, 2)
    want = (raw[..., 0, 0] + 1j * raw[..., 0, 1]).transpose(0, 2, 1).astype(np.complex64)
    start = Time("2024-03-01T12:34:56")
    header = psrdada.DADAHeader.fromvalues(time=start, offset=0 * u.s, sample_rate=1 * u.MHz,
                                           samples_per_frame=800, npol=2, nchan=1, bps=8, complex_data=True,
                                           bandwidth=1 * u.MHz, freq=600., telescope="x", NANT=1)
    header["NANT"] = 1
    with psrdada.open("theirs.dada", "ws", header0=header, squeeze=False) as writer:
        writer.write(want)
    # baseband writes no ORDER
    beamring(program, "convert", "--to", "dada", "--stream", "order: TFPA", "theirs.dada", "dada_theirs/x")
    keys, data = header_of("dada_theirs/x_000000.dada")
    assert keys["DTYPE"] == "int8x2" and \
        np.array_equal(np.frombuffer(data, np.int8).reshape(-1, 1, 2, 1, 2), raw)
    assert abs((start_of(keys) - start).to_value(u.ns)) < 1, keys
    with psrdada.open("dada_theirs/x_000000.dada", "rs", squeeze=False) as reader:
        got, begin = reader.read(), reader.start_time
    assert np.array_equal(got, want) and abs((begin - start).to_value(u.ns)) < 1, (begin.isot, start.isot)
    print("we read what baseband writes as DADA, and baseband ours")


if __name__ == "__main__":
    sys.exit(run_with("baseband", compare))
