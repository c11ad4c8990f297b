/* The FRB stages beside the libraries they are made of, with three telescopes' shapes: the grid beside the
 * FFTW transforms that it needs, and the beams beside OpenBLAS's product with all weights ready. One thread.
 */
#include "kernels/frb_beams/frb_beams.h"
#include "kernels/frb_grid/frb_grid.h"
#include "tools/bench/bench.h"

#include <cblas.h>
#include <fftw3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    const char *name;
    unsigned m, n, dishes;
    size_t bx, by; /* beams: as many arbitrary ones, and as a grid */
    size_t steps;  /* of the beams */
};

static const struct shape shapes[] = {
    {"chord", 24, 24, 512, 48, 48, 96},
    {"pathfinder", 8, 12, 64, 32, 32, 240},
    {"hirax", 16, 16, 256, 40, 40, 96},
};

enum { NPOL = 2, DOWNSAMPLE = 40, BLOCKS = 8, RUNS = 9 };

struct grid_bench {
    struct br_frb_grid *plan;
    size_t row, samples;
    uint8_t *e, valid[BLOCKS];
    uint16_t *out;
    fftwf_complex *field, *rows, *sky;
    fftwf_plan along_n, along_m;
};

static void grid(void *arg)
{
    struct grid_bench *b = arg;
    size_t taken;
    br_frb_grid_execute(b->plan, b->e, b->row, NULL, 0, b->samples, BLOCKS, b->out, BLOCKS, b->valid, BLOCKS,
                        &taken);
}

static void transforms(void *arg)
{
    struct grid_bench *b = arg;
    for (size_t i = 0; i < b->samples * NPOL; i++) {
        fftwf_execute(b->along_n);
        fftwf_execute(b->along_m);
    }
}

void bench_place_dishes(unsigned m, unsigned n, unsigned dishes, uint16_t (*cell)[2])
{
    unsigned d = 0, columns = dishes == 512 ? 22 : dishes == 64 ? 11 : n;
    for (unsigned i = 0; i < m && d < dishes; i++) {
        unsigned edge = dishes != 512 ? 0 : i == 0 || i == m - 1 ? 3 : i == 1 || i == m - 2 ? 1 : 0;
        for (unsigned j = edge; j < columns - edge && d < dishes; j++, d++) {
            cell[d][0] = (uint16_t)i;
            cell[d][1] = (uint16_t)j;
        }
    }
}

static int bench_grid(const struct shape *s)
{
    static uint16_t cell[512][2];
    static float weights[NPOL * 512 * 2];
    int M = (int)s->m, N = (int)s->n;
    size_t cells = (size_t)4 * s->m * s->n;
    struct grid_bench b = {.row = NPOL * s->dishes, .samples = DOWNSAMPLE * BLOCKS};
    bench_place_dishes(s->m, s->n, s->dishes, cell);
    for (size_t i = 0; i < NPOL * s->dishes * 2; i++) weights[i] = (float)(bench_random() >> 24) / 256;
    struct br_frb_grid_params params = {.nchannels = 1,
                                        .npol = NPOL,
                                        .ndishes = s->dishes,
                                        .grid_m = s->m,
                                        .grid_n = s->n,
                                        .dish_cell = &cell[0][0],
                                        .weights = weights,
                                        .weight_channels = 1,
                                        .downsample = DOWNSAMPLE,
                                        .threshold = 0.5};
    params.log2_scale = br_frb_grid_log2_scale(&params);
    struct br_why why;
    b.e = bench_alloc(b.samples * b.row);
    b.out = bench_alloc(BLOCKS * cells * sizeof *b.out);
    b.field = bench_alloc(cells * sizeof *b.field);
    b.rows = bench_alloc(cells * sizeof *b.rows);
    b.sky = bench_alloc(cells * sizeof *b.sky);
    if (br_frb_grid_create(&b.plan, BR_CPU, &params, &why) != 0) {
        fprintf(stderr, "bench frb_grid: %s\n", why.text);
        return 1;
    }
    for (size_t i = 0; i < b.samples * b.row; i++) b.e[i] = (uint8_t)(bench_random() >> 24);
    /* M transforms of length 2N, then 2N of length 2M */
    b.along_n = fftwf_plan_many_dft(1, (int[]){2 * N}, M, b.field, NULL, 1, 2 * N, b.rows, NULL, 2 * M, 1,
                                    FFTW_BACKWARD, FFTW_ESTIMATE);
    b.along_m = fftwf_plan_many_dft(1, (int[]){2 * M}, 2 * N, b.rows, NULL, 1, 2 * M, b.sky, NULL, 1, 2 * M,
                                    FFTW_BACKWARD, FFTW_ESTIMATE);
    memset(b.field, 0, cells * sizeof *b.field);
    memset(b.rows, 0, cells * sizeof *b.rows);
    double ours, theirs;
    bench_pair(grid, &b, transforms, &b, RUNS, &ours, &theirs);
    char what[96];
    snprintf(what, sizeof what, "frb_grid, %s %ux%u, %u dishes", s->name, s->m, s->n, s->dishes);
    int shorts = bench_report(what, ours / (double)(b.samples * NPOL) * 1e6, "us/sample",
                              "the FFTW transforms alone", ours / theirs, 1.3, 0);
    br_frb_grid_destroy(b.plan);
    fftwf_destroy_plan(b.along_n);
    fftwf_destroy_plan(b.along_m);
    return shorts;
}

