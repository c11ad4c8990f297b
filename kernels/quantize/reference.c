/* The definition, one beam and channel at a time, in double precision. */
#include "kernels/common/half.h"
#include "kernels/quantize/plan.h"

#include <math.h>

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
            const uint16_t *series = in + f * in_stride * B + b;
            const uint8_t *valid = in_valid ? in_valid + f * in_stride : NULL;
            uint8_t *row = out + (b * F + f) * (plan->bits == 8 ? T : T / 2);
            double sum = 0, squares = 0, offset = 0, scale = 0;
            size_t count = 0;
            for (size_t t = 0; t < T; t++)
                if (!valid || valid[t]) {
                    sum += (double)br_half_to_float(series[t * B]);
                    count++;
                }
            if (count > 0) offset = sum / (double)count;
            for (size_t t = 0; t < T; t++)
                if (!valid || valid[t]) squares += pow((double)br_half_to_float(series[t * B]) - offset, 2);
            if (count > 0) scale = sqrt(squares / (double)count) / plan->levels_rms;
            for (size_t t = 0; t < T; t++) {
                if (valid && !valid[t]) {
                    put(plan, row, t, missing_code(plan->bits));
                    continue;
                }
                double level =
                    scale > 0 ? rint(((double)br_half_to_float(series[t * B]) - offset) / scale) : 0;
                if (fabs(level) > most) clamped++;
                put(plan, row, t, level_code(plan->bits, (int)fmax(fmin(level, most), -most)));
            }
            side[(b * F + f) * 2] = (float)scale;
            side[(b * F + f) * 2 + 1] = (float)offset;
        }
    return clamped;
}
