/* correlate_run.h - seeded inputs of a correlator, and their visibilities by some implementation. */
#ifndef BEAMRING_TESTS_KERNELS_CORRELATE_CORRELATE_RUN_H
#define BEAMRING_TESTS_KERNELS_CORRELATE_CORRELATE_RUN_H

#include "kernels/correlate/correlate.h"
#include "tests/kernels/common/dump.h"

struct correlate_case {
    const char *name;
    size_t samples, channels, inputs;
    size_t calls;     /* the samples come in so many pieces of different lengths */
    unsigned missing; /* per cent of cells */
    bool autos;
    enum { ANY_VALUE, EXTREME /* -8 and 7 only */ } values;
};

static const struct correlate_case correlate_cases[] = {
    {"one", 1, 1, 1, 1, 0, false, ANY_VALUE},       {"pair", 100, 2, 2, 1, 0, false, ANY_VALUE},
    {"odd", 301, 3, 37, 3, 10, false, ANY_VALUE},   {"dishes_8", 257, 5, 16, 2, 0, false, EXTREME},
    {"block", 40, 2, 130, 1, 50, false, ANY_VALUE}, {"blocks", 150, 2, 300, 2, 5, false, ANY_VALUE},
    {"long", 5000, 1, 9, 2, 1, false, ANY_VALUE},   {"nothing", 64, 2, 6, 1, 100, false, ANY_VALUE},
    {"autos", 300, 3, 45, 2, 20, true, ANY_VALUE},  {"autos_extreme", 129, 2, 300, 1, 0, true, EXTREME},
};

enum { CORRELATE_CASES = sizeof correlate_cases / sizeof *correlate_cases };

struct correlate_run {
    struct br_correlate_params p;
    size_t samples, nbaselines, v_count;
    uint8_t *e, *valid; /* valid NULL: nothing is missing */
    int32_t *v;         /* [F][baseline][2], and one that must stay */
};

static inline void correlate_make(struct correlate_run *r, const struct correlate_case *c)
{
    uint64_t seed = c->samples * 1000 + c->inputs;
    *r = (struct correlate_run){.p = {c->channels, c->inputs, c->autos, NULL}, .samples = c->samples};
    size_t cells = c->samples * c->channels;
    r->e = malloc(cells * c->inputs);
    for (size_t k = 0; k < cells * c->inputs; k++) {
        uint64_t random = dump_random(&seed);
        r->e[k] = c->values == ANY_VALUE ? (uint8_t)random
                                         : (uint8_t)((random & 1 ? 0x08 : 0x07) | (random & 2 ? 0x80 : 0x70));
    }
    if (c->missing > 0) {
        r->valid = malloc(cells);
        for (size_t k = 0; k < cells; k++) /* some are there in part: they count like whole ones */
            r->valid[k] = dump_random(&seed) % 100 < c->missing ? 0 : k % 3 ? 255 : 100;
    }
    r->nbaselines = br_correlate_baselines(&r->p);
    r->v_count = c->channels * r->nbaselines * 2;
    r->v = malloc((r->v_count + 1) * sizeof *r->v);
    memset(r->v, 0xa5, (r->v_count + 1) * sizeof *r->v);
}

static inline void correlate_free(struct correlate_run *r)
{
    free(r->e);
    free(r->valid);
    free(r->v);
}

/* Where piece k of the samples begins. */
static inline size_t correlate_piece(const struct correlate_case *c, size_t k)
{
    return k == c->calls ? c->samples : c->samples * k * k / (c->calls * c->calls);
}

static inline int correlate_run(struct correlate_run *r, const struct correlate_case *c,
                                enum br_backend backend, struct br_why *why)
{
    struct br_correlate *plan;
    size_t row = c->channels * c->inputs;
    if (br_correlate_create(&plan, backend, &r->p, why) != 0) return -1;
    for (size_t k = 0; k < c->calls; k++) {
        size_t from = correlate_piece(c, k), to = correlate_piece(c, k + 1);
        if (br_correlate_add(plan, to - from, r->e + from * row,
                             r->valid ? r->valid + from * c->channels : NULL, why) != 0)
            return -1;
    }
    br_correlate_read(plan, r->v);
    br_correlate_destroy(plan);
    return 0;
}

#endif
