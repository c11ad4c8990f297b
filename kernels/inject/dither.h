/* dither.h - how a burst changes a level, the same on a CPU and on a GPU: no operation is fused. */
#ifndef BEAMRING_KERNELS_INJECT_DITHER_H
#define BEAMRING_KERNELS_INJECT_DITHER_H

#include "kernels/common/random.h"
#include "kernels/inject/inject.h"

#include <math.h>

#ifdef __CUDA_ARCH__ /* a compiler for GPUs fuses products and sums where it may */
#define INJECT_MUL(a, b)  __fmul_rn(a, b)
#define INJECT_ADD(a, b)  __fadd_rn(a, b)
#define INJECT_DMUL(a, b) __dmul_rn(a, b)
#define INJECT_DADD(a, b) __dadd_rn(a, b)
#define INJECT_ROUND(a)   __float2int_rn(a)
#define INJECT_LONG(a)    __float2ull_rn(a)
#else
#define INJECT_MUL(a, b)  ((a) * (b))
#define INJECT_ADD(a, b)  ((a) + (b))
#define INJECT_DMUL(a, b) ((a) * (b))
#define INJECT_DADD(a, b) ((a) + (b))
#define INJECT_ROUND(a)   ((int)lrintf(a))
#define INJECT_LONG(a)    ((uint64_t)llrintf(a))
#endif

enum {
    INJECT_GONE = 8,        /* zeros, one after another, that are not noise */
    INJECT_SEGMENT = 48,    /* samples, so that they and 7 on either side have their bits in 64 */
    INJECT_CLASSES = 40,    /* of noise, each louder than the last one; INJECT_CLASSES: no noise is known */
    INJECT_LEVELS = 16,     /* -8 to 7 */
    INJECT_QUANTILES = 257, /* of a level, interpolated between */
    INJECT_LANES = 32       /* partial sums over dishes */
};

struct inject_tables {
    float quantile[INJECT_CLASSES][INJECT_LEVELS][INJECT_QUANTILES]; /* of the noise less the level */
    double least[INJECT_CLASSES];                                    /* mean |E|^2 of a class; [0]: 0 */
};

/* An input's share of a piece: what the burst's field is multiplied by, and the class of its noise. It takes
 * the place of the br_inject_input in memory. */
struct inject_factor {
    float re, im;
    uint32_t klass;
};

BR_RANDOM_BOTH uint32_t inject_class(const struct inject_tables *tables, double mean, float gain)
{
    if (!(mean > 0) || !(gain > 0)) return INJECT_CLASSES;
    uint32_t low = 0, high = INJECT_CLASSES; /* least[low] <= mean < least[high] */
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (mean >= tables->least[middle])
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* A run of at least INJECT_GONE bits that are set stays, others are cleared. */
BR_RANDOM_BOTH uint64_t inject_runs(uint64_t zeros)
{
    uint64_t begins = zeros & zeros >> 1;
    begins &= begins >> 2;
    begins &= begins >> 4;
    begins |= begins << 1;
    begins |= begins << 2;
    return begins | begins << 4;
}

/* The bits of a segment of `count` samples: `before` and `after` zeros lie directly on its sides. */
BR_RANDOM_BOTH uint64_t inject_sides(uint32_t before, uint32_t after, uint32_t count)
{
    uint64_t low = (1u << (INJECT_GONE - 1)) - (1u << (INJECT_GONE - 1 - before));
    return low | (uint64_t)((1u << after) - 1) << (INJECT_GONE - 1 + count);
}

/* A level with a burst of strength s on the noise that 16 random bits choose; `quantile` is a class's. */
BR_RANDOM_BOTH int inject_level(const float (*quantile)[INJECT_QUANTILES], int level, float s, uint32_t bits,
                                uint32_t *clipped)
{
    const float *q = quantile[level + 8] + (bits >> 8);
    float part = INJECT_MUL(INJECT_ADD((float)(bits & 255), 0.5f), 1.0f / 256);
    float noise = INJECT_ADD(q[0], INJECT_MUL(INJECT_ADD(q[1], -q[0]), part));
    int change = INJECT_ROUND(INJECT_ADD(noise, s)), sum = level + change;
    if (change == 0) return level;
    if (sum > 7 || sum < -7) *clipped += level < 7 && level > -7;
    return sum > 7 ? 7 : sum < -7 ? -7 : sum;
}

/* A byte of the field, int4+4. */
BR_RANDOM_BOTH uint32_t inject_byte(const struct inject_tables *tables, struct inject_factor f, uint32_t byte,
                                    float re, float im, uint32_t bits, uint32_t *clipped)
{
    const float(*q)[INJECT_QUANTILES] = tables->quantile[f.klass];
    float s = INJECT_ADD(INJECT_MUL(f.re, re), -INJECT_MUL(f.im, im)),
          t = INJECT_ADD(INJECT_MUL(f.re, im), INJECT_MUL(f.im, re));
    int a = inject_level(q, (int)((byte & 15) ^ 8) - 8, s, bits & 0xffff, clipped),
        b = inject_level(q, (int)((byte >> 4 & 15) ^ 8) - 8, t, bits >> 16, clipped);
    return ((uint32_t)a & 15) | ((uint32_t)b & 15) << 4;
}

/* |z|^2 in units of 2^-24. */
BR_RANDOM_BOTH uint64_t inject_energy(float re, float im)
{
    return INJECT_LONG(INJECT_MUL(INJECT_ADD(INJECT_MUL(re, re), INJECT_MUL(im, im)), 16777216.0f));
}

#endif
