/* draws.h - numbers by chance that are the same in every run. For the C files of test programs that draw
 * shapes and data; each has a seed of its own, which main sets. */
#ifndef BEAMRING_TESTS_KERNELS_COMMON_DRAWS_H
#define BEAMRING_TESTS_KERNELS_COMMON_DRAWS_H

#include "tests/kernels/common/dump.h"

static uint64_t seed;

/* A number from low to high, both included. */
static inline size_t pick(size_t low, size_t high)
{
    return low + dump_random(&seed) % (high - low + 1);
}

/* In [0, 1). */
static inline double uniform(void)
{
    return (double)(dump_random(&seed) >> 11) / 0x1p53;
}

#endif
