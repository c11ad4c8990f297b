"""Filterbank files: beams and bands side by side."""

import os
import struct
from fractions import Fraction

import numpy as np

from ._errors import FormatError
from ._stream import Stream
from .recording import Block, Recording

_INTEGERS = {
    "machine_id",
    "telescope_id",
    "data_type",
    "barycentric",
    "pulsarcentric",
    "nchans",
    "nbeams",
    "ibeam",
    "nbits",
    "nifs",
    "nsamples",
}
_TEXTS = {"rawdatafile", "source_name"}
_DTYPES = {8: "uint8", 32: "f32"}


def is_filterbank(begin):
    return begin[4:16] == b"HEADER_START"


def read_header(path):
    """The header as a dict, and the offset of the data."""
    with open(path, "rb") as file:
        text = file.read(1 << 16)

    def word(at):
        if at + 4 > len(text):
            raise FormatError(f"{path}: the header ends before HEADER_END")
        n = struct.unpack_from("<i", text, at)[0]
        if not 0 < n < 80:
            raise FormatError(f"{path}: byte {at} of the header is not the length of a name")
        return text[at + 4 : at + 4 + n].decode("latin-1"), at + 4 + n

    def number(kind, at):
        size = struct.calcsize(kind)
        if at + size > len(text):
            raise FormatError(f"{path}: the header ends before HEADER_END")
        return struct.unpack_from(kind, text, at)[0], at + size

    header, (name, at) = {}, word(0)
    while name != "HEADER_END":
        name, at = word(at)
        if name in _TEXTS:
            header[name], at = word(at)
        elif name in _INTEGERS:
            header[name], at = number("<i", at)
        elif name not in ("HEADER_START", "HEADER_END"):
            header[name], at = number("<d", at)
    return header, at


def open_files(paths):
    """Axes time, beam, freq.  Files of one time and several beams or bands are joined."""
    read = [(path,) + read_header(path) for path in paths]
    first = read[0][1]
    for path, h, _ in read:
        for key in ("nbits", "nchans", "fch1", "foff", "tsamp", "tstart"):
            if key not in h:
                raise FormatError(f"{path}: the header has no {key}")
    nbits = first.get("nbits")
    if nbits not in _DTYPES:
        raise FormatError(f"{paths[0]}: {nbits} bits; expected 8 or 32")
    parts, freqs, widths, beams = {}, [], [], []
    for path, h, offset in read:
        for key in ("nbits", "tsamp", "tstart"):
            if h.get(key) != first.get(key):
                raise FormatError(
                    f"{path}: {key} is {h.get(key)}; expected {first.get(key)}, as in {paths[0]}; open them "
                    "one by one"
                )
        n = h["nchans"] * max(1, h.get("nifs", 1)) * nbits // 8
        band = (h["fch1"], h["foff"], h["nchans"])
        key = h.get("ibeam", 0), band
        if key in parts:
            raise FormatError(f"{path} and {parts[key][0]} have the same beam and band; open them one by one")
        parts[key] = path, offset, (os.path.getsize(path) - offset) // n if n else 0
        if h.get("ibeam", 0) not in beams:
            beams.append(h.get("ibeam", 0))
    bands = sorted({band for _, band in parts}, reverse=first["foff"] < 0)
    for fch1, foff, n in bands:
        freqs.append(fch1 + foff * np.arange(n))
        widths.append(np.full(n, abs(foff)))
    beams.sort()
    steps = max(n for _, _, n in parts.values())
    dtype, nifs = _DTYPES[nbits], max(1, first.get("nifs", 1))
    freqs = np.concatenate(freqs)
    stream = Stream(
        dtype=dtype,
        axes=("time", "beam", "freq"),
        shape=(max(steps, 1), len(beams) * nifs, len(freqs)),
        frame_samples=max(steps, 1),
        epoch_ns=round((Fraction(first["tstart"]) - 40587) * 86400 * 10**9),
        sample_ns=Fraction(repr(first["tsamp"])) * 10**9,
        freqs_mhz=freqs,
        widths_mhz=np.concatenate(widths),
        zones=[{"first_channel": 0, "nchannels": len(freqs), "factor": 1, "downsample": 1, "delay": 0}],
        downsample=1,
        scale=1.0,
        sideband=None,
        beams=None,
        telescope=None,
        side=None,
        packets=False,
    )
    item = np.dtype("u1" if nbits == 8 else "<f4")

    def loader(band):
        def load():
            maps = []
            for beam in beams:
                if (beam, band) not in parts:
                    raise FormatError(f"beam {beam} has no file of the band that begins with {band[0]} MHz")
                path, offset, n = parts[beam, band]
                maps.append(
                    np.memmap(path, item, "r", offset, (n, nifs, band[2]))
                    if n
                    else np.zeros((0, nifs, band[2]), item)
                )
            return maps[0] if len(maps) == 1 else _stack(maps)

        return load

    blocks, channel = [], 0
    for band in bands:
        n = min(parts[beam, band][2] for beam in beams if (beam, band) in parts)
        blocks.append(Block(0, n, channel, band[2], loader(band)))
        channel += band[2]
    recording = Recording(stream, blocks, paths, [h for _, h, _ in read])
    recording.beam_numbers = beams
    return recording


class _stack:
    """Maps of several beams as one array [time][beam][freq], of which parts are read."""

    def __init__(self, maps):
        self.maps = maps

    def __getitem__(self, index):
        time, beam, freq = index
        each = self.maps[0].shape[1]
        wanted = range(len(self.maps) * each)[beam]
        return np.stack([self.maps[b // each][time, b % each, freq] for b in wanted], 1)
