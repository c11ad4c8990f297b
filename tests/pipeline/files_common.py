"""Shared by the tests of files: a recording replayed and recorded, and the new recording."""
import glob
import os
import shutil

import numpy as np

import harness

CTIME = 1600000000.25  # when CHIME's files begin
STREAM = "stream: {sample_ns: 5120, epoch_ns: 1700000000000000000}\n"


def replay(d, pattern, stream="", extra="", status=0, zeros=True, **more):
    """Replays and records; the recording's E, its mask, first sample and header. `zeros`: there is nothing
    under missing samples; where a sidecar marks them, their data stays."""
    out = os.path.join(d, "out")
    shutil.rmtree(out, ignore_errors=True)
    result = harness.run(d, stream + f"""
pipeline:
  - {{stage: replay, files: {pattern}, out: field{extra}}}
  - {{stage: record, in: field, directory: out, prefix: field}}
""", status=status, **more)
    if status != 0:
        return result
    (path,) = glob.glob(os.path.join(out, "*.dada"))
    keys, size = harness.header(path)
    shape = [int(x) for x in keys["SHAPE"].split(",")]
    if keys["DTYPE"] == "int8x2":
        raw = np.fromfile(path, np.int8, offset=size).reshape(-1, *shape[1:], 2).astype(float)
        e = raw[..., 0] + 1j * raw[..., 1]
    else:
        e = harness.unpack(np.fromfile(path, np.uint8, offset=size).reshape(-1, *shape[1:]))
    first = int(keys["SAMPLE0"])
    valid = harness.read_gaps(path, first, len(e), shape[1], 1) == 255
    assert not zeros or not e[~valid].any(), "data under missing samples"
    return e, valid, first, keys, result


def same(got, e, valid, first, epoch=None, mhz=None):
    ge, gvalid, gfirst, keys, _ = got
    assert gfirst == first, (gfirst, first)
    assert ge.shape == e.shape, (ge.shape, e.shape)
    assert np.array_equal(gvalid, valid), f"masks differ in {np.argwhere(gvalid != valid)[:5]}"
    assert np.array_equal(ge * gvalid[..., None, None], e * valid[..., None, None])
    if epoch is not None:
        assert int(keys["EPOCH_NS"]) == epoch, (keys["EPOCH_NS"], epoch)
    if mhz is not None:
        text = keys["FREQ_MHZ"]
        if ":" in text:
            a, b, n = text.split(":")
            values = [float(a) + float(b) * i for i in range(int(n))]
        else:
            values = [float(x) for x in text.split(",")]
        assert np.allclose(values, mhz, rtol=0, atol=1e-9), (values, mhz)


def write(d, name, data):
    with open(os.path.join(d, name), "wb") as f:
        f.write(data)


def put(e, valid, first, full, full_valid, at, channels):
    full[at - first:at - first + len(e), channels] = e
    full_valid[at - first:at - first + len(e), channels] = True
