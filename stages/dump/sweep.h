/* sweep.h - when a dispersed pulse crosses a channel.
 *
 * A pulse that crosses the reference frequency f_ref at time 0 crosses f at D(dm) = K dm (1/f^2 - 1/f_ref^2),
 * for f on either side of f_ref. A dump follows it channel by channel, and is widened outwards: by the range
 * of the dispersion measure, dm +- dm_error, by the channel's width, and by the time that light needs across
 * the array, where the direction is known. */
#ifndef BEAMRING_STAGES_DUMP_SWEEP_H
#define BEAMRING_STAGES_DUMP_SWEEP_H

#include "buffers/stream.h"

#define SWEEP_K 4.148806417e15 /* Hz^2 s per pc cm^-3: e^2 / (2 pi m_e c) */

struct sweep {
    double dm, dm_error; /* pc cm^-3; dm_error >= 0 */
    double ref_mhz;      /* > 0; infinite is allowed */
    /* start and duration, in units in which a base sample is sample_ns.num: ns * sample_ns.den */
    __int128_t start, duration;
    double early_s, late_s; /* at the first and the last dish, from when it is at the middle of the array */
};

struct window {
    uint64_t first, end; /* base samples, multiples of the stream's time step */
};

/* A point in time in those units: base sample `sample`; Unix time `ns`; a span of `ns`. */
__int128_t sweep_at_sample(const struct br_stream *stream, uint64_t sample);
__int128_t sweep_at_ns(const struct br_stream *stream, int64_t ns);
__int128_t sweep_span(const struct br_stream *stream, double ns);

/* The base samples that hold the pulse in channels [channel, channel + count): those touched by [start + the
 * earliest delay, start + duration + the latest). The part before base sample 0 is cut off; a window that
 * ends there is {0, 0}. False where a delay is not finite, at 0 MHz, or beyond 10^7 s. */
bool sweep_window(const struct sweep *sweep, const struct br_stream *stream, size_t channel, size_t count,
                  struct window *window);

#endif
