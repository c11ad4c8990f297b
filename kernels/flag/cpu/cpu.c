/* The flagger on the CPU. Sums: a job has one block and one channel, and takes a few samples of all inputs at
 * a time, so that rows a power of two apart do not push each other out of the cache. Decisions: a job has one
 * channel. */
#include "kernels/common/cpu.h"
#include "kernels/flag/plan.h"

#include <string.h>

void br_flag_rows_generic(const uint8_t *e, size_t stride, const uint8_t *valid, size_t valid_stride,
                          size_t count, const uint8_t *keep, uint8_t *out, size_t ninputs, uint32_t *s1,
                          uint32_t *s2)
{
    static const uint8_t square[16] = {0, 1, 4, 9, 16, 25, 36, 49, 64, 49, 36, 25, 16, 9, 4, 1};
    for (size_t t = 0; t < count; t++) {
        const uint8_t *from = e + t * stride;
        uint8_t *to = out + t * stride;
        for (size_t n = 0; n < ninputs; n++) to[n] = from[n] & keep[n];
        if (valid && !valid[t * valid_stride]) continue;
        for (size_t n = 0; n < ninputs; n++) {
            uint32_t power = (uint32_t)square[from[n] & 15] + square[from[n] >> 4];
            s1[n] += power;
            s2[n] += power * power;
        }
    }
}

void br_flag_cpu_create(struct br_flag *plan)
{
    plan->add_rows = br_flag_rows_generic;
#if BR_X86_64
    if (br_cpu_has_avx2()) plan->add_rows = br_flag_rows_avx2;
#endif
}

struct adding {
    struct br_flag *plan;
    size_t at, nsteps;
    const uint8_t *e, *cells;
    uint8_t *out;
};

/* FLAG_RUN rows in which inputs may be missing. */
static void add_lost(const uint8_t *e, size_t stride, size_t ninputs, uint16_t *lost)
{
    enum { SOME = 64 };
    for (size_t n = 0; n < ninputs; n += SOME) {
        uint8_t there[SOME] = {0};
        size_t count = ninputs - n < SOME ? ninputs - n : SOME;
        for (size_t t = 0; t < FLAG_RUN; t++)
            for (size_t k = 0; k < count; k++) there[k] |= e[t * stride + n + k];
        for (size_t k = 0; k < count; k++) lost[n + k] += there[k] == 0 ? FLAG_RUN : 0;
    }
}

static void add_block(void *arg, size_t job, unsigned worker)
{
    const struct adding *a = arg;
    const struct br_flag *plan = a->plan;
    size_t F = plan->p.nchannels, N = plan->p.ninputs, f = job % F, from, to;
    size_t b = a->at / plan->p.block + job / F;
    uint32_t *s1 = plan->sums + (b * F + f) * 2 * N;
    (void)worker;
    if (!flag_span(plan, b, a->at, a->at + a->nsteps, &from, &to)) return;
    uint16_t *lost = plan->lost + (b * F + f) * N;
    if (from % plan->p.block == 0 || from == plan->begin) {
        memset(s1, 0, 2 * N * sizeof *s1);
        memset(lost, 0, N * sizeof *lost);
    }
    for (size_t t = from; a->cells && t < to; t++)
        if (t % plan->p.block % FLAG_RUN == 0 && a->cells[(t - a->at) * F + f] == FLAG_GAPS)
            add_lost(a->e + ((t - a->at) * F + f) * N, F * N, N, lost);
    for (size_t t = from, count; t < to; t += count) {
        count = to - t < FLAG_ROWS_AT_ONCE ? to - t : FLAG_ROWS_AT_ONCE;
        size_t cell = (t - a->at) * F + f;
        plan->add_rows(a->e + cell * N, F * N, a->cells ? a->cells + cell : NULL, F, count, plan->keep,
                       a->out + cell * N, N, s1, s1 + N);
    }
}

