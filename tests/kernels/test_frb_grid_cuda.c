/* FRB stage 1 on a GPU: against the equation where that is quick, against the CPU (which is tested against
 * the equation) on larger shapes; and what must not change a bit. */
#include "kernels/common/half.h"
#include "kernels/frb_grid/frb_grid.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/draws.h"

struct run {
    size_t T, row, valid_row, cells;
    size_t off_e, off_out; /* bytes, values by which they are moved from their alignment */
    unsigned phase;
    uint8_t *e, *valid; /* [T][row]; [T][valid_row] or NULL */
    uint16_t *cell;
    float *weights;
    struct br_frb_grid_params params;
};

/* D 0: some number of dishes, spread over the grid; weights: their channels; missing: percent. */
static struct run make(size_t T, size_t F, size_t P, unsigned M, unsigned N, size_t D, unsigned downsample,
                       size_t weights, unsigned missing)
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

static void finish(struct run *r)
{
    free(r->e);
    free(r->valid);
    free(r->cell);
    free(r->weights);
}

static void without_a_device(void **state)
{
    (void)state;
    struct run r = make(1, 1, 1, 8, 8, 0, 1, 0, 0);
    struct br_frb_grid *plan = (struct br_frb_grid *)&r;
    struct br_why why;
    assert_int_equal(br_frb_grid_create(&plan, BR_CUDA, &r.params, &why), -1);
    assert_null(plan);
    assert_non_null(strstr(why.text, BR_WITH_CUDA ? "br_cuda" : "without CUDA"));
    finish(&r);
}

static void place_in_order(struct run *r, unsigned columns)
{
    for (size_t d = 0; d < r->params.ndishes; d++)
        r->cell[2 * d] = (uint16_t)(d / columns), r->cell[2 * d + 1] = (uint16_t)(d % columns);
}

/* Zones of a stage, of different lengths and with different weights, in one call: the same bits as one after
 * the other. Blocks of the first have `length` samples. `cuda` is where BR_CUDA works, and `space` gives
 * memory there; on the CPU both are NULL. */
static void check_together(unsigned M, unsigned N, unsigned length, enum br_backend backend,
                           struct br_cuda *cuda, void *(*space)(size_t bytes, const void *from),
                           void (*fetch)(void *to, const void *from, size_t bytes))
{
    enum { ZONES = 3, BLOCKS = 5 };
    struct run zone[ZONES];
    struct br_frb_grid_call call[ZONES];
    uint16_t *out[2][ZONES], *got[2];
    uint8_t valid[2][ZONES][8 * BLOCKS];
    size_t taken[2][ZONES], blocks[2][ZONES];
    for (size_t z = 0; z < ZONES; z++) {
        zone[z] =
            make((4 * length + 1) << z, 4 >> z, 2, M, N, 64, length << z, z == 1 ? 2 : 0, z == 2 ? 30 : 0);
        zone[z].params.cuda = cuda;
        if (z != 1) place_in_order(&zone[z], N);
        if (z != 1) zone[z].row = zone[z].params.nchannels * 2 * 64;
    }
    for (int together = 0; together < 2; together++) {
        for (size_t z = 0; z < ZONES; z++) {
            struct run *r = &zone[z];
            struct br_why why = {""};
            size_t bytes = r->params.nchannels * BLOCKS * r->cells * sizeof(uint16_t);
            out[together][z] = space(bytes, NULL);
            memset(valid[together][z], 7, sizeof valid[together][z]);
            call[z] = (struct br_frb_grid_call){.e = space(r->T * r->row, r->e),
                                                .row = r->row,
                                                .e_valid = r->valid,
                                                .valid_row = r->valid_row,
                                                .nsteps = r->T,
                                                .max_blocks = z == 2 ? 2 : BLOCKS,
                                                .out = out[together][z],
                                                .out_stride = BLOCKS,
                                                .out_valid = valid[together][z],
                                                .valid_stride = BLOCKS};
            if (br_frb_grid_create(&call[z].plan, backend, &r->params, &why) != 0) fail_msg("%s", why.text);
        }
        for (size_t z = 0; z < ZONES && !together; z++) br_frb_grid_execute_all(&call[z], 1);
        if (together) br_frb_grid_execute_all(call, ZONES);
        for (size_t z = 0; z < ZONES; z++) {
            taken[together][z] = call[z].taken;
            blocks[together][z] = call[z].blocks;
            assert_int_equal(call[z].blocks, z == 2 ? 2 : 4);
            assert_int_equal(call[z].taken, z == 2 ? 8 * length : zone[z].T);
            br_frb_grid_destroy(call[z].plan);
        }
    }
    assert_memory_equal(taken[0], taken[1], sizeof taken[0]);
    assert_memory_equal(blocks[0], blocks[1], sizeof blocks[0]);
    assert_memory_equal(valid[0], valid[1], sizeof valid[0]);
    for (size_t z = 0; z < ZONES; z++) {
        size_t bytes = zone[z].params.nchannels * BLOCKS * zone[z].cells * sizeof(uint16_t);
        for (int i = 0; i < 2; i++) {
            got[i] = malloc(bytes);
            fetch(got[i], out[i][z], bytes);
        }
        assert_memory_equal(got[0], got[1], bytes);
        free(got[0]);
        free(got[1]);
        finish(&zone[z]);
    }
}

