#!/usr/bin/env python3
"""Checks of fengine.py against physics: `fengine.py --self-check`, a few seconds.

Every expectation starts from RF frequencies, delays and times. Where it states a sideband, it states what the
even or odd zone must do by itself."""
import socket
import tempfile
import threading
from fractions import Fraction
from pathlib import Path

import numpy as np

import fengine as fe

ZONES = (1, 2, 3, 4)
ONE = np.zeros((1, 3))


def require(good, text):
    if not good:
        raise AssertionError(text)


def sampling():
    """The samples are the real part of the sum over the RF lines at t = n/fs, without any folding. A signal
    that arrives earlier is the same sum at a later t."""
    worst, early, rng = 0, 0.0123, np.random.default_rng(1)
    for zone in ZONES:
        span = fe.Span(800.0, zone, 4096)
        spectrum = fe.white(rng, (span.lines,), 1)
        f = span.freq_mhz()
        low, high = (zone - 1) * 400, zone * 400
        require(f.min() >= low and f.max() < high and f.max() > high - 1, f"zone {zone} has lines outside it")
        n = rng.integers(0, span.samples, 200)
        direct = (np.exp(2j * np.pi * np.multiply.outer(n / 800.0 + early, f)) @ spectrum).real
        samples = span.sample(spectrum * span.delay(early))
        require(0.9 < samples.std() < 1.1, "noise of power 1 has not the rms 1")
        worst = max(worst, np.abs(samples[n] - direct).max())
    require(worst < 1e-4, f"samples differ from the sum at t = n/fs by {worst}")
    return f"200 samples in each of zones 1-4 equal the sum of RF lines at n/fs + r.s/c within {worst:.1g}"


def carriers():
    """A tone 0.23 of a channel above a centre in RF rotates forwards in odd zones, backwards in even ones."""
    worst = 0
    for zone in ZONES:
        for taps in (1, 4):
            board = fe.Board(800, zone, 64, 1, 31, taps=taps)
            for channel in (5, 20):
                rf = board.freq_mhz()[channel] + 0.23 * 800 / 64
                field = fe.simulate(board, fe.Receivers(ONE, noise=0), [fe.Carrier(rf, 0.45)], 512)
                offset = (field.carriers_mhz[0] - board.freq_mhz()[channel]) * 64 / 800
                require(abs(offset - 0.23) < 1 / 512, "the carrier is not where it was wanted")
                require((zone - 1) * 400 < rf < zone * 400, "the channel's centre lies outside the zone")
                e = field.levels()[:, :, 0, 0]
                power = np.sum(np.abs(e) ** 2, 0)
                require(np.argmax(power) == channel, f"zone {zone}: wrong channel")
                far = np.delete(power, slice(channel - 1, channel + 2)).max()
                require((far == 0) == (taps > 1), "only the filterbank keeps a tone out of far channels")
                cycles = np.angle(np.sum(e[1:, channel] * e[:-1, channel].conj())) / (2 * np.pi)
                worst = max(worst, abs(cycles - (offset if zone % 2 else -offset)))
    require(worst < 0.005, f"a carrier rotates wrong by {worst} cycles a step")
    return (f"0.23 of a channel above a centre in RF, zones 1-4, FFT and PFB: right channel, +0.23 cycles a "
            f"step in odd and -0.23 in even zones within {worst:.1g}")


