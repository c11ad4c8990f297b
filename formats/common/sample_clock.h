/* sample_clock.h - which base sample, and so which time, a counter means that starts again.
 *
 * A counter of few bits says its sample only up to whole periods. The number of periods since the epoch
 * follows from a time near which the sample was taken: the machine's clock (live), the time that a capture
 * file gives its packet, or what the user says. Such a time settles it when it lies within a quarter of a
 * period of one of the times that the counter can mean. Times are Unix nanoseconds, which leave leap
 * seconds out. */
#ifndef BEAMRING_FORMATS_COMMON_SAMPLE_CLOCK_H
#define BEAMRING_FORMATS_COMMON_SAMPLE_CLOCK_H

#include "buffers/error.h"
#include "buffers/stream.h"

#include <stdint.h>

struct sample_clock {
    int64_t epoch_ns;             /* of base sample 0 */
    struct br_rational sample_ns; /* base sample */
    int64_t period;               /* base samples of a period; 0: the counter does not start again */
};

/* The base sample at a time, rounded down; negative before the epoch. */
int64_t sample_clock_at(const struct sample_clock *clock, int64_t unix_ns);

/* A span of base samples in nanoseconds. */
int64_t sample_clock_span_ns(const struct sample_clock *clock, int64_t samples);

/* How sure the number of periods is. */
enum sample_clock_verdict {
    SAMPLE_CLOCK_SURE,
    /* the time is earlier than the counter says by more than a quarter of a period, but no sample comes
     * before the epoch: the counter has not started again */
    SAMPLE_CLOCK_FIRST_PERIOD,
    SAMPLE_CLOCK_UNSURE
};

/* Takes *sample, known up to whole periods, for the one nearest to `near_ns`, not before the epoch;
 * *late_ns: by how much `near_ns` is later than it. Without periods *sample stays as it is, and is sure. */
enum sample_clock_verdict sample_clock_place(const struct sample_clock *clock, int64_t *sample,
                                             int64_t near_ns, int64_t *late_ns);

/* Fails with BR_E_FORMAT: `near_ns`, which `whose` says ("this machine's clock"), leaves the periods of the
 * counter open that `sample` has been placed by; what to give. */
int sample_clock_refuse(const struct sample_clock *clock, int64_t sample, int64_t near_ns, const char *whose,
                        struct br_error *error);

/* Seconds counted since `start` (Unix time), leap seconds included, as Unix time. A leap second is the second
 * that follows it. */
int64_t sample_clock_without_leaps(int64_t start, int64_t seconds);

#endif
