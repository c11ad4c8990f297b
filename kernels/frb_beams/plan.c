#include "kernels/frb_beams/plan.h"
#include "kernels/common/cuda.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double speed_of_light = 299.792458; /* m MHz */

enum { MAX_CELLS = 1024, VECTOR = 8 };

void br_frb_beams_weights(double *u, unsigned n, double theta)
{
    for (unsigned q = 0; q < 2 * n; q++) {
        double sum = 0;
        for (unsigned s = 0; s <= n; s++)
            sum += (s == 0 || s == n ? 0.5 : 1) * cos(M_PI * (2 * theta - q) * s / n);
        u[q] = sum / n;
    }
}

static int check_beams(const struct br_frb_beams_params *p, struct br_why *why)
{
    for (size_t b = 0; b < p->nbeams; b++)
        if (!isfinite(p->beam[2 * b]) || !isfinite(p->beam[2 * b + 1]))
            return br_because(why, "beam %zu has the direction (%g, %g); expected finite direction cosines",
                              b, p->beam[2 * b], p->beam[2 * b + 1]);
    if (p->beams_x == 0 && p->beams_y == 0) return 0;
    if (p->beams_x == 0 || p->nbeams / p->beams_x != p->beams_y || p->nbeams % p->beams_x != 0)
        return br_because(why, "%zu beams are not %zu x %zu", p->nbeams, p->beams_x, p->beams_y);
    for (size_t b = 0; b < p->nbeams; b++) {
        double x = p->beam[b / p->beams_y * p->beams_y * 2], y = p->beam[b % p->beams_y * 2 + 1];
        if (fabs(p->beam[2 * b] - x) > 1e-9 || fabs(p->beam[2 * b + 1] - y) > 1e-9)
            return br_because(
                why,
                "beam %zu has the direction (%g, %g); on a grid of %zu x %zu beams it would have (%g, %g)", b,
                p->beam[2 * b], p->beam[2 * b + 1], p->beams_x, p->beams_y, x, y);
    }
    return 0;
}

static int check(const struct br_frb_beams_params *p, struct br_why *why)
{
    if (p->nchannels < 1 || p->nbeams < 1 || p->max_steps < 1)
        return br_because(why, "%zu channels, %zu beams, %zu steps: each must be at least 1", p->nchannels,
                          p->nbeams, p->max_steps);
    if (p->grid_m < 1 || p->grid_m > MAX_CELLS || p->grid_n < 1 || p->grid_n > MAX_CELLS)
        return br_because(why, "a grid of %u x %u cells; expected 1 to %d each", p->grid_m, p->grid_n,
                          MAX_CELLS);
    if (!(p->spacing_m_m > 0 && p->spacing_n_m > 0) || !isfinite(p->spacing_m_m) || !isfinite(p->spacing_n_m))
        return br_because(why, "the grid's spacing is %g x %g m; expected positive numbers", p->spacing_m_m,
                          p->spacing_n_m);
    if (!p->freq_mhz || !p->beam) return br_because(why, "frequencies and beams are needed");
    for (size_t f = 0; f < p->nchannels; f++)
        if (!(p->freq_mhz[f] > 0) || !isfinite(p->freq_mhz[f]))
            return br_because(why, "channel %zu is at %g MHz; expected a positive number", f, p->freq_mhz[f]);
    if (p->nbeams > SIZE_MAX / 64 / (4 * MAX_CELLS) / p->nchannels)
        return br_because(why, "the weights of %zu beams and %zu channels do not fit into memory", p->nbeams,
                          p->nchannels);
    return check_beams(p, why);
}

