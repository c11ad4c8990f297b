/* plan.c - parameters of the flagger, checked, and what all of its implementations do on the host. */
#include "kernels/flag/plan.h"
#include "kernels/common/cuda.h"
#include "kernels/common/validity.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_INPUTS = 8192, MOST_CHANNELS = 65535, MOST_BLOCKS = 65535 };

static size_t sums_of(const struct br_flag_params *p)
{
    return p->nblocks * p->nchannels * 2 * p->ninputs;
}

size_t br_flag_result_bytes(const struct br_flag_params *p)
{
    return flag_input_at(p) + 2 * p->ninputs * sizeof(uint32_t);
}

size_t br_flag_cells_bytes(const struct br_flag_params *p)
{
    return p->nblocks * p->nchannels * (p->block + sizeof(uint32_t));
}

size_t br_flag_host_bytes(const struct br_flag_params *p)
{
    return sums_of(p) * (sizeof(uint32_t) + sizeof(uint16_t) / 2) + p->nchannels * p->ninputs +
           br_flag_result_bytes(p);
}

size_t br_flag_upload_bytes(const struct br_flag_params *p, size_t nsteps)
{
    return nsteps * p->nchannels + p->nblocks * p->nchannels * sizeof(uint32_t) + 2 * p->ninputs + 1024;
}

size_t br_flag_device_bytes(const struct br_flag_params *p)
{
#if BR_WITH_CUDA
    return br_flag_cuda_bytes(p);
#else
    (void)p;
    return 0;
#endif
}

static int check(const struct br_flag_params *p, struct br_why *why)
{
    if (p->nchannels < 1 || p->ninputs < 1 || p->nchannels > MOST_CHANNELS || p->ninputs > MOST_INPUTS)
        return br_because(why, "%zu channels, %zu inputs; expected 1 to %d, 1 to %d", p->nchannels,
                          p->ninputs, MOST_CHANNELS, MOST_INPUTS);
    if (p->block < BR_FLAG_LEAST_SAMPLES || p->block > BR_FLAG_MOST_BLOCK)
        return br_because(why, "blocks of %zu samples; expected %d to %d", p->block, BR_FLAG_LEAST_SAMPLES,
                          BR_FLAG_MOST_BLOCK);
    if (p->nblocks < 1 || p->nblocks > MOST_BLOCKS || p->block * p->nblocks > BR_FLAG_MOST_SAMPLES)
        return br_because(why,
                          "long blocks of %zu blocks of %zu samples; expected 1 to %d, at most %d samples",
                          p->nblocks, p->block, MOST_BLOCKS, BR_FLAG_MOST_SAMPLES);
    if (p->least_level != -7 && p->least_level != -8)
        return br_because(why, "levels from %d; expected -8 or -7", p->least_level);
    return 0;
}

static int make_host(struct br_flag *plan)
{
    const struct br_flag_params *p = &plan->p;
    plan->sums = malloc(sums_of(p) * sizeof *plan->sums);
    plan->lost = malloc(sums_of(p) / 2 * sizeof *plan->lost);
    plan->weightless = calloc(p->nchannels, p->ninputs);
    plan->reason = calloc(1, br_flag_result_bytes(p));
    if (!plan->sums || !plan->lost || !plan->weightless || !plan->reason) return -1;
    if (plan->backend == BR_CPU) br_flag_cpu_create(plan);
    return 0;
}

static int make_backend(struct br_flag *plan, struct br_why *why)
{
    if (plan->backend != BR_CUDA) return make_host(plan) == 0 ? 0 : br_because(why, "no memory for the sums");
#if BR_WITH_CUDA
    plan->cuda = plan->p.cuda;
    return plan->cuda ? br_flag_cuda_create(plan, why) : br_because(why, "BR_CUDA needs a br_cuda");
#else
    return br_because(why, "this beamring was built without CUDA");
#endif
}

int br_flag_create(struct br_flag **result, enum br_backend backend, const struct br_flag_params *p,
                   struct br_why *why)
{
    *result = NULL;
    if (check(p, why) != 0) return -1;
    struct br_flag *plan = calloc(1, sizeof *plan);
    if (!plan) return br_because(why, "no memory for the flags");
    plan->backend = backend;
    plan->p = *p;
    plan->bad = calloc(2, p->ninputs);
    plan->s0 = calloc(p->nblocks * p->nchannels, sizeof *plan->s0);
    plan->cells = malloc(p->nblocks * p->block * p->nchannels);
    plan->table = p->least_level == -7 ? br_flag_table7 : br_flag_table;
    if (!plan->bad || !plan->s0 || !plan->cells) {
        br_flag_destroy(plan);
        return br_because(why, "no memory for the flags");
    }
    plan->keep = plan->bad + p->ninputs;
    if (make_backend(plan, why) != 0) {
        br_flag_destroy(plan);
        return -1;
    }
    plan->used = (uint32_t *)(void *)(plan->reason + flag_used_at(p));
    plan->input = (uint32_t *)(void *)(plan->reason + flag_input_at(p));
    *result = plan;
    return 0;
}

