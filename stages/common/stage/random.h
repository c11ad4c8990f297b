/* random.h - random numbers that are a function of a counter, so that a value does not depend on what was
 * drawn before. */
#ifndef BEAMRING_STAGES_COMMON_STAGE_RANDOM_H
#define BEAMRING_STAGES_COMMON_STAGE_RANDOM_H

#include <stdint.h>

/* 128 random bits for (seed, sample, line, what): Philox4x32-10 of Salmon et al. (2011), counter = {sample
 * low, sample high, line, what}, key = seed. */
static inline void random_block(uint64_t seed, uint64_t sample, uint32_t line, uint32_t what, uint32_t out[4])
{
    uint32_t a = (uint32_t)sample, b = (uint32_t)(sample >> 32), c = line, d = what;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t x = (uint64_t)0xD2511F53u * a, y = (uint64_t)0xCD9E8D57u * c;
        a = (uint32_t)(y >> 32) ^ b ^ k0;
        b = (uint32_t)y;
        c = (uint32_t)(x >> 32) ^ d ^ k1;
        d = (uint32_t)x;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = a, out[1] = b, out[2] = c, out[3] = d;
}

/* The purpose of a block of random bits: the low bits number the block of dishes,
 * source, burst, carrier or impulse. */
enum random_use {
    RANDOM_NOISE = 0,
    RANDOM_DRIFT = 0x30000000,
    RANDOM_SOURCE = 0x40000000,
    RANDOM_IMPULSE = 0x50000000,
    RANDOM_BURST = 0x60000000,
    RANDOM_CARRIER = 0x70000000,
    RANDOM_DITHER = 0x10000000,
    RANDOM_SCHEDULE = 0x20000000
};

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