/* Positions are those of beams 0, stride, 2 stride, ...; component 0 is x, 1 is y. */
static int make_axis(struct axis *axis, unsigned n, double spacing, const double *beam, size_t nbeams,
                     size_t stride, int component)
{
    axis->n = n;
    axis->nbeams = nbeams;
    axis->nbeams_even = (nbeams + VECTOR - 1) / VECTOR * VECTOR;
    axis->theta_mhz = malloc(nbeams * sizeof *axis->theta_mhz);
    axis->sine = calloc(3 * axis->nbeams_even, sizeof *axis->sine);
    if (!axis->theta_mhz || !axis->sine) return -1;
    axis->cosine = axis->sine + axis->nbeams_even;
    axis->twist = axis->cosine + axis->nbeams_even;
    for (size_t i = 0; i < nbeams; i++)
        axis->theta_mhz[i] = n * beam[2 * i * stride + (size_t)component] * spacing / speed_of_light;
    return 0;
}

static int make_cuda(struct br_frb_beams *plan, struct br_cuda *cuda, struct br_why *why)
{
    plan->cuda = cuda;
#if BR_WITH_CUDA
    return cuda ? br_frb_beams_cuda_create(plan, why) : br_because(why, "BR_CUDA needs a br_cuda");
#else
    return br_because(why, "this beamring was built without CUDA");
#endif
}

int br_frb_beams_create(struct br_frb_beams **result, enum br_backend backend,
                        const struct br_frb_beams_params *params, struct br_why *why)
{
    *result = NULL;
    if (check(params, why) != 0) return -1;
    struct br_frb_beams *plan = calloc(1, sizeof *plan);
    if (!plan) return br_because(why, "no memory for the FRB beams");
    plan->backend = backend;
    plan->nchannels = params->nchannels;
    plan->nbeams = params->nbeams;
    plan->max_steps = params->max_steps;
    plan->cells = (size_t)4 * params->grid_m * params->grid_n;
    plan->freq_mhz = malloc(params->nchannels * sizeof *plan->freq_mhz);
    int factorizable = backend != BR_REFERENCE && params->beams_x > 0;
    if (factorizable) {
        plan->beams_x = params->beams_x;
        plan->beams_y = params->beams_y;
    }
    int failed = !plan->freq_mhz ||
                 make_axis(&plan->m, params->grid_m, params->spacing_m_m, params->beam,
                           factorizable ? params->beams_x : params->nbeams,
                           factorizable ? params->beams_y : 1, 0) != 0 ||
                 make_axis(&plan->n, params->grid_n, params->spacing_n_m, params->beam,
                           factorizable ? params->beams_y : params->nbeams, 1, 1) != 0;
    if (!failed) memcpy(plan->freq_mhz, params->freq_mhz, params->nchannels * sizeof *plan->freq_mhz);
    if (!failed && backend == BR_CPU) failed = br_frb_beams_cpu_create(plan) != 0;
    if (!failed && backend == BR_CUDA && make_cuda(plan, params->cuda, why) != 0) {
        br_frb_beams_destroy(plan);
        return -1;
    }
    if (failed) {
        br_frb_beams_destroy(plan);
        return br_because(why, "no memory for the weights of %zu beams, %zu channels and %u x %u cells",
                          params->nbeams, params->nchannels, params->grid_m, params->grid_n);
    }
    *result = plan;
    return 0;
}

void br_frb_beams_destroy(struct br_frb_beams *plan)
{
    if (!plan) return;
    br_frb_beams_cpu_destroy(plan);
#if BR_WITH_CUDA
    br_frb_beams_cuda_destroy(plan);
#endif
    free(plan->freq_mhz);
    free(plan->m.theta_mhz);
    free(plan->m.sine);
    free(plan->n.theta_mhz);
    free(plan->n.sine);
    free(plan);
}

void br_frb_beams_execute(struct br_frb_beams *plan, const uint16_t *in, const uint8_t *in_valid,
                          size_t nsteps, uint16_t *out)
{
    if (plan->backend == BR_REFERENCE) br_frb_beams_reference(plan, in, in_valid, nsteps, out);
#if BR_WITH_CUDA
    else if (plan->backend == BR_CUDA)
        br_frb_beams_cuda(plan, in, in_valid, nsteps, out);
#endif
    else
        br_frb_beams_cpu(plan, in, in_valid, nsteps, out);
}
