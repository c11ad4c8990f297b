/* test_frb_grid_cuda.c - FRB stage 1 on a GPU against the equation: all grids, missing samples, any cuts of the calls. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/common/half.h"
#include "kernels/frb_grid/frb_grid.h"
#include "tests/kernels/gpu.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static uint64_t seed = 1;

static uint32_t draw(uint32_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((seed >> 33) % below);
}

struct trial {
    struct br_frb_grid_params p;
    uint16_t cell[1024][2];
    float *weights;
    size_t steps, row, blocks, cells;
    uint8_t *e, *valid; /* [steps][row], [steps][F] or NULL */
    unsigned phase;
};

static void make_trial(struct trial *t, unsigned M, unsigned N, size_t F, size_t P, unsigned T, size_t steps, bool weights, bool holes)
{
    memset(t, 0, sizeof *t);
    size_t D = 1 + draw(M * N), taken = 0;
    if (draw(2)) D = (D + 3) / 4 * 4; /* so that words can be read at a time */
    if (D > M * N) D = M * N;
    bool *used = calloc(M * N, 1);
    while (taken < D) {
        uint32_t c = draw(M * N);
        if (used[c]) continue;
        used[c] = true;
        t->cell[taken][0] = (uint16_t)(c / N);
        t->cell[taken++][1] = (uint16_t)(c % N);
    }
    free(used);
    t->p = (struct br_frb_grid_params){.nchannels = F, .npol = P, .ndishes = D, .grid_m = M, .grid_n = N, .dish_cell = &t->cell[0][0],
                                       .downsample = T, .threshold = 0.5};
    if (weights) {
        t->p.weight_channels = draw(2) ? F : 1;
        t->weights = malloc(t->p.weight_channels * P * D * 2 * sizeof(float));
        for (size_t i = 0; i < t->p.weight_channels * P * D * 2; i++) t->weights[i] = (float)(draw(2001) - 1000.0) * 2e-2f;
        t->p.weights = t->weights;
    }
    t->p.log2_scale = br_frb_grid_log2_scale(&t->p);
    t->steps = steps;
    t->row = F * P * D + (draw(2) ? 4 * draw(9) : draw(9));
    t->phase = draw(T);
    t->blocks = (t->phase + steps + T - 1) / T;
    t->cells = (size_t)4 * M * N;
    t->e = malloc(steps * t->row);
    for (size_t i = 0; i < steps * t->row; i++) t->e[i] = (uint8_t)draw(256);
    if (holes) {
        t->valid = malloc(steps * F);
        for (size_t i = 0; i < steps * F; i++) t->valid[i] = draw(3) ? 255 : 0;
    }
}

static void free_trial(struct trial *t)
{
    free(t->weights);
    free(t->e);
    free(t->valid);
}

/* Runs the whole through a plan in calls of at most `most` steps. On a GPU, e and out are its memory. */
static void run(struct br_frb_grid *plan, const struct trial *t, const uint8_t *e, uint16_t *out, uint8_t *out_valid, size_t most)
{
    br_frb_grid_begin(plan, t->phase);
    size_t at = 0, done = 0;
    while (at < t->steps) {
        size_t count = t->steps - at < most ? t->steps - at : most, taken;
        size_t room = 1 + draw(3);
        done += br_frb_grid_execute(plan, e + at * t->row, t->row, t->valid ? t->valid + at * t->p.nchannels : NULL, t->p.nchannels,
                                    count, most == t->steps ? t->blocks : room, out + done * t->cells, t->blocks, out_valid + done,
                                    t->blocks, &taken);
        at += taken;
    }
    done += br_frb_grid_flush(plan, out + done * t->cells, t->blocks, out_valid + done, t->blocks);
    assert_int_equal(done, t->blocks);
}

