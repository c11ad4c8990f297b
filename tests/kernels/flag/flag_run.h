/* flag_run.h - int4 noise with interference, and what some implementation makes of it. */
#ifndef BEAMRING_TESTS_KERNELS_FLAG_FLAG_RUN_H
#define BEAMRING_TESTS_KERNELS_FLAG_FLAG_RUN_H

#include "kernels/common/validity.h"
#include "kernels/flag/plan.h"
#include "tests/kernels/common/dump.h"

#include <math.h>
#include <stdbool.h>

struct flag_case {
    const char *name;
    size_t block, nblocks, channels, inputs;
    size_t begin, end; /* samples of the long block that come */
    size_t calls;      /* in so many pieces of different lengths */
    unsigned missing;  /* per cent of cells */
    double power;
    enum { NOISE, PULSES, EXTREMES } what;
    bool sk;
    struct {
        size_t samples, inputs;
        unsigned lost; /* per cent */
    } packet;          /* of a channel; 0: none is lost */
    bool symmetric;    /* levels -7 to 7 */
};

static const struct flag_case flag_cases[] = {
    {"noise", 256, 4, 3, 64, 0, 1024, 1, 0, 10, NOISE, true, {0}, false},
    {"pieces", 64, 8, 3, 37, 0, 512, 5, 10, 8, PULSES, true, {0}, false},
    {"cut", 100, 5, 2, 48, 130, 411, 3, 30, 12, PULSES, true, {0}, false},
    {"pulses", 256, 8, 5, 96, 0, 2048, 4, 5, 6, PULSES, false, {0}, false},
    {"one_dish", 512, 2, 4, 1, 0, 1024, 2, 0, 10, PULSES, true, {0}, false},
    {"weak", 128, 4, 2, 16, 0, 512, 1, 0, 1.2, NOISE, false, {0}, false},
    {"strong", 128, 4, 2, 80, 0, 512, 3, 0, 49, NOISE, false, {0}, false},
    {"extremes", 64, 4, 2, 33, 0, 256, 2, 5, 0, EXTREMES, true, {0}, false},
    {"sparse", 256, 3, 4, 128, 0, 768, 1, 88, 10, PULSES, true, {0}, false},
    {"nothing", 64, 2, 2, 16, 0, 128, 1, 100, 10, NOISE, true, {0}, false},
    {"short", 32, 4, 2, 20, 3, 17, 2, 0, 10, NOISE, true, {0}, false},
    {"packets", 256, 4, 3, 128, 0, 1024, 1, 0, 8, PULSES, true, {16, 8, 5}, false},
    {"packets_cut", 100, 6, 2, 70, 30, 573, 5, 5, 6, PULSES, true, {16, 7, 10}, true},
    {"packets_long", 256, 4, 2, 64, 0, 1024, 3, 0, 3, NOISE, true, {256, 2, 20}, false},
    {"packets_short", 128, 6, 3, 96, 0, 768, 2, 0, 9, PULSES, true, {1, 12, 5}, false},
    {"symmetric", 256, 4, 2, 96, 0, 1024, 2, 0, 20, PULSES, false, {0}, true},
};

enum { FLAG_CASES = sizeof flag_cases / sizeof *flag_cases };

/* The packets of a case that are lost are zeros; `valid`, which may be full of 255, has the share that is
 * left. */
static inline void flag_lose(const struct flag_case *c, size_t samples, uint8_t *e, uint8_t *valid,
                             uint64_t *seed)
{
    size_t F = c->channels, N = c->inputs;
    for (size_t t = 0; c->packet.samples > 0 && t < samples; t++)
        for (size_t f = 0; f < F && t % c->packet.samples == 0; f++) {
            size_t end = t + c->packet.samples < samples ? t + c->packet.samples : samples, left = N;
            for (size_t n = 0; n < N; n += c->packet.inputs) {
                size_t count = N - n < c->packet.inputs ? N - n : c->packet.inputs;
                if (dump_random(seed) % 100 >= c->packet.lost) continue;
                for (size_t k = t; k < end; k++) memset(e + (k * F + f) * N + n, 0, count);
                left -= count;
            }
            for (size_t k = t; k < end; k++)
                if (valid[k * F + f] > 0) valid[k * F + f] = validity_share(left, N);
        }
}

