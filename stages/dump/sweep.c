#include "stages/dump/sweep.h"

#include <math.h>

#define LONGEST_S 1e7

__int128_t sweep_at_sample(const struct br_stream *stream, uint64_t sample)
{
    return (__int128_t)sample * stream->sample_ns.num;
}

__int128_t sweep_at_ns(const struct br_stream *stream, int64_t ns)
{
    return ((__int128_t)ns - stream->epoch_ns) * stream->sample_ns.den;
}

__int128_t sweep_span(const struct br_stream *stream, double ns)
{
    return (__int128_t)llround(ns) * stream->sample_ns.den;
}

/* Seconds by which the pulse crosses `mhz` after the reference frequency. */
static double delay_s(double dm, double mhz, double ref_mhz)
{
    double f = mhz * 1e6, ref = ref_mhz * 1e6;
    return SWEEP_K * dm * (1 / (f * f) - 1 / (ref * ref));
}

static __int128_t floor_div(__int128_t a, __int128_t b)
{
    return a / b - (a % b < 0);
}

static uint64_t clip(__int128_t sample)
{
    return sample < 0 ? 0 : sample > INT64_MAX ? INT64_MAX : (uint64_t)sample;
}

bool sweep_window(const struct sweep *sweep, const struct br_stream *stream, size_t channel, size_t count,
                  struct window *window)
{
    double early = 0, late = 0;
    for (size_t c = channel; c < channel + count && (sweep->dm != 0 || sweep->dm_error != 0); c++)
        for (unsigned i = 0; i < 4; i++) {
            double mhz = stream->freq_mhz[c] + (i % 2 == 0 ? -0.5 : 0.5) * stream->width_mhz[c];
            double dm = sweep->dm + (i < 2 ? -sweep->dm_error : sweep->dm_error);
            double d = delay_s(dm, mhz, sweep->ref_mhz);
            if (!(mhz > 0) || !(fabs(d) <= LONGEST_S)) return false;
            bool first = c == channel && i == 0;
            early = first || d < early ? d : early;
            late = first || d > late ? d : late;
        }
    const struct br_zone *zone = &stream->zone[0];
    for (unsigned z = 1; z < stream->nzones && stream->zone[z].first_channel <= channel; z++)
        zone = &stream->zone[z];
    __int128_t num = stream->sample_ns.num, step = zone->downsample;
    __int128_t first = sweep->start + sweep_span(stream, floor((early + sweep->early_s) * 1e9)),
               end = sweep->start + sweep->duration + sweep_span(stream, ceil((late + sweep->late_s) * 1e9));
    /* a filter's output comes later in the stream than what it is of */
    first = floor_div(first, num) + zone->delay;
    end = -floor_div(-end, num) + zone->delay;
    window->first = clip(floor_div(first, step) * step);
    window->end = clip(-floor_div(-end, step) * step);
    return true;
}
