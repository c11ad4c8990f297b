/* inject_run.h - a burst that sweeps over noise, added frame by frame: for tests on the CPU and on a GPU. */
#ifndef BEAMRING_TESTS_KERNELS_INJECT_RUN_H
#define BEAMRING_TESTS_KERNELS_INJECT_RUN_H

#include "kernels/inject/inject.h"
#include "tests/kernels/common/dump.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct inject_case {
    const char *name;
    size_t channels, npol, dishes, samples, frames; /* samples in a frame */
    size_t length, cut;                             /* of the burst in a channel; of a piece on a GPU */
    double flux;
    bool holes, gains; /* samples that are missing; inputs with gains, one with 0 */
};

static const struct inject_case inject_cases[] = {
    {"plain", 3, 2, 8, 1000, 3, 700, 4096, 1, false, false},
    {"holes", 3, 2, 12, 1000, 3, 900, 4096, 2, true, false},
    {"odd", 2, 1, 7, 777, 4, 500, 4096, 0.5, true, true},
    {"one", 2, 1, 1, 1500, 2, 600, 4096, 1, false, false},
    {"cut", 2, 2, 36, 2000, 2, 1900, 300, 4, true, true},
    {"cut_short", 1, 2, 8, 2000, 1, 1200, 49, 1, true, false},
    {"wide", 2, 2, 260, 1024, 2, 300, 4096, 0.1, true, true},
};
enum { INJECT_CASES = sizeof inject_cases / sizeof *inject_cases };

struct inject_run {
    const struct inject_case *c;
    struct br_inject_params p;
    size_t lines, row, total;      /* total: samples */
    uint8_t *e;                    /* [total][line][dish] */
    float *field;                  /* [line][length][2] */
    struct br_inject_input *input; /* [line][dish] */
    void *sums;                    /* host */
};

static inline size_t inject_begin(size_t channel)
{
    return BR_INJECT_NOISE + 150 + 29 * channel;
}

/* A level of noise of deviation sigma. */
static inline uint8_t inject_noise_byte(double sigma, uint64_t *seed)
{
    double u = (double)(dump_random(seed) % 65536 + 0.5) / 65536,
           v = (double)(dump_random(seed) % 65536) / 65536;
    double r = sigma * sqrt(-2 * log(u)), re = rint(r * cos(2 * M_PI * v)), im = rint(r * sin(2 * M_PI * v));
    re = fmin(fmax(re, -7), 7);
    im = fmin(fmax(im, -7), 7);
    return (uint8_t)(((int)re & 15) | ((int)im & 15) << 4);
}

static inline void inject_make(struct inject_run *r, const struct inject_case *c)
{
    uint64_t seed = 11;
    *r = (struct inject_run){.c = c, .lines = c->channels * c->npol, .total = c->samples * c->frames};
    r->row = r->lines * c->dishes;
    r->p = (struct br_inject_params){r->lines, c->npol, c->dishes, 1, NULL};
    r->e = malloc(r->total * r->row);
    r->field = malloc(r->lines * c->length * 2 * sizeof *r->field);
    r->input = malloc(r->row * sizeof *r->input);
    r->sums = calloc(1, br_inject_sums_bytes(&r->p));
    for (size_t i = 0; i < r->total * r->row; i++) {
        size_t d = i % r->row, t = i / r->row;
        r->e[i] = inject_noise_byte(0.5 + 0.4 * (double)(d % 11), &seed);
        /* an input that is dead, one that comes and goes, one that is quiet: runs of zeros of all lengths */
        if (d == r->row / 2 || (d == 1 && t / 75 % 2 == 1)) r->e[i] = 0;
        if (d == 2 && dump_random(&seed) % 4 > 0) r->e[i] = 0;
    }
    for (size_t i = 0; i < r->lines * c->length; i++) {
        bool hole = c->holes && i % c->length / 60 % 3 == 1;
        r->field[2 * i] = hole ? NAN : (float)((double)(dump_random(&seed) % 4001) / 1000 - 2);
        r->field[2 * i + 1] = (float)((double)(dump_random(&seed) % 4001) / 1000 - 2);
    }
    for (size_t i = 0; i < r->row; i++) {
        double phase = (double)(dump_random(&seed) % 1000) / 159,
               gain = c->gains ? 0.5 + (double)(i % 5) / 4 : 1;
        if (c->gains && i % c->dishes == 3) gain = 0;
        r->input[i] = gain > 0 ? (struct br_inject_input){(float)(cos(phase) / gain),
                                                          (float)(sin(phase) / gain), (float)(gain * gain)}
                               : (struct br_inject_input){0, 0, 0};
    }
}

