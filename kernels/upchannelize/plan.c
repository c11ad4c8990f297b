/* Shared by both implementations: checks, the history between calls, and which outputs are missing. */
#include "kernels/upchannelize/plan.h"
#include "kernels/common/cuda.h"
#include "kernels/common/exchange.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

enum { LONGEST = 128 }; /* transform */

void br_upchannelize_window(double *window, unsigned factor, unsigned taps)
{
    double length = (double)factor * taps;
    for (unsigned s = 0; s < factor * taps; s++) {
        double y = (s - (length - 1) / 2) / (length + 1), z = pi * taps * y, c = cos(pi * y);
        window[s] = c * c * (z == 0 ? 1 : sin(z) / z) / factor;
    }
}

static int check(const struct br_upchannelize_params *p, struct br_why *why)
{
    size_t bytes;
    if (p->nchannels < 1 || p->nspectators < 1)
        return br_because(why, "%zu channels of %zu samples: each must be at least 1", p->nchannels,
                          p->nspectators);
    if (p->factor < 1 || p->factor > LONGEST || (p->factor & (p->factor - 1)))
        return br_because(why, "factor %u: expected 1, 2, 4, 8, 16, 32, 64 or 128", p->factor);
    if (p->taps < 1 || p->taps > 32) return br_because(why, "%u taps: expected 1 to 32", p->taps);
    if (__builtin_mul_overflow(p->nchannels, p->nspectators + TILE, &bytes) ||
        __builtin_mul_overflow(bytes, (size_t)p->taps * p->factor * 2, &bytes) || bytes > SIZE_MAX / 2)
        return br_because(why, "%zu channels of %zu samples do not fit into memory", p->nchannels,
                          p->nspectators);
    for (unsigned s = 0; p->window && s < p->taps * p->factor; s++)
        if (!isfinite(p->window[s]))
            return br_because(why, "window[%u] is %g: expected a finite number", s, p->window[s]);
    for (unsigned u = 0; p->gain && u < p->factor; u++)
        if (!isfinite(p->gain[u]))
            return br_because(why, "gain[%u] is %g: expected a finite number", u, p->gain[u]);
    return 0;
}

/* Outputs must stay below 2^30 levels before they are clamped, so that every implementation can round them as
 * integers. */
static int check_level(const struct br_upchannelize *plan, struct br_why *why)
{
    double sum = 0;
    for (unsigned s = 0; s < plan->M * plan->U; s++) sum += fabs(plan->window[s]);
    for (unsigned u = 0; u < plan->U; u++)
        if (!(sum * fabs(plan->gain[u]) * 16 < 0x1p30))
            return br_because(
                why,
                "gain[%u] is %g with a window that sums to %g: everything would be clamped; the gain is "
                "usually about sqrt(factor) = %g for a window that sums to 1",
                u, plan->gain[u], sum, sqrt(plan->U));
    return 0;
}

static int fill(struct br_upchannelize *plan, const struct br_upchannelize_params *params, struct br_why *why)
{
    unsigned U = plan->U, M = plan->M;
    size_t F = plan->nchannels, row = F * plan->nspectators;
    int on_device = plan->backend == BR_CUDA;
    /* At least 8: the M-1 blocks before a part are unpacked again with it. A chunk is what threads share, or
     * on a device a launch. */
    plan->part = U < 32 ? 256 / U : 8;
    size_t together = (1 << 20) / (plan->part * F);
    if (together > 16) together = 16;
    plan->chunk =
        on_device ? 256 + (1 << 20) / (F < 256 ? 256 : F) : plan->part * (together + (together == 0));
    plan->window = malloc(sizeof *plan->window * M * U);
    plan->gain = malloc(sizeof *plan->gain * U);
    plan->history = on_device ? NULL : calloc((size_t)(M - 1) * U + 1, row);
    plan->missing_in = malloc((M - 1 + plan->chunk) * F);
    plan->missing_out = malloc(plan->chunk * F);
    plan->lack_in = malloc((M - 1 + plan->chunk) * br_upchannelize_parts(plan) * F * sizeof *plan->lack_in);
    plan->lack_out = malloc(F * sizeof *plan->lack_out);
    if (!plan->window || !plan->gain || (!on_device && !plan->history) || !plan->missing_in ||
        !plan->missing_out || !plan->lack_in || !plan->lack_out)
        return br_because(why, "no memory for %u taps of %u steps of %zu bytes", M, U, row);
    if (params->window)
        memcpy(plan->window, params->window, sizeof *plan->window * M * U);
    else
        br_upchannelize_window(plan->window, U, M);
    br_upchannelize_weigh_parts(plan);
    for (unsigned u = 0; u < U; u++) plan->gain[u] = params->gain ? params->gain[u] : sqrt(U);
    if (U > 1 && check_level(plan, why) != 0) return -1;
#if BR_WITH_CUDA
    if (on_device) return br_upchannelize_cuda_create(plan, why);
#endif
    if (U == 1) return 0;
    if (plan->backend == BR_CPU && br_upchannelize_cpu_create(plan) != 0)
        return br_because(why, "no memory for a filter with factor %u and %u taps", U, M);
    return 0;
}