struct beams_bench {
    struct br_frb_beams *plan;
    size_t steps, np, nq, bx, by; /* bx = 0: `by` arbitrary beams */
    uint16_t *in, *out;
    float *grid, *weights, *middle, *beams;
};

static void beams(void *arg)
{
    struct beams_bench *b = arg;
    br_frb_beams_execute(b->plan, b->in, NULL, b->steps, b->out);
}

static void multiply(size_t rows, size_t columns, size_t depth, const float *x, const float *y, float *z)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)rows, (blasint)columns, (blasint)depth, 1,
                x, (blasint)depth, y, (blasint)columns, 0, z, (blasint)columns);
}

static void products(void *arg)
{
    struct beams_bench *b = arg;
    if (b->bx == 0) {
        multiply(b->steps, b->by, b->np * b->nq, b->grid, b->weights, b->beams);
        return;
    }
    multiply(b->steps * b->np, b->by, b->nq, b->grid, b->weights, b->middle);
    for (size_t t = 0; t < b->steps; t++)
        multiply(b->bx, b->by, b->np, b->weights, b->middle + t * b->np * b->by,
                 b->beams + t * b->bx * b->by);
}

static float *random_floats(size_t count)
{
    float *values = bench_alloc(count * sizeof *values);
    for (size_t i = 0; i < count; i++) values[i] = (float)(bench_random() >> 24);
    return values;
}

static int bench_beams(const struct shape *s, int factorizable)
{
    size_t nbeams = s->bx * s->by, cells = (size_t)4 * s->m * s->n;
    struct beams_bench b = {.steps = s->steps,
                            .np = 2 * s->m,
                            .nq = 2 * s->n,
                            .bx = factorizable ? s->bx : 0,
                            .by = factorizable ? s->by : nbeams};
    const double freq = 600;
    double *direction = bench_alloc(nbeams * 2 * sizeof *direction);
    b.in = bench_alloc(b.steps * cells * sizeof *b.in);
    b.out = bench_alloc(b.steps * nbeams * sizeof *b.out);
    b.grid = random_floats(b.steps * cells);
    b.weights = random_floats(factorizable ? cells + s->bx * b.np + s->by * b.nq : cells * nbeams);
    b.middle = random_floats(b.steps * b.np * s->by);
    b.beams = random_floats(b.steps * nbeams);
    struct br_why why;
    for (size_t i = 0; i < b.steps * cells; i++) b.in[i] = (uint16_t)(0x3c00 + (bench_random() >> 24));
    for (size_t i = 0; i < nbeams; i++) {
        direction[2 * i] = ((double)(i / s->by) / (double)s->bx - 0.5) / 3;
        direction[2 * i + 1] = ((double)(i % s->by) / (double)s->by - 0.5) / 3;
    }
    const struct br_frb_beams_params params = {.nchannels = 1,
                                               .freq_mhz = &freq,
                                               .grid_m = s->m,
                                               .grid_n = s->n,
                                               .spacing_m_m = 8.5,
                                               .spacing_n_m = 6.3,
                                               .nbeams = nbeams,
                                               .beam = direction,
                                               .beams_x = factorizable ? s->bx : 0,
                                               .beams_y = factorizable ? s->by : 0,
                                               .max_steps = b.steps};
    if (br_frb_beams_create(&b.plan, BR_CPU, &params, &why) != 0) {
        fprintf(stderr, "bench frb_beams: %s\n", why.text);
        return 1;
    }
    double ours, theirs, operations = 2.0 * (double)b.steps * (double)(b.np * b.nq * b.by);
    if (factorizable) operations += 2.0 * (double)b.steps * (double)(b.np * b.bx * b.by);
    bench_pair(beams, &b, products, &b, RUNS, &ours, &theirs);
    char what[96];
    snprintf(what, sizeof what, "frb_beams, %s, %zu beams%s, %zu steps", s->name, nbeams,
             factorizable ? " on a grid" : "", s->steps);
    int shorts =
        bench_report(what, operations / ours / 1e9, "Gflop/s", "OpenBLAS sgemm", theirs / ours, 0.8, 1);
    br_frb_beams_destroy(b.plan);
    return shorts;
}

int bench_frb_grid(void)
{
    int shorts = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) shorts += bench_grid(&shapes[i]);
    return shorts;
}

int bench_frb_beams(void)
{
    int shorts = 0;
    openblas_set_num_threads(1);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        shorts += bench_beams(&shapes[i], 0);
        shorts += bench_beams(&shapes[i], 1);
    }
    return shorts;
}