static inline void inject_free(struct inject_run *r)
{
    free(r->e);
    free(r->field);
    free(r->input);
    free(r->sums);
}

/* The part of [from, to) of the stream that lies in frame k: [*begin, *end) of the frame. */
static inline bool inject_overlap(const struct inject_run *r, size_t k, size_t from, size_t to, size_t *begin,
                                  size_t *end)
{
    size_t first = k * r->c->samples, last = first + r->c->samples;
    *begin = (from > first ? from : first) - first;
    *end = (to < last ? to : last) - first;
    return from < last && to > first;
}

/* The noise of channel `channel` in frame k; false: none of it is there. */
static inline bool inject_noise_of(const struct inject_run *r, size_t k, size_t channel, void *sums,
                                   struct br_inject_noise *noise)
{
    size_t at = inject_begin(channel), begin, end;
    if (!inject_overlap(r, k, at - BR_INJECT_NOISE, at, &begin, &end)) return false;
    *noise = (struct br_inject_noise){sums, (uint32_t)channel, (uint32_t)begin, (uint32_t)(end - begin), {0}};
    for (size_t t = 0; t < end - begin; t++)
        if (!r->c->holes || t % 7 > 0) noise->used[t / 32] |= 1u << t % 32;
    return true;
}

/* Samples of the noise of a channel that are measured. */
static inline uint32_t inject_measured(const struct inject_run *r, size_t channel)
{
    uint32_t sum = 0;
    struct br_inject_noise noise;
    for (size_t k = 0; k < r->c->frames; k++)
        if (inject_noise_of(r, k, channel, NULL, &noise))
            for (size_t i = 0; i < BR_INJECT_NOISE / 32; i++)
                sum += (uint32_t)__builtin_popcount(noise.used[i]);
    return sum;
}

/* The piece of a line at samples [begin, end) of frame k, and what it needs at `at` of pack. Returns the
 * place behind it. */
static inline size_t inject_piece_of(const struct inject_run *r, size_t k, size_t line, size_t begin,
                                     size_t end, void *sums, uint8_t *pack, size_t at,
                                     struct br_inject_piece *piece)
{
    const struct inject_case *c = r->c;
    size_t sample = k * c->samples + begin, D = c->dishes,
           i = line * c->length + sample - inject_begin(line / c->npol);
    *piece = (struct br_inject_piece){.sums = sums,
                                      .seed = 0x123456789abcULL,
                                      .sample = sample,
                                      .flux = c->flux,
                                      .at = at,
                                      .line = (uint32_t)line,
                                      .first = (uint32_t)begin,
                                      .count = (uint32_t)(end - begin),
                                      .measured = inject_measured(r, line / c->npol)};
    memcpy(pack + at, r->field + 2 * i, (end - begin) * 2 * sizeof(float));
    at += (end - begin) * 2 * sizeof(float);
    memcpy(pack + at, r->input + line * D, D * sizeof *r->input);
    return (at + D * sizeof *r->input + 7) / 8 * 8;
}

/* Adds all to r->e on the CPU. */
static inline int inject_run_cpu(struct inject_run *r, struct br_why *why)
{
    struct br_inject *plan;
    if (br_inject_create(&plan, BR_CPU, &r->p, why) != 0) return -1;
    uint8_t *pack = malloc(r->c->samples * 2 * sizeof(float) + r->c->dishes * sizeof *r->input + 8);
    for (size_t k = 0; k < r->c->frames; k++) {
        struct br_inject_frame frame = {r->e + k * r->c->samples * r->row, r->c->samples};
        struct br_inject_noise noise;
        struct br_inject_piece piece;
        size_t begin, end;
        for (size_t c = 0; c < r->c->channels; c++)
            if (inject_noise_of(r, k, c, r->sums, &noise)) br_inject_measure(plan, &frame, &noise);
        for (size_t line = 0; line < r->lines; line++) {
            size_t at = inject_begin(line / r->c->npol);
            if (!inject_overlap(r, k, at, at + r->c->length, &begin, &end)) continue;
            inject_piece_of(r, k, line, begin, end, r->sums, pack, 0, &piece);
            br_inject_add(plan, 0, &frame, pack, &piece);
        }
    }
    free(pack);
    br_inject_destroy(plan);
    return 0;
}

#endif
