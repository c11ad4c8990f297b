/* The baseband beamformer, and the power of its beams, beside OpenBLAS's single-precision complex product of
 * the same size. */
#include "kernels/baseband/power.h"
#include "tools/bench/bench.h"

#include <cblas.h>
#include <complex.h>
#include <stdio.h>
#include <stdlib.h>

/* CHORD: 512 dishes, 96 beams; a few channels are enough, every one is the same work. */
enum { T = 1024, F = 2, P = 2, D = 512, B = 96, INTEGRATE = 64 };

struct baseband_bench {
    struct br_baseband *plan;
    uint8_t *e, *out;
    float complex *field, *weights, *beams; /* one channel and polarisation */
};

static void beamring(void *arg)
{
    struct baseband_bench *b = arg;
    br_baseband_execute(b->plan, b->e, NULL, T, b->out, NULL, NULL);
}

static void beamring_power(void *arg)
{
    struct baseband_bench *b = arg;
    static uint8_t valid[F * T / INTEGRATE];
    size_t taken, blocks = T / INTEGRATE;
    br_baseband_power(b->plan, b->e, NULL, T, blocks, (uint16_t *)(void *)b->out, blocks, valid, blocks,
                      &taken);
}

static void blas(void *arg)
{
    struct baseband_bench *b = arg;
    const float complex one = 1, zero = 0;
    for (int i = 0; i < F * P; i++)
        cblas_cgemm(CblasRowMajor, CblasNoTrans, CblasTrans, T, B, D, &one, b->field, D, b->weights, D, &zero,
                    b->beams, B);
}

/* `integrate` as in br_baseband_params. */
static int bench(unsigned integrate, const char *name)
{
    struct baseband_bench b = {0};
    int8_t *weights = bench_alloc((size_t)P * B * D * 2);
    int32_t *shift = bench_alloc((size_t)P * B * sizeof *shift);
    b.e = bench_alloc((size_t)T * F * P * D);
    b.out = bench_alloc((size_t)B * F * P * T);
    b.field = bench_alloc((size_t)T * D * sizeof *b.field);
    b.weights = bench_alloc((size_t)B * D * sizeof *b.weights);
    b.beams = bench_alloc((size_t)T * B * sizeof *b.beams);
    for (size_t i = 0; i < (size_t)T * F * P * D; i++) b.e[i] = (uint8_t)(bench_random() >> 24);
    for (size_t i = 0; i < (size_t)P * B * D * 2; i++)
        weights[i] = (int8_t)((int)(bench_random() >> 8) % 255 - 127);
    for (size_t i = 0; i < (size_t)P * B; i++) shift[i] = 11;
    for (size_t i = 0; i < (size_t)T * D; i++) b.field[i] = (float)(i % 15) - 7 + ((float)(i % 13) - 6) * I;
    for (size_t i = 0; i < (size_t)B * D; i++) b.weights[i] = weights[2 * i] + weights[2 * i + 1] * I;

    const struct br_baseband_params params = {.nchannels = F,
                                              .npol = P,
                                              .nbeams = B,
                                              .ndishes = D,
                                              .weights = weights,
                                              .shift = shift,
                                              .weight_channels = 1,
                                              .integrate = integrate};
    struct br_why why;
    if (br_baseband_create(&b.plan, BR_CPU, &params, &why) != 0) {
        fprintf(stderr, "bench baseband: %s\n", why.text);
        return 1;
    }
    openblas_set_num_threads(1);
    double ours, theirs;
    bench_pair(integrate > 0 ? beamring_power : beamring, &b, blas, &b, 5, &ours, &theirs);
    double products = (double)T * F * P * D * B;
    int shorts = bench_report(name, products / ours / 1e9, "G complex products/s",
                              "OpenBLAS cgemm, one thread", theirs / ours, 2, 1);
    br_baseband_destroy(b.plan);
    return shorts;
}

int bench_baseband(void)
{
    return bench(0, "baseband, 512 dishes, 96 beams");
}

int bench_power_beams(void)
{
    return bench(INTEGRATE, "power_beams, 512 dishes, 96 beams");
}
