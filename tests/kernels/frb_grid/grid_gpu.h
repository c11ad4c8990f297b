/* grid_gpu.h - FRB stage 1 on a GPU: a plan's life, and what two results must have in common. */
#ifndef BEAMRING_TESTS_KERNELS_FRB_GRID_GRID_GPU_H
#define BEAMRING_TESTS_KERNELS_FRB_GRID_GRID_GPU_H

#include "kernels/frb_grid/plan.h"
#include "tests/kernels/common/gpu.h"
#include "tests/kernels/frb_grid/grid_run.h"

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
        assert_int_equal(plan->pending, (at + r->phase) % downsample);
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