int br_upchannelize_create(struct br_upchannelize **result, enum br_backend backend,
                           const struct br_upchannelize_params *params, struct br_why *why)
{
    *result = NULL;
    if (check(params, why) != 0) return -1;
    if (backend == BR_CUDA && !BR_WITH_CUDA) return br_because(why, "this beamring was built without CUDA");
    if (backend == BR_CUDA && !params->cuda)
        return br_because(why, "the filterbank on a GPU needs a br_cuda");
    struct br_upchannelize *plan = calloc(1, sizeof *plan);
    if (!plan) return br_because(why, "no memory for the filterbank");
    plan->backend = backend;
    plan->nchannels = params->nchannels;
    plan->nspectators = params->nspectators;
    plan->U = params->factor;
    plan->M = params->taps;
    plan->cuda = params->cuda;
    plan->portable = params->portable;
    plan->parallel = params->parallel;
    if (fill(plan, params, why) != 0) {
        br_upchannelize_destroy(plan);
        return -1;
    }
    br_upchannelize_reset_at(plan, 0);
    *result = plan;
    return 0;
}

void br_upchannelize_destroy(struct br_upchannelize *plan)
{
    if (!plan) return;
    br_upchannelize_cpu_destroy(plan);
#if BR_WITH_CUDA
    br_upchannelize_cuda_destroy(plan);
#endif
    free(plan->window);
    free(plan->gain);
    free(plan->history);
    free(plan->missing_in);
    free(plan->missing_out);
    free(plan->lack_in);
    free(plan->lack_out);
    free(plan);
}

int br_upchannelize_may_exchange(const struct br_upchannelize *plan, const struct br_upchannelize *with,
                                 struct br_why *why)
{
    if (plan->backend != with->backend || plan->nchannels != with->nchannels ||
        plan->nspectators != with->nspectators || plan->U != with->U || plan->M != with->M)
        return br_because(why, "the filterbanks have different shapes");
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA && !br_upchannelize_cuda_alike(plan, with))
        return br_because(why, "such a gain needs another kernel on a GPU than the one that runs");
#endif
    return 0;
}

void br_upchannelize_exchange(struct br_upchannelize *plan, struct br_upchannelize *with)
{
    BR_EXCHANGE(double *, plan, with, window);
    BR_EXCHANGE(double *, plan, with, gain);
    BR_EXCHANGE(struct upchannelize_filter, plan, with, filter);
    for (size_t i = 0; i < sizeof plan->part_weight / sizeof *plan->part_weight; i++)
        BR_EXCHANGE(uint32_t, plan, with, part_weight[i]);
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA) br_upchannelize_cuda_exchange(plan, with);
#endif
}

void br_upchannelize_reset_at(struct br_upchannelize *plan, uint64_t at)
{
    memset(plan->missing_in, 1, (plan->M - 1) * plan->nchannels);
    memset(plan->lack_in, 0,
           (plan->M - 1) * br_upchannelize_parts(plan) * plan->nchannels * sizeof *plan->lack_in);
    plan->gaps = plan->M > 1;
    plan->shares = false;
    plan->at = at;
}

int br_upchannelize_whole(const struct br_upchannelize *plan)
{
    return plan->U == 1 || (!plan->gaps && !plan->shares);
}

static void copy(const struct br_upchannelize_call *call)
{
    const struct br_upchannelize *plan = call->plan;
    size_t F = plan->nchannels, bytes = F * plan->nspectators;
    if (call->out_valid && !call->e_valid) memset(call->out_valid, 255, call->nsteps * F);
    for (size_t t = 0; call->out_valid && call->e_valid && t < call->nsteps; t++)
        memcpy(call->out_valid + t * F, call->e_valid + t * call->valid_row, F);
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA) {
        br_upchannelize_cuda_copy(plan, call->e, call->row, call->nsteps, call->out);
        return;
    }
#endif
    for (size_t t = 0; t < call->nsteps; t++) memcpy(call->out + t * bytes, call->e + t * call->row, bytes);
}

/* Keeps the last (M-1) U rows. */
static void remember(struct br_upchannelize *plan, const uint8_t *e, size_t row, size_t nsteps)
{
    size_t bytes = plan->nchannels * plan->nspectators, wanted = (size_t)(plan->M - 1) * plan->U;
    size_t fresh = nsteps < wanted ? nsteps : wanted, old = wanted - fresh;
    memmove(plan->history, plan->history + fresh * bytes, old * bytes);
    for (size_t t = 0; t < fresh; t++)
        memcpy(plan->history + (old + t) * bytes, e + (nsteps - fresh + t) * row, bytes);
}

