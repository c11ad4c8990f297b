"""Recordings of `record` (docs/recordings.md): headers, and blocks on maps of the payload."""

import os
from fractions import Fraction

import numpy as np

from ._coding import STORED, bytes_of, stored_shape
from ._errors import FormatError
from ._stream import Stream
from .recording import Block, Recording, unpack4, zone_stream


def is_own(begin):
    return b"\nDTYPE" in begin and b"\nAXES" in begin and b"HDR_SIZE" in begin


def read_header(path):
    """The header as a dict of texts."""
    size, text = 4096, b""
    with open(path, "rb") as file:
        while True:
            text += file.read(size - len(text))
            words = text.split(b"\nHDR_SIZE", 1)[-1].split(None, 1)
            stated = int(words[0]) if words and words[0].isdigit() else 4096
            if len(text) < size or stated <= size:
                break
            size = min(stated, 1 << 26)
    header = {}
    for line in text[:size].split(b"\0")[0].decode("utf-8", "replace").split("\n"):
        words = line.split("#")[0].split(None, 1)
        if len(words) == 2:
            header[words[0]] = words[1].strip()
    return header


class _Reader:
    """The values of one header; what is not as expected names file and key."""

    def __init__(self, path):
        self.path, self.header = path, read_header(path)

    def bad(self, key, expected):
        return FormatError(f"{self.path}: {key} is {self.header.get(key, 'missing')!r}; expected {expected}")

    def text(self, key):
        if key not in self.header:
            raise self.bad(key, "a value: the file is not a recording of beamring, or is damaged")
        return self.header[key]

    def whole(self, key, default=None):
        try:
            return int(self.text(key) if default is None else self.header.get(key, default))
        except ValueError:
            raise self.bad(key, "a whole number") from None

    def reals(self, key):
        text, n = self.header.get(key, ""), 2
        while f"{key}_{n}" in self.header:
            text, n = text.rstrip(",") + "," + self.header[f"{key}_{n}"], n + 1
        try:
            values = []
            for word in filter(None, text.split(",")):
                parts = word.split(":")
                values += (
                    [float(word)]
                    if len(parts) == 1
                    else list(float(parts[0]) + float(parts[1]) * np.arange(int(parts[2])))
                )
            return np.array(values)
        except (ValueError, IndexError):
            raise self.bad(key, "numbers, such as 1.5,2,2.5 or first:step:count") from None

    def array(self, prefix=""):
        dtype, axes = self.text(prefix + "DTYPE"), tuple(self.text(prefix + "AXES").split(","))
        try:
            shape = tuple(int(n) for n in self.text(prefix + "SHAPE").split(","))
        except ValueError:
            raise self.bad(prefix + "SHAPE", "lengths, such as 0,4,2,6") from None
        if dtype not in STORED:
            raise self.bad(prefix + "DTYPE", "one of " + ", ".join(STORED))
        if len(axes) != len(shape) or any(n < 0 for n in shape):
            raise self.bad(prefix + "SHAPE", f"as many lengths as axes ({','.join(axes)})")
        return dtype, axes, shape

    def zones(self, nchannels):
        zones = []
        for i in range(self.whole("NZONES", 1)):
            try:
                numbers = [int(n) for n in self.header.get(f"ZONE_{i}", f"0,{nchannels},1,1,0").split(",")]
                zones.append(
                    dict(zip(("first_channel", "nchannels", "factor", "downsample", "delay"), numbers))
                )
                assert len(numbers) == 5 and numbers[3] > 0
            except (ValueError, AssertionError):
                raise self.bad(f"ZONE_{i}", "first,channels,factor,downsample,delay") from None
        return zones

    def table(self, key, columns):
        """Rows of so many numbers, or None."""
        values = self.reals(key)
        if len(values) % columns:
            raise self.bad(key, f"{columns} numbers for each")
        return values.reshape(-1, columns) if len(values) else None

    def positions(self):
        """East, north and up of each dish; those of a grid's cells unless they are told."""
        told, cells = self.table("POSITIONS_M", 3), self.table("GRID_CELLS", 2)
        if told is not None or cells is None:
            return told
        (spacing,) = self.table("GRID_SPACING_M", 2)
        return np.column_stack([cells[:, 1] * spacing[1], cells[:, 0] * spacing[0], np.zeros(len(cells))])

    def site(self):
        place, height = self.table("SITE_DEG", 2), self.header.get("SITE_HEIGHT_M")
        return None if place is None else (*place[0].tolist(), None if height is None else float(height))

    def stream(self):
        dtype, axes, shape = self.array()
        freqs = self.reals("FREQ_MHZ")
        widths, zones = self.reals("WIDTH_MHZ"), self.zones(len(freqs))
        downs = {zone["downsample"] for zone in zones}
        if "time" not in axes or "freq" not in axes or len(freqs) == 0:
            raise self.bad("AXES", "axes with time and freq, and FREQ_MHZ")
        try:
            sample = Fraction(self.text("SAMPLE_NS"))
            assert sample > 0
        except (ValueError, ZeroDivisionError, AssertionError):
            raise self.bad("SAMPLE_NS", "a positive fraction, such as 5120/3") from None
        frame = self.whole("FRAME_SAMPLES")
        if frame < 1:
            raise self.bad("FRAME_SAMPLES", "1 or more")
        lengths = dict(zip(axes, shape))
        lengths["time"] = max(1, frame // min(downs))
        telescope, radec = self.header.get("TELESCOPE", "unset"), self.table("BEAMS_RADEC", 2)
        return Stream(
            dtype=dtype,
            axes=axes,
            shape=tuple(lengths[a] for a in axes),
            frame_samples=frame,
            epoch_ns=self.whole("EPOCH_NS"),
            sample_ns=sample,
            freqs_mhz=freqs,
            widths_mhz=(
                widths
                if len(widths) == len(freqs)
                else np.full(len(freqs), widths[0] if len(widths) else np.nan)
            ),
            zones=zones,
            downsample=downs.pop() if len(downs) == 1 else None,
            scale=float(self.header.get("SCALE", 1)),
            sideband=self.header.get("SIDEBAND"),
            beams=self.table("BEAMS_XY", 2),
            beams_radec=None if radec is None else np.where(radec == 999, np.nan, radec),
            telescope=None if telescope == "unset" else telescope,
            positions_m=self.positions(),
            site=self.site(),
            side=self.array("AUX_") if "AUX_DTYPE" in self.header else None,
            packets=False,
        )


def read_gaps(path, nchannels):
    """Rows (first, count, channel, nchannels, weight) of FILE.gaps."""
    rows = []
    if not os.path.exists(path):
        return rows
    with open(path, errors="replace") as file:
        for number, line in enumerate(file, 1):
            words = line.split("#")[0].split()
            if not words:
                continue
            try:
                row = [int(w) for w in words]
                assert len(row) in (2, 5) and min(row) >= 0 and (len(row) == 2 or row[4] <= 255)
            except (ValueError, AssertionError):
                raise FormatError(
                    f"{path}:{number}: expected 'first count', or 'first count channel nchannels " "weight'"
                ) from None
            rows.append(row if len(row) == 5 else row + [0, nchannels, 0])
    return rows


class _File:
    """One file: where its frames are."""

    def __init__(self, path):
        self.path = path
        self.reader = _Reader(path)
        self.stream = self.reader.stream()
        self.first = self.reader.whole("SAMPLE0")
        self.offset = self.reader.whole("HDR_SIZE")
        self.bytes = max(0, os.path.getsize(path) - self.offset)
        s = self.stream
        self.flat = (
            s.axes[0] == "time"
            and s.downsample is not None
            and s.side is None
            and not (s.dtype == "int4" and np.prod(s.shape[1:]) % 2)
        )
        self.samples = self._count(self.reader.whole("SAMPLES"))
        self._map = None

    def part_shape(self, first, samples, zone=None):
        s = self.stream
        down, n = (
            (s.downsample, len(s.freqs_mhz)) if zone is None else (zone["downsample"], zone["nchannels"])
        )
        steps = -(-(first + samples) // down) - first // down
        return tuple({"time": steps, "freq": n}.get(a, length) for a, length in zip(s.axes, s.shape))

    def part_bytes(self, first, samples):
        """Bytes of the parts of a frame, and of its side array."""
        s = self.stream
        zones = [None] if s.downsample is not None else s.zones
        return [bytes_of(s.dtype, self.part_shape(first, samples, z)) for z in zones], (
            bytes_of(s.side[0], s.side[2]) if s.side else 0
        )

    def frame_bytes(self, first, samples):
        parts, side = self.part_bytes(first, samples)
        return sum(parts) + side

    def _count(self, stated):
        """Base samples; where the writer was killed, the payload's length says it."""
        s, down = self.stream, self.stream.downsample
        if self.flat:
            row = self.frame_bytes(0, down)
            there = self.bytes // row * down if row else 0
            there -= min(there, self.first % down)
            return min(stated, there) if 0 < stated <= there else there
        frame, first, at, samples = s.frame_samples, self.first, 0, 0
        head = min(frame - first % frame, stated or frame)
        size = self.frame_bytes(first, head)
        if size > self.bytes:
            return 0
        samples, at = head, size
        each = self.frame_bytes(0, frame)
        whole = (self.bytes - at) // each if each else 0
        samples += whole * frame
        if 0 < stated <= samples:
            return stated
        rest = stated - samples  # the last frame may be shorter
        if 0 < rest < frame and self.frame_bytes(first + samples, rest) <= self.bytes - at - whole * each:
            samples += rest
        return samples

    def frames(self):
        """(first, samples, byte offset) of each frame; of a flat payload the only one."""
        if self.flat:
            yield self.first, self.samples, 0
            return
        frame, first, end, at = self.stream.frame_samples, self.first, self.first + self.samples, 0
        while first < end:
            samples = min(end, (first // frame + 1) * frame) - first
            yield first, samples, at
            at += self.frame_bytes(first, samples)
            first += samples

    def map(self):
        if self._map is None:
            self._map = (
                np.memmap(self.path, np.uint8, "r", self.offset, (self.bytes,))
                if self.bytes
                else np.zeros(0, np.uint8)
            )
        return self._map

    def load(self, first, samples, at, dtype, shape):
        size = bytes_of(dtype, shape)
        stored = self.map()[at : at + size]
        if dtype == "int4":
            return unpack4(stored, shape)
        return stored.view(STORED[dtype][0]).reshape(stored_shape(dtype, shape))

    def blocks(self, shift, channel, z=None):
        s, gaps = self.stream, []

        def lines():
            """Read once for all frames."""
            if not gaps:
                rows = read_gaps(self.path + ".gaps", len(s.freqs_mhz))
                left, n = (
                    (s.zones[z]["first_channel"], s.zones[z]["nchannels"])
                    if z is not None
                    else (0, len(s.freqs_mhz))
                )
                rows = [
                    [f + shift, c, max(ch, left) - left, min(ch + k, left + n) - max(ch, left), w]
                    for f, c, ch, k, w in rows
                ]
                gaps.append([row for row in rows if row[3] > 0])
            return gaps[0]

        zone = None if z is None else s.zones[z]
        for first, samples, at in self.frames():
            before = sum(self.part_bytes(first, samples)[0][: z or 0])
            shape = self.part_shape(first, samples, zone)
            load = lambda f=first, n=samples, a=at + before, k=shape: self.load(f, n, a, s.dtype, k)
            touch = lambda f=first + shift, n=samples: [
                row for row in lines() if row[0] < f + n and row[0] + row[1] > f
            ]
            yield Block(first + shift, samples, channel, shape[s.axes.index("freq")], load, touch)

    def sides(self, shift):
        s = self.stream
        for first, samples, at in self.frames():
            parts, side = self.part_bytes(first, samples)
            if side:
                yield first + shift, samples, self.load(first, samples, at + sum(parts), s.side[0], s.side[2])


def _updates(files):
    found = {}
    for file in files:
        for one in filter(None, file.reader.header.get("UPDATES", "").split(",")):
            words = one.split(":")
            if len(words) == 4:
                found[one] = dict(
                    zip(("stage", "sample", "digest", "id"), (words[0], int(words[1]), words[2], words[3]))
                )
    return sorted(found.values(), key=lambda u: u["sample"])


def _shift(base, file):
    """Base samples between the epochs of two files."""
    if base.sample_ns != file.stream.sample_ns:
        raise FormatError(
            f"{file.path}: SAMPLE_NS is {file.stream.sample_ns}; expected {base.sample_ns}, as in the first "
            "file"
        )
    later = (file.stream.epoch_ns - base.epoch_ns) / base.sample_ns
    if later.denominator != 1:
        raise FormatError(
            f"{file.path}: EPOCH_NS is not a whole number of samples after that of the first file; open "
            "them one by one"
        )
    return int(later)


def open_files(paths):
    files = [_File(path) for path in paths]
    base = files[0].stream
    bands = {}
    for file in files:
        s = file.stream
        same = (
            s.dtype,
            s.axes,
            s.downsample,
            s.scale,
            s.sideband,
            [n for a, n in zip(s.axes, s.shape) if a not in ("time", "freq")],
        )
        want = (
            base.dtype,
            base.axes,
            base.downsample,
            base.scale,
            base.sideband,
            [n for a, n in zip(base.axes, base.shape) if a not in ("time", "freq")],
        )
        if same != want:
            raise FormatError(
                f"{file.path}: its array is {same}; expected that of {paths[0]}, {want}; open them one by one"
            )
        bands.setdefault(tuple(s.freqs_mhz), []).append(file)
    headers = [file.reader.header for file in files]
    if base.downsample is None:
        if len(bands) > 1:
            raise FormatError(
                f"{paths[1]}: recordings of zones are joined in time only; expected the same channels"
            )
        return [
            Recording(
                zone_stream(base, z),
                [b for f in files for b in f.blocks(_shift(base, f), 0, z)],
                paths,
                headers,
                _updates(files),
            )
            for z in range(len(base.zones))
        ]
    falls = len(base.freqs_mhz) > 1 and base.freqs_mhz[1] < base.freqs_mhz[0]
    order = sorted(bands, reverse=falls)
    blocks, channel = [], 0
    for freqs in order:
        for file in bands[freqs]:
            blocks += file.blocks(_shift(base, file), channel)
        channel += len(freqs)
    if len(order) > 1:
        each = [bands[f][0].stream for f in order]
        base.freqs_mhz = np.concatenate([s.freqs_mhz for s in each])
        base.widths_mhz = np.concatenate([np.broadcast_to(s.widths_mhz, len(s.freqs_mhz)) for s in each])
        if len(np.unique(base.freqs_mhz)) != len(base.freqs_mhz):
            raise FormatError(
                f"{paths[0]} and the others share some channels and not others; open them one by one"
            )
    return Recording(
        base,
        blocks,
        paths,
        headers,
        _updates(files),
        lambda: [one for f in files for one in f.sides(_shift(base, f))],
    )
