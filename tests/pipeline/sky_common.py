"""Shared by the tests of the true sky: fields of tests/oracle/fengine.py, the power that physics expects in
a beam, and what the products say of themselves.

Not one sign here is the program's. A source's place is an azimuth and an altitude of the F-engine, a beam's
place is what the test asked for or what a product states, and the power expected in a beam depends on the
distance between the two alone. Frequencies are those that products state."""
import glob
import os
import sys
from fractions import Fraction

import numpy as np

import harness
from small import one

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import fengine as fe  # noqa: E402

ZONES = (1, 2, 3, 4)
EPOCH_NS = 1700000000000000000
ROWS, COLUMNS = 6, 4
NOISE_RMS = 1.5
FLUX = 0.25
TELESCOPE = """
telescope:
  name: sky
  grid: {m: $rows, n: $columns}
  spacing_m: {m: $north_m, n: $east_m}
  latitude_deg: 37.2
  longitude_deg: -118.3
"""


class Array:
    """The dishes in a Nyquist zone: their spacings follow the wavelength, so that every zone sees the same
    sky through the same beams, and directions within 40 degrees of the zenith are not repeated."""

    def __init__(self, board, rows=ROWS, columns=COLUMNS, spacing=(0.74, 0.83)):
        wavelength = fe.C / board.freq_mhz().max()
        self.board, self.rows, self.columns = board, rows, columns
        self.north_m, self.east_m = (round(float(s * wavelength), 3) for s in spacing)
        self.positions = fe.grid(rows, columns, self.north_m, self.east_m)
        dishes = [[m, n] for m in range(rows) for n in range(columns)]
        self.yaml = fe.telescope_yaml(TELESCOPE, rows, columns, self.north_m, self.east_m) + \
            f"  dishes: {dishes}\n"

    def power(self, place, looks, flux=FLUX, noise_rms=NOISE_RMS):
        """The power of a source in `place` in a beam towards each of looks [beam][x, y], in squared levels
        per sample and both polarisations: [freq][beam]. Blocks of a plain FFT that see a signal at different
        times have that much less in common."""
        s = fe.direction(*place)
        early = self.positions @ s / fe.C
        north, east = np.asarray(looks).T
        up = np.sqrt(1 - north ** 2 - east ** 2)
        asked = np.stack([east, north, up], 1) @ self.positions.T / fe.C
        apart = abs(early[:, None] - early) * float(Fraction(self.board.fs_mhz)) / self.board.nfft
        common = np.maximum(1 - apart, 0)
        phase = np.exp(2j * np.pi * np.multiply.outer(self.board.freq_mhz(), early - asked))
        seen = np.einsum("fbi,ij,fbj->fb", phase, common, phase.conj()).real
        return 2 * (2 * noise_rms ** 2 * (len(early) + flux * seen) + len(early) / 6)


class Irregular(Array):
    """Antennas anywhere, with heights, as a table or a list: no grid."""

    def __init__(self, board, seed, antennas=24, size=3, height=1.5):
        wavelength = fe.C / board.freq_mhz().max()
        rng = np.random.default_rng([41, seed])
        self.board = board
        self.positions = np.round(rng.uniform(-1, 1, (antennas, 3)) * [size, size, height] * wavelength, 4)
        self.yaml = self.telescope(self.positions.tolist())

    def telescope(self, positions_m):
        return f"telescope: {{name: sky, latitude_deg: 37.2, longitude_deg: -118.3, height_m: 1222, " \
            f"positions_m: {positions_m}}}\n"

    def write_table(self, directory, name="antennas.csv"):
        """Returns `telescope:` that reads it."""
        with open(os.path.join(directory, name), "w") as f:
            f.write("# as surveyed\nantenna,up,east,north\n")
            f.writelines(f"a{i},{u!r},{e!r},{n!r}\n" for i, (e, n, u) in enumerate(self.positions.tolist()))
        return self.telescope(name)


def board(zone, **more):
    """Eight channels in the middle of a zone of 200 MHz."""
    return fe.Board(**{"fs_mhz": 400, "zone": zone, "nfft": 64, "first_channel": 16, "channels": 8,
                       "noise_rms": NOISE_RMS, **more})


def places(zone, count=5):
    """Random azimuths and altitudes, 15 to 38 degrees from the zenith."""
    rng = np.random.default_rng([2026, zone])
    return [(float(rng.uniform(0, 360)), float(rng.uniform(52, 75))) for _ in range(count)]


def xy(place):
    """Direction cosines to the north and to the east."""
    east, north, _ = fe.direction(*place)
    return [float(north), float(east)]


def text(looks):
    return "{directions: %s}" % [[float(x), float(y)] for x, y in looks]


def write(directory, field, name="field_000000.dada", sideband="true", **more):
    """The field as a recording; without `sideband` it says its own."""
    sideband = field.sideband if sideband == "true" else sideband
    fe.write_recording(os.path.join(directory, name), field, sideband, **more)


def intensities(directory, prefix):
    """I[freq][step][beam] in squared levels, summed over a step, NaN where a step is not complete; and the
    header's keys."""
    path = one(directory, f"{prefix}_*.dada")
    got, first, keys, _ = harness.read_frames(path)
    assert first == 0, first
    valid = harness.read_gaps(path, 0, got.shape[1], got.shape[0], int(keys["DOWNSAMPLE"])).T
    return np.where(valid[..., None] == 255, got.astype(float) * float(keys["SCALE"]), np.nan), keys


