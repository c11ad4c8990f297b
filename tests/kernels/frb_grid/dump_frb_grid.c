/* What FRB stage 1 makes of seeded input, for tests/oracle/frb_grid.py. */
#include "kernels/frb_grid/frb_grid.h"
#include "tests/kernels/common/dump.h"

struct shape {
    const char *name;
    size_t T, F, P, D, M, N, downsample, WF, phase; /* WF = 0: no weights */
    int missing;                                    /* per cent */
    double threshold;
};

static const struct shape shapes[] = {
    {"chord", 20, 1, 2, 512, 24, 24, 10, 1, 0, 0, 0.5},
    {"pathfinder", 130, 2, 2, 64, 8, 12, 40, 2, 13, 30, 0.5},
    {"hirax", 24, 2, 2, 256, 16, 16, 8, 0, 3, 35, 0.5},
    {"pathfinder_8", 50, 3, 2, 61, 8, 8, 7, 1, 0, 40, 0.7},
    {"long_block", 1500, 1, 1, 9, 4, 3, 700, 1, 5, 10, 0},
    {"odd", 30, 2, 1, 11, 5, 7, 1, 2, 0, 20, 0.5},
    {"line", 40, 1, 2, 5, 1, 9, 6, 0, 2, 0, 0.5},
    {"one_cell", 10, 1, 1, 1, 1, 1, 3, 1, 0, 0, 0.9},
};

static void one(const char *directory, const struct shape *n, enum br_backend backend)
{
    uint64_t seed = 5 + n->D;
    size_t row = n->F * n->P * n->D, blocks = (n->T + n->phase + n->downsample - 1) / n->downsample;
    size_t cells = 4 * n->M * n->N, weights = n->WF * n->P * n->D;
    uint8_t *e = malloc(n->T * row), *valid = malloc(n->T * n->F), *out_valid = malloc(n->F * blocks);
    uint16_t *out = malloc(n->F * blocks * cells * sizeof *out),
             *cell = malloc(n->M * n->N * 2 * sizeof *cell);
    float *w = malloc((weights * 2 + 1) * sizeof *w);
    for (size_t i = 0; i < n->T * row; i++) e[i] = (uint8_t)dump_random(&seed);
    for (size_t i = 0; i < n->T * n->F; i++)
        valid[i] = (int)(dump_random(&seed) % 100) < n->missing ? 0
                   : n->missing && i % 5 == 0                   ? (uint8_t)(100 + i % 155)
                                                                : 255;
    for (size_t i = 0; i < weights * 2; i++) w[i] = (float)(dump_random(&seed) % 2001) / 1000 - 1;
    /* the first cells in order, then some of them exchanged */
    for (size_t i = 0; i < n->M * n->N; i++) {
        cell[2 * i] = (uint16_t)(i / n->N);
        cell[2 * i + 1] = (uint16_t)(i % n->N);
    }
    for (size_t i = 0; i < n->M * n->N / 4; i++) {
        size_t a = dump_random(&seed) % (n->M * n->N), b = dump_random(&seed) % (n->M * n->N);
        for (size_t c = 0; c < 2; c++) {
            uint16_t keep = cell[2 * a + c];
            cell[2 * a + c] = cell[2 * b + c];
            cell[2 * b + c] = keep;
        }
    }

    struct br_frb_grid_params params = {.nchannels = n->F,
                                        .npol = n->P,
                                        .ndishes = n->D,
                                        .grid_m = (unsigned)n->M,
                                        .grid_n = (unsigned)n->N,
                                        .dish_cell = cell,
                                        .weights = n->WF ? w : NULL,
                                        .weight_channels = n->WF,
                                        .downsample = (unsigned)n->downsample,
                                        .threshold = n->threshold};
    params.log2_scale = br_frb_grid_log2_scale(&params);
    struct br_frb_grid *plan;
    struct br_why why;
    if (br_frb_grid_create(&plan, backend, &params, &why) != 0) {
        fprintf(stderr, "%s\n", why.text);
        exit(1);
    }
    size_t done = 0, at = 0;
    br_frb_grid_begin(plan, (unsigned)n->phase);
    while (at < n->T) { /* in calls of 17 samples */
        size_t call = n->T - at < 17 ? n->T - at : 17, taken;
        done +=
            br_frb_grid_execute(plan, e + at * row, row, n->missing ? valid + at * n->F : NULL, n->F, call,
                                blocks, out + done * cells, blocks, out_valid + done, blocks, &taken);
        at += taken;
    }
    if (done < blocks) br_frb_grid_flush(plan, out + done * cells, blocks, out_valid + done, blocks);
    br_frb_grid_destroy(plan);

    char name[64];
    int64_t numbers[4] = {(int64_t)n->downsample, (int64_t)n->phase, params.log2_scale,
                          (int64_t)(n->threshold * 1000)};
    snprintf(name, sizeof name, "%s_%s", n->name, backend == BR_REFERENCE ? "reference" : "cpu");
    dump_array(directory, name, "e", "|u1", e, 4, (size_t[]){n->T, n->F, n->P, n->D});
    dump_array(directory, name, "valid", "|u1", valid, 2, (size_t[]){n->T, n->F});
    dump_array(directory, name, "cell", "<u2", cell, 2, (size_t[]){n->D, 2});
    dump_array(directory, name, "grid", "<i8", (int64_t[]){(int64_t)n->M, (int64_t)n->N}, 1, (size_t[]){2});
    dump_array(directory, name, "weights", "<c8", w, 3, (size_t[]){n->WF, n->P, n->D});
    dump_array(directory, name, "numbers", "<i8", numbers, 1, (size_t[]){4});
    dump_array(directory, name, "out", "<f2", out, 4, (size_t[]){n->F, blocks, 2 * n->M, 2 * n->N});
    dump_array(directory, name, "out_valid", "|u1", out_valid, 2, (size_t[]){n->F, blocks});
    free(e);
    free(valid);
    free(out);
    free(out_valid);
    free(cell);
    free(w);
}

DUMP_MAIN(shapes, one)
