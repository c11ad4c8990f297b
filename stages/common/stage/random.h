/* random.h - normal deviates that are a function of a counter, so that a value does not depend on what was
 * drawn before. */
#ifndef BEAMRING_STAGES_COMMON_STAGE_RANDOM_H
#define BEAMRING_STAGES_COMMON_STAGE_RANDOM_H

#include "kernels/common/random.h"

/* Normal deviates by table: 16 random bits choose one of 65536 quantiles, in units of 1 / GAUSSIAN_UNIT. Its
 * tails end at 4.3 standard deviations. */
enum { GAUSSIAN_ENTRIES = 65536, GAUSSIAN_UNIT = 4096 };

/* Fills table[GAUSSIAN_ENTRIES]: entry i is the quantile at (i + 1/2) / 65536. */
void gaussian_table(int16_t *table);

/* Complex normal deviate of unit variance in each component, from the first 32 bits of a block. */
static inline void gaussian_pair(const int16_t *table, uint64_t seed, uint64_t sample, uint32_t line,
                                 uint32_t what, float z[2])
{
    uint32_t r[4];
    random_block(seed, sample, line, what, r);
    z[0] = (float)table[r[0] & 0xffff] * (1.0f / GAUSSIAN_UNIT);
    z[1] = (float)table[r[0] >> 16] * (1.0f / GAUSSIAN_UNIT);
}

#endif
