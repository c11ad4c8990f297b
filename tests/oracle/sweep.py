"""When a dispersed pulse crosses a channel, from the equation: exact fractions, nothing of the C code.

A pulse that crosses the frequency ref at time 0 crosses f at K DM (1/f^2 - 1/ref^2), K = 4.148806417e15 Hz^2
s for DM in pc cm^-3. The request is for [start, start + duration) at ref, for every DM in dm +- dm_error
and every frequency in the channel."""
from fractions import Fraction

K = Fraction("4.148806417e15")


def delay(dm, mhz, ref_mhz):
    """Seconds, as a fraction."""
    f, ref = Fraction(mhz) * 10**6, Fraction(ref_mhz) * 10**6
    return K * Fraction(dm) * (1 / f**2 - 1 / ref**2)


def window(start_s, duration_s, dm, dm_error, mhz, width_mhz, ref_mhz):
    """[begin, end) in seconds: the delay is monotonic in DM and in frequency, so that its extremes lie at the
    corners."""
    corners = [
        delay(Fraction(dm) + a * Fraction(dm_error),
              Fraction(mhz) + b * Fraction(width_mhz) / 2, ref_mhz) for a in (-1, 1) for b in (-1, 1)
    ]
    return start_s + min(corners), start_s + duration_s + max(corners)
