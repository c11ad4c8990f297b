/* grid_run.h - FRB stage 1: cases by chance, a plan's life on a GPU, and what two results must have in
 * common. */
#ifndef BEAMRING_TESTS_KERNELS_GRID_RUN_H
#define BEAMRING_TESTS_KERNELS_GRID_RUN_H

#include "kernels/common/half.h"
#include "kernels/frb_grid/frb_grid.h"
#include "tests/kernels/draws.h"

#include <stdlib.h>
#include <string.h>

struct run {
    size_t T, row, valid_row, cells;
    size_t off_e, off_out; /* bytes, values by which they are moved from their alignment */
    size_t multiple;       /* of which the lengths of calls are multiples; 0: any */
    unsigned phase;
    uint8_t *e, *valid; /* [T][row]; [T][valid_row] or NULL */
    uint16_t *cell;
    float *weights;
    struct br_frb_grid_params params;
};

/* D 0: some number of dishes, spread over the grid; weights: their channels; missing: percent. */
static inline struct run make(size_t T, size_t F, size_t P, unsigned M, unsigned N, size_t D,
                              unsigned downsample, size_t weights, unsigned missing)
{
    size_t cells = (size_t)M * N;
    struct run r = {.T = T, .cells = 4 * cells};
    if (D == 0) D = pick(1, cells);
    r.row = F * P * D + (pick(0, 2) ? pick(0, 20) : 0);
    if (pick(0, 1)) r.row = (r.row + 15) / 16 * 16;
    r.valid_row = F + pick(0, 3);
    r.phase = (unsigned)pick(0, downsample - 1);
    r.cell = malloc(2 * D * sizeof *r.cell);
    uint16_t *order = malloc(cells * sizeof *order);
    for (size_t i = 0; i < cells; i++) order[i] = (uint16_t)i;
    for (size_t d = 0; d < D; d++) {
        size_t other = pick(d, cells - 1);
        uint16_t mine = order[other];
        order[other] = order[d];
        order[d] = mine;
        r.cell[2 * d] = (uint16_t)(mine / N);
        r.cell[2 * d + 1] = (uint16_t)(mine % N);
    }
    free(order);
    r.e = malloc(T * r.row);
    for (size_t i = 0; i < T * r.row; i++) r.e[i] = (uint8_t)dump_random(&seed);
    r.valid = missing ? malloc(T * r.valid_row) : NULL;
    for (size_t i = 0; missing && i < T * r.valid_row; i++)
        r.valid[i] = (uint8_t)(pick(0, 99) < missing ? 0 : pick(1, 255));
    r.weights = weights ? malloc(weights * P * D * 2 * sizeof *r.weights) : NULL;
    for (size_t i = 0; i < weights * P * D * 2; i++) r.weights[i] = (float)(60 * uniform() - 30);
    r.params = (struct br_frb_grid_params){.nchannels = F,
                                           .npol = P,
                                           .ndishes = D,
                                           .grid_m = M,
                                           .grid_n = N,
                                           .dish_cell = r.cell,
                                           .weights = r.weights,
                                           .weight_channels = weights,
                                           .downsample = downsample,
                                           .threshold = 0.5};
    r.params.log2_scale = br_frb_grid_log2_scale(&r.params);
    return r;
}

static inline void finish(struct run *r)
{
    free(r->e);
    free(r->valid);
    free(r->cell);
    free(r->weights);
}

static inline void place_in_order(struct run *r, unsigned columns)
{
    for (size_t d = 0; d < r->params.ndishes; d++)
        r->cell[2 * d] = (uint16_t)(d / columns), r->cell[2 * d + 1] = (uint16_t)(d % columns);
}

#if BR_WITH_CUDA
#include "tests/kernels/gpu.h"

enum { GUARD = 64 };

struct image {
    size_t blocks;
    uint16_t *out;  /* [F][blocks][2M][2N] */
    uint8_t *valid; /* [F][blocks] */
};