static void check_trial(struct trial *t, const char *what)
{
    size_t values = t->p.nchannels * t->blocks * t->cells, masks = t->p.nchannels * t->blocks;
    uint16_t *want = calloc(values, 2), *got = calloc(values, 2), *again = calloc(values, 2);
    uint8_t *want_valid = calloc(masks, 1), *got_valid = calloc(masks, 1);
    struct br_frb_grid *reference, *plan;
    struct br_why why = {""};
    /* The equation where it takes less than a tenth of a second; else the CPU's float32, which is held to the equation elsewhere. */
    double products = (double)t->cells * t->p.grid_m * t->p.grid_n * (double)(t->p.nchannels * t->p.npol * t->steps);
    assert_int_equal(br_frb_grid_create(&reference, products < 3e7 ? BR_REFERENCE : BR_CPU, &t->p, &why), 0);
    run(reference, t, t->e, want, want_valid, t->steps);
    t->p.cuda = gpu;
    if (br_frb_grid_create(&plan, BR_CUDA, &t->p, &why) != 0) fail_msg("%s: %s", what, why.text);
    uint8_t *e = gpu_poisoned(t->steps * t->row + 16, 0x5a);
    gpu_ok(cudaMemcpy(e, t->e, t->steps * t->row, cudaMemcpyHostToDevice));
    for (int pass = 0; pass < 2; pass++) {
        uint16_t *out = gpu_poisoned(values * 2, 0xff); /* NaN */
        memset(got_valid, 7, masks);
        run(plan, t, e, out, got_valid, pass == 0 ? t->steps : 1 + draw((uint32_t)t->steps));
        gpu_fetch(pass == 0 ? got : again, out, values * 2);
        assert_memory_equal(got_valid, want_valid, masks);
        br_cuda_free(gpu, out);
    }
    if (memcmp(got, again, values * 2) != 0) fail_msg("%s: the cuts of the calls show in the result", what);
    double square = 0, error = 0, worst = 0;
    for (size_t i = 0; i < values; i++) {
        double a = (double)br_half_to_float(want[i]), b = (double)br_half_to_float(got[i]);
        square += a * a;
        error += (a - b) * (a - b);
        worst = fmax(worst, fabs(a - b));
        if (!(fabs(b) <= 65504)) fail_msg("%s: element %zu is not finite", what, i);
    }
    double rms = sqrt(square / (double)values);
    error = rms > 0 ? sqrt(error / (double)values) / rms : 0;
    if (error > 2e-3 || worst > 0.02 * rms) fail_msg("%s: relative rms error %.2e, worst %.2e of the rms", what, error, worst / rms);
    br_frb_grid_destroy(plan);
    br_frb_grid_destroy(reference);
    br_cuda_free(gpu, e);
    free(want);
    free(got);
    free(again);
    free(want_valid);
    free(got_valid);
}

static void all_grids(void **state)
{
    NEEDS_GPU();
    bool small = getenv("BEAMRING_GPU_SMALL") != NULL;
    for (unsigned M = 8; M <= 32; M += 4)
        for (unsigned N = 8; N <= 32; N += small ? 12 : 4) {
            struct trial t;
            char what[80];
            snprintf(what, sizeof what, "%u x %u", M, N);
            make_trial(&t, M, N, 1 + draw(3), 1 + draw(2), 1 + draw(20), draw(2) ? 1 + draw(60) : 1 + draw(8), draw(2), draw(2));
            check_trial(&t, what);
            free_trial(&t);
        }
}

static void shapes(void **state)
{
    NEEDS_GPU();
    for (int i = 0; i < (getenv("BEAMRING_GPU_SMALL") ? 6 : 60); i++) {
        struct trial t;
        char what[80];
        unsigned M = 8 + 4 * draw(7), N = 8 + 4 * draw(7), T = draw(4) ? 1 + draw(12) : 1 + draw(150);
        snprintf(what, sizeof what, "shape %d: %u x %u, T_ds %u", i, M, N, T);
        make_trial(&t, M, N, 1 + draw(9), 1 + draw(2), T, 1 + draw(200), draw(2), draw(2));
        check_trial(&t, what);
        free_trial(&t);
    }
}