static void *kept[16];
static size_t nkept;

static void *host_space(size_t bytes, const void *from)
{
    void *memory = calloc(1, bytes);
    if (from) memcpy(memory, from, bytes);
    return kept[nkept++] = memory;
}

static void host_fetch(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

static void together_on_the_cpu(void **state)
{
    (void)state;
    check_together(12, 24, 3, BR_CPU, NULL, host_space, host_fetch);
    while (nkept > 0) free(kept[--nkept]);
}

#if BR_WITH_CUDA
#include "tests/kernels/gpu.h"

enum { GUARD = 64 };

static void *device_space(size_t bytes, const void *from)
{
    void *memory = gpu_poisoned(bytes, 0);
    if (from) gpu_ok(cudaMemcpyAsync(memory, from, bytes, cudaMemcpyHostToDevice, br_cuda_stream(gpu)));
    return kept[nkept++] = memory;
}

static void together(void **state)
{
    NEEDS_GPU();
    for (unsigned i = 0; i < 3; i++) {
        check_together(i ? 8 : 12, i ? 8 : 24, (unsigned[]){3, 4, 12}[i], BR_CUDA, gpu, device_space,
                       gpu_fetch);
        while (nkept > 0) br_cuda_free(gpu, kept[--nkept]);
    }
}

struct image {
    size_t blocks;
    uint16_t *out;  /* [F][blocks][2M][2N] */
    uint8_t *valid; /* [F][blocks] */
};

static void release(struct image *im)
{
    free(im->out);
    free(im->valid);
}

/* A plan's life: in calls of at most `most` samples (0: all at once), then a flush. */
static struct image compute(const struct run *r, enum br_backend backend, size_t most)
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

static void assert_same(const struct run *r, const struct image *a, const struct image *b)
{
    assert_int_equal(a->blocks, b->blocks);
    assert_memory_equal(a->valid, b->valid, r->params.nchannels * a->blocks);
    if (memcmp(a->out, b->out, r->params.nchannels * a->blocks * r->cells * sizeof *a->out) != 0)
        fail_msg("%u x %u, T_ds %u: not the same bits", r->params.grid_m, r->params.grid_n,
                 r->params.downsample);
}

static double worst_seen; /* rms error */

/* The normative tolerance: 2e-3 relative rms, no element off by more than 2 % of the rms; of elements that
 * are themselves much larger than that, one unit in the last place is allowed. */
static void assert_close(const struct run *r, const uint16_t *a, const uint16_t *b, size_t count)
{
    double sum = 0, error = 0, worst = 0;
    for (size_t i = 0; i < count; i++) {
        double x = (double)br_half_to_float(a[i]), y = (double)br_half_to_float(b[i]);
        assert_true(isfinite(x) && isfinite(y) && x >= 0);
        sum += y * y;
        error += (x - y) * (x - y);
        if (fabs(x - y) > fabs(y) * 0x1p-10 && fabs(x - y) > worst) worst = fabs(x - y);
    }
    double rms = sqrt(sum / (double)count), relative = rms > 0 ? sqrt(error / (double)count) / rms : 0;
    if (relative > worst_seen) worst_seen = relative;
    if (!(relative <= 2e-3 && worst <= 0.02 * rms))
        fail_msg("%u x %u, D %zu, P %zu, F %zu, T_ds %u: relative rms error %g, worst %g, rms %g",
                 r->params.grid_m, r->params.grid_n, r->params.ndishes, r->params.npol, r->params.nchannels,
                 r->params.downsample, relative, worst, rms);
}

/* In one call and in many, against the other backend; frees the run. */
static void check(struct run r, enum br_backend other)
{
    size_t count = r.params.nchannels * r.cells;
    struct image a = compute(&r, BR_CUDA, 0), b = compute(&r, BR_CUDA, pick(1, r.T)),
                 c = compute(&r, other, 0);
    assert_same(&r, &a, &b);
    assert_memory_equal(a.valid, c.valid, r.params.nchannels * a.blocks);
    assert_close(&r, a.out, c.out, count * a.blocks);
    release(&a);
    release(&b);
    release(&c);
    finish(&r);
}

/* One tile and more along both axes, ragged and not; blocks around the sizes of batches and chunks. */
static void edges(void **state)
{
    NEEDS_GPU();
    static const unsigned grid[][2] = {{8, 8}, {8, 12}, {12, 8}, {16, 20}, {20, 24}, {28, 32}, {32, 28}};
    for (size_t i = 0; i < 14; i++) {
        size_t P = 1 + i % 2, F = 1 + i / 2 % 3;
        unsigned downsample = (unsigned)(i % 3 ? pick(1, 5) : 17);
        struct run r = make(pick(1, 20), F, P, grid[i % 7][0], grid[i % 7][1], pick(1, 24), downsample,
                            i % 3 == 1 ? F : i % 3 / 2, i % 4 == 0 ? 30 : 0);
        r.off_e = i < 7 ? 0 : pick(0, 17);
        r.off_out = i % 5 == 4 ? pick(1, 20) : 0;
        check(r, BR_REFERENCE);
    }
}

/* Grids for which the autocorrelation is summed: blocks of one piece and of several, whole and not, with
 * dishes in order (four at once) and anywhere, bytes aligned to 16, to 4 and not at all. */
static void small_grids(void **state)
{
    NEEDS_GPU();
    static const unsigned grid[][2] = {{8, 8}, {8, 12}, {12, 8}},
                          length[] = {4, 5, 8, 13, 40, 63, 64, 65, 128, 130};
    bool quick = getenv("BEAMRING_GPU_SMALL") != NULL;
    for (size_t i = 0; i < (quick ? 12 : 60); i++) {
        unsigned M = grid[i % 3][0], N = grid[i % 3][1], T = length[i % 10];
        size_t F = pick(1, 3), P = 1 + i / 2 % 2,
               D = i % 4 == 0 ? (size_t)M * N : pick(1, (size_t)M * N / 4) * 4;
        struct run r =
            make(pick(1, 3 * T), F, P, M, N, D, T, i % 3 == 1 ? F : i % 3 / 2, i % 5 == 1 ? 30 : 0);
        for (size_t d = 0; i % 2 == 0 && d < D; d++)
            r.cell[2 * d] = (uint16_t)(d / N), r.cell[2 * d + 1] = (uint16_t)(d % N);
        r.off_e = i % 7 == 3 ? 4 : i % 7 == 5 ? pick(1, 17) : 0;
        check(r, T * D > 1000 ? BR_CPU : BR_REFERENCE);
    }
    printf("largest relative rms error so far: %.2e\n", worst_seen);
}

/* Grids of which the lags along one axis are summed: every pair of sizes, blocks of one piece and of several, whole and
 * not, bytes aligned to 16, to 4 and not at all, more of them than threads copy at once. */
static void lag_grids(void **state)
{
    NEEDS_GPU();
    static const unsigned length[] = {8, 12, 15, 16, 40, 63, 64, 65, 128, 130, 200};
    bool quick = getenv("BEAMRING_GPU_SMALL") != NULL;
    for (size_t i = 0; i < (quick ? 12 : 72); i++) {
        unsigned M = 12 + 4 * (unsigned)(i % 6), N = 12 + 4 * (unsigned)(i / 6 % 6), T = length[i % 11];
        size_t F = pick(1, 3), P = 1 + i / 2 % 2,
               D = i % 4 == 0 ? (size_t)M * N : pick(1, (size_t)M * N / 16) * (i % 3 == 1 ? 4 : 16);
        struct run r =
            make(pick(1, 3 * T), F, P, M, N, D, T, (size_t[]){0, 1, F}[i % 5 % 3], i % 5 == 3 ? 30 : 0);
        r.off_e = i % 7 == 3 ? 4 : i % 7 == 5 ? pick(1, 17) : 0;
        r.off_out = i % 8 == 7 ? pick(1, 20) : 0;
        check(r, BR_CPU);
    }
    printf("largest relative rms error so far: %.2e\n", worst_seen);
}

/* Dishes in rows without gaps, 8 x 8 of which bytes are read where they are, in blocks of every kind of
 * length and calls that begin and end anywhere; and rows that begin anywhere, the last of them not full. */
static void rows_of_dishes(void **state)
{
    NEEDS_GPU();
    static const unsigned length[] = {4, 8, 12, 16, 40, 64, 13, 72};
    static const struct {
        unsigned M, N, columns, D;
    } shape[] = {{8, 8, 8, 64},   {8, 8, 8, 64}, {8, 8, 8, 32}, {8, 12, 11, 64},
                 {8, 12, 12, 96}, {8, 8, 7, 50}, {12, 8, 8, 80}};
    bool quick = getenv("BEAMRING_GPU_SMALL") != NULL;
    for (size_t i = 0; i < (quick ? 14 : 56); i++) {
        const unsigned T = length[i % 8], k = (unsigned)(i % 7);
        size_t F = pick(1, 4), P = 2 - i / 8 % 2;
        struct run r = make(pick(2, 6) * T + pick(0, T - 1), F, P, shape[k].M, shape[k].N, shape[k].D, T,
                            (size_t[]){0, 1, F}[i % 3], i % 9 == 8 ? 30 : 0);
        place_in_order(&r, shape[k].columns);
        r.row = F * P * shape[k].D;
        r.off_out = i % 10 == 9 ? pick(1, 20) : 0;
        check(r, T * F > 100 ? BR_CPU : BR_REFERENCE);
    }
    printf("largest relative rms error so far: %.2e\n", worst_seen);
}

/* Sums that are closed on the way. */
static void long_blocks(void **state)
{
    NEEDS_GPU();
    static const unsigned length[] = {256, 257, 300, 600, 1025};
    for (int i = 0; i < (getenv("BEAMRING_GPU_SMALL") ? 3 : 10); i++)
        check(make(pick(1, 3) * length[i % 5], 1, 1 + (size_t)i % 2, 8, 8 + 4 * (unsigned)(i % 3), 20,
                   length[i % 5], i % 3 == 2, i % 2 ? 40 : 0),
              BR_CPU);
}

static void all_grids(void **state)
{
    NEEDS_GPU();
    for (unsigned M = 8; M <= 32; M += 4)
        for (unsigned N = 8; N <= 32; N += 4) {
            size_t F = pick(1, 3);
            check(make(pick(1, 50), F, pick(1, 2), M, N, pick(0, 2) ? 0 : (size_t)M * N,
                       (unsigned)pick(1, 20), (size_t[]){0, 1, F}[pick(0, 2)], pick(0, 1) ? 30 : 0),
                  BR_CPU);
        }
    printf("largest relative rms error so far: %.2e\n", worst_seen);
}

static void random_shapes(void **state)
{
    NEEDS_GPU();
    for (int i = 0; i < 60; i++) {
        size_t F = pick(1, 9);
        struct run r =
            make(pick(1, 120), F, pick(1, 2), 4 * (unsigned)pick(2, 8), 4 * (unsigned)pick(2, 8), 0,
                 (unsigned)(i % 4 ? pick(1, 12) : pick(1, 150)), (size_t[]){0, 1, F}[i % 3], i % 2 ? 30 : 0);
        r.off_e = i % 5 == 0 ? pick(0, 17) : 0;
        r.off_out = i % 7 == 0 ? pick(1, 20) : 0;
        r.params.threshold = i % 3 == 0 ? 0 : uniform();
        check(r, BR_CPU);
    }
    printf("largest relative rms error so far: %.2e\n", worst_seen);
}

/* More blocks in a call than one launch takes. */
static void many_blocks(void **state)
{
    NEEDS_GPU();
    check(make(300, 2, 2, 8, 12, 64, 1, 0, 30), BR_CPU);
    check(make(500, 3, 1, 8, 8, 30, 3, 1, 0), BR_CPU);
    /* and so many that one warp makes several, one after the other */
    check(make(140, 1024, 1, 8, 8, 4, 4, 0, 30), BR_CPU);
}

/* One source, much stronger than all noise, in some direction: most of the image is small sums of large
 * terms. */
static void bright_source(void **state)
{
    NEEDS_GPU();
    static const unsigned grid[][2] = {{8, 12}, {16, 16}, {16, 20}, {24, 24}, {8, 8}};
    for (int i = 0; i < 15; i++) {
        unsigned M = grid[i % 5][0], N = grid[i % 5][1];
        struct run r = make(40, 2, 2, M, N, (size_t)M * N * 8 / 9, 20, i % 2 ? 2 : 0, 0);
        size_t D = r.params.ndishes;
        double a = i < 5 ? (double)(i % 3) / (2 * M) : uniform(), b = i < 5 ? 0 : uniform();
        for (size_t k = 0; r.weights && k < 2 * 2 * D; k++) { /* of modulus 1, arbitrary phases */
            double phase = 2 * M_PI * uniform();
            r.weights[2 * k] = (float)cos(phase);
            r.weights[2 * k + 1] = (float)sin(phase);
        }
        r.params.log2_scale = br_frb_grid_log2_scale(&r.params);
        for (size_t t = 0; t < r.T; t++) {
            double start = uniform();
            for (size_t k = 0; k < 2 * 2 * D; k++) {
                size_t d = k % D;
                double turn = 2 * M_PI * (start - a * r.cell[2 * d] - b * r.cell[2 * d + 1]),
                       re = 7 * cos(turn), im = 7 * sin(turn);
                double wr = r.weights ? (double)r.weights[2 * k] : 1,
                       wi = r.weights ? -(double)r.weights[2 * k + 1] : 0;
                long x = lrint(wr * re - wi * im), y = lrint(wr * im + wi * re);
                r.e[t * r.row + k] = (uint8_t)((x & 15) | (y & 15) << 4);
            }
        }
        check(r, BR_CPU);
    }
    printf("largest relative rms error so far: %.2e\n", worst_seen);
}

/* Channels whose weights differ by many orders of magnitude keep their precision each. */
static void weights_of_all_sizes(void **state)
{
    NEEDS_GPU();
    struct run r = make(40, 6, 2, 12, 16, 150, 20, 6, 0);
    for (size_t f = 0; f < 6; f++)
        for (size_t i = 0; i < 600; i++)
            r.weights[f * 600 + i] *= (float)pow(10, (double)f - 2) * (f == 5 ? 0 : 1);
    r.params.log2_scale = 0; /* large enough for small images, clamped in large ones */
    struct image a = compute(&r, BR_CUDA, 0), b = compute(&r, BR_CPU, 0);
    size_t image = a.blocks * r.cells;
    for (size_t f = 0; f < 6; f++)
        if (f < 2 || f == 5) assert_close(&r, a.out + f * image, b.out + f * image, image);
    for (size_t i = 0; i < 6 * image; i++) assert_true(a.out[i] <= 0x7bff);
    assert_memory_equal(a.out + 4 * image, b.out + 4 * image, image * sizeof *a.out);
    release(&a);
    release(&b);
    finish(&r);
}

/* Samples that are said to be missing, the phase and the end of the stream are all the same thing: no
 * contribution. */
static void missing_is_missing(void **state)
{
    NEEDS_GPU();
    for (int i = 0; i < 6; i++) {
        unsigned downsample = i < 3 ? 10 : 700, phase = i < 3 ? 3 : 300;
        struct run r = make(i < 3 ? 24 : 900, 2, 2, 8, 8 + 4 * (unsigned)i, 50, downsample, 1, 0), s = r;
        size_t blocks = (phase + r.T + downsample - 1) / downsample;
        r.phase = phase;
        s.phase = 0;
        s.T = blocks * downsample;
        s.e = malloc(s.T * s.row);
        s.valid = calloc(s.T, s.valid_row);
        for (size_t k = 0; k < s.T * s.row; k++) s.e[k] = (uint8_t)dump_random(&seed);
        memcpy(s.e + phase * s.row, r.e, r.T * r.row);
        memset(s.valid + phase * s.valid_row, 1, r.T * s.valid_row);
        r.params.threshold = s.params.threshold = 0.1;
        struct image a = compute(&r, BR_CUDA, 0), b = compute(&s, BR_CUDA, 0), c = compute(&s, BR_CUDA, 40);
        assert_int_equal(a.blocks, blocks);
        assert_same(&r, &a, &b);
        assert_same(&r, &a, &c);
        release(&a);
        release(&b);
        release(&c);
        free(s.e);
        free(s.valid);
        finish(&r);
    }
}

/* A stream that begins anew forgets what was unfinished; so does a flush. */
static void begin_forgets(void **state)
{
    NEEDS_GPU();
    struct run r = make(7, 2, 2, 8, 8, 30, 5, 0, 0);
    struct br_frb_grid *plan;
    struct br_why why;
    size_t bytes = 2 * r.cells * sizeof(uint16_t), taken;
    uint16_t *first = malloc(bytes), *second = malloc(bytes), *out = gpu_poisoned(bytes, 0xee);
    uint8_t *e = gpu_poisoned(r.T * r.row, 0), valid[2];
    gpu_ok(cudaMemcpyAsync(e, r.e, r.T * r.row, cudaMemcpyHostToDevice, br_cuda_stream(gpu)));
    r.params.cuda = gpu;
    r.params.threshold = 0;
    assert_int_equal(br_frb_grid_create(&plan, BR_CUDA, &r.params, &why), 0);
    for (int i = 0; i < 2; i++) {
        br_frb_grid_begin(plan, 1);
        assert_int_equal(br_frb_grid_execute(plan, e, r.row, NULL, 0, 7, 0, out, 1, valid, 1, &taken), 0);
        assert_int_equal(taken, 0);
        assert_int_equal(
            br_frb_grid_execute(plan, e + i * r.row, r.row, NULL, 0, 3, 1, out, 1, valid, 1, &taken), 0);
        if (i == 1) {
            br_frb_grid_begin(plan, 2);
            assert_int_equal(br_frb_grid_flush(plan, out, 1, valid, 1), 1);
            gpu_fetch(second, out, bytes);
            for (size_t k = 0; k < 2 * r.cells; k++) assert_int_equal(second[k], 0);
            assert_true(valid[0] == 0 && valid[1] == 0);
            br_frb_grid_begin(plan, 1);
            br_frb_grid_execute(plan, e, r.row, NULL, 0, 3, 1, out, 1, valid, 1, &taken);
        }
        assert_int_equal(br_frb_grid_flush(plan, out, 1, valid, 1), 1);
        gpu_fetch(i ? second : first, out, bytes);
    }
    assert_memory_equal(first, second, bytes);
    br_frb_grid_destroy(plan);
    br_cuda_free(gpu, e);
    br_cuda_free(gpu, out);
    free(first);
    free(second);
    finish(&r);
}

static void full_scale(void **state)
{
    NEEDS_GPU();
    static const unsigned grid[][2] = {{8, 8}, {24, 24}, {32, 32}};
    for (int i = 0; i < 3; i++) {
        size_t D = (size_t)grid[i][0] * grid[i][1];
        struct run r = make(40, 2, 2, grid[i][0], grid[i][1], D, 20, 0, 0);
        r.phase = 0;
        memset(r.e, 0x88, r.T * r.row); /* -8 - 8i */
        struct image a = compute(&r, BR_CUDA, 0);
        double zenith = ldexp((double)br_half_to_float(a.out[0]), r.params.log2_scale),
               most = 2.0 * 20 * 128 * (double)(D * D);
        assert_true(fabs(zenith / most - 1) < 1e-3);
        release(&a);
        check(r, BR_CPU);
    }
}

static void refused(void **state)
{
    NEEDS_GPU();
    static const unsigned grid[][2] = {{8, 10}, {4, 8}, {8, 36}, {64, 64}, {7, 12}};
    struct br_frb_grid *plan;
    struct br_why why;
    for (int i = 0; i < 5; i++) {
        char text[20];
        struct run r = make(1, 1, 1, grid[i][0], grid[i][1], 2, 1, 0, 0);
        r.params.cuda = gpu;
        snprintf(text, sizeof text, "%u x %u", grid[i][0], grid[i][1]);
        assert_int_equal(br_frb_grid_create(&plan, BR_CUDA, &r.params, &why), -1);
        assert_null(plan);
        assert_non_null(strstr(why.text, text));
        finish(&r);
    }
    struct run r = make(1, 1, 3, 8, 8, 2, 1, 0, 0);
    r.params.cuda = gpu;
    assert_int_equal(br_frb_grid_create(&plan, BR_CUDA, &r.params, &why), -1);
    assert_non_null(strstr(why.text, "3 polarisations"));
    finish(&r);
}

/* Validity larger than was announced: execute returns, and the failure can be read. */
static void failures(void **state)
{
    NEEDS_GPU();
    struct br_cuda *usual = gpu;
    struct br_why why;
    struct run r = make(10000, 1, 1, 8, 8, 1, 20000, 0, 10);
    assert_int_equal(br_cuda_create(&gpu, 0, NULL, 1, &why), 0);
    struct br_frb_grid *plan;
    size_t taken;
    r.params.cuda = gpu;
    assert_int_equal(br_frb_grid_create(&plan, BR_CUDA, &r.params, &why), 0);
    uint8_t *e = br_cuda_alloc(gpu, r.T * r.row, &why);
    br_frb_grid_execute(plan, e, r.row, r.valid, r.valid_row, r.T, 1, NULL, 1, NULL, 1, &taken);
    assert_int_equal(br_cuda_check(gpu, &why), -1);
    br_frb_grid_destroy(plan);
    br_cuda_free(gpu, e);
    br_cuda_destroy(gpu);
    gpu = usual;
    finish(&r);
}
#endif

int main(void)
{
    seed = 31;
    const struct CMUnitTest host[] = {cmocka_unit_test(without_a_device),
                                      cmocka_unit_test(together_on_the_cpu)};
    int failed = cmocka_run_group_tests(host, NULL, NULL);
#if BR_WITH_CUDA
    const struct CMUnitTest small[] = {cmocka_unit_test(edges),          cmocka_unit_test(small_grids),
                                       cmocka_unit_test(rows_of_dishes), cmocka_unit_test(long_blocks),
                                       cmocka_unit_test(lag_grids),      cmocka_unit_test(together),
                                       cmocka_unit_test(begin_forgets),
                                       cmocka_unit_test(refused),        cmocka_unit_test(failures)};
    const struct CMUnitTest more[] = {
        cmocka_unit_test(all_grids),
        cmocka_unit_test(random_shapes),
        cmocka_unit_test(many_blocks),
        cmocka_unit_test(bright_source),
        cmocka_unit_test(weights_of_all_sizes),
        cmocka_unit_test(missing_is_missing),
        cmocka_unit_test(full_scale),
    };
    failed += cmocka_run_group_tests_name("gpu, small shapes", small, gpu_open, gpu_close);
    if (!getenv("BEAMRING_GPU_SMALL")) /* set for compute-sanitizer */
        failed += cmocka_run_group_tests_name("gpu", more, gpu_open, gpu_close);
#endif
    return failed;
}
