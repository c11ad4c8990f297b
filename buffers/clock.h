/* clock.h - clocks: CLOCK_MONOTONIC for all waiting and all measurements of time. */
#ifndef BEAMRING_BUFFERS_CLOCK_H
#define BEAMRING_BUFFERS_CLOCK_H

#include <stdint.h>
#include <time.h>

/* The time of a clock in nanoseconds; 0 if there is none of that name. Any thread. */
static inline uint64_t br_clock_of(clockid_t clock)
{
    struct timespec now = {0};
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t br_clock_ns(void)
{
    return br_clock_of(CLOCK_MONOTONIC);
}

/* This machine's clock: Unix time in nanoseconds. */
static inline int64_t br_unix_ns(void)
{
    return (int64_t)br_clock_of(CLOCK_REALTIME);
}

/* The end of a wait of `ns` from now on. */
static inline struct timespec br_clock_in(clockid_t clock, uint64_t ns)
{
    ns += br_clock_of(clock);
    return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

#endif