/* More blocks in a call than one launch takes. */
static void many_blocks(void **state)
{
    NEEDS_GPU();
    struct trial t;
    make_trial(&t, 8, 12, 2, 2, 1, 300, false, true);
    check_trial(&t, "300 blocks");
    free_trial(&t);
}

/* Full scale on every dish must not overflow. */
static void full_scale(void **state)
{
    NEEDS_GPU();
    struct trial t;
    make_trial(&t, 24, 24, 2, 2, 40, 80, false, false);
    memset(t.e, 0x88, t.steps * t.row);
    t.phase = 0;
    t.blocks = 2;
    check_trial(&t, "full scale");
    free_trial(&t);
}

static void refused(void **state)
{
    NEEDS_GPU();
    struct trial t;
    struct br_frb_grid *plan;
    struct br_why why = {""};
    make_trial(&t, 8, 8, 1, 1, 4, 4, false, false);
    t.p.cuda = gpu;
    t.p.grid_n = 10;
    assert_int_equal(br_frb_grid_create(&plan, BR_CUDA, &t.p, &why), -1);
    assert_non_null(strstr(why.text, "8 x 10"));
    free_trial(&t);
}

struct timed_grid {
    struct br_frb_grid *plan;
    size_t steps, row, blocks;
    uint8_t *valid;
};

static void run_timed(void *self, void *in, void *out)
{
    struct timed_grid *t = self;
    size_t taken;
    br_frb_grid_execute(t->plan, in, t->row, NULL, 0, t->steps, t->blocks, out, t->blocks, t->valid, t->blocks, &taken);
}

static void time_shape(const char *name, unsigned M, unsigned N, size_t D, size_t F, unsigned T, size_t steps)
{
    struct br_frb_grid_params p = {.nchannels = F, .npol = 2, .ndishes = D, .grid_m = M, .grid_n = N, .downsample = T, .threshold = 0.5,
                                   .cuda = gpu};
    uint16_t *cell = malloc(D * 4);
    for (size_t d = 0; d < D; d++) {
        cell[2 * d] = (uint16_t)(d / N);
        cell[2 * d + 1] = (uint16_t)(d % N);
    }
    p.dish_cell = cell;
    p.log2_scale = br_frb_grid_log2_scale(&p);
    struct br_why why = {""};
    struct timed_grid t = {.steps = steps, .row = F * 2 * D, .blocks = steps / T};
    if (br_frb_grid_create(&t.plan, BR_CUDA, &p, &why) != 0) fail_msg("%s", why.text);
    t.valid = malloc(F * t.blocks);
    uint8_t *piece = malloc(1 << 20);
    for (size_t i = 0; i < 1 << 20; i++) piece[i] = (uint8_t)draw(256);
    double ms = gpu_time(name, run_timed, &t, piece, 1 << 20, steps * t.row, F * t.blocks * 4 * M * N * 2);
    /* A X: 2M M N, times B: 2M N 2N complex products of 8 operations, per sample, channel and polarisation */
    double flops = 8.0 * (2.0 * M * M * N + 4.0 * M * N * N) * 2 * (double)F * (double)steps;
    printf(", %.0f TFLOP/s\n", flops / ms * 1e-9);
    br_frb_grid_destroy(t.plan);
    free(t.valid);
    free(piece);
    free(cell);
}

static void times(void **state)
{
    NEEDS_GPU();
    if (getenv("BEAMRING_GPU_TIMES") == NULL) skip();
    time_shape("CHORD 24x24 D512 F768 T10", 24, 24, 512, 768, 10, 510);
    time_shape("pathfinder 8x12 D64 F6144 T12", 8, 12, 64, 6144, 12, 504);
    time_shape("HIRAX 16x16 D256 F1024 T24", 16, 16, 256, 1024, 24, 1008);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_grids), cmocka_unit_test(shapes), cmocka_unit_test(many_blocks), cmocka_unit_test(full_scale),
        cmocka_unit_test(refused), cmocka_unit_test(times),
    };
    return cmocka_run_group_tests(tests, gpu_open, gpu_close);
}
