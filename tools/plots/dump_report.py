"""Draws a burst at full time resolution, from voltages that a node has dumped and that were formed into one
coherent beam at the burst's position. Reads the recording with code of its own."""
import glob
import os

import numpy as np

from demo_report import dedisperse, delay_s, noise_of, Trouble
from live_report import DETECTION, frequencies, header_of


def power_of(directory):
    """Power of a recording J[beam 1][freq][pol][time] of the beam: [channel][sample], NaN where missing, its
    frequencies, the time of a sample and of the first one, in s."""
    parts, head = [], None
    for path in sorted(glob.glob(os.path.join(directory, "beam_*.dada"))):
        head = header_of(path)
        beams, channels, pols, _ = (int(n) for n in head["SHAPE"].split(","))
        if head["AXES"] != "beam,freq,pol,time" or beams != 1:
            raise Trouble(f"{path}: its axes are {head['AXES']}; expected beam,freq,pol,time of one beam")
        per, at = int(head["FRAME_SAMPLES"]), int(head["SAMPLE0"])
        raw, pos = np.fromfile(path, np.uint8, offset=int(head["HDR_SIZE"])), 0
        while pos < raw.size:
            steps = min((at // per + 1) * per - at, (raw.size - pos) // (channels * pols))
            frame = raw[pos:pos + steps * channels * pols].reshape(channels, pols, steps)
            re = ((frame & 15) ^ 8).astype(np.int8) - 8.0
            im = ((frame >> 4) ^ 8).astype(np.int8) - 8.0
            power = np.where(frame == 0x88, np.nan, re * re + im * im).sum(axis=1)
            parts.append((at, power))
            pos, at = pos + frame.size, at + steps
    if head is None:
        raise Trouble(f"{directory}: there is no beam of the dumped voltages")
    first, end = parts[0][0], parts[-1][0] + parts[-1][1].shape[1]
    power = np.full((parts[0][1].shape[0], end - first), np.nan)
    for at, part in parts:
        power[:, at - first:at - first + part.shape[1]] = part
    numerator, _, denominator = head["SAMPLE_NS"].partition("/")
    sample_s = float(numerator) / float(denominator or 1) * 1e-9
    return power, frequencies(head), sample_s, first * sample_s


def profile_of(power, freq, sample_s, start, found, ref):
    """The sum over channels in units of its noise for one sample, each channel moved by its delay, less its
    mean; where fewer than half of the channels are there it is cut off. Also the channels before the sum."""
    shift = np.round(delay_s(found["dm"], freq, ref) / sample_s)
    good = ~np.isnan(power)
    mean = np.array([p[g].mean() if g.any() else 0 for p, g in zip(power, good)])
    moved = np.where(good, power - mean[:, None], 0)
    moved, there = ([dedisperse(a[None, k], shift[k:k + 1]) for k in range(len(freq))]
                    for a in (moved, good.astype(float)))
    moved, there = np.array(moved), np.array(there)
    keep = np.flatnonzero(there.sum(axis=0) > len(freq) / 2)
    if keep.size == 0:
        raise Trouble("the windows of the channels do not meet")
    span = slice(keep[0], keep[-1] + 1)
    series = moved.sum(axis=0)[span] / np.sqrt(np.maximum(there.sum(axis=0)[span], 1))
    series -= np.median(series)  # a channel's mean has the burst in it
    return series / max(noise_of(series), 1e-9), start + (keep[0] + 0.5) * sample_s, moved[:, span]


def draw(path, series, begin, sample_s, moved, freq, found, arrival):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    fig, (top, bottom) = plt.subplots(2, 1, figsize=(9, 6.5), sharex=True, constrained_layout=True,
                                      height_ratios=(1.4, 1))
    times = 1e3 * (begin + np.arange(len(series)) * sample_s - arrival)
    width = max(int(round(found["width"] / 8 / sample_s)), 1)
    smooth = np.convolve(series, np.ones(width) / width, "same")
    top.plot(times, series, color="#c9b8d8", linewidth=0.3, label=f"{1e6 * sample_s:.4g} us")
    top.plot(times, smooth * np.sqrt(width), color="#502080", linewidth=1.2,
             label=f"mean over {1e6 * width * sample_s:.4g} us")
    top.set(ylabel="signal to noise", title=f"Dumped voltages in one coherent beam at ({found['x']:.2f}, "
            f"{found['y']:.2f}) degrees, DM {found['dm']:.2f}")
    top.legend(loc="upper right")
    steps = moved.shape[1] // width * width
    image = moved[:, :steps].reshape(len(freq), -1, width).mean(axis=2)
    low, high = np.percentile(image, (2, 99.5))
    bottom.imshow(image[np.argsort(-freq)], aspect="auto", cmap="magma", vmin=low, vmax=high,
                  extent=(times[0], times[0] + 1e3 * steps * sample_s, len(freq) - 0.5, -0.5))
    bottom.set(xlabel="time from the arrival that was found in the FRB beams (ms)",
               ylabel="channel, highest first")
    fig.savefig(path, dpi=130)
    plt.close(fig)


def report(directory, found, ref, truth_arrival, picture):
    """Prints what the voltages say of the burst; True when it is where and when it was found."""
    power, freq, sample_s, start = power_of(directory)
    series, begin, moved = profile_of(power, freq, sample_s, start, found, ref)
    width = max(int(round(found["width"] / sample_s)), 1)
    box = np.convolve(series, np.ones(width) / np.sqrt(width), "valid")
    at = int(box.argmax())
    arrival = begin + (at + (width - 1) / 2) * sample_s
    snr, off = float(box[at]), abs(arrival - truth_arrival)
    allowed = max(0.5 * found["width"], 3 * sample_s)
    good = snr >= DETECTION and off <= allowed
    print(
        f"dumped voltages in a coherent beam, {1e6 * sample_s:.4g} us a sample: signal to noise {snr:.1f} "
        "over "
        f"{1e3 * found['width']:.3g} ms, {1e3 * off:.3f} ms off (allowed {1e3 * allowed:.3f})"
        f"{'' if good else '   WRONG'}")
    if picture is not None:
        draw(picture, series, begin, sample_s, moved, freq, found, truth_arrival)
        print(f"picture: {picture}")
    return bool(good)
