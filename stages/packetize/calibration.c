#include "stages/packetize/calibration.h"
#include "kernels/common/half.h"

#include <math.h>
#include <stdlib.h>

enum { FEW = 8 };

double calibration_levels(double rms)
{
    double sum = 0;
    for (int x = 1; x <= 7; x++) {
        double inner = erfc((x - 0.5) / (rms * sqrt(2))),
               outer = x < 7 ? erfc((x + 0.5) / (rms * sqrt(2))) : 0;
        sum += x * x * (inner - outer); /* both signs */
    }
    return sum;
}

int calibration_create(struct calibration *c)
{
    size_t cells = c->nbeams * c->nchannels;
    c->mean = calloc(cells, sizeof *c->mean);
    c->variance = calloc(cells, sizeof *c->variance);
    c->blocks = calloc(cells, sizeof *c->blocks);
    c->row = calloc(2 * c->nchannels, sizeof *c->row);
    return c->mean && c->variance && c->blocks && c->row ? 0 : -1;
}

void calibration_free(struct calibration *c)
{
    free(c->mean);
    free(c->variance);
    free(c->blocks);
    free(c->row);
}

static float in_half(float value)
{
    value = value < BR_HALF_MAX ? value : BR_HALF_MAX;
    return value > -BR_HALF_MAX ? value : -BR_HALF_MAX;
}

void calibrate(struct calibration *c, const float *side, uint16_t *wire)
{
    size_t F = c->nchannels;
    for (size_t b = 0; b < c->nbeams; b++) {
        float *mean = c->mean + b * F, *variance = c->variance + b * F;
        uint32_t *blocks = c->blocks + b * F;
        for (size_t f = 0; f < F; f++) {
            float scale = side[2 * (b * F + f)], offset = side[2 * (b * F + f) + 1];
            if (scale > 0) {
                float own = scale * scale * c->levels_variance, weight = 1 / (float)(blocks[f] + 1);
                if (blocks[f] >= FEW && own > 4 * variance[f]) own = 4 * variance[f];
                if (weight < c->follow) weight = c->follow;
                variance[f] += weight * (own - variance[f]);
                mean[f] += weight * (offset - mean[f]);
                blocks[f]++;
            }
            float k = variance[f] > 0 ? c->deviation[f] / sqrtf(variance[f]) : 0;
            float away = scale > 0 ? (offset - mean[f]) * k : 0;
            c->row[2 * f] = in_half(scale * k);
            c->row[2 * f + 1] = in_half(away);
        }
        br_half_from_float_array(wire + 2 * b * F, c->row, 2 * F);
    }
}