def voltages(directory, prefix):
    """J[beam][freq][pol][time] in levels, missing ones as NaN, its first time step, and the header's keys."""
    raw, first, keys, _ = harness.read_frames(one(directory, f"{prefix}_*.dada"))
    value = harness.unpack(raw)
    return np.where(value.real == -8, np.nan, value), first, keys


def numbers(keys, name):
    """A list of numbers of a header, continued under name_2, name_3, ... or a progression."""
    parts = [keys[name]]
    while f"{name}_{len(parts) + 1}" in keys:
        parts.append(keys[f"{name}_{len(parts) + 1}"])
    if ":" in parts[0]:
        first, step, count = (float(v) for v in parts[0].split(":"))
        return first + step * np.arange(int(count))
    return np.array([float(v) for v in ",".join(parts).split(",") if v])


def stated_xy(keys):
    """The directions of a header at the file's first sample, [beam][x, y]; those of beams that are pointed
    elsewhere later on stand in BEAMS_START."""
    return numbers(keys, "BEAMS_XY" if "BEAMS_XY" in keys else "BEAMS_START").reshape(-1, 2)


def sigmas(seen, expected, samples, rounding=0):
    """How far mean powers [freq][beam] of both polarisations are from those expected, in standard deviations
    of the sum over channels: noise of power P has the deviation P / sqrt(2 x samples)."""
    deviation = np.sqrt(((expected + rounding) ** 2).sum(0) / (2 * samples))
    return (seen - expected - rounding).sum(0) / deviation


def check_beams(array, place, looks, seen, samples, scale=1, rounding=0, label=""):
    """Mean powers seen [freq][beam] are those expected, within 5 standard deviations in every beam. A beam
    that looks at the source is the brightest, and has at least twice the power of its mirror image: the
    source's beam over each is returned."""
    expected = array.power(place, looks) * scale
    off = sigmas(seen, expected, samples, rounding)
    worst = np.argmax(abs(off))
    assert abs(off[worst]) < 5, \
        f"{label}: beam {worst} towards {looks[worst]} is {off[worst]:.1f} sigma off; source at {xy(place)}"
    total, away = seen.sum(0), np.hypot(*(np.asarray(looks) - xy(place)).T)
    nearest = np.argmin(away)
    if away[nearest] < 0.01:
        assert np.argmax(total) == nearest, f"{label}: beam {np.argmax(total)} is brightest, not {nearest}"
        mirror = np.hypot(*(np.asarray(looks) + xy(place)).T) < 0.01
        assert (total[mirror] * 2 < total[nearest]).all(), f"{label}: {total[nearest] / total[mirror]}"
    return total[nearest] / total


def looks_at(place, rng):
    """The source, its mirror images, the axes exchanged, and seven others, in any order."""
    x, y = xy(place)
    out = [[x, y], [-x, -y], [-x, y], [x, -y], [y, x], *rng.uniform(-0.5, 0.5, (7, 2))]
    return np.array(out)[rng.permutation(len(out))]


def carrier_places(board, seed):
    """A carrier in every second channel, each at a random place of it, at least a fifth of the finest channel
    from the edges of all fine channels."""
    rng = np.random.default_rng([seed, board.zone])
    width = abs(float(board.step_mhz))
    fine = rng.integers(-56, 56, 4) + 0.5 + rng.uniform(-0.3, 0.3, 4)
    return board.freq_mhz()[rng.integers(2)::2] + fine / 128 * width


def check_carriers(label, carriers, power, mhz, width):
    """Each carrier stands in the channel whose stated frequency holds it. power [freq], mhz [freq], width
    [freq]; channels of different widths are not compared, as they sum different numbers of samples. Returns
    how many carriers these channels hold."""
    found = 0
    for one in np.unique(width):
        here = width == one
        f, p = mhz[here], power[here]
        for carrier in (c for c in carriers if abs(f - c).min() <= one / 2 * 1.001):
            near = np.flatnonzero(abs(f - carrier) < 200 / 32 / 2 + one / 2)
            peak = f[near[np.argmax(p[near])]]
            assert abs(peak - carrier) <= one / 2, \
                f"{label}: the carrier at {carrier:.6f} MHz is in the channel at {peak:.6f}, {one} wide"
            found += 1
    return found


def power_of(directory, prefix, first=0):
    """Sum of |E|^2 of a recorded field, [freq], from base sample `first` on, without the three steps before
    which the filter has not seen enough, and the header's keys. Each of several zones has its own steps."""
    (path,) = files(directory, f"{prefix}_*.dada")
    keys, size = harness.header(path)
    inputs = int(np.prod([int(n) for n in keys["SHAPE"].split(",")[2:]]))
    zones = [[int(v) for v in keys[f"ZONE_{z}"].split(",")] for z in range(int(keys["NZONES"]))]
    raw, at, sums = np.fromfile(path, np.uint8, offset=size), 0, [0] * len(zones)
    for begin in range(0, int(keys["SAMPLES"]), int(keys["FRAME_SAMPLES"])):
        for z, (_, channels, _, down, _) in enumerate(zones):
            steps = -(-min(int(keys["FRAME_SAMPLES"]), int(keys["SAMPLES"]) - begin) // down)
            frame = harness.unpack(raw[at:at + steps * channels * inputs]).reshape(steps, channels, inputs)
            here = [begin + t * down >= first + 3 * down for t in range(steps)]
            sums[z] = sums[z] + (abs(frame[here]) ** 2).sum((0, 2))
            at += steps * channels * inputs
    assert at == len(raw)
    return np.concatenate(sums), keys


def files(directory, pattern):
    return sorted(glob.glob(os.path.join(directory, pattern)))
