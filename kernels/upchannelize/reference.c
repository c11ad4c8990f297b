/* The equation in float64, one output at a time. */
#include "kernels/upchannelize/plan.h"

#include <math.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

static unsigned quantize(double value, uint64_t *clamped)
{
    double level = rint(value);
    if (fabs(level) > 7) ++*clamped;
    return (unsigned)(int)(level > 7 ? 7 : level < -7 ? -7 : level) & 15;
}

uint64_t br_upchannelize_reference(const struct br_upchannelize *plan, const struct upchannelize_job *job)
{
    size_t F = plan->nchannels, X = plan->nspectators;
    int U = (int)plan->U, M = (int)plan->M;
    double weight_re[32 * 128], weight_im[32 * 128];
    uint64_t clamped = 0;
    for (int u = 0; u < U; u++) {
        for (int s = 0; s < M * U; s++) {
            /* e^{i pi s (U-1)/U} e^{-2 i pi u s/U}; the phase is reduced as an integer to lose no digits */
            int phase = s * (U - 1 - 2 * u) % (2 * U);
            weight_re[s] = plan->window[s] * cos(pi * phase / U);
            weight_im[s] = plan->window[s] * sin(pi * phase / U);
        }
        for (size_t b = 0; b < job->blocks; b++)
            for (size_t f = 0; f < F; f++) {
                uint8_t *out = job->out + (((job->first + b) * F + f) * (size_t)U + (size_t)u) * X;
                if (job->missing[b * F + f]) {
                    memset(out, 0x88, X);
                    continue;
                }
                for (size_t x = 0; x < X; x++) {
                    double re = 0, im = 0;
                    for (int s = 0; s < M * U; s++) {
                        unsigned e = upchannelize_row(plan, job, (M - 1 - (ptrdiff_t)b) * U - s)[f * X + x];
                        int e_re = (int)((e & 15) ^ 8) - 8, e_im = (int)(e >> 4 ^ 8) - 8;
                        re += weight_re[s] * e_re - weight_im[s] * e_im;
                        im += weight_re[s] * e_im + weight_im[s] * e_re;
                    }
                    unsigned low = quantize(plan->gain[u] * re, &clamped),
                             high = quantize(plan->gain[u] * im, &clamped);
                    out[x] = (uint8_t)(low | high << 4);
                }
            }
    }
    return clamped;
}