/* The rows of one call are F N bytes apart, in `e` and in `out`. */
void br_flag_cpu_add(struct br_flag *plan, size_t at, size_t nsteps, const uint8_t *e, const uint8_t *cells,
                     uint8_t *out)
{
    struct adding a = {plan, at, nsteps, e, cells, out};
    size_t blocks = (at + nsteps - 1) / plan->p.block - at / plan->p.block + 1;
    br_parallel_for(&plan->p.parallel, blocks * plan->p.nchannels, add_block, &a);
}

struct deciding {
    struct br_flag *plan;
    uint8_t *out;
    float *sk;
};

static enum br_flag_reason decide_block(const struct br_flag *plan, size_t cell, size_t steps, float *sk)
{
    size_t N = plan->p.ninputs;
    const uint32_t *s1 = plan->sums + cell * 2 * N, *s2 = s1 + N;
    const uint16_t *lost = plan->lost + cell * N;
    uint32_t s0 = plan->s0[cell], part = 0;
    struct flag_row row = flag_find_row((float)s0);
    struct flag_sums sums = {0, 0, 0, 0};
    for (size_t n = 0; n < N; n++) {
        float kurtosis;
        part += flag_block_input(&sums, plan->table, row, s0, s0 - lost[n], (uint32_t)steps, s1[n], s2[n],
                                 &plan->rules, plan->bad[n], &kurtosis);
        if (sk) sk[n] = kurtosis;
    }
    if (!flag_enough(s0, (uint32_t)steps)) return BR_FLAG_FEW;
    return flag_block(&sums, s0, part, plan->expected, plan->rules.block_sigma);
}

/* All blocks of a channel, then its inputs. */
static void decide_channel(void *arg, size_t f, unsigned worker)
{
    const struct deciding *d = arg;
    struct br_flag *plan = d->plan;
    size_t F = plan->p.nchannels, N = plan->p.ninputs, from, to, row = 0, left = 0;
    uint8_t *weightless = plan->weightless + f * N;
    (void)worker;
    for (size_t b = plan->begin / plan->p.block; flag_span(plan, b, plan->begin, plan->end, &from, &to);
         b++) {
        float *sk = d->sk ? d->sk + (row++ * F + f) * N : NULL;
        plan->reason[b * F + f] = (uint8_t)decide_block(plan, b * F + f, to - from, sk);
    }
    for (size_t n = 0; n < N; n++) {
        unsigned long long s1 = 0, s2 = 0;
        uint32_t s0 = 0;
        for (size_t b = 0; b < plan->p.nblocks; b++) {
            const uint32_t *sums = plan->sums + (b * F + f) * 2 * N + n;
            if (plan->reason[b * F + f] != BR_FLAG_KEPT) continue;
            s0 += plan->s0[b * F + f] - plan->lost[(b * F + f) * N + n];
            s1 += sums[0];
            s2 += sums[N];
        }
        weightless[n] =
            (uint8_t)flag_input(plan->table, s0, s1, s2, (uint32_t)(plan->end - plan->begin), &plan->rules);
        plan->used[f] += weightless[n] == BR_FLAG_KEPT && !plan->bad[n];
        left += weightless[n] != BR_FLAG_KEPT;
    }
    for (size_t t = 0; left > 0 && t < plan->end - plan->begin; t++) {
        uint8_t *to_row = d->out + (t * F + f) * N;
        for (size_t n = 0; n < N; n++)
            if (weightless[n] != BR_FLAG_KEPT) to_row[n] = 0;
    }
}

void br_flag_cpu_end(struct br_flag *plan, uint8_t *out, float *sk)
{
    struct deciding d = {plan, out, sk};
    size_t F = plan->p.nchannels, N = plan->p.ninputs;
    br_parallel_for(&plan->p.parallel, F, decide_channel, &d);
    for (size_t f = 0; f < F; f++)
        for (size_t n = 0; n < N; n++) {
            uint8_t reason = plan->weightless[f * N + n];
            if (reason != BR_FLAG_KEPT) plan->input[(reason == BR_FLAG_KURTOSIS ? 0 : N) + n]++;
        }
}
