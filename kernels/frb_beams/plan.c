#include "kernels/frb_beams/plan.h"
#include "kernels/common/cuda.h"
#include "kernels/common/exchange.h"

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

static int check_beams(const double *beam, size_t nbeams, size_t beams_x, size_t beams_y, struct br_why *why)
{
    for (size_t b = 0; b < nbeams; b++)
        if (!isfinite(beam[2 * b]) || !isfinite(beam[2 * b + 1]))
            return br_because(why, "beam %zu has the direction (%g, %g); expected finite direction cosines",
                              b, beam[2 * b], beam[2 * b + 1]);
    if (beams_x == 0 && beams_y == 0) return 0;
    if (beams_x == 0 || nbeams / beams_x != beams_y || nbeams % beams_x != 0)
        return br_because(why, "%zu beams are not %zu x %zu", nbeams, beams_x, beams_y);
    for (size_t b = 0; b < nbeams; b++) {
        double x = beam[b / beams_y * beams_y * 2], y = beam[b % beams_y * 2 + 1];
        if (fabs(beam[2 * b] - x) > 1e-9 || fabs(beam[2 * b + 1] - y) > 1e-9)
            return br_because(
                why,
                "beam %zu has the direction (%g, %g); on a grid of %zu x %zu beams it would have (%g, %g)", b,
                beam[2 * b], beam[2 * b + 1], beams_x, beams_y, x, y);
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
    if (!(fabs(p->spacing_m_m) > 0 && fabs(p->spacing_n_m) > 0) || !isfinite(p->spacing_m_m) ||
        !isfinite(p->spacing_n_m))
        return br_because(why, "the grid's spacing is %g x %g m; expected finite numbers other than 0",
                          p->spacing_m_m, p->spacing_n_m);
    if (!p->freq_mhz || !p->beam) return br_because(why, "frequencies and beams are needed");
    for (size_t f = 0; f < p->nchannels; f++)
        if (!(p->freq_mhz[f] > 0) || !isfinite(p->freq_mhz[f]))
            return br_because(why, "channel %zu is at %g MHz; expected a positive number", f, p->freq_mhz[f]);
    if (p->nbeams > SIZE_MAX / 64 / (4 * MAX_CELLS) / p->nchannels)
        return br_because(why, "the weights of %zu beams and %zu channels do not fit into memory", p->nbeams,
                          p->nchannels);
    return check_beams(p->beam, p->nbeams, p->beams_x, p->beams_y, why);
}

/* Positions are those of beams 0, stride, 2 stride, ...; component 0 is x, 1 is y. */
static void find_theta(double *theta_mhz, const struct axis *axis, double spacing, const double *beam,
                       size_t stride, int component)
{
    double scale = axis->n * spacing / speed_of_light;
    for (size_t i = 0; i < axis->nbeams; i++) theta_mhz[i] = scale * beam[2 * i * stride + (size_t)component];
}

static int make_axis(struct axis *axis, unsigned n, size_t nbeams)
{
    axis->n = n;
    axis->nbeams = nbeams;
    axis->nbeams_even = (nbeams + VECTOR - 1) / VECTOR * VECTOR;
    axis->theta_mhz = malloc(nbeams * sizeof *axis->theta_mhz);
    axis->next_theta_mhz = malloc(nbeams * sizeof *axis->next_theta_mhz);
    return axis->theta_mhz && axis->next_theta_mhz ? 0 : -1;
}

static void free_axis(struct axis *axis)
{
    free(axis->theta_mhz);
    free(axis->next_theta_mhz);
}

static void switch_axis(struct axis *axis)
{
    double *theta = axis->theta_mhz;
    axis->theta_mhz = axis->next_theta_mhz;
    axis->next_theta_mhz = theta;
}

static int make_cuda(struct br_frb_beams *plan, struct br_cuda *cuda, struct br_why *why)
{
    plan->cuda = cuda;
#if BR_WITH_CUDA
    if (cuda == NULL) return br_because(why, "BR_CUDA needs a br_cuda");
    int failed = br_frb_beams_cuda_create(plan, why);
    return failed ? failed : br_frb_beams_cuda_make_room(plan, why);
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
    plan->spacing_m_m = params->spacing_m_m;
    plan->spacing_n_m = params->spacing_n_m;
    plan->steered = params->steered;
    plan->portable = params->portable;
    plan->float32 = params->float32;
    plan->parallel = params->parallel;
    plan->incoherent = params->incoherent;
    plan->pitch = plan->nbeams + (backend != BR_CUDA && plan->incoherent == BR_INCOHERENT_APPEND);
    int factorizable =
        backend != BR_REFERENCE && params->beams_x > 0 && !(backend == BR_CUDA && params->float32);
    if (factorizable) {
        plan->beams_x = params->beams_x;
        plan->beams_y = params->beams_y;
    }
    int failed = !plan->freq_mhz ||
                 make_axis(&plan->m, params->grid_m, factorizable ? params->beams_x : params->nbeams) != 0 ||
                 make_axis(&plan->n, params->grid_n, factorizable ? params->beams_y : params->nbeams) != 0;
    if (!failed) {
        find_theta(plan->m.theta_mhz, &plan->m, plan->spacing_m_m, params->beam,
                   factorizable ? plan->beams_y : 1, 0);
        find_theta(plan->n.theta_mhz, &plan->n, plan->spacing_n_m, params->beam, 1, 1);
    }
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
    br_cuda_free(plan->cuda, plan->apart);
    br_frb_beams_cuda_destroy(plan);
#endif
    free(plan->freq_mhz);
    free_axis(&plan->m);
    free_axis(&plan->n);
    free(plan);
}

int br_frb_beams_steer(struct br_frb_beams *plan, const double *beam, size_t first_step, struct br_why *why)
{
    if (!plan->steered) return br_because(why, "these beams were not said to be steered");
    if (check_beams(beam, plan->nbeams, plan->beams_x, plan->beams_y, why) != 0) return -1;
    find_theta(plan->m.next_theta_mhz, &plan->m, plan->spacing_m_m, beam, plan->beams_x ? plan->beams_y : 1,
               0);
    find_theta(plan->n.next_theta_mhz, &plan->n, plan->spacing_n_m, beam, 1, 1);
    plan->steering = true;
    plan->steer_at = first_step;
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA) br_frb_beams_cuda_steer(plan);
#endif
    return 0;
}

