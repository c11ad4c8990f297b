#!/usr/bin/env python3
"""An F-engine from physics alone: delays, real samples, forward FFTs.

This file shares no line and no convention with the program or with the other oracles. It conjugates nothing
and reorders nothing: sidebands, order of channels and signs of phases come out of the sampling.

The wave
    s = (sin az cos alt, cos az cos alt, sin alt) is the unit vector TOWARDS the source, in east, north, up;
    azimuth runs from north over east. A plane wave reaches position r (metres east, north, up) EARLIER than
    the origin by r.s/c: if the origin sees S(f) exp(2 pi i f t) at the positive RF frequency f, the antenna
    at r sees S(f) exp(2 pi i f (t + r.s/c)).
The receiver
    g(f) = amplitude exp(i phase) exp(-2 pi i f cable) acts on positive RF frequencies: an analog amplifier
    and phase shifter, and a cable that delays. It acts on the sky and on the receiver's own noise alike. An
    injected carrier comes after it: the same voltage at every sampler.
The sampler
    The voltage v(t) = Re sum_k S_k exp(2 pi i f_k t) is real. It is limited to the Nyquist zone z, that is to
    the RF frequencies (z-1) fs/2 <= f_k < z fs/2, and taken at t = n/fs. The lines are f_k = k fs/N with N
    samples in the span, so that everything is periodic over the span and a field may be sent again and again
    without a seam. Receiver noise of power 1 makes samples of rms 1.
The channelizer
    Spectrum t is the forward FFT (exp(-2 pi i)) of the samples [t nfft, (t+1) nfft), times a window. With
    taps > 1 it is a polyphase filterbank: a Hamming-windowed sinc over `taps` blocks, from block t - taps//2
    on, added up block on block before the same FFT. The time step is nfft/fs. Channel k of the FFT then holds
    the RF frequency
        (z-1) fs/2 + k fs/nfft   odd z:  `upper` sideband, frequencies within a channel run upwards;
         z    fs/2 - k fs/nfft   even z: `lower` sideband, they run downwards, as the list of channels does.
    It follows that a source at the centre f of a channel gives, up to a factor common to all inputs,
        E_d = g_d(f) exp(+2 pi i f r_d.s/c)   upper;   the complex conjugate of that   lower,
    and E_j conj(E_i) / (g_j conj(g_i)) has the phase +2 pi f (r_j - r_i).s/c, or minus that (lower, with the
    conjugate of the gains too). `--self-check` shows it.
The requantizer
    level = clip(rint(scale x spectrum), -7, 7) for real and imaginary part, with a scale that gives receiver
    noise of power 1 and gain 1 an rms of `noise_rms` levels per component. A byte holds both in two's
    complement: real part in the low nibble, imaginary part in the high one.
The dispersion
    The delay is D (f^-2 - fref^-2) with D = DM / 2.41e-4 s MHz^2, later at low frequencies. A group delay of
    -1/(2 pi) dphase/df makes it the phase -2 pi times its integral: +2 pi D (f - fref)^2 / (f fref^2).

Units: MHz, metres, seconds, nanoseconds and degrees where the names say so; MHz and microseconds inside.

    fengine.py --self-check
    fengine.py send FILE.npz ADDRESS PORT BYTES_PER_SECOND [LOOPS]     # a file of save_packets()
"""
import socket
import string
import sys
import time
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

C = 299.792458  # metres per microsecond
POLS = 2


def direction(az_deg, alt_deg):
    """The unit vector (east, north, up) towards azimuth and altitude."""
    az, alt = np.radians(az_deg), np.radians(alt_deg)
    return np.array([np.sin(az) * np.cos(alt), np.cos(az) * np.cos(alt), np.sin(alt)])


def grid(rows, columns, north_m, east_m):
    """Positions [dish][3] of a level grid: dish m columns + n lies m north_m north and n east_m east."""
    m, n = np.divmod(np.arange(rows * columns), columns)
    return np.stack([n * east_m, m * north_m, np.zeros(rows * columns)], 1)


