/* The definition, one beam and channel at a time, in double precision. */
#include "buffers/half.h"
#include "kernels/quantize/plan.h"

#include <math.h>
#include <stdlib.h>

/* One beam and channel of a block. */
struct series {
    const uint16_t *in; /* first step */
    size_t stride, steps;
    const uint8_t *valid; /* [steps] or NULL */
};

static double value_at(const struct series *s, size_t t)
{
    return (double)br_half_to_float(s->in[t * s->stride]);
}

/* Mean and mean square of the differences from it, of the valid ones of steps [from, end); how many. */
static size_t moments_of(const struct series *s, size_t from, size_t end, double *mean, double *square)
{
    size_t count = 0;
    *mean = *square = 0;
    for (size_t t = from; t < end; t++)
        if (!s->valid || s->valid[t]) {
            *mean += value_at(s, t);
            count++;
        }
    if (count > 0) *mean /= (double)count;
    for (size_t t = from; t < end; t++)
        if (!s->valid || s->valid[t]) *square += pow(value_at(s, t) - *mean, 2);
    if (count > 0) *square /= (double)count;
    return count;
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    if (count == 0) return 0;
    qsort(values, count, sizeof *values, rising);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

/* The state at a series' first block. */
static void begin(struct exact_follow *state, const struct series *s)
{
    double mean[BR_FOLLOW_PARTS], variance[BR_FOLLOW_PARTS];
    size_t parts = br_follow_count(s->steps), means = 0, variances = 0;
    for (size_t part = 0; part < parts; part++) {
        /* step t belongs to part t parts / steps */
        size_t from = (part * s->steps + parts - 1) / parts,
               end = ((part + 1) * s->steps + parts - 1) / parts;
        double square, n = (double)moments_of(s, from, end, &mean[means], &square);
        if (!(n > 0) || !isfinite(mean[means])) continue;
        means++;
        if (n > 1) variance[variances++] = square * n / (n - 1) / pow(1 - 2 / (9 * (n - 1)), 3);
    }
    *state = (struct exact_follow){.mean = median(mean, means), .variance = median(variance, variances)};
    state->expected = state->mean;
}

/* The state after a block: see follow.h. */
static void follow(struct exact_follow *state, double constant, bool first, size_t count, double mean,
                   double square)
{
    double n = (double)count, expected = state->mean + state->trend, d = mean - expected;
    double variance = count > 1 ? square * n / (n - 1) : 0;
    double near = (1 / n + 2 / fmax(state->seen, n)) * (state->away > 0 && state->seen >= constant ? 4 : 16);
    bool out = d * d > near * state->variance || variance > state->variance * (1 + 6 * sqrt(2 / n));
    double x = exp(-n / constant), a = fmax(1 - x * x, n / (state->seen + n)),
           b = state->seen >= constant ? 2 * pow(1 - x, 2) : 0;
    state->seen = fmin(state->seen + n, 4 * constant);
    if (!isfinite(mean)) return;
    state->away = out && !first ? state->away + n / constant : 0;
    if (!(state->variance > 0) || state->away >= 1) {
        *state = (struct exact_follow){mean, mean, 0, variance, 0, state->seen, 0};
        return;
    }
    state->expected = expected + state->trend;
    if (first) return; /* it is in the state already */
    state->mean = expected;
    if (state->away > 0) return;
    state->mean += a * d;
    state->trend += b * d;
    if (count > 1) state->variance += a * (variance - state->variance);
}

/* offset and scale of a block. */
static void statistics(const struct br_quantize *plan, const struct series *s, struct exact_follow *state,
                       double *offset, double *scale)
{
    double square, most = -INFINITY;
    size_t count = moments_of(s, 0, s->steps, offset, &square);
    *scale = sqrt(square) / plan->levels_rms;
    if (!state) return;
    state->idle = count > 0 ? 0 : state->idle + (double)s->steps;
    if (state->idle > plan->clock.constant) state->seen = 0;
    if (count == 0) return;
    bool first = !(state->seen > 0);
    double mean = *offset;
    bool counts = !first || count >= br_follow_least(s->steps);
    if (first && counts) begin(state, s);
    if (state->variance > 0) {
        *offset = state->expected;
        *scale = sqrt(state->variance) / plan->levels_rms;
    }
    for (size_t t = 0; t < s->steps; t++)
        if (!s->valid || s->valid[t]) most = fmax(most, value_at(s, t));
    if (plan->bits == 4 && *scale > 0) *scale = fmax(*scale, (most - *offset) / 7);
    if (counts) follow(state, plan->clock.constant, first, count, mean, square);
}

static void put(const struct br_quantize *plan, uint8_t *row, size_t t, unsigned code)
{
    if (plan->bits == 8)
        row[t] = (uint8_t)code;
    else
        row[t / 2] = (uint8_t)(t % 2 == 0 ? code : (row[t / 2] & 15) | code << 4);
}

uint64_t br_quantize_reference(const struct br_quantize *plan, const uint16_t *in, size_t in_stride,
                               const uint8_t *in_valid, uint8_t *out, float *side)
{
    size_t F = plan->nchannels, B = plan->nbeams, T = plan->block;
    int most = plan->bits == 8 ? 127 : 7;
    uint64_t clamped = 0;
    for (size_t b = 0; b < B; b++)
        for (size_t f = 0; f < F; f++) {
            struct series s = {.in = in + f * in_stride * B + b,
                               .stride = B,
                               .steps = T,
                               .valid = in_valid ? in_valid + f * in_stride : NULL};
            uint8_t *row = out + (b * F + f) * (plan->bits == 8 ? T : T / 2);
            double offset, scale;
            statistics(plan, &s, plan->exact ? plan->exact + f * B + b : NULL, &offset, &scale);
            for (size_t t = 0; t < T; t++) {
                if (s.valid && !s.valid[t]) {
                    put(plan, row, t, missing_code(plan->bits));
                    continue;
                }
                double level = scale > 0 ? rint((value_at(&s, t) - offset) / scale) : 0;
                if (fabs(level) > most) clamped++;
                put(plan, row, t, level_code(plan->bits, (int)fmax(fmin(level, most), -most)));
            }
            side[(b * F + f) * 2] = (float)scale;
            side[(b * F + f) * 2 + 1] = (float)offset;
        }
    return clamped;
}
