#include "formats/common/sample_clock.h"

#include "formats/common/text.h"

#include <stddef.h>

static int64_t floor_divide(__int128_t a, __int128_t b)
{
    return (int64_t)(a / b - (a % b < 0));
}

int64_t sample_clock_at(const struct sample_clock *c, int64_t unix_ns)
{
    return floor_divide(((__int128_t)unix_ns - c->epoch_ns) * c->sample_ns.den, c->sample_ns.num);
}

int64_t sample_clock_span_ns(const struct sample_clock *c, int64_t samples)
{
    __int128_t span = (__int128_t)samples * c->sample_ns.num / c->sample_ns.den;
    return span > INT64_MAX ? INT64_MAX : span < INT64_MIN ? INT64_MIN : (int64_t)span;
}

enum sample_clock_verdict sample_clock_place(const struct sample_clock *c, int64_t *sample, int64_t near_ns,
                                             int64_t *late_ns)
{
    __int128_t near = sample_clock_at(c, near_ns), period = c->period, periods = 0;
    if (period > 0) {
        *sample = (*sample % c->period + c->period) % c->period;
        periods = floor_divide(near - *sample + period / 2, period);
        if (periods < 0) periods = 0;
        *sample += (int64_t)(periods * period);
    }
    __int128_t late = near - *sample;
    *late_ns = sample_clock_span_ns(c, (int64_t)late);
    if (period == 0 || (late <= period / 4 && late >= -period / 4)) return SAMPLE_CLOCK_SURE;
    return periods == 0 && late < 0 && near >= -period / 4 ? SAMPLE_CLOCK_FIRST_PERIOD : SAMPLE_CLOCK_UNSURE;
}

int sample_clock_refuse(const struct sample_clock *c, int64_t sample, int64_t near_ns, const char *whose,
                        struct br_error *error)
{
    char by[TEXT_TIME], one[TEXT_TIME], other[TEXT_TIME];
    int64_t period = sample_clock_span_ns(c, c->period), at = c->epoch_ns + sample_clock_span_ns(c, sample);
    return br_fail(
        error, BR_E_FORMAT,
        "the packets' counter starts again every %.7g s, and how often it did so since the epoch is "
        "open: by %s it is %s UTC, between %s and %s, which the counter can mean; correct the epoch, "
        "or say when the packets were sent: `start_utc: YYYY-MM-DD-hh:mm:ss`",
        1e-9 * (double)period, whose, text_utc_format(by, near_ns),
        text_utc_format(one, near_ns < at ? at - period : at),
        text_utc_format(other, near_ns < at ? at : at + period));
}

int64_t sample_clock_without_leaps(int64_t start, int64_t seconds)
{
    /* After the ends of 2005, 2008, June 2012, June 2015 and 2016. */
    static const int64_t leaps[] = {1136073600, 1230768000, 1341100800, 1435708800, 1483228800};
    int64_t now = start + seconds;
    for (size_t i = 0; i < sizeof leaps / sizeof *leaps; i++)
        if (start < leaps[i] && now > leaps[i]) now--;
    return now;
}
