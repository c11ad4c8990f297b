"""Recordings as labelled arrays that read what is asked for, and nothing else."""

import copy
import glob
import os

import numpy as np

from ._coding import STORED, decode, stored_shape
from ._errors import FormatError
from ._stream import exact_times


class Block:
    """A row-major array that a recording has for a span of time and of channels.

    first, samples: base samples of the recording's counter; channel: its first channel
    load(): the stored array, [axes of the stream] with the time steps that the span touches; a map, where
    it can be
    gaps: rows (first, count, channel, nchannels, weight), or a function that returns them
    """

    def __init__(self, first, samples, channel, nchannels, load, gaps=()):
        self.first, self.samples, self.channel, self.nchannels = first, samples, channel, nchannels
        self.load, self._gaps = load, gaps

    @property
    def gaps(self):
        if callable(self._gaps):
            self._gaps = self._gaps()
        return self._gaps


class Recording:
    """A recording, or a part of one: lazy, of one or more files.

    stream: its description (Stream): dtype, scale, sideband, zones, telescope, beams, epoch_ns, sample_ns,
    ...
    axes, shape: names and lengths, slowest first.  times, times_ns: the beginning of each time step,
        datetime64[ns] and exact int64.  freqs_mhz, widths_mhz, beams, beams_radec, positions_m: of
        the channels, beams and dishes that are left.  site, telescope: where it is, and its name.
    first, samples: the span in base samples
    updates: the updates of parameters with which it was made: dicts (stage, sample, digest, id)
    raw: stored elements; a map of the file where one file holds all.  data: the same as complex64 or
        float32, times `stream.scale`.  valid: uint8 [time][freq] in the order of the axes: 255 complete, 0
        missing (also:
        no file has it).
    `sel` and `isel` make smaller ones and read nothing.
    """

    def __init__(self, stream, blocks, files=(), headers=(), updates=(), side=None):
        self.stream, self._blocks, self.files, self.headers = (
            stream,
            sorted(blocks, key=lambda b: b.first),
            files,
            headers,
        )
        self.updates, self._side = list(updates), side
        down = stream.downsample
        self.first = min((b.first for b in self._blocks), default=0)
        end = max((b.first + b.samples for b in self._blocks), default=self.first)
        self._step0, steps = self.first // down, stream.steps(self.first, end - self.first)
        self.axes = stream.axes
        lengths = {"time": steps, "freq": len(stream.freqs_mhz)}
        self._index = {a: range(lengths.get(a, n)) for a, n in zip(stream.axes, stream.shape)}

    # --- of what is left

    @property
    def shape(self):
        return tuple(len(self._index[a]) for a in self.axes)

    @property
    def dtype(self):
        """NumPy's type of `data`."""
        return np.dtype(np.complex64 if STORED[self.stream.dtype][2] else np.float32)

    @property
    def samples(self):
        return len(self._index["time"]) * self._index["time"].step * self.stream.downsample

    @property
    def times_ns(self):
        steps, down = self._index["time"], self.stream.downsample
        start = (self._step0 + steps.start) * down
        return exact_times(self.stream.epoch_ns, self.stream.sample_ns, start, steps.step * down, len(steps))

    @property
    def times(self):
        return self.times_ns.astype("datetime64[ns]")

    @property
    def sample_numbers(self):
        """The first base sample of each time step, int64."""
        return (self._step0 + np.asarray(self._index["time"])) * self.stream.downsample

    @property
    def freqs_mhz(self):
        return self.stream.freqs_mhz[_slice(self._index["freq"])]

    @property
    def widths_mhz(self):
        return np.broadcast_to(self.stream.widths_mhz, len(self.stream.freqs_mhz))[
            _slice(self._index["freq"])
        ]

    @property
    def beams(self):
        """Direction cosines of the beams, [beam][2], or None."""
        return self._of("beam", self.stream.beams)

    def _of(self, axis, table):
        """The rows of what is left along an axis."""
        return None if table is None or axis not in self._index else table[_slice(self._index[axis])]

    @property
    def beams_radec(self):
        """Right ascension and declination of the beams at the start, degrees, [beam][2], or None."""
        return self._of("beam", self.stream.beams_radec)

    @property
    def positions_m(self):
        """East, north and up of the dishes, metres, [dish][3], or None."""
        return self._of("dish", self.stream.positions_m)

    @property
    def site(self):
        """Latitude and longitude, degrees, and height, metres or None; None where it is not known."""
        return self.stream.site

    @property
    def telescope(self):
        return self.stream.telescope

    @property
    def sideband(self):
        return self.stream.sideband

    def isel(self, **indexers):
        """By index: `r.isel(time=slice(0, 1000), dish=3)`.  A number keeps its axis, with length 1."""
        new = copy.copy(self)
        new._index = dict(self._index)
        for axis, wanted in indexers.items():
            if axis not in new._index:
                raise KeyError(f"there is not an axis '{axis}'; this recording has {', '.join(self.axes)}")
            old = new._index[axis]
            if isinstance(wanted, (int, np.integer)):
                at = wanted + len(old) if wanted < 0 else wanted
                if not 0 <= at < len(old):
                    raise IndexError(f"{axis}: {wanted} is outside of 0 to {len(old) - 1}")
                wanted = slice(at, at + 1)
            if not isinstance(wanted, slice) or (wanted.step or 1) < 1:
                raise TypeError(f"{axis}: expected a number, or a slice that goes upwards")
            new._index[axis] = old[wanted]
        return new

    def sel(self, **indexers):
        """By value: `time=slice(t0, t1)` (datetime64, text, or integer ns; half open: steps that begin
        within), `freq=slice(410, 420)` or `freq=415.0` (MHz; a number takes the nearest channel).  Other
        axes: as
        `isel`.
        """
        where = dict(indexers)
        if "time" in where:
            times = self.times_ns
            ns = lambda t: (
                t
                if t is None or isinstance(t, (int, np.integer))
                else int(np.datetime64(t, "ns").astype(np.int64))
            )
            span = where["time"]
            if not isinstance(span, slice):
                at = int(np.searchsorted(times, ns(span), "right")) - 1
                where["time"] = max(at, 0)
            else:
                low = 0 if span.start is None else int(np.searchsorted(times, ns(span.start), "left"))
                high = len(times) if span.stop is None else int(np.searchsorted(times, ns(span.stop), "left"))
                where["time"] = slice(low, max(low, high))
        if "freq" in where:
            freqs, span = self.freqs_mhz, where["freq"]
            if not isinstance(span, slice):
                where["freq"] = int(np.argmin(np.abs(freqs - span)))
            else:
                low, high = (-np.inf if span.start is None else span.start), (
                    np.inf if span.stop is None else span.stop
                )
                inside = np.flatnonzero((freqs >= min(low, high)) & (freqs <= max(low, high)))
                where["freq"] = slice(int(inside[0]), int(inside[-1]) + 1) if len(inside) else slice(0, 0)
        return self.isel(**where)

    def __getitem__(self, key):
        """By position, axis after axis: `r[0:1000, 3]`."""
        key = key if isinstance(key, tuple) else (key,)
        return self.isel(**dict(zip(self.axes, key)))

    def __len__(self):
        return self.shape[0]

    # --- reading

    def _pieces(self):
        """(block, index into the block's array, index into the result), for each axis a slice."""
        time, freq, down = self._index["time"], self._index["freq"], self.stream.downsample
        for block in self._blocks:
            start = block.first // down - self._step0
            steps = self.stream.steps(block.first, block.samples)
            inner, outer = {}, {}
            for axis, wanted, low, n in (
                ("time", time, start, steps),
                ("freq", freq, block.channel, block.nchannels),
            ):
                begin = max(0, -(-(low - wanted.start) // wanted.step))
                end = min(len(wanted), max(begin, -(-(low + n - wanted.start) // wanted.step)))
                outer[axis] = slice(begin, end)
                inner[axis] = slice(
                    wanted.start + begin * wanted.step - low,
                    wanted.start + (end - 1) * wanted.step - low + 1,
                    wanted.step,
                )
            if all(s.stop > s.start for s in outer.values()):
                full = lambda axis: slice(
                    self._index[axis].start, self._index[axis].stop, self._index[axis].step
                )
                yield (
                    block,
                    tuple(inner.get(a) or full(a) for a in self.axes),
                    tuple(outer.get(a, slice(None)) for a in self.axes),
                )

    def _fill(self, out, convert):
        for block, inner, outer in self._pieces():
            convert(block.load()[inner], out[outer])
        return out

    @property
    def raw(self):
        """Stored elements (`beamring.decode` makes numbers of them): int4x2 uint8, pairs with a last axis
        of 2, int4 as
        int8 one by one.  Samples that no file has are 0."""
        pieces = list(self._pieces())
        if len(pieces) == 1 and _covers(pieces[0][2], self.shape):
            return pieces[0][0].load()[pieces[0][1]]
        item, items, _ = STORED[self.stream.dtype]
        item = np.dtype(np.int8) if items == 0.5 else item
        shape = self.shape + ((2,) if items == 2 else ())

        def put(stored, into):
            into[...] = stored

        return self._fill(np.zeros(shape, item), put)

    def decoded(self):
        """complex64 or float32 as stored, without `scale`."""
        dtype = "int8" if self.stream.dtype == "int4" else self.stream.dtype
        return self._fill(np.zeros(self.shape, self.dtype), lambda stored, into: _decode(stored, dtype, into))

    @property
    def data(self):
        values = self.decoded()
        if self.stream.scale != 1:
            values *= self.dtype.type(self.stream.scale)
        return values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.data, dtype)

    @property
    def side(self):
        """The side arrays: [(first, samples, array)], one a frame; [] where there are none."""
        return self._side() if self._side else []

    @property
    def valid(self):
        """uint8, axes time and freq in the order of the recording's."""
        order = [a for a in self.axes if a in ("time", "freq")]
        whole = np.zeros((len(self._index["time"]), len(self._index["freq"])), np.uint8)
        down, steps, channels = self.stream.downsample, self._index["time"], self._index["freq"]
        for block, _, outer in self._pieces():
            where = dict(zip(self.axes, outer))
            part = whole[where["time"], where["freq"]]
            part[...] = 255
            low = (
                self._step0 + steps.start + where["time"].start * steps.step
            )  # the part's first step and channel
            left = channels.start + where["freq"].start * channels.step - block.channel
            for first, count, channel, nchannels, weight in block.gaps:
                begin = max(0, -(-(first // down - low) // steps.step))
                end = max(begin, -(-(-(-(first + count) // down) - low) // steps.step))
                c0 = max(0, -(-(channel - left) // channels.step))
                c1 = max(c0, -(-(channel + nchannels - left) // channels.step))
                part[begin:end, c0:c1] = weight
        return whole if order == ["time", "freq"] else whole.T

    def to_xarray(self):
        """An xarray.DataArray with the times and frequencies as coordinates, `valid` beside them, and NaN
        where nothing
        is valid."""
        import xarray

        coords = {"time": self.times, "freq": self.freqs_mhz}
        order = [a for a in self.axes if a in ("time", "freq")]
        valid = self.valid
        coords["valid"] = (tuple(order), valid)
        array = xarray.DataArray(
            self.data,
            dims=self.axes,
            coords=coords,
            attrs={"telescope": self.telescope, "sideband": self.sideband},
        )
        return array.where(array.valid > 0)

    def __repr__(self):
        lengths = "".join(f"[{a} {n}]" for a, n in zip(self.axes, self.shape))
        return (
            f"<beamring.Recording {self.stream.dtype} {lengths}, {len(self.files)} "
            f"file{'s' if len(self.files) != 1 else ''}>"
        )

    @classmethod
    def _from_frames(cls, stream, frames, updates=()):
        """Arrays from copies of frames: (first, samples, parts, valid, side)."""
        if stream.downsample is None:
            return [_zone_of_frames(stream, frames, z) for z in range(len(stream.zones))]
        blocks = []
        for first, samples, parts, valid, _ in frames:
            blocks.append(
                Block(
                    first,
                    samples,
                    0,
                    len(stream.freqs_mhz),
                    _loader(stream, parts[0], first, samples),
                    _weights(stream, first, samples, valid),
                )
            )
        sides = [(f, n, s) for f, n, _, _, s in frames if s is not None]
        return cls(stream, blocks, updates=updates, side=lambda: sides)


def _zone_of_frames(stream, frames, z):
    zone = zone_stream(stream, z)
    blocks = []
    for first, samples, parts, valid, _ in frames:
        cells, at = None, 0
        for i, one in enumerate(stream.zones):
            n = (-(-(first + samples) // one["downsample"]) - first // one["downsample"]) * one["nchannels"]
            if i == z and valid is not None:
                cells = valid.reshape(-1)[at : at + n]
            at += n
        blocks.append(
            Block(
                first,
                samples,
                0,
                zone.zones[0]["nchannels"],
                (lambda part: lambda: part)(parts[z]),
                _weights(zone, first, samples, cells),
            )
        )
    return Recording(zone, blocks)


def zone_stream(stream, z):
    """The description of one zone of a stream, as a stream of its own."""
    zone = stream.zones[z]
    new = copy.copy(stream)
    channels = slice(zone["first_channel"], zone["first_channel"] + zone["nchannels"])
    new.freqs_mhz = stream.freqs_mhz[channels]
    new.widths_mhz = np.broadcast_to(stream.widths_mhz, len(stream.freqs_mhz))[channels]
    new.downsample, new.zones = zone["downsample"], [dict(zone, first_channel=0)]
    lengths = dict(zip(stream.axes, stream.shape), freq=zone["nchannels"])
    lengths["time"] = max(1, stream.frame_samples // zone["downsample"])
    new.shape = tuple(lengths[a] for a in stream.axes)
    return new


def unpack4(stored, shape):
    """int4, two elements a byte, as int8 one by one."""
    low, high = ((stored & 15) ^ 8).astype(np.int8) - 8, ((stored >> 4) ^ 8).astype(np.int8) - 8
    return np.stack([low, high], 1).reshape(-1)[: int(np.prod(shape))].reshape(shape)


def _loader(stream, array, first, samples):
    if stream.dtype != "int4":
        return lambda: array
    shape = tuple(
        {"time": stream.steps(first, samples), "freq": len(stream.freqs_mhz)}.get(a, n)
        for a, n in zip(stream.axes, stream.shape)
    )
    return lambda: unpack4(array, shape)


def _weights(stream, first, samples, valid):
    """Validity of a frame as rows of gaps, cell by cell where it is not complete."""
    if valid is None:
        return ()
    steps, n, down = stream.steps(first, samples), len(stream.freqs_mhz), stream.downsample
    order = [a for a in stream.axes if a in ("time", "freq")]
    cells = valid.reshape((steps, n) if order == ["time", "freq"] else (n, steps))
    cells = cells if order == ["time", "freq"] else cells.T
    rows = []
    for t, c in zip(*np.nonzero(cells != 255)):
        if (
            rows
            and rows[-1][0] == (first // down + t) * down
            and rows[-1][2] + rows[-1][3] == c
            and rows[-1][4] == cells[t, c]
        ):
            rows[-1][3] += 1
        else:
            rows.append([(first // down + t) * down, down, c, 1, int(cells[t, c])])
    return rows


def _decode(stored, dtype, into):
    decode(stored, dtype, into.shape, into)


def _slice(wanted):
    return slice(wanted.start, wanted.stop, wanted.step)


def _covers(outer, shape):
    return all((s.start or 0) == 0 and (s.stop is None or s.stop == n) for s, n in zip(outer, shape))


def open(files, format=None, *, stream=None, telescope=None, **replay):
    """Opens a recording: a path, a pattern like "field_*.dada", or a list of them.

    Recordings of beamring (DADA), filterbank files (.fil), UVH5 and tables in HDF5 (h5py is needed) are
    mapped.  All others that `replay` reads (VDIF, GUPPI RAW, CHIME, kotekan, pcap, DADA of others) are
    played; `format`,
    `stream` (a dict, as `stream:` of a pipeline), `telescope` (a dict, or a file to include) and further
    keywords
    (as keys of `replay`) say what the files lack.  A part of those is read from the beginning on.

    Returns a Recording; for a table of gains or weights a Table; for a recording of zones with different
    time steps a list of Recordings, one a zone.  Raises FileNotFoundError, FormatError (the file, and what
    was expected).
    """
    from . import _dada, _external, _hdf5, _sigproc

    names = [os.fspath(name) for name in ([files] if isinstance(files, (str, os.PathLike)) else files)]
    paths = []
    for name in names:
        found = [name] if os.path.exists(name) else sorted(glob.glob(name))
        found = [p for p in found if not p.endswith((".gaps", "beams.csv")) or p == name]
        if not found:
            raise FileNotFoundError(
                f"there is no file '{name}'; expected a path, or a pattern like field_*.dada"
            )
        paths += found
    for path in paths:
        if not os.path.isfile(path):
            raise FormatError(
                f"{path}: expected a file; name the files in it, such as {path}/*.dada"
                if os.path.isdir(path)
                else f"{path}: expected a regular file"
            )
    with _builtin_open(paths[0], "rb") as file:
        begin = file.read(1 << 12)
    if format is None and stream is None and not replay:
        if _dada.is_own(begin):
            return _dada.open_files(paths)
        if _sigproc.is_filterbank(begin):
            return _sigproc.open_files(paths)
        if _hdf5.is_ours(begin, paths[0]):
            return _hdf5.open_files(paths)
    return _external.open_files(names, format, stream, telescope, replay)


_builtin_open = __builtins__["open"] if isinstance(__builtins__, dict) else __builtins__.open