void br_flag_destroy(struct br_flag *plan)
{
    if (!plan) return;
#if BR_WITH_CUDA
    br_flag_cuda_destroy(plan);
#endif
    if (plan->backend != BR_CUDA) free(plan->reason);
    free(plan->sums);
    free(plan->lost);
    free(plan->weightless);
    free(plan->bad);
    free(plan->s0);
    free(plan->cells);
    free(plan);
}

void br_flag_begin(struct br_flag *plan, const struct br_flag_rules *rules)
{
    size_t N = plan->p.ninputs;
    plan->rules = *rules;
    plan->rules.bad = plan->bad;
    plan->expected = 0;
    for (size_t n = 0; n < N; n++) {
        plan->bad[n] = rules->bad != NULL && rules->bad[n] != 0;
        plan->keep[n] = plan->bad[n] ? 0 : 0xff;
        plan->expected += !plan->bad[n];
    }
    plan->open = plan->gaps = false;
    plan->begin = plan->end = 0;
    memset(plan->s0, 0, plan->p.nblocks * plan->p.nchannels * sizeof *plan->s0);
}

enum { SOME_CHANNELS = 64 };

/* How `count` samples count that are a run, or a part of one, in up to SOME_CHANNELS of F channels.
 *   valid, cells [count][F]   s0 [F]: their number is added
 * True if some are FLAG_GAPS. */
static bool sort_run(const uint8_t *valid, size_t F, size_t channels, size_t count, uint8_t *cells,
                     uint32_t *s0)
{
    uint8_t least[SOME_CHANNELS], most[SOME_CHANNELS], there[SOME_CHANNELS], counted[SOME_CHANNELS] = {0};
    bool gaps = false;
    memset(least, VALID_WHOLE, sizeof least);
    memset(most, 1, sizeof most); /* 0 does not count */
    for (size_t t = 0; t < count; t++)
        for (size_t f = 0; f < channels; f++) {
            uint8_t v = valid[t * F + f];
            least[f] = v < least[f] ? v : least[f];
            most[f] = v > most[f] ? v : most[f];
        }
    for (size_t f = 0; f < channels; f++) {
        there[f] =
            count == FLAG_RUN && least[f] == most[f] && most[f] < VALID_WHOLE ? FLAG_GAPS : FLAG_COUNTS;
        gaps |= there[f] == FLAG_GAPS;
    }
    for (size_t t = 0; t < count; t++)
        for (size_t f = 0; f < channels; f++) {
            uint8_t is = valid[t * F + f] == most[f];
            cells[t * F + f] = is ? there[f] : FLAG_OUT;
            counted[f] += is;
        }
    for (size_t f = 0; f < channels; f++) s0[f] += counted[f];
    return gaps;
}

/* S0 is the same for all inputs but for what some have lost. */
static void count_samples(struct br_flag *plan, size_t at, size_t nsteps, const uint8_t *valid)
{
    size_t F = plan->p.nchannels, from, to;
    for (size_t b = at / plan->p.block; flag_span(plan, b, at, at + nsteps, &from, &to); b++) {
        uint32_t *s0 = plan->s0 + b * F;
        for (size_t f = 0; valid == NULL && f < F; f++) s0[f] += (uint32_t)(to - from);
        for (size_t t = from, end; valid != NULL && t < to; t = end) {
            end = t + FLAG_RUN - (t - b * plan->p.block) % FLAG_RUN;
            if (end > to) end = to;
            for (size_t f = 0; f < F; f += SOME_CHANNELS)
                plan->gaps |=
                    sort_run(valid + (t - at) * F + f, F, F - f < SOME_CHANNELS ? F - f : SOME_CHANNELS,
                             end - t, plan->cells + t * F + f, s0 + f);
        }
    }
}

void br_flag_add(struct br_flag *plan, size_t at, size_t nsteps, const uint8_t *e, const uint8_t *valid,
                 uint8_t *out)
{
    if (nsteps == 0) return;
    if (!plan->open) plan->begin = at;
    plan->open = true;
    plan->end = at + nsteps;
    count_samples(plan, at, nsteps, valid);
    const uint8_t *cells = valid != NULL ? plan->cells + at * plan->p.nchannels : NULL;
    if (plan->backend == BR_REFERENCE) br_flag_reference_add(plan, at, nsteps, e, cells, out);
    if (plan->backend == BR_CPU) br_flag_cpu_add(plan, at, nsteps, e, cells, out);
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA) br_flag_cuda_add(plan, at, nsteps, e, cells, out);
#endif
}

void br_flag_end(struct br_flag *plan, uint8_t *out, float *sk)
{
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA) {
        br_flag_cuda_end(plan, out, sk);
        return;
    }
#endif
    memset(plan->reason, BR_FLAG_FEW, plan->p.nblocks * plan->p.nchannels);
    memset(plan->used, 0, plan->p.nchannels * sizeof *plan->used);
    memset(plan->input, 0, 2 * plan->p.ninputs * sizeof *plan->input);
    if (plan->backend == BR_REFERENCE)
        br_flag_reference_end(plan, out, sk);
    else
        br_flag_cpu_end(plan, out, sk);
}

struct br_flag_result br_flag_wait(struct br_flag *plan)
{
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA) br_flag_cuda_wait(plan);
#endif
    return (struct br_flag_result){plan->reason, plan->used, plan->expected, plan->input};
}
