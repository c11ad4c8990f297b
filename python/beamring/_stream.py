"""Descriptions of streams: what an array is, and which times and frequencies it holds."""

import copy
import json
from fractions import Fraction

import numpy as np


def exact_times(epoch_ns, sample_ns, first, step, count):
    """Unix time, in whole nanoseconds (int64), of base samples first, first + step, ...; rounded to
    nearest."""
    num, den = sample_ns.numerator, sample_ns.denominator
    last = first + step * max(count - 1, 0)
    if 2 * last * num + den < 1 << 62:
        k = first + step * np.arange(count, dtype=np.int64)
        return (2 * k * num + den) // (2 * den) + epoch_ns
    k = first + step * np.arange(count).astype(object)
    return ((2 * k * num + den) // (2 * den) + epoch_ns).astype(np.int64)


class Stream:
    """The description of a queue's frames or of a recording.

    dtype: of an element, "int4x2", "f32", ... (docs/recordings.md)
    axes, shape: names and lengths of a full frame's axes, slowest first
    frame_samples: base samples of a full frame
    epoch_ns, sample_ns: Unix time of base sample 0 (integer ns); length of a base sample (exact Fraction, ns)
    freqs_mhz, widths_mhz: centres and widths of the channels
    downsample: base samples of a time step; None where zones differ
    zones: a list of dicts (first_channel, nchannels, factor, downsample, delay)
    scale: physical value = scale * stored value
    sideband: "upper", "lower" or None
    beams: float64 [beam][2] direction cosines, or None
    beams_radec: float64 [beam][2] right ascension and declination (ICRS, degrees) at the start of a
        recording, NaN where they are not known; None where it does not say them
    telescope: its name, or None
    positions_m: float64 [dish][3], metres east, north and up; None where they are not known
    site: (latitude_deg, longitude_deg, height_m or None), or None
    side: None, or (dtype, axes, shape) of the second array of each frame
    """

    beams_radec = positions_m = site = None

    def __init__(self, **keys):
        self.__dict__.update(keys)

    @classmethod
    def _from_json(cls, text):
        d = json.loads(text) if isinstance(text, (str, bytes)) else dict(text)
        beams, side = d.get("beams"), d.get("side")
        downs = {zone["downsample"] for zone in d["zones"]}
        return cls(
            dtype=d["dtype"],
            axes=tuple(d["axes"]),
            shape=tuple(d["shape"]),
            frame_samples=d["frame_samples"],
            epoch_ns=d["epoch_ns"],
            sample_ns=Fraction(*d["sample_ns"]),
            freqs_mhz=np.array(d["freq_mhz"]),
            widths_mhz=np.array(d["width_mhz"]),
            zones=d["zones"],
            downsample=downs.pop() if len(downs) == 1 else None,
            scale=d["scale"],
            sideband=d["sideband"],
            beams=np.array(beams) if beams else None,
            telescope=d["telescope"],
            positions_m=None if d.get("positions_m") is None else np.array(d["positions_m"]),
            site=None if d.get("site") is None else tuple(d["site"]),
            side=(side["dtype"], tuple(side["axes"]), tuple(side["shape"])) if side else None,
            packets=d.get("packets", False),
        )

    def _to_json(self, before):
        """The keys that differ from `before` (a Stream), for br_stream_from_json."""
        keys = {
            "dtype": self.dtype,
            "axes": list(self.axes),
            "shape": [int(n) for n in self.shape],
            "scale": float(self.scale),
        }
        changed = lambda name: getattr(self, name) is not getattr(before, name, None) and not np.array_equal(
            getattr(self, name), getattr(before, name, None)
        )
        if changed("freqs_mhz") or changed("widths_mhz"):
            keys["freq_mhz"] = [float(f) for f in self.freqs_mhz]
            keys["width_mhz"] = [float(w) for w in np.broadcast_to(self.widths_mhz, np.shape(self.freqs_mhz))]
        for name in ("downsample", "frame_samples", "epoch_ns", "sideband"):
            if changed(name):
                keys[name] = getattr(self, name)
        if changed("sample_ns"):
            keys["sample_ns"] = [Fraction(self.sample_ns).numerator, Fraction(self.sample_ns).denominator]
        if changed("beams") and self.beams is not None:
            keys["beams"] = [[float(x), float(y)] for x, y in self.beams]
        if changed("side"):
            keys["side"] = None if self.side is None else dict(zip(("dtype", "axes", "shape"), self.side))
        return json.dumps(keys)

    def like(self, dtype=None, axes=None, shape=None, **changes):
        """A copy with changes.  `axes` without `shape` keeps the lengths of those axes; with `downsample`,
        the time
        axis has as many steps as a frame then holds."""
        new = copy.copy(self)
        lengths = dict(zip(self.axes, self.shape))
        new.dtype = dtype or self.dtype
        new.__dict__.update(changes)
        lengths["freq"] = len(new.freqs_mhz)
        if new.downsample:
            lengths["time"] = max(1, -(-new.frame_samples // new.downsample))
        new.axes = tuple(axes if axes is not None else self.axes)
        unknown = [axis for axis in new.axes if axis not in lengths]
        if shape is None and unknown:
            raise ValueError(f"the length of axis '{unknown[0]}' is not known; expected shape=(...) as well")
        new.shape = tuple(int(n) for n in shape) if shape is not None else tuple(lengths[a] for a in new.axes)
        return new

    def steps(self, first, samples):
        """Number of time steps that base samples [first, first + samples) touch."""
        return -(-(first + samples) // self.downsample) - first // self.downsample if samples else 0

    def times_ns(self, first, samples):
        """Unix time of the beginning of each of these steps, int64 ns, exact to the rounding of one."""
        down = self.downsample
        return exact_times(
            self.epoch_ns, self.sample_ns, first // down * down, down, self.steps(first, samples)
        )

    def sample_at(self, time):
        """The base sample that holds a time: datetime64, or integer ns since 1970."""
        ns = (
            int(np.datetime64(time, "ns").astype(np.int64))
            if isinstance(time, (np.datetime64, str))
            else int(time)
        )
        return int((ns - self.epoch_ns) // self.sample_ns)

    def __repr__(self):
        lengths = "".join(f"[{a} {n}]" for a, n in zip(self.axes, self.shape))
        freqs = (
            f"{np.min(self.freqs_mhz):g} to {np.max(self.freqs_mhz):g} MHz"
            if len(self.freqs_mhz)
            else "no channels"
        )
        return f"<beamring.{type(self).__name__} {self.dtype} {lengths} {freqs}>"
