/* The equation, one output at a time. */
#include "kernels/baseband/plan.h"

/* (sum + 2^(s-1)) >> s as a floor, spelled without relying on what >> does to negative numbers. */
static int64_t round_shift(int64_t sum, int32_t s)
{
    if (s == 0) return sum;
    int64_t unit = (int64_t)1 << s, rounded = sum + unit / 2;
    return rounded >= 0 ? rounded / unit : -((-rounded + unit - 1) / unit);
}

static unsigned clamp(int64_t value, uint64_t *count)
{
    if (value > 7 || value < -7) ++*count;
    return (unsigned)(value > 7 ? 7 : value < -7 ? -7 : value) & 15;
}

uint64_t br_baseband_reference(const struct br_baseband *plan, const uint8_t *e, const uint8_t *e_valid,
                               size_t nsteps, uint8_t *out, uint64_t *saturated)
{
    size_t F = plan->nchannels, P = plan->npol, B = plan->nbeams, D = plan->ndishes;
    uint64_t total = 0;
    for (size_t b = 0; b < B; b++) {
        uint64_t count = 0;
        for (size_t f = 0; f < F; f++)
            for (size_t p = 0; p < P; p++) {
                size_t wf = plan->weight_channels == 1 ? 0 : f;
                const int8_t *w = plan->given_weights + ((wf * P + p) * B + b) * D * 2;
                int32_t s = plan->given_shift[(wf * P + p) * B + b];
                for (size_t t = 0; t < nsteps; t++) {
                    uint8_t *j = &out[((b * F + f) * P + p) * nsteps + t];
                    if (e_valid && !e_valid[t * F + f]) {
                        *j = 0x88;
                        continue;
                    }
                    int64_t re = 0, im = 0;
                    for (size_t d = 0; d < D; d++) {
                        unsigned byte = e[((t * F + f) * P + p) * D + d];
                        int64_t e_re = (int)((byte & 15) ^ 8) - 8, e_im = (int)(byte >> 4 ^ 8) - 8;
                        re += w[2 * d] * e_re - w[2 * d + 1] * e_im;
                        im += w[2 * d] * e_im + w[2 * d + 1] * e_re;
                    }
                    unsigned low = clamp(round_shift(re, s), &count),
                             high = clamp(round_shift(im, s), &count);
                    *j = (uint8_t)(low | high << 4);
                }
            }
        if (saturated) saturated[b] += count;
        total += count;
    }
    return total;
}
