/* The filterbank's output for seeded input, for tests/oracle/upchannelize.py. */
#include "kernels/upchannelize/upchannelize.h"
#include "tests/kernels/common/dump.h"

struct shape {
    const char *name;
    size_t F, X, U, M, blocks, call; /* call: blocks per call */
    int missing, own; /* with missing input; with a window and gains that are not the default */
};

static const struct shape shapes[] = {
    {"u1", 3, 5, 1, 4, 20, 7, 1, 0},   {"u2", 2, 130, 2, 4, 40, 9, 0, 0},   {"u4", 2, 30, 4, 3, 30, 4, 1, 0},
    {"u8", 3, 17, 8, 5, 25, 25, 0, 1}, {"u16", 2, 128, 16, 4, 12, 5, 0, 0}, {"u32", 1, 64, 32, 4, 9, 2, 1, 0},
    {"u64", 2, 9, 64, 2, 8, 3, 0, 1},  {"u128", 1, 20, 128, 4, 7, 3, 0, 0},
};

static void one(const char *directory, const struct shape *n, enum br_backend backend)
{
    uint64_t seed = 1000 + n->U;
    size_t T = n->blocks * n->U, row = n->F * n->X, FU = n->F * n->U;
    uint8_t *e = malloc(T * row), *valid = malloc(T * n->F), *out = malloc(T * row),
            *out_valid = malloc(n->blocks * FU);
    double *window = malloc(n->M * n->U * sizeof *window), *gain = malloc(n->U * sizeof *gain);
    for (size_t i = 0; i < T * row; i++) {
        /* narrower than the full range, so that not everything is clamped */
        int re = (int)(dump_random(&seed) % 7) - 3, im = (int)(dump_random(&seed) % 16) - 8;
        e[i] = (uint8_t)((re & 15) | (im & 15) << 4);
    }
    for (size_t i = 0; i < T * n->F; i++)
        valid[i] = n->missing && dump_random(&seed) % (4 * n->M * n->U) == 0 ? 0 : (uint8_t)(1 + i % 255);
    for (size_t i = 0; i < n->M * n->U; i++) window[i] = (double)(dump_random(&seed) % 1001) / 500.0 - 1;
    for (size_t u = 0; u < n->U; u++)
        gain[u] = ((double)(dump_random(&seed) % 1001) / 1000.0 - 0.5) / (double)(u % 3 + 1);

    const struct br_upchannelize_params params = {.nchannels = n->F,
                                                  .nspectators = n->X,
                                                  .factor = (unsigned)n->U,
                                                  .taps = (unsigned)n->M,
                                                  .window = n->own ? window : NULL,
                                                  .gain = n->own ? gain : NULL};
    struct br_upchannelize *plan;
    struct br_why why;
    if (br_upchannelize_create(&plan, backend, &params, &why) != 0) {
        fprintf(stderr, "%s\n", why.text);
        exit(1);
    }
    uint64_t clamped = 0;
    for (size_t b = 0; b < n->blocks; b += n->call) {
        size_t blocks = n->blocks - b < n->call ? n->blocks - b : n->call;
        clamped += br_upchannelize_execute(plan, e + b * n->U * row, row,
                                           n->missing ? valid + b * n->U * n->F : NULL, n->F, blocks * n->U,
                                           out + b * n->U * row, out_valid + b * FU);
    }
    br_upchannelize_destroy(plan);

    char name[64];
    snprintf(name, sizeof name, "%s_%s", n->name, backend == BR_REFERENCE ? "reference" : "cpu");
    dump_array(directory, name, "e", "|u1", e, 3, (size_t[]){T, n->F, n->X});
    dump_array(directory, name, "valid", "|u1", valid, 2, (size_t[]){T, n->F});
    dump_array(directory, name, "out", "|u1", out, 4, (size_t[]){n->blocks, n->F, n->U, n->X});
    dump_array(directory, name, "out_valid", "|u1", out_valid, 3, (size_t[]){n->blocks, n->F, n->U});
    dump_array(directory, name, "taps", "<i8", &(int64_t){(int64_t)n->M}, 0, NULL);
    dump_array(directory, name, "clamped", "<i8", &(int64_t){(int64_t)clamped}, 0, NULL);
    dump_array(directory, name, "window", "<f8", window, 1, (size_t[]){n->own ? n->M * n->U : 0});
    dump_array(directory, name, "gain", "<f8", gain, 1, (size_t[]){n->own ? n->U : 0});
    free(e);
    free(valid);
    free(out);
    free(out_valid);
    free(window);
    free(gain);
}

DUMP_MAIN(shapes, one)