static inline void release(struct image *im)
{
    free(im->out);
    free(im->valid);
}

/* A plan's life: in calls of at most `most` samples (0: all at once), then a flush. */
static inline struct image compute(const struct run *r, enum br_backend backend, size_t most)
{
    size_t F = r->params.nchannels, downsample = r->params.downsample, at = 0, done = 0;
    struct image im = {.blocks = (r->T + r->phase + downsample - 1) / downsample};
    size_t count = F * im.blocks * r->cells, around = count + 2 * GUARD;
    struct br_frb_grid_params params = r->params;
    struct br_frb_grid *plan;
    struct br_why why = {""};
    bool device = backend == BR_CUDA;
    uint8_t poison = most ? 0x11 : 0xee, *e = r->e, *memory_e = NULL;
    uint16_t *memory = NULL, *out;
    im.out = malloc(around * sizeof *im.out);
    im.valid = malloc(F * im.blocks);
    memset(im.valid, 0xee, F * im.blocks);
    params.cuda = gpu;
    if (device) {
        /* Not a byte more than there is. */
        e = memory_e = gpu_poisoned(r->T * r->row + r->off_e, 0);
        e += r->off_e;
        gpu_ok(cudaMemcpyAsync(e, r->e, r->T * r->row, cudaMemcpyHostToDevice, br_cuda_stream(gpu)));
        memory = gpu_poisoned(around * sizeof *memory, poison);
    }
    out = (device ? memory : im.out) + GUARD / 2 + r->off_out;
    if (br_frb_grid_create(&plan, backend, &params, &why) != 0) fail_msg("%s", why.text);
    if (r->phase) br_frb_grid_begin(plan, r->phase);
    while (at < r->T) {
        size_t n = most && most < r->T - at ? pick(1, most) : r->T - at, max = most ? pick(1, 3) : 1000000,
               taken = 99;
        if (r->multiple && n % r->multiple && n < r->T - at)
            n = n + r->multiple < r->T - at ? n / r->multiple * r->multiple + r->multiple : r->T - at;
        size_t got = br_frb_grid_execute(
            plan, e + at * r->row, r->row, r->valid ? r->valid + at * r->valid_row : NULL, r->valid_row, n,
            max, out + done * r->cells, im.blocks, im.valid + done, im.blocks, &taken);
        assert_true(got <= max && taken <= n && (got == max || taken == n));
        at += taken;
        done += got;
        assert_int_equal(br_frb_grid_pending(plan), (at + r->phase) % downsample);
    }
    size_t more = br_frb_grid_flush(plan, out + done * r->cells, im.blocks, im.valid + done, im.blocks);
    assert_int_equal(more, (r->T + r->phase) % downsample != 0);
    assert_int_equal(done + more, im.blocks);
    if (device) {
        gpu_fetch(im.out, memory, around * sizeof *im.out);
        br_cuda_free(gpu, memory);
        br_cuda_free(gpu, memory_e);
        for (size_t i = 0; i < around; i++)
            if (i < GUARD / 2 + r->off_out || i >= GUARD / 2 + r->off_out + count)
                assert_int_equal(im.out[i], poison * 0x101);
    }
    memmove(im.out, im.out + GUARD / 2 + r->off_out, count * sizeof *im.out);
    br_frb_grid_destroy(plan);
    return im;
}

static inline void assert_same(const struct run *r, const struct image *a, const struct image *b)
{
    assert_int_equal(a->blocks, b->blocks);
    assert_memory_equal(a->valid, b->valid, r->params.nchannels * a->blocks);
    if (memcmp(a->out, b->out, r->params.nchannels * a->blocks * r->cells * sizeof *a->out) != 0)
        fail_msg("%u x %u, T_ds %u: not the same bits", r->params.grid_m, r->params.grid_n,
                 r->params.downsample);
}

#endif

#endif