static void switch_beams(struct br_frb_beams *plan)
{
    plan->steering = false;
    switch_axis(&plan->m);
    switch_axis(&plan->n);
    if (plan->backend == BR_CPU) br_frb_beams_cpu_steer(plan);
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA) br_frb_beams_cuda_switch(plan);
#endif
}

/* Steps first to first + count - 1 of `all`. */
static struct span part_of(const struct br_frb_beams *plan, const struct span *all, size_t first,
                           size_t count)
{
    return (struct span){.in = all->in + first * plan->cells,
                         .valid = all->valid ? all->valid + first : NULL,
                         .out = all->out + first * plan->pitch,
                         .count = count,
                         .stride = all->stride};
}

static void form(struct br_frb_beams *plan, const struct span *all, size_t first, size_t count)
{
    const struct span span = part_of(plan, all, first, count);
    if (count == 0) return;
    if (plan->backend == BR_REFERENCE) br_frb_beams_reference(plan, &span);
#if BR_WITH_CUDA
    else if (plan->backend == BR_CUDA)
        br_frb_beams_cuda(plan, &span);
#endif
    else
        br_frb_beams_cpu(plan, &span);
}

void br_frb_beams_execute(struct br_frb_beams *plan, const uint16_t *in, const uint8_t *in_valid,
                          size_t nsteps, uint16_t *out)
{
    br_frb_beams_execute_steps(plan, in, in_valid, nsteps, 0, nsteps, out);
}

void br_frb_beams_execute_steps(struct br_frb_beams *plan, const uint16_t *in, const uint8_t *in_valid,
                                size_t nsteps, size_t first, size_t count, uint16_t *out)
{
    const struct span all = {.in = in, .valid = in_valid, .out = out, .count = nsteps, .stride = nsteps};
    const struct span *span = &all;
#if BR_WITH_CUDA
    struct span on_device = all;
    if (plan->backend == BR_CUDA) {
        if (!br_frb_beams_cuda_begin(plan, in_valid, nsteps, &on_device.valid)) return;
        if (plan->apart != NULL) on_device.out = plan->apart;
        span = &on_device;
    }
#endif
    size_t before = plan->steering && plan->steer_at < count ? plan->steer_at : count;
    form(plan, span, first, before);
    if (before < count) {
        switch_beams(plan);
        form(plan, span, first + before, count - before);
    } else if (plan->steering) {
        plan->steer_at -= count;
    }
    if (plan->incoherent == BR_INCOHERENT_NONE || count == 0) return;
    const struct span part = part_of(plan, span, first, count);
    if (plan->backend == BR_CPU) br_frb_beams_cpu_incoherent(plan, &part);
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA)
        br_frb_beams_cuda_incoherent(
            plan, &part, out + first * (plan->nbeams + (plan->incoherent == BR_INCOHERENT_APPEND)));
#endif
}

int br_frb_beams_may_exchange(const struct br_frb_beams *plan, const struct br_frb_beams *with,
                              struct br_why *why)
{
    if (plan->backend != with->backend || plan->nchannels != with->nchannels ||
        plan->nbeams != with->nbeams || plan->beams_x != with->beams_x || plan->beams_y != with->beams_y ||
        plan->m.n != with->m.n || plan->n.n != with->n.n || plan->float32 != with->float32)
        return br_because(why, "the FRB beams have different shapes");
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA && !br_frb_beams_cuda_alike(plan, with))
        return br_because(why, "these beams need another kernel on a GPU than the one that runs");
#endif
    return 0;
}

void br_frb_beams_exchange(struct br_frb_beams *plan, struct br_frb_beams *with)
{
    BR_EXCHANGE(double *, plan, with, m.theta_mhz);
    BR_EXCHANGE(double *, plan, with, m.next_theta_mhz);
    BR_EXCHANGE(double *, plan, with, n.theta_mhz);
    BR_EXCHANGE(double *, plan, with, n.next_theta_mhz);
    BR_EXCHANGE(bool, plan, with, steered);
    BR_EXCHANGE(bool, plan, with, steering);
    BR_EXCHANGE(size_t, plan, with, steer_at);
    BR_EXCHANGE(float *, plan, with, weights_m);
    BR_EXCHANGE(float *, plan, with, weights_n);
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA) br_frb_beams_cuda_exchange(plan, with);
#endif
}