/* The blocks of a call from `first` on that make a job; fills in what they miss. */
static struct upchannelize_job job_of(const struct br_upchannelize_call *call, size_t first)
{
    struct br_upchannelize *plan = call->plan;
    size_t left = call->nsteps / plan->U - first, count = left < plan->chunk ? left : plan->chunk;
    int any = br_upchannelize_flag(plan, call->e_valid, call->valid_row, first, count, call->out_valid);
    if (!any && plan->backend != BR_CUDA) memset(plan->missing_out, 0, count * plan->nchannels);
    return (struct upchannelize_job){.e = call->e,
                                     .row = call->row,
                                     .first = first,
                                     .blocks = count,
                                     .missing = any || plan->backend != BR_CUDA ? plan->missing_out : NULL,
                                     .out = call->out,
                                     .at = plan->at,
                                     .last = count == left};
}

#if BR_WITH_CUDA
/* Calls of plans that join, or one. early: they do not depend on what was launched last. */
static void execute_on_device(const struct br_upchannelize_call *const *calls, size_t count, bool early)
{
    bool more = true;
    br_cuda_begin(calls[0]->plan->cuda);
    for (size_t round = 0; more; round++) {
        struct br_upchannelize *plans[UPCHANNELIZE_TOGETHER];
        struct upchannelize_job jobs[UPCHANNELIZE_TOGETHER];
        size_t n = 0;
        more = false;
        for (size_t i = 0; i < count; i++) {
            struct br_upchannelize *plan = calls[i]->plan;
            size_t first = round * plan->chunk;
            if (first >= calls[i]->nsteps / plan->U) continue;
            plans[n] = plan;
            jobs[n] = job_of(calls[i], first);
            jobs[n].early = early;
            more |= !jobs[n].last;
            n++;
        }
        if (n > 0) br_upchannelize_cuda(plans, jobs, n);
    }
    for (size_t i = 0; i < count; i++) {
        const struct br_upchannelize_call *call = calls[i];
        call->plan->at += call->nsteps / call->plan->U;
        br_upchannelize_cuda_remember(call->plan, call->e, call->row, call->nsteps);
    }
}
#endif

static uint64_t execute(const struct br_upchannelize_call *call, bool early)
{
    struct br_upchannelize *plan = call->plan;
    uint64_t clamped = 0;
    if (plan->U == 1) {
        copy(call);
        return 0;
    }
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA) {
        execute_on_device(&call, 1, early);
        return 0;
    }
#else
    (void)early;
#endif
    size_t blocks = call->nsteps / plan->U;
    for (size_t first = 0; first < blocks; first += plan->chunk) {
        struct upchannelize_job job = job_of(call, first);
        clamped += plan->backend == BR_REFERENCE ? br_upchannelize_reference(plan, &job)
                                                 : br_upchannelize_cpu(plan, &job);
    }
    plan->at += blocks;
    remember(plan, call->e, call->row, call->nsteps);
    return clamped;
}

static bool joins(const struct br_upchannelize *plan)
{
#if BR_WITH_CUDA
    return plan->backend == BR_CUDA && plan->U > 1 && br_upchannelize_cuda_joins(plan);
#else
    (void)plan;
    return false;
#endif
}

/* Priority of a plan: lower ones are executed first; 0 for those that join or copy. The plan
 * that needs most room on a GPU (fewest blocks run at once) comes first, because it must wait until a
 * multiprocessor is free of all others. Next come the long transforms, whose blocks run longest. */
static uint64_t rank_of(const struct br_upchannelize *plan)
{
    uint64_t resident = 0;
    if (plan->U == 1 || joins(plan)) return 0;
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA) resident = br_upchannelize_cuda_resident(plan);
#endif
    return resident * (2 * LONGEST) + (2 * LONGEST - plan->U);
}

uint64_t br_upchannelize_execute_all(const struct br_upchannelize_call *calls, size_t count)
{
    uint64_t clamped = 0, last = 0, next = 0;
    bool early = false;
    while (next != UINT64_MAX) {
        next = UINT64_MAX;
        for (size_t i = 0; i < count; i++) {
            uint64_t rank = rank_of(calls[i].plan);
            if (rank > last && rank < next) next = rank;
        }
        for (size_t i = 0; i < count; i++)
            if (rank_of(calls[i].plan) == next) {
                clamped += execute(&calls[i], early);
                early = true;
            }
        last = next;
    }
    /* those of which a GPU takes several at once fill it at the end */
#if BR_WITH_CUDA
    for (size_t i = 0; i < count;) {
        const struct br_upchannelize_call *together[UPCHANNELIZE_TOGETHER];
        size_t n = 0;
        for (; i < count && n < UPCHANNELIZE_TOGETHER; i++)
            if (joins(calls[i].plan)) {
                if (n > 0 && calls[i].plan->cuda != together[0]->plan->cuda) break;
                together[n++] = &calls[i];
            }
        if (n > 0) execute_on_device(together, n, early);
        early = true;
    }
#endif
    for (size_t i = 0; i < count; i++)
        if (calls[i].plan->U == 1) copy(&calls[i]);
    return clamped;
}

uint64_t br_upchannelize_execute(struct br_upchannelize *plan, const uint8_t *e, size_t row,
                                 const uint8_t *e_valid, size_t valid_row, size_t nsteps, uint8_t *out,
                                 uint8_t *out_valid)
{
    return execute(&(struct br_upchannelize_call){plan, e, row, e_valid, valid_row, nsteps, out, out_valid},
                   false);
}
