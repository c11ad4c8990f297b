"""A real recording: the VDIF sample of a CHIME backend that the Python package baseband ships, replayed with
beamring and compared value by value, and in time, with what baseband decodes.

Needs BEAMRING (the program) and BEAMRING_READERS_PYTHON (an interpreter that has numpy and baseband); skips
without the latter."""
import os
import subprocess
import sys
import tempfile

from external import run_with


def compare():
    program = os.path.abspath(os.environ["BEAMRING"])
    import numpy as np
    from astropy import units as u
    from astropy.time import Time
    from baseband import vdif
    from baseband.data import SAMPLE_AROCHIME_VDIF as sample

    sample_ns = 2560
    with vdif.open(sample, "rs", sample_rate=1e9 / sample_ns * u.Hz) as reader:
        decoded = reader.read()  # (time, thread, channel)
        start = reader.start_time
    # baseband gives levels in units of 1/2.95; what is stored are whole numbers in [-8, 7]
    levels = decoded * 2.95
    want = np.rint(levels.real) + 1j * np.rint(levels.imag)
    assert abs(levels - want).max() < 1e-3, "baseband's scale is not 2.95"

    for frame_samples in (1, 4, 1000):
        with tempfile.TemporaryDirectory(prefix="beamring-") as directory:
            with open(os.path.join(directory, "pipeline.yaml"), "w") as f:
                f.write(f"""
stream:
  sample_ns: {sample_ns}
  freq_mhz: {{first: 800, step: -0.390625, count: 1024}}
pipeline:
  - {{stage: replay, files: {sample}, out: field, frame_samples: {frame_samples}}}
  - {{stage: record, in: field, directory: ., prefix: field}}
""")
            done = subprocess.run([program, "run", "pipeline.yaml"], cwd=directory, capture_output=True,
                                  text=True, timeout=60, check=False)
            assert done.returncode == 0, done
            with open(os.path.join(directory, "field_000000.dada"), "rb") as f:
                data = f.read()
            assert open(os.path.join(directory, "field_000000.dada.gaps")).read() =="", "no sample is missing"
        head = data[:4096].rstrip(b"\0").decode().splitlines()
        keys = dict(line.split(None, 1) for line in head if len(line.split(None, 1)) == 2)
        raw = np.frombuffer(data, np.uint8, offset=int(keys["HDR_SIZE"]))
        assert keys["AXES"] == "time,freq,pol,dish" and keys["SHAPE"] == "0,1024,2,1", keys
        raw = raw.reshape(-1, 1024, 2).transpose(0, 2, 1)
        got = ((raw & 15).astype(np.int8) ^ 8) - 8 + 1j * (((raw >> 4).astype(np.int8) ^ 8) - 8)
        assert got.shape == want.shape, (got.shape, want.shape)
        wrong = np.count_nonzero(got != want)
        assert wrong == 0, f"{wrong} of {got.size} values differ"
        assert len(np.unique(got)) > 50, "the sample has all kinds of values"
        ns = int(keys["EPOCH_NS"]) + int(keys["SAMPLE0"]) * sample_ns
        begin = Time(ns // 10**9, (ns % 10**9) * 1e-9, format="unix", scale="utc")
        assert abs((begin - start).to_value(u.ns)) < 1, (begin.isot, start.isot)
    print(f"{want.size} values of {os.path.basename(sample)} equal, start {start.isot}")


def compare_mwa():
    """MWA's beamformer: 8 + 8 bits, and the two channels of its only thread are polarisations."""
    program = os.path.abspath(os.environ["BEAMRING"])
    import numpy as np
    from astropy import units as u
    from baseband import vdif
    from baseband.data import SAMPLE_MWA_VDIF as sample

    with vdif.open(sample, "rs", sample_rate=1.28 * u.MHz) as reader:
        decoded = reader.read()  # (time, polarisation), in units of 1/35.5, half a level above them
        start = reader.start_time
    want = np.rint(decoded * 35.5 - (0.5 + 0.5j))
    assert abs(decoded * 35.5 - (0.5 + 0.5j) - want).max() < 1e-3, "baseband's scale is not 35.5"
    with tempfile.TemporaryDirectory(prefix="beamring-") as directory:
        with open(os.path.join(directory, "pipeline.yaml"), "w") as f:
            f.write(f"""
stream: {{npol: 2, sample_ns: 781.25, freq_mhz: [150]}}
pipeline:
  - {{stage: replay, files: {sample}, out: field}}
  - {{stage: record, in: field, directory: ., prefix: field}}
""")
        done = subprocess.run([program, "run", "pipeline.yaml"], cwd=directory, capture_output=True,
                              text=True, timeout=60, check=False)
        assert done.returncode == 0, done
        with open(os.path.join(directory, "field_000000.dada"), "rb") as f:
            data = f.read()
    head = data[:4096].rstrip(b"\0").decode().splitlines()
    keys = dict(line.split(None, 1) for line in head if len(line.split(None, 1)) == 2)
    assert keys["DTYPE"] == "int8x2" and keys["SHAPE"] == "0,1,2,1", keys
    raw = np.frombuffer(data, np.int8, offset=int(keys["HDR_SIZE"])).reshape(-1, 2, 2).astype(float)
    assert np.array_equal(raw[..., 0] + 1j * raw[..., 1], want)
    assert int(keys["EPOCH_NS"]) + int(keys["SAMPLE0"]) * 781.25 == round(start.unix * 1e9)
    print(f"{want.size} values of {os.path.basename(sample)} equal, start {start.isot}")


def compare_both():
    compare()
    compare_mwa()


if __name__ == "__main__":
    sys.exit(run_with("baseband", compare_both))
