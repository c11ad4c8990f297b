/* The equation: one direct sum per direction. */
#include "buffers/half.h"
#include "kernels/frb_grid/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int br_frb_grid_reference_create(struct br_frb_grid *plan, const struct br_frb_grid_params *params)
{
    size_t nweights = plan->weight_channels * plan->npol * plan->ndishes * 2;
    plan->dish_cell = malloc(plan->ndishes * 2 * sizeof *plan->dish_cell);
    plan->sum = calloc(plan->nchannels * plan->cells, sizeof *plan->sum);
    if (!plan->dish_cell || !plan->sum) return -1;
    memcpy(plan->dish_cell, params->dish_cell, plan->ndishes * 2 * sizeof *plan->dish_cell);
    if (!params->weights) return 0;
    plan->weights = malloc(nweights * sizeof *plan->weights);
    if (!plan->weights) return -1;
    memcpy(plan->weights, params->weights, nweights * sizeof *plan->weights);
    return 0;
}

/* |sum_d W E exp(+2 pi i (m p / 2M + n q / 2N))|^2 */
static double intensity(const struct br_frb_grid *plan, const float *w, const uint8_t *e, unsigned p,
                        unsigned q)
{
    double re = 0, im = 0;
    for (size_t d = 0; d < plan->ndishes; d++) {
        double e_re = (e[d] & 15) < 8 ? e[d] & 15 : (e[d] & 15) - 16,
               e_im = e[d] >> 4 < 8 ? e[d] >> 4 : (e[d] >> 4) - 16;
        double w_re = w ? (double)w[2 * d] : 1, w_im = w ? (double)w[2 * d + 1] : 0;
        double x = w_re * e_re - w_im * e_im, y = w_re * e_im + w_im * e_re;
        double phase = 2 * M_PI *
                       ((double)plan->dish_cell[2 * d] * p / (2 * plan->grid_m) +
                        (double)plan->dish_cell[2 * d + 1] * q / (2 * plan->grid_n));
        re += x * cos(phase) - y * sin(phase);
        im += x * sin(phase) + y * cos(phase);
    }
    return re * re + im * im;
}

uint64_t br_frb_grid_reference_add(struct br_frb_grid *plan, size_t f, unsigned first, const uint8_t *e,
                                   size_t row, const uint8_t *e_valid, size_t valid_row, unsigned nsteps)
{
    unsigned np = 2 * plan->grid_m, nq = 2 * plan->grid_n;
    double *sum = plan->sum + f * plan->cells;
    uint64_t shares = 0;
    (void)first;
    for (unsigned t = 0; t < nsteps; t++) {
        if (e_valid && !e_valid[t * valid_row]) continue;
        shares += e_valid ? e_valid[t * valid_row] : 255;
        for (size_t pol = 0; pol < plan->npol; pol++) {
            size_t wf = plan->weight_channels == 1 ? 0 : f;
            const float *w =
                plan->weights ? plan->weights + (wf * plan->npol + pol) * plan->ndishes * 2 : NULL;
            for (unsigned p = 0; p < np; p++)
                for (unsigned q = 0; q < nq; q++)
                    sum[p * nq + q] += intensity(plan, w, e + t * row + pol * plan->ndishes, p, q);
        }
    }
    return shares;
}

void br_frb_grid_reference_finish(struct br_frb_grid *plan, size_t f, double factor, uint16_t *out)
{
    double *sum = plan->sum + f * plan->cells;
    for (size_t i = 0; out && i < plan->cells; i++)
        out[i] = br_half_from_float((float)fmin(factor * sum[i], BR_HALF_MAX));
    memset(sum, 0, plan->cells * sizeof *sum);
}