def geometry():
    """Phases between antennas, with gains and cables, against 2 pi f u.s/c; the powers against the fluxes."""
    rng = np.random.default_rng(2)
    at = np.array([[0, 0, 0], [11.3, 4.1, 0.7], [-6.2, 17.9, -1.1]])
    gain = {"amplitude": rng.uniform(0.8, 1.2, (2, 3)), "phase_rad": rng.uniform(-3, 3, (2, 3)),
            "cable_ns": rng.uniform(0, 30, (2, 3))}
    az, alt, flux = 63.0, 41.0, np.array([1.0, 0.5])
    s = np.array([np.sin(np.radians(az)) * np.cos(np.radians(alt)),
                  np.cos(np.radians(az)) * np.cos(np.radians(alt)), np.sin(np.radians(alt))])
    worst = 0
    for zone in ZONES:
        # The levels are low, so that little is clipped.
        board = fe.Board(800, zone, 1024, 100, 48, taps=1 + zone // 3, noise_rms=1.3)
        field = fe.simulate(board, fe.Receivers(at, **gain), [fe.Source(az, alt, flux)], 1024, seed=zone)
        e, g = field.levels(), field.gains
        power = np.mean(np.abs(e) ** 2, (0, 1))
        unit = 2 * 1.3 ** 2  # power of the receiver noise; rounding adds 1/12 to each part
        expected = (1 + flux)[:, None] * gain["amplitude"] ** 2 * unit + 2 / 12
        require(np.abs(power / expected - 1).max() < 0.03, f"zone {zone}: powers {power / expected}")
        require(field.sideband == ("upper" if zone % 2 else "lower"), "wrong sideband")
        right = wrong = 0
        for i, j in ((0, 1), (0, 2), (1, 2)):
            seen = np.mean(e[..., j] * e[..., i].conj(), 0)
            delay_us = (at[j] - at[i]) @ s / 299.792458
            rf = np.exp(2j * np.pi * field.freq_mhz * delay_us)[:, None] * g[..., j] * g[..., i].conj()
            law, mirror = (rf, rf.conj()) if zone % 2 else (rf.conj(), rf)
            fit = np.sum(seen * law.conj(), 0) / np.sum(np.abs(rf) ** 2, 0) / (unit * flux)
            require(np.abs(np.abs(fit) - 1).max() < 0.1, f"zone {zone}: coherence {fit}")
            worst = max(worst, np.abs(np.angle(fit)).max())
            right, wrong = right + np.sum(seen * law.conj()).real, wrong + np.sum(seen * mirror.conj()).real
        require(wrong < 0.5 * right, f"zone {zone}: the mirrored phases fit as well")
        mixed = np.mean(e[:, :, 0] * e[:, :, 1].conj(), (0, 1)) / np.sqrt(power[0] * power[1])
        require(np.abs(mixed).max() < 0.05, "the polarisations are not independent")
    require(worst < 0.03, f"fringe phases are wrong by {worst} rad")
    return f"phase of 3 baselines +2 pi f u.s/c in odd and minus that in even zones within {worst:.2g} rad"


def dispersion():
    """The peak of a burst in each channel, over 20 us of power, against the delay of its RF centre."""
    worst = 0
    for zone, dm in ((2, 0.03), (3, 0.15)):
        board = fe.Board(800, zone, 256, 4, 120, noise_rms=1.5)
        burst = fe.Burst(0, 90, dm, 300e-6, zone * 400, 20e-6, 6)
        field = fe.simulate(board, fe.Receivers(ONE), [burst], 4096, seed=zone)
        power = np.sum(np.abs(field.levels()[..., 0]) ** 2, 2)
        step = float(field.sample_ns) * 1e-9
        smooth = np.stack([np.convolve(one, np.hanning(2 * round(20e-6 / step)), "same") for one in power.T])
        seen = np.argmax(smooth, 1) * step
        wanted = 300e-6 + dm / 2.41e-4 * (field.freq_mhz ** -2.0 - (zone * 400.0) ** -2)
        require(np.ptp(wanted) > 400e-6, "this burst tests nothing")
        worst = max(worst, np.abs(seen - wanted).max())
        lowest, highest = np.argmin(field.freq_mhz), np.argmax(field.freq_mhz)
        require(seen[lowest] > seen[highest] + 400e-6, "low frequencies do not arrive later")
    require(worst < 20e-6, f"a burst arrives {worst} s off")
    return f"bursts in zones 2 and 3 arrive later at low RF: {worst * 1e6:.0f} us off in sweeps of > 400 us"


def packing():
    """Every pair of levels, rounding, clipping, and the nibbles' order."""
    level = np.arange(-7, 8)
    values = (level[:, None] + 1j * level).astype(np.complex64)
    require(np.array_equal(fe.unpack(fe.pack(values)), values), "packing is not a round trip")
    require(fe.pack(np.array([1 - 2j]))[0] == 0xe1, "the real part is not in the low nibble")
    require(fe.unpack(fe.pack(np.array([-99 + 2.6j])))[0] == -7 + 3j, "clipping or rounding is wrong")
    return "all 225 pairs of levels survive the packing"


def outputs():
    """The field comes back from a recording, and from packets that went through a socket, in two loops."""
    board = fe.Board(Fraction(1600, 3), 2, 128, 8, 16)
    field = fe.simulate(board, fe.Receivers(fe.grid(2, 3, 7.0, 6.0)), [fe.Source(10, 60, 0.3)], 64)
    require(field.sample_ns == Fraction(240) and field.freq_mhz[0] > field.freq_mhz[1], "wrong steps")
    require(np.array_equal(field.positions[4], [6.0, 7.0, 0]), "dish 4 of 2 x 3 is not north 1, east 1")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "field_000000.dada"
        fe.write_recording(path, field, sideband="lower")
        raw = path.read_bytes()
    keys = dict(line.split() for line in raw[:4096].rstrip(b"\0").decode().splitlines())
    first, step, count = (float(part) for part in keys["FREQ_MHZ"].split(":"))
    require(np.allclose(first + step * np.arange(count), field.freq_mhz), "the frequencies are wrong")
    require(keys["SAMPLE_NS"] == "240" and keys["SIDEBAND"] == "lower", "the recording's header is wrong")
    require(raw[4096:] == field.e.tobytes(), "the recording's payload is wrong")

    form = fe.Packets(8, 4, 3, ("freq", "time", "pol", "dish"), real="high")
    back = np.zeros((128, *field.e.shape[1:]), np.uint8)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(5)
        sender = threading.Thread(target=fe.send_packets, args=(
            field, "127.0.0.1", listener.getsockname()[1], 2e6, form, 1000, 2))
        sender.start()
        for _ in range(2 * 8 * 4 * 2):
            packet = np.frombuffer(listener.recv(2000), np.uint8)
            sample, number, channel = (int.from_bytes(packet[a:b].tobytes(), "big")
                                       for a, b in ((0, 8), (8, 10), (10, 12)))
            block = packet[16:].reshape(4, 8, 2, 3).transpose(1, 0, 2, 3)
            back[sample - 1000:, channel - 8:, :, 3 * number:][:8, :4, :, :3] = block >> 4 | block << 4
        sender.join()
    require(np.array_equal(back, np.concatenate([field.e, field.e])), "the packets' field is wrong")
    require(f"bytes: {packet.size}\n" in fe.packet_description(field, form), "the description is wrong")
    return "recording and packets give the field back"


def main():
    for check in (sampling, carriers, geometry, dispersion, packing, outputs):
        print(f"{check.__name__}: {check()}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
