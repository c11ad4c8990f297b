"""Filterbank files read by a parser of its own: the same comparison as with blimpy and sigpyproc, wherever
those are missing."""
import os
import struct
import sys

import numpy as np

import harness

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import filterbank_readers  # noqa: E402

REALS = {"src_raj", "src_dej", "az_start", "za_start", "fch1", "foff", "tstart", "tsamp"}
INTS = {
    "machine_id", "telescope_id", "data_type", "barycentric", "pulsarcentric", "nchans", "nbeams", "ibeam",
    "nbits", "nifs"
}


def with_own_parser(path):
    raw = open(path, "rb").read()
    at, h = 0, {}

    def text():
        nonlocal at
        n, = struct.unpack_from("<i", raw, at)
        assert 0 < n < 80, f"{path}: a text of {n} bytes at {at}"
        at += 4 + n
        return raw[at - n:at].decode()

    assert text() == "HEADER_START"
    while (key := text()) != "HEADER_END":
        assert key not in h, f"{path}: {key} stands twice"
        if key in ("rawdatafile", "source_name"):
            h[key] = text()
        else:
            form = "<d" if key in REALS else "<i"
            assert key in REALS or key in INTS, f"{path}: {key} is not known to every reader"
            h[key], = struct.unpack_from(form, raw, at)
            at += struct.calcsize(form)
    assert h["nifs"] == 1 and h["data_type"] == 1 and h["rawdatafile"] == os.path.basename(path)
    assert h["ibeam"] == int(os.path.basename(path).split("0", 1)[1][:3]) + 1 and h["nbeams"] == 3
    data = np.frombuffer(raw, {8: np.uint8, 32: np.float32}[h["nbits"]], offset=at).reshape(-1, h["nchans"])
    return {"mhz": h["fch1"] + h["foff"] * np.arange(h["nchans"]), "tstart": h["tstart"], "tsamp": h["tsamp"],
            "nbits": h["nbits"], "foff": h["foff"], "source": h["source_name"], "data": data.astype(float)}


def test_files():
    filterbank_readers.compare([with_own_parser])


def test_info():
    """`beamring info` of a header that ends anywhere, or has a keyword or a length that cannot be."""
    text = lambda word: struct.pack("<i", len(word)) + word.encode()
    head = text("HEADER_START") + text("source_name") + text("Crab") + text("nchans") + struct.pack(
        "<i", 16) + text("nbits") + struct.pack("<i", 8)
    head += text("fch1") + struct.pack("<d", 600.25) + text("tsamp") + struct.pack("<d", 1e-3)
    whole = head + text("HEADER_END") + bytes(160)
    with harness.scratch() as d:
        path = os.path.join(d, "x.fil")
        info = lambda data: open(path, "wb").write(data) and None or harness.beamring("info", path)
        result = info(whole)
        assert result.status == 0 and all(w in result.out for w in ("Crab", "600.25", "10, 0.01 s")), result
        for n in range(1, len(whole) - 160, 2):
            result = info(whole[:n])
            assert result.status == 1 and "x.fil" in result.err, (n, result)
        for length in (0, -1, 81, 2**31 - 1, -2**31):
            result = info(head + struct.pack("<i", length) + b"nifs" + bytes(200))
            assert result.status == 1 and "x.fil" in result.err and "tsamp" in result.err, (length, result)


if __name__ == "__main__":
    harness.main([test_files, test_info])
