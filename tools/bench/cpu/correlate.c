/* The correlator beside OpenBLAS's single-precision product of the same matrices, which is what NumPy's
 * product of complex64 calls; one thread each. */
#include "kernels/correlate/correlate.h"
#include "tools/bench/bench.h"

#include <cblas.h>
#include <complex.h>
#include <stdio.h>
#include <stdlib.h>

enum { T = 2048 };

struct correlate_bench {
    struct br_correlate *plan;
    size_t inputs;
    uint8_t *e;
    int32_t *v;
    float complex *field, *product;
};

static void beamring(void *arg)
{
    struct correlate_bench *b = arg;
    br_correlate_add(b->plan, T, b->e, NULL, NULL);
    br_correlate_read(b->plan, b->v);
}

static void blas(void *arg)
{
    struct correlate_bench *b = arg;
    const float complex one = 1, zero = 0;
    int n = (int)b->inputs;
    cblas_cgemm(CblasRowMajor, CblasConjTrans, CblasNoTrans, n, n, T, &one, b->field, n, b->field, n, &zero,
                b->product, n);
}

static int measure(size_t inputs, double required)
{
    struct br_correlate_params p = {1, inputs, false, NULL};
    struct correlate_bench b = {.inputs = inputs};
    struct br_why why;
    char what[64];
    int shorts = 1;
    b.e = bench_alloc(T * inputs);
    b.v = bench_alloc(br_correlate_baselines(&p) * 2 * sizeof *b.v);
    b.field = bench_alloc(T * inputs * sizeof *b.field);
    b.product = bench_alloc(inputs * inputs * sizeof *b.product);
    if (br_correlate_create(&b.plan, BR_CPU, &p, &why) == 0) {
        double ours, theirs, products = (double)T * (double)br_correlate_baselines(&p);
        for (size_t i = 0; i < T * inputs; i++) {
            b.e[i] = (uint8_t)(bench_random() >> 24);
            b.field[i] = (float)(i % 15) - 7 + ((float)(i % 13) - 6) * I;
        }
        openblas_set_num_threads(1);
        bench_pair(beamring, &b, blas, &b, 5, &ours, &theirs);
        snprintf(what, sizeof what, "correlate, %zu inputs", inputs);
        shorts = bench_report(what, products / ours / 1e9, "G complex products/s",
                              "OpenBLAS cgemm, one thread", theirs / ours, required, 1);
    } else {
        fprintf(stderr, "bench correlate: %s\n", why.text);
    }
    br_correlate_destroy(b.plan);
    return shorts;
}

int bench_correlate(void)
{
    return measure(128, 2) + measure(1024, 2);
}
