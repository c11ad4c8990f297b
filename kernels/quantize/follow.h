/* follow.h - mean and noise of a series that change slowly, followed from block to block.
 *
 * A block that is scaled by its own mean and deviation loses a part of every burst that it contains: the
 * burst raises both. Here a block is scaled by what the blocks before it say. Per (beam, channel) the
 * state is mean M, its trend S per block, variance V. Levels refer to M + 2 S as they were before the last
 * block, so that of a burst on both sides of a block's edge the first part does not lower the second one,
 * and to V. A block with n valid samples, mean m and variance v (of a sample: the sum of squares / (n -
 * 1)) is expected at E = M + S, with c the time constant in samples:
 *
 *   x = exp(-n/c),  a = max(1 - x^2, n/(samples so far)),  b = 2 (1 - x)^2 once c samples were seen, before 0
 *   M = E + a (m - E),  S = S + b (m - E),  V = V + a (v - V)
 *
 * A mean that changes at a steady rate is thus followed without lag. A block stands out when
 *
 *   (m - E)^2 > 16 V (1/n + 2/(samples so far))   or   v > V (1 + 6 sqrt(2/n))
 *
 * and, once c samples were seen, behind a block that stood out from a quarter of the first on (the end of
 * a burst):
 *
 * M = E, and nothing else changes, so that a burst leaves no trace in what follows. A change that lasts for c
 * samples is not a burst, but a new gain: M = m, S = 0, V = v.
 *
 * The first block of a series, the first with 16 valid samples or with half of its steps, has nothing
 * before it. It is cut into parts of at least 8 steps, at most 8 of them; M is the median of the parts'
 * means, V that of their variances (times what makes the median of a variance its mean), so that a burst
 * that is shorter than half of the block does not count. While V = 0 (shorter or constant so far) a
 * block's own mean and deviation serve. A channel that gave nothing valid for more than c begins anew. */
#ifndef BEAMRING_KERNELS_QUANTIZE_FOLLOW_H
#define BEAMRING_KERNELS_QUANTIZE_FOLLOW_H

#include "kernels/common/layout.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { BR_FOLLOW_PARTS = 8, BR_FOLLOW_PART = 8 }; /* parts of a first block, steps of one at least */

/* The state of one (beam, channel); zeros: nothing is known yet. */
struct br_follow {
    float expected; /* what the next block's levels refer to */
    float mean, trend, variance;
    float away; /* share of c during which blocks have stood out on end */
};

/* The weight of a block of a channel, the same for all beams. */
struct br_follow_step {
    float level, trend, noise; /* a, b, and a for V: 0 for a block of one sample */
    float near, again, noisy;  /* of (m - E)^2 / V, the same behind a block that stood out; of v / V */
    float unbias;              /* n/(n - 1): what makes the mean square the variance */
    float share;               /* n/c; 0: it does not count */
    float first;               /* 1: the channel's first block, already in the state; else 0 */
};

/* A product that no compiler makes one with what it is added to. */
static inline BR_HD float br_follow_product(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}

/* The state after a block with this mean and mean square of the differences from it. Written so that all
 * compilers round alike. */
static inline BR_HD void br_follow_block(struct br_follow *s, const struct br_follow_step *w, float mean,
                                         float square)
{
    const float expected = s->mean + s->trend, d = mean - expected,
                variance = br_follow_product(square, w->unbias);
    const float near = s->away > 0 ? w->again : w->near;
    const bool out = d * d > s->variance * near || variance > s->variance * w->noisy;
    if (w->share <= 0 || !(fabsf(mean) < INFINITY)) return;
    const float away = out && w->first <= 0 ? s->away + w->share : 0;
    if (!(s->variance > 0) || away >= 1) {
        s->expected = s->mean = mean, s->trend = 0, s->variance = variance, s->away = 0;
        return;
    }
    s->expected = expected + s->trend;
    s->away = away;
    s->mean = away > 0 ? expected : fmaf(w->level, d, expected);
    if (away > 0) return;
    s->trend = fmaf(w->trend, d, s->trend);
    s->variance = fmaf(w->noise, variance - s->variance, s->variance);
}

/* The middle of the first `count` of values[BR_FOLLOW_PARTS], which are sorted; of an even count the mean of
 * the two in the middle. 0 of none. */
static inline BR_HD float br_follow_median(float *values, unsigned count)
{
    for (unsigned i = 1; i < count; i++)
        for (unsigned k = i; k > 0 && values[k] < values[k - 1]; k--) {
            const float swap = values[k];
            values[k] = values[k - 1], values[k - 1] = swap;
        }
    if (count == 0) return 0;
    return count % 2 == 1 ? values[count / 2] : 0.5f * (values[count / 2 - 1] + values[count / 2]);
}

/* Moments of the parts of a first block. */
struct br_follow_parts {
    float mean[BR_FOLLOW_PARTS], variance[BR_FOLLOW_PARTS];
    unsigned means, variances; /* how many of them there are */
};

/* Adds a part of `count` valid samples with these sums of differences from `about` and of their squares. */
static inline BR_HD void br_follow_part(struct br_follow_parts *p, float about, float sum, float squares,
                                        unsigned count)
{
    if (count == 0 || !(fabsf(sum) < INFINITY)) return;
    const float n = (float)count, mean = sum / n;
    p->mean[p->means++] = about + mean;
    if (count < 2) return;
    const float free = n - 1, middle = 1 - 2 / (9 * free), rest = fmaf(-mean, sum, squares);
    p->variance[p->variances++] = (rest > 0 ? rest : 0) / (free * (middle * middle * middle));
}

/* The state at a series' first block. */
static inline BR_HD void br_follow_begin(struct br_follow *s, struct br_follow_parts *p)
{
    s->expected = s->mean = br_follow_median(p->mean, p->means);
    s->variance = br_follow_median(p->variance, p->variances);
    s->trend = s->away = 0;
}

/* How many parts a first block of `steps` has; step t belongs to part t parts / steps. */
static inline BR_HD unsigned br_follow_count(size_t steps)
{
    return steps >= BR_FOLLOW_PARTS * BR_FOLLOW_PART ? (unsigned)BR_FOLLOW_PARTS
           : steps >= 2 * BR_FOLLOW_PART             ? (unsigned)(steps / BR_FOLLOW_PART)
                                                     : 1;
}

/* How many valid samples make a block of `steps` the first one of a series. */
static inline size_t br_follow_least(size_t steps)
{
    return steps >= 32 ? 16 : (steps + 1) / 2;
}

/* How many samples each channel has given so far. */
struct br_follow_clock {
    double constant;         /* c */
    size_t nchannels, steps; /* steps of a block */
    size_t least;            /* valid samples of a first block */
    double *seen;            /* [nchannels] */
    double *idle;            /* [nchannels] steps on end with nothing valid */
};

/* For blocks of `steps`. Allocates; 0 or -1. Free with br_follow_clock_free. */
int br_follow_clock_create(struct br_follow_clock *clock, size_t nchannels, size_t steps, double constant);
void br_follow_clock_free(struct br_follow_clock *clock);

/* Counts a block of `count` valid samples of channel f and returns its weight. */
struct br_follow_step br_follow_tick(struct br_follow_clock *clock, size_t f, size_t count);

/* Forgets all channels: their next blocks are their first ones. */
void br_follow_clock_reset(struct br_follow_clock *clock);

#ifdef __cplusplus
}
#endif
#endif
