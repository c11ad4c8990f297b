/* clock.h - the clock for all waiting and all measurements of time. */
#ifndef BEAMRING_BUFFERS_CLOCK_H
#define BEAMRING_BUFFERS_CLOCK_H

#include <stdint.h>
#include <time.h>

/* The time of CLOCK_MONOTONIC in nanoseconds. Any thread. */
static inline uint64_t br_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
