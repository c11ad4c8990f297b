/* Eq. (6), one output at a time, and the mean over the map. */
#include "buffers/half.h"
#include "kernels/frb_beams/plan.h"

#include <math.h>

static double mean(const uint16_t *image, size_t cells)
{
    double sum = 0;
    for (size_t i = 0; i < cells; i++) sum += (double)br_half_to_float(image[i]);
    return sum / (double)cells;
}

static uint16_t rounded(double value)
{
    return br_half_from_float((float)fmax(fmin(value, BR_HALF_MAX), -BR_HALF_MAX));
}

void br_frb_beams_reference(const struct br_frb_beams *plan, const struct span *span)
{
    size_t np = (size_t)2 * plan->m.n, nq = (size_t)2 * plan->n.n, B = plan->nbeams;
    double u_m[2 * 1024], u_n[2 * 1024];
    for (size_t f = 0; f < plan->nchannels; f++)
        for (size_t b = 0; b < B; b++) {
            br_frb_beams_weights(u_m, plan->m.n, plan->m.theta_mhz[b] * plan->freq_mhz[f]);
            br_frb_beams_weights(u_n, plan->n.n, plan->n.theta_mhz[b] * plan->freq_mhz[f]);
            for (size_t t = 0; t < span->count; t++) {
                double sum = 0;
                const uint16_t *image = span->in + (f * span->stride + t) * plan->cells;
                int valid = !span->valid || span->valid[f * span->stride + t];
                for (size_t p = 0; valid && p < np; p++)
                    for (size_t q = 0; q < nq; q++)
                        sum += u_m[p] * u_n[q] * (double)br_half_to_float(image[p * nq + q]);
                if (valid && plan->incoherent == BR_INCOHERENT_SUBTRACT) sum -= mean(image, plan->cells);
                span->out[(f * span->stride + t) * plan->pitch + b] = rounded(sum);
            }
        }
    for (size_t k = 0; plan->incoherent == BR_INCOHERENT_APPEND && k < plan->nchannels * span->count; k++) {
        size_t step = k / span->count * span->stride + k % span->count;
        int valid = !span->valid || span->valid[step];
        span->out[step * plan->pitch + B] =
            rounded(valid ? mean(span->in + step * plan->cells, plan->cells) : 0);
    }
}
