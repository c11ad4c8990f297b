/* The equation, one output at a time. */
#include "kernels/baseband/plan.h"

#include <string.h>

/* (sum + 2^(s-1)) >> s as a floor, spelled without relying on what >> does to negative numbers. */
static int64_t round_shift(int64_t sum, int32_t s)
{
    if (s == 0) return sum;
    int64_t unit = (int64_t)1 << s, rounded = sum + unit / 2;
    return rounded >= 0 ? rounded / unit : -((-rounded + unit - 1) / unit);
}

static int clamp(int64_t value, int most, uint64_t *count)
{
    if (value > most || value < -most) ++*count;
    return (int)(value > most ? most : value < -most ? -most : value);
}

/* sum_d A E of one beam; `e` and `w` are its first dish's. */
static void sum_dishes(const struct br_baseband *plan, const int8_t *w, const uint8_t *e, int64_t *re,
                       int64_t *im)
{
    *re = *im = 0;
    for (size_t d = 0; d < plan->ndishes; d++) {
        int64_t e_re = (int)((e[d] & 15) ^ 8) - 8, e_im = (int)(e[d] >> 4 ^ 8) - 8;
        *re += w[2 * d] * e_re - w[2 * d + 1] * e_im;
        *im += w[2 * d] * e_im + w[2 * d + 1] * e_re;
    }
}

/* Writes sample `at` of the output. */
static void put(const struct br_baseband *plan, uint8_t *out, size_t at, int re, int im)
{
    if (plan->bits == 8) {
        out[2 * at] = (uint8_t)re;
        out[2 * at + 1] = (uint8_t)im;
    } else {
        out[at] = (uint8_t)((re & 15) | (im & 15) << 4);
    }
}

uint64_t br_baseband_reference(const struct br_baseband *plan, const uint8_t *e, const uint8_t *e_valid,
                               size_t nsteps, uint8_t *out, uint64_t *saturated)
{
    size_t F = plan->nchannels, P = plan->npol, B = plan->nbeams, D = plan->ndishes;
    int missing = plan->bits == 8 ? -128 : -8, most = plan->bits == 8 ? 127 : 7;
    uint64_t total = 0;
    for (size_t b = 0; b < B; b++) {
        uint64_t count = 0;
        for (size_t f = 0; f < F; f++)
            for (size_t p = 0; p < P; p++) {
                size_t row = ((plan->weight_channels == 1 ? 0 : f) * P + p) * B + b;
                int32_t s = plan->given_shift[row];
                for (size_t t = 0; t < nsteps; t++) {
                    size_t at = ((b * F + f) * P + p) * nsteps + t;
                    int64_t re, im;
                    if (e_valid && !e_valid[t * F + f]) {
                        put(plan, out, at, missing, missing);
                        continue;
                    }
                    sum_dishes(plan, plan->given_weights + row * D * 2, e + ((t * F + f) * P + p) * D, &re,
                               &im);
                    re = clamp(round_shift(re, s), most, &count);
                    put(plan, out, at, (int)re, clamp(round_shift(im, s), most, &count));
                }
            }
        if (saturated) saturated[b] += count;
        total += count;
    }
    return total;
}

/* A sample's power in one column, not yet scaled. */
static float power_of(const struct br_baseband *plan, size_t wp, size_t column, const uint8_t *e)
{
    size_t B = plan->nbeams, D = plan->ndishes;
    int64_t re, im;
    if (column == B) { /* the incoherent sum */
        int64_t sum = 0;
        for (size_t d = 0; d < D; d++) {
            int64_t x = (int)((e[d] & 15) ^ 8) - 8, y = (int)(e[d] >> 4 ^ 8) - 8;
            sum += plan->power->incoherent[wp * D + d] * (x * x + y * y);
        }
        return (float)sum;
    }
    sum_dishes(plan, plan->given_weights + (wp * B + column) * D * 2, e, &re, &im);
    float x = (float)re, y = (float)im, xx = x * x, yy = y * y;
    return xx + yy;
}

void br_baseband_reference_power(struct br_baseband *plan, const struct power_slab *slab)
{
    struct power_state *s = plan->power;
    size_t F = plan->nchannels, P = plan->npol, B = plan->nbeams, C = s->columns,
           spans = power_spans(s, slab);
    for (size_t i = 0; i < F * spans; i++) {
        size_t f = i / spans, k = i % spans, wf = plan->weight_channels == 1 ? 0 : f;
        const struct power_span span = power_span(s, slab, k);
        float *running = s->running[s->now ^ 1] + f * C, *rest = s->rest[s->now ^ 1] + f * P * GROUP * C;
        memcpy(running, s->running[s->now] + f * C, C * sizeof *running);
        memcpy(rest, s->rest[s->now] + f * P * GROUP * C, P * GROUP * C * sizeof *rest);
        if (span.begin == 0) memset(running, 0, C * sizeof *running);
        for (size_t t = span.begin; t < span.end || (t == span.end && span.ends); t++) {
            size_t at = span.at + t - span.begin, place = t % GROUP;
            if (place == 0) memset(rest, 0, P * GROUP * C * sizeof *rest);
            bool there = t < span.end && (!slab->e_valid || slab->e_valid[at * F + f]);
            for (size_t p = 0; p < P && there; p++)
                for (size_t c = 0; c < C; c++)
                    rest[(p * GROUP + place) * C + c] =
                        power_of(plan, wf * P + p, c, slab->e + ((at * F + f) * P + p) * plan->ndishes);
            if (place != GROUP - 1 && !(span.ends && t + 1 >= span.end)) continue;
            for (size_t c = 0; c < C; c++) {
                float group = 0;
                for (size_t p = 0; p < P; p++)
                    group += power_tree(rest + p * GROUP * C + c, C) *
                             (c < B ? s->scale[(wf * P + p) * B + c] : 1);
                running[c] += group;
            }
            if (t + 1 >= span.end) break;
        }
        if (span.ends)
            br_baseband_power_finish(s, running, power_factor(s, slab, f, k),
                                     slab->out + (f * slab->out_stride + k) * (C - s->subtract));
    }
}