/* Levels of a component with a standard deviation before rounding: by 16 bits of chance. */
static inline void flag_levels(int8_t level[65536], double sigma, bool symmetric)
{
    size_t at = 0;
    for (int k = -8; k <= 7; k++) {
        double below = k == 7 ? 1 : 0.5 * erfc(-(k + 0.5) / sigma / M_SQRT2);
        for (size_t end = (size_t)lround(below * 65536); at < end; at++)
            level[at] = (int8_t)(symmetric && k == -8 ? -7 : k);
    }
}

static inline uint8_t flag_byte(int re, int im)
{
    re = re < -8 ? -8 : re > 7 ? 7 : re;
    im = im < -8 ? -8 : im > 7 ? 7 : im;
    return (uint8_t)((re & 15) | (im & 15) << 4);
}

/* Noise of a mean power of about 2 sigma^2 (+ 1/6), before clipping. */
static inline void flag_noise(uint8_t *e, size_t count, double sigma, bool symmetric, uint64_t *seed)
{
    static int8_t level[65536];
    flag_levels(level, sigma, symmetric);
    for (size_t k = 0; k < count; k += 2) {
        uint64_t random = dump_random(seed);
        e[k] = flag_byte(level[random & 0xffff], level[random >> 16 & 0xffff]);
        if (k + 1 < count) e[k + 1] = flag_byte(level[random >> 32 & 0xffff], level[random >> 48]);
    }
}

struct flag_run {
    struct br_flag_params p;
    struct br_flag_rules rules;
    size_t begin, end, rows;  /* rows of sk */
    uint8_t *e, *valid, *bad; /* valid NULL: nothing is missing */

    /* results */
    uint8_t *out, *reason;
    float *sk; /* NULL: not wanted */
    uint32_t *s0, *sums, *used, *input, expected;
    uint16_t *lost;
};

static inline size_t flag_cells(const struct flag_run *r)
{
    return (r->end - r->begin) * r->p.nchannels;
}

/* A carrier in pulses of 3 in 32 samples: in the last channel in all inputs during the second block, in the
 * first one, weaker, in every 40th input all the time; every 19th input is dead. */
static inline void flag_disturb(struct flag_run *r, const struct flag_case *c)
{
    size_t F = c->channels, N = c->inputs;
    for (size_t t = c->begin; t < c->end; t++)
        for (size_t f = 0; f < F; f++)
            for (size_t n = 0; n < N; n++) {
                uint8_t *e = &r->e[((t - c->begin) * F + f) * N + n];
                bool all = f == F - 1 && t / c->block == 1, some = f == 0 && n % 40 == 3;
                double a = all ? 6 : 4, re = ((*e & 15) ^ 8) - 8, im = (*e >> 4 ^ 8) - 8;
                if (t % 32 < 3 && (all || some))
                    *e =
                        flag_byte((int)lround(re + a * cos((double)t)), (int)lround(im + a * sin((double)t)));
                if (n % 19 == 18) *e = 0;
            }
}

