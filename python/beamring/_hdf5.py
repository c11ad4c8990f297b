"""Files in HDF5: visibilities (UVH5), and tables of gains, weights and beams.  h5py reads them."""

import numpy as np

from ._errors import Error, FormatError

_TABLES = ("gain", "weights", "beams")


def _h5py():
    try:
        import h5py

        return h5py
    except ImportError:
        raise Error("this file is in HDF5, for which the package h5py is needed; pip install h5py") from None


def is_ours(begin, path):
    if begin[:8] != b"\x89HDF\r\n\x1a\n":
        return False
    with _h5py().File(path, "r") as file:
        return "Header" in file or any(name in file for name in _TABLES)


class Table:
    """A table of numbers.  Its arrays are attributes (gain, flag, freq_mhz, ...); `attrs` has the rest.

    gain: complex64 [freq][pol][dish]; flag: uint8, 0 is good; weights: int8 [freq][pol][beam][dish][2];
    beams: float64 [beam][2].
    """

    def __init__(self, file):
        self.attrs = {
            name: value.decode() if isinstance(value, bytes) else value for name, value in file.attrs.items()
        }
        self.arrays = {name: item[()] for name, item in file.items() if hasattr(item, "shape")}
        for name, value in self.arrays.items():
            setattr(self, name, value)

    def __repr__(self):
        return (
            "<beamring.Table "
            + ", ".join(f"{n} {v.dtype}{list(v.shape)}" for n, v in self.arrays.items())
            + ">"
        )


class Visibilities:
    """Visibilities of UVH5 files: axes (time, baseline, freq, pol).

    times: datetime64[ns] of the middle of each integration; antennas: [baseline][2] numbers; freqs_mhz;
    polarisations: numbers of UVFITS (-5 xx, -6 yy, ...).  `data`, `flags` and `nsamples` read the files;
    `isel(time=..., freq=...)` reads a part.
    """

    axes = ("time", "baseline", "freq", "pol")

    def __init__(self, files):
        self.files, self._where = [str(f.filename) for f in files], {}
        self._open = files
        header = files[0]["Header"]
        self._nbaselines = int(header["Nbls"][()])
        self.antennas = np.stack(
            [header["ant_1_array"][: self._nbaselines], header["ant_2_array"][: self._nbaselines]], 1
        )
        self.freqs_mhz = np.ravel(header["freq_array"][()]) / 1e6
        self.polarisations = header["polarization_array"][()]
        days = np.concatenate([f["Header/time_array"][:: self._nbaselines] for f in files])
        self.times_ns = np.rint((days - 2440587.5) * 86400e6).astype(np.int64) * 1000
        self.times = self.times_ns.astype("datetime64[ns]")
        name = header["telescope_name"][()] if "telescope_name" in header else b""
        self.telescope = name.decode() if isinstance(name, bytes) else str(name)
        self._index = {"time": slice(None), "freq": slice(None)}

    @property
    def shape(self):
        return (len(self.times), self._nbaselines, len(self.freqs_mhz), len(self.polarisations))

    def __repr__(self):
        sizes = "".join(f"[{axis} {n}]" for axis, n in zip(self.axes, self.shape))
        files = f"{len(self.files)} file" + "s" * (len(self.files) != 1)
        return f"<beamring.Visibilities {self.telescope} {sizes}, {files}>"

    def isel(self, time=slice(None), freq=slice(None)):
        """A part, by slices of times and channels."""
        import copy

        new = copy.copy(self)
        times, freqs = (
            range(sum(self._counts()))[self._index["time"]][time],
            range(self._nfreqs())[self._index["freq"]][freq],
        )
        new._index = {
            "time": slice(times.start, times.stop, times.step),
            "freq": slice(freqs.start, freqs.stop, freqs.step),
        }
        new.times, new.times_ns, new.freqs_mhz = self.times[time], self.times_ns[time], self.freqs_mhz[freq]
        return new

    def _counts(self):
        return [f["Header/time_array"].shape[0] // self._nbaselines for f in self._open]

    def _nfreqs(self):
        return self._open[0]["Data/visdata"].shape[-2]

    def _read(self, name):
        parts, before = [], 0
        wanted = range(sum(self._counts()))[self._index["time"]]
        for file, n in zip(self._open, self._counts()):
            mine = [t - before for t in wanted if before <= t < before + n]
            before += n
            if not mine:
                continue
            rows = slice(mine[0] * self._nbaselines, (mine[-1] + 1) * self._nbaselines)
            block = file["Data"][name][rows]
            block = block.reshape((mine[-1] - mine[0] + 1, self._nbaselines) + block.shape[-2:])
            parts.append(block[[t - mine[0] for t in mine]][:, :, self._index["freq"]])
        return np.concatenate(parts) if parts else np.zeros((0,) + self.shape[1:])

    @property
    def data(self):
        """complex64 [time][baseline][freq][pol]"""
        stored = self._read("visdata")
        return (stored["r"] + 1j * stored["i"] if stored.dtype.names else stored).astype(np.complex64)

    @property
    def flags(self):
        return self._read("flags")

    @property
    def nsamples(self):
        return self._read("nsamples")

    def to_xarray(self):
        import xarray

        return xarray.DataArray(
            self.data, dims=self.axes, coords={"time": self.times, "freq": self.freqs_mhz}
        )


def open_files(paths):
    h5py = _h5py()
    files = []
    for path in paths:
        try:
            files.append(h5py.File(path, "r"))
        except OSError as error:
            raise FormatError(f"{path}: {error}") from None
    if "Header" in files[0]:
        return Visibilities(files)
    if len(files) > 1:
        raise FormatError(f"{paths[1]}: expected one table")
    with files[0]:
        return Table(files[0])