def wave(positions, az_deg, alt_deg, freq_mhz):
    """exp(+2 pi i f r.s/c), [freq][dish]: the phases that the antennas see at RF, relative to the origin."""
    delays = np.asarray(positions, float) @ direction(az_deg, alt_deg) / C
    return np.exp(2j * np.pi * np.multiply.outer(np.asarray(freq_mhz, float), delays))


def progression(first, step, count):
    """exp(2 pi i (first + step j)) for j = 0 .. count-1. Two short tables are faster than `count` sines."""
    block = 512
    coarse = np.exp(2j * np.pi * ((first + step * block * np.arange(-(-count // block))) % 1))
    fine = np.exp(2j * np.pi * ((step * np.arange(block)) % 1))
    return np.outer(coarse, fine).ravel()[:count].astype(np.complex64)


def white(rng, shape, power):
    """Complex spectra [..., lines] of noise with samples of this power, the sum of |S_k|^2 / 2."""
    parts = rng.standard_normal((*shape[:-1], 2 * shape[-1]), np.float32).view(np.complex64)
    return parts * np.sqrt(np.float32(power / shape[-1]))


@dataclass(frozen=True)
class Span:
    """The RF lines of one simulation: f_k = k fs/N for k = first .. first + lines - 1."""
    fs_mhz: float
    zone: int
    samples: int  # N

    @property
    def lines(self):
        return self.samples // 2

    @property
    def first(self):
        return (self.zone - 1) * self.lines

    def freq_mhz(self):
        return (self.first + np.arange(self.lines)) * (self.fs_mhz / self.samples)

    def delay(self, us):
        """exp(2 pi i f_k us): the phases of a signal that arrives this much EARLIER."""
        cycle = self.fs_mhz / self.samples * us
        return progression(self.first * cycle, cycle, self.lines)

    def sample(self, spectrum):
        """v(n/fs) = Re sum_k S_k exp(2 pi i k n/N), n = 0 .. N-1. The exponential has the period N in k, so
        that line k equals line k mod N at the times of the samples: this is all the aliasing there is."""
        folded = np.zeros(self.samples, np.complex64)
        start = self.first % self.samples  # the lines of one zone stay together: they fill one half
        folded[start: start + self.lines] = spectrum
        return np.fft.ifft(folded, norm="forward").real


@dataclass(frozen=True)
class Source:
    """A point source of white, unpolarised noise. flux: its power at one antenna relative to receiver noise
    of power 1, one number or one for each polarisation."""
    az_deg: float
    alt_deg: float
    flux: object

    def spectra(self, span, rng):
        return np.stack([white(rng, (span.lines,), power) for power in np.broadcast_to(self.flux, POLS)])


@dataclass(frozen=True)
class Carrier:
    """amplitude x cos(2 pi f t) at the origin, with f the line nearest to `mhz` (at most fs/2N away).
    amplitude: in units of the receiver noise's rms, one number or one for each polarisation. Without a
    direction it is injected: the same voltage at every sampler, after the gains."""
    mhz: float
    amplitude: object
    az_deg: float = None
    alt_deg: float = None

    def line(self, span):
        return round(self.mhz * span.samples / span.fs_mhz)

    def spectra(self, span, rng):
        at = self.line(span) - span.first
        if not 0 <= at < span.lines:
            raise ValueError(f"the carrier at {self.mhz} MHz lies outside Nyquist zone {span.zone}")
        out = np.zeros((POLS, span.lines), np.complex64)
        out[:, at] = self.amplitude
        return out


@dataclass(frozen=True)
class Burst:
    """A burst of white, unpolarised noise with a Gaussian profile, coherently dispersed. It reaches the
    origin at `arrival_s` after the first sample at the frequency ref_mhz. fwhm_s: full width of the power at
    half maximum, before dispersion. flux: power at the peak, before dispersion, as for Source. Power that
    leaves the span at its end enters again at its beginning."""
    az_deg: float
    alt_deg: float
    dm: float
    arrival_s: float
    ref_mhz: float
    fwhm_s: float
    flux: object

    def delay_s(self, freq_mhz):
        """The delay relative to ref_mhz."""
        return self.dm / 2.41e-4 * (np.asarray(freq_mhz, float) ** -2 - float(self.ref_mhz) ** -2)

    def spectra(self, span, rng):
        # The lines of a zone are those of a complex signal sampled at fs/2, above the zone's lower edge.
        length_s = span.samples / span.fs_mhz * 1e-6
        late = np.arange(span.lines) / span.lines * length_s - self.arrival_s
        late -= length_s * np.rint(late / length_s)
        profile = np.exp(-2 * np.log(2) * (late / self.fwhm_s) ** 2)  # of the voltage
        f, ref = span.freq_mhz(), float(self.ref_mhz)
        with np.errstate(divide="ignore", invalid="ignore"):  # a line at 0 MHz carries nothing
            cycles = np.where(f > 0, 1e6 * self.dm / 2.41e-4 * (f - ref) ** 2 / (f * ref ** 2), 0)
        chirp = np.where(f > 0, np.exp(2j * np.pi * (cycles % 1)), 0)
        noise = white(rng, (POLS, span.lines), 1) * np.sqrt(span.lines)  # variance 1 of each part
        flux = np.sqrt(np.broadcast_to(self.flux, POLS))[:, None]
        return (np.fft.fft(flux * profile * noise, norm="forward") * chirp).astype(np.complex64)


@dataclass(frozen=True)
class Receivers:
    """The antennas and their analog chains. positions [dish][3]: east, north, up in metres. amplitude,
    phase_rad, cable_ns, noise: [pol][dish] or anything that broadcasts to it. noise: power of the receiver's
    own noise, before the gain (0: none); each input has its own."""
    positions: object
    amplitude: object = 1.0
    phase_rad: object = 0.0
    cable_ns: object = 0.0
    noise: object = 1.0

    def inputs(self, name):
        return np.broadcast_to(np.asarray(getattr(self, name), float), (POLS, len(self.positions)))

    def gains(self, freq_mhz):
        """g, [freq][pol][dish]: amplitude exp(i phase - 2 pi i f cable)."""
        cycles = np.multiply.outer(np.asarray(freq_mhz, float), self.inputs("cable_ns") * 1e-3)
        return self.inputs("amplitude") * np.exp(1j * self.inputs("phase_rad") - 2j * np.pi * cycles)


@dataclass(frozen=True)
class Board:
    """The digital half. fs_mhz: sampling frequency (int, Fraction, or a string such as "1600/3"). zone: 1, 2,
    3, ... nfft: FFT length. The channels [first_channel, first_channel + channels) of the FFT leave the
    board, in its order. taps: 1 is the plain FFT. noise_rms: levels per component, see the top.
    channel_scale: a further factor for each channel, or None. adc_bits: None for exact samples, else the full
    scale lies at 8 rms of unit receiver noise."""
    fs_mhz: object
    zone: int
    nfft: int
    first_channel: int
    channels: int
    taps: int = 1
    noise_rms: float = 2.3
    channel_scale: object = None
    adc_bits: int = None

    def __post_init__(self):
        last = self.first_channel + self.channels
        if self.nfft % 2 or not 0 <= self.first_channel < last <= self.nfft // 2:
            raise ValueError("nfft must be even, and the FFT has the channels 0 .. nfft/2 - 1")

    @property
    def sideband(self):
        return "upper" if self.zone % 2 else "lower"

    @property
    def sample_ns(self):
        return 1000 * self.nfft / Fraction(self.fs_mhz)

    @property
    def channel0_mhz(self):
        """RF centre of channel 0, a Fraction: lower edge of an odd zone, upper edge of an even zone."""
        return (self.zone - self.zone % 2) * Fraction(self.fs_mhz) / 2

    @property
    def step_mhz(self):
        """From one channel to the next, a Fraction."""
        return (1 if self.zone % 2 else -1) * Fraction(self.fs_mhz) / self.nfft

    def freq_mhz(self):
        numbers = range(self.first_channel, self.first_channel + self.channels)
        return np.array([float(self.channel0_mhz + k * self.step_mhz) for k in numbers])

    def window(self):
        """[taps][nfft]."""
        if self.taps == 1:
            return np.ones((1, self.nfft), np.float32)
        length = self.taps * self.nfft
        sinc = np.sinc((np.arange(length) - (length - 1) / 2) / self.nfft)
        return (sinc * np.hamming(length)).reshape(self.taps, self.nfft).astype(np.float32)

    def digitize(self, voltage):
        if self.adc_bits is None:
            return voltage
        top = 2 ** (self.adc_bits - 1) - 1
        return np.clip(np.rint(voltage * (top / 8)), -top, top).astype(np.float32) * np.float32(8 / top)

    def channelize(self, voltage, window):
        """Real samples to spectra [time][channel]: windows and forward FFTs."""
        blocks = voltage.reshape(-1, self.nfft)
        if self.taps > 1:
            blocks = sum(part * np.roll(blocks, self.taps // 2 - i, 0) for i, part in enumerate(window))
        spectra = np.fft.rfft(blocks, axis=1)[:, self.first_channel: self.first_channel + self.channels]
        return spectra.astype(np.complex64, copy=False)

    def scale(self, window):
        """[channel] levels per unit of the spectrum. Samples of rms 1 give a component sum(window^2) / 2."""
        levels = self.noise_rms / np.sqrt(np.sum(window.astype(float) ** 2) / 2)
        each = 1 if self.channel_scale is None else self.channel_scale
        return np.broadcast_to(levels * np.asarray(each), self.channels).astype(np.float32)


def pack(values):
    """Complex spectra in units of levels to bytes: rounded, clipped, the real part in the low nibble."""
    parts = np.ascontiguousarray(values, np.complex64).view(np.float32)
    levels = np.clip(np.rint(parts), -7, 7).astype(np.int8).view(np.uint8) & 15
    return levels[..., ::2] | levels[..., 1::2] << 4


def unpack(e):
    """Bytes to complex levels."""
    part = [((nibble ^ 8).astype(np.int8) - 8).astype(np.float32) for nibble in (e & 15, e >> 4)]
    return part[0] + 1j * part[1]


@dataclass(frozen=True)
class Field:
    """The field as it leaves the F-engine, and the truth about it."""
    e: np.ndarray          # uint8 [time][freq][pol][dish], see pack()
    freq_mhz: np.ndarray   # RF centres of the channels, in the board's order
    width_mhz: float
    sample_ns: Fraction    # exact time step
    sideband: str          # upper or lower
    epoch_ns: int          # time of the first real sample, which is also that of time step 0
    positions: np.ndarray  # [dish][3]
    gains: np.ndarray      # complex [freq][pol][dish]: g(f) at the centres
    clipped: float         # fraction of the components that lay outside [-7.5, 7.5] levels
    carriers_mhz: list     # exact RF frequencies of the carriers, in the order of the sky
    board: Board

    def levels(self):
        """complex64 [time][freq][pol][dish]."""
        return unpack(self.e)


def simulate(board, receivers, sky, times, seed=0, epoch_ns=0):
    """`times` spectra of a sky, which is a list of Source, Carrier and Burst. The noise of an input depends
    on the seed and its number alone, the signal of a source on the seed and its place in the list. Beside
    the sources' spectra and the field, one antenna is in memory at a time."""
    span = Span(float(Fraction(board.fs_mhz)), board.zone, times * board.nfft)
    signals = [item.spectra(span, np.random.default_rng([seed, 0, i])) for i, item in enumerate(sky)]
    towards = [None if item.az_deg is None else direction(item.az_deg, item.alt_deg) for item in sky]
    amplitude, phase, cable, noise = map(receivers.inputs, ("amplitude", "phase_rad", "cable_ns", "noise"))
    positions = np.asarray(receivers.positions, float)
    window = board.window()
    scale = board.scale(window)
    e = np.empty((times, board.channels, POLS, len(positions)), np.uint8)
    clipped = 0
    for dish, position in enumerate(positions):
        early = [None if s is None else span.delay(position @ s / C) for s in towards]
        for pol in range(POLS):
            spectrum = white(np.random.default_rng([seed, 1, dish, pol]), (span.lines,), noise[pol, dish])
            for signal, shift in zip(signals, early):
                if shift is not None:
                    spectrum += signal[pol] * shift
            spectrum *= np.complex64(amplitude[pol, dish] * np.exp(1j * phase[pol, dish]))
            if cable[pol, dish]:
                spectrum *= span.delay(-cable[pol, dish] * 1e-3)
            for signal, shift in zip(signals, early):
                if shift is None:
                    spectrum += signal[pol]
            values = board.channelize(board.digitize(span.sample(spectrum)), window) * scale
            clipped += np.count_nonzero(np.abs(values.view(np.float32)) > 7.5)
            e[:, :, pol, dish] = pack(values)
    carriers = [item.line(span) * span.fs_mhz / span.samples for item in sky if isinstance(item, Carrier)]
    freq = board.freq_mhz()
    return Field(e, freq, abs(float(board.step_mhz)), board.sample_ns, board.sideband, epoch_ns, positions,
                 receivers.gains(freq), clipped / (2 * e.size), carriers, board)


# Files and packets

def write_recording(path, field, sideband=None, sample0=0, frame_samples=None, keys=None):
    """One DADA file with a flat payload, and an empty list of gaps. sideband: the value of the key SIDEBAND,
    or None to leave it out. frame_samples: the length of the field unless stated. keys: further header keys,
    which replace those of this function; None as a value leaves a key out."""
    times, channels, pols, dishes = field.e.shape
    header = {
        "HEADER": "DADA", "HDR_VERSION": "1.0", "HDR_SIZE": 4096, "INSTRUMENT": "fengine",
        "NBIT": 4, "NDIM": 2, "NPOL": pols, "NCHAN": channels, "NANT": dishes,
        "DTYPE": "int4x2", "AXES": "time,freq,pol,dish", "SHAPE": f"0,{channels},{pols},{dishes}",
        "FRAME_SAMPLES": frame_samples or times, "SCALE": 1,
        "SAMPLE_NS": str(field.sample_ns), "EPOCH_NS": field.epoch_ns,
        "SAMPLE0": sample0, "SAMPLES": times, "DOWNSAMPLE": 1,
        "FREQ_MHZ": f"{float(field.freq_mhz[0])!r}:{float(field.board.step_mhz)!r}:{channels}",
        "WIDTH_MHZ": repr(field.width_mhz), "NZONES": 1, "ZONE_0": f"0,{channels},1,1,0",
        "SIDEBAND": sideband, **(keys or {})}
    text = "".join(f"{key} {value}\n" for key, value in header.items() if value is not None).encode()
    if len(text) >= 4096:
        raise ValueError("the header is longer than 4096 bytes")
    with open(path, "wb") as file:
        file.write(text.ljust(4096, b"\0"))
        np.ascontiguousarray(field.e).tofile(file)
    Path(f"{path}.gaps").write_text("")


def telescope_yaml(template, rows, columns, north_m, east_m):
    """Fills $rows, $columns, $dishes, $north_m, $east_m of grid() into a template, which owns the keys."""
    return string.Template(template).substitute(rows=rows, columns=columns, dishes=rows * columns,
                                                north_m=north_m, east_m=east_m)


@dataclass(frozen=True)
class Packets:
    """A UDP format: 16 bytes of header, big-endian: number of the first time step (8 bytes), board (2),
    number of the first channel in the FFT (2), and the word MAGIC (4); then a dense block of samples. A
    packet has `times` time steps of `channels` channels of both polarisations of the dishes of one board
    (`dishes` of them, or all if None). axes: order of the payload, slowest first. real: the nibble of the
    real part."""
    times: int
    channels: int
    dishes: int = None
    axes: tuple = ("time", "freq", "pol", "dish")
    real: str = "low"
    port: int = 4000

    MAGIC = int.from_bytes(b"FENG", "big")

    def lengths(self, field):
        """Lengths of the payload's axes, and how often each is repeated in the field."""
        whole = dict(zip(("time", "freq", "pol", "dish"), field.e.shape))
        size = {**whole, "time": self.times, "freq": self.channels, "dish": self.dishes or whole["dish"]}
        if any(whole[axis] % size[axis] for axis in size):
            raise ValueError(f"packets of {size} do not divide a field of {whole}")
        return size, {axis: whole[axis] // size[axis] for axis in size}


def packet_description(field, form, sideband=None):
    """YAML that describes the packets. The sources are the boards 0, 1, ...; sideband: the value of that key,
    or None to leave it out."""
    size, count = form.lengths(field)
    lengths = [size[axis] for axis in form.axes]
    lines = [
        f"bytes: {16 + int(np.prod(lengths))}",
        f"port: {form.port}",
        "byte_order: big",
        "fields:",
        "  sample: {offset: 0, bytes: 8}",
        "  board: {offset: 8, bytes: 2}",
        "  channel0: {offset: 10, bytes: 2}",
        f"  magic: {{offset: 12, bytes: 4, equals: {form.MAGIC}}}",
        "sequence: {fields: sample}",
        "source: {fields: board}",
        "stream: {fields: channel0}",
        f"payload: {{offset: 16, axes: [{', '.join(form.axes)}], lengths: {lengths}}}",
        f"coding: {{values: twos_complement, real: {form.real}}}",
        f"sample_ns: {field.sample_ns}",
        f"freq_mhz: {{first: {float(field.board.channel0_mhz)!r}, step: {float(field.board.step_mhz)!r}}}",
        f"streams: {{first: {field.board.first_channel}, step: {form.channels}, count: {count['freq']}}}"]
    if sideband is not None:
        lines.append(f"sideband: {sideband}")
    return "\n".join(lines) + "\n"


def packets(field, form, first_sample=0):
    """uint8 [packet][byte], time after time, channel after channel, board after board."""
    size, count = form.lengths(field)
    e = field.e if form.real == "low" else field.e >> 4 | field.e << 4
    blocks = e.reshape([n for axis in ("time", "freq", "pol", "dish") for n in (count[axis], size[axis])])
    inner = {"time": 1, "freq": 3, "pol": 5, "dish": 7}
    blocks = blocks.transpose(0, 2, 6, 4, *(inner[axis] for axis in form.axes))
    fields = [("sample", ">u8"), ("board", ">u2"), ("channel0", ">u2"), ("magic", ">u4")]
    header = np.zeros(blocks.shape[:3], fields)
    header["sample"] = (first_sample + np.arange(count["time"]) * form.times)[:, None, None]
    header["channel0"] = (field.board.first_channel + np.arange(count["freq"]) * form.channels)[:, None]
    header["board"] = np.arange(count["dish"])
    header["magic"] = form.MAGIC
    n = header.size
    return np.concatenate([header.reshape(n, 1).view(np.uint8), blocks.reshape(n, -1)], 1)


def transmit(rows, span, address, port, rate, loops=1):
    """Sends the rows of packets() `loops` times over; every pass counts on by `span` samples. rate: bytes of
    UDP payload per second. No packet leaves early, and a stall of more than 10 ms is followed by no rush."""
    rows = rows.copy()
    sample = rows[:, :8].view(">u8")
    due, pause = time.monotonic(), rows.shape[1] / rate
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.connect((address, port))
        for _ in range(loops):
            for row in rows:
                now = time.monotonic()
                if due > now:
                    time.sleep(due - now)
                due = max(due, now - 0.01) + pause
                try:
                    out.send(row)
                except ConnectionRefusedError:  # nobody listens yet, or any longer: a board does not care
                    pass
            sample += np.uint64(span)


def send_packets(field, address, port, rate, form, first_sample=0, loops=1):
    """Sends a field as UDP packets, see transmit(). It is periodic: several loops continue without a seam."""
    transmit(packets(field, form, first_sample), field.e.shape[0], address, port, rate, loops)


def save_packets(path, field, form, first_sample=0):
    """A file for `fengine.py send`."""
    np.savez(path, rows=packets(field, form, first_sample), span=field.e.shape[0])


def main(arguments):
    if arguments == ["--self-check"]:
        import fengine_check
        return fengine_check.main()
    if arguments[:1] == ["send"] and len(arguments) in (5, 6):
        path, address, port, rate = arguments[1:5]
        file = np.load(path)
        transmit(file["rows"], int(file["span"]), address, int(port), float(rate), int([*arguments, 1][5]))
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