static inline void flag_make(struct flag_run *r, const struct flag_case *c)
{
    uint64_t seed = c->block * 1000 + c->inputs + c->packet.lost * 7919;
    *r = (struct flag_run){
        .p = {c->channels, c->inputs, c->block, c->nblocks, c->symmetric ? -7 : -8, NULL, {0}},
        .rules = {3, 4, 2, 50, NULL},
        .begin = c->begin,
        .end = c->end,
        .rows = (c->end - 1) / c->block - c->begin / c->block + 1};
    size_t cells = flag_cells(r), N = c->inputs, all = c->nblocks * c->channels;
    r->e = malloc(cells * N);
    if (c->what == EXTREMES)
        for (size_t k = 0; k < cells * N; k++) r->e[k] = dump_random(&seed) % 3 ? 0x88 : 0x77;
    else
        flag_noise(r->e, cells * N, sqrt(c->power / 2), c->symmetric, &seed);
    if (c->what == PULSES) flag_disturb(r, c);
    if (c->missing > 0 || c->packet.samples > 0) {
        r->valid = malloc(cells);
        for (size_t k = 0; k < cells; k++) /* some are there in part: they count like whole ones */
            r->valid[k] = dump_random(&seed) % 100 < c->missing ? 0 : k % 3 || c->packet.samples ? 255 : 100;
    }
    flag_lose(c, c->end - c->begin, r->e, r->valid, &seed);
    r->bad = calloc(1, N);
    for (size_t n = 5; n < N; n += 11) r->bad[n] = 1;
    r->rules.bad = r->bad;
    if (c->what == EXTREMES) r->rules.most_power = 128;
    r->out = malloc(cells * N);
    r->reason = malloc(all);
    r->sk = c->sk ? malloc(r->rows * c->channels * N * sizeof *r->sk) : NULL;
    r->s0 = malloc(all * sizeof *r->s0);
    r->sums = malloc(all * 2 * N * sizeof *r->sums);
    r->lost = calloc(all * N, sizeof *r->lost);
    r->used = malloc(c->channels * sizeof *r->used);
    r->input = malloc(2 * N * sizeof *r->input);
}

static inline void flag_free(struct flag_run *r)
{
    free(r->e);
    free(r->valid);
    free(r->bad);
    free(r->out);
    free(r->reason);
    free(r->sk);
    free(r->s0);
    free(r->sums);
    free(r->lost);
    free(r->used);
    free(r->input);
}

/* Where piece k of the samples begins. */
static inline size_t flag_piece(const struct flag_case *c, size_t k)
{
    return k == c->calls ? c->end : c->begin + (c->end - c->begin) * k * k / (c->calls * c->calls);
}

/* Keeps what the plan says; sums of blocks without samples become 0. */
static inline void flag_take(struct flag_run *r, struct br_flag *plan)
{
    struct br_flag_result result = br_flag_wait(plan);
    size_t F = r->p.nchannels, N = r->p.ninputs;
    memcpy(r->reason, result.reason, r->p.nblocks * F);
    memcpy(r->used, result.used, F * sizeof *r->used);
    memcpy(r->input, result.input, 2 * N * sizeof *r->input);
    r->expected = result.expected;
    memcpy(r->s0, plan->s0, r->p.nblocks * F * sizeof *r->s0);
    if (plan->sums != NULL) {
        memcpy(r->sums, plan->sums, r->p.nblocks * F * 2 * N * sizeof *r->sums);
        memcpy(r->lost, plan->lost, r->p.nblocks * F * N * sizeof *r->lost);
    }
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA) br_flag_cuda_sums(plan, r->sums, r->lost);
#endif
    for (size_t b = 0; b < r->p.nblocks; b++)
        if (b < r->begin / r->p.block || b * r->p.block >= r->end) {
            memset(r->sums + b * F * 2 * N, 0, F * 2 * N * sizeof *r->sums);
            memset(r->lost + b * F * N, 0, F * N * sizeof *r->lost);
        }
}

/* On the host. */
static inline int flag_run(struct flag_run *r, const struct flag_case *c, enum br_backend backend,
                           struct br_why *why)
{
    struct br_flag *plan;
    size_t F = c->channels, N = c->inputs;
    if (br_flag_create(&plan, backend, &r->p, why) != 0) return -1;
    for (int again = 0; again < 2; again++) { /* a plan that was used before does the same */
        br_flag_begin(plan, &r->rules);
        for (size_t k = 0; k < c->calls; k++) {
            size_t from = flag_piece(c, k), to = flag_piece(c, k + 1), cell = (from - c->begin) * F;
            br_flag_add(plan, from, to - from, r->e + cell * N, r->valid ? r->valid + cell : NULL,
                        r->out + cell * N);
        }
        br_flag_end(plan, r->out, r->sk);
    }
    flag_take(r, plan);
    br_flag_destroy(plan);
    return 0;
}

#endif
