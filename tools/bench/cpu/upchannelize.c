/* The filterbank beside FFTW's transforms alone: the same number of the same length, single precision,
 * measured plan, their input in order and in the cache, without taps, unpacking, quantisation or reordering.
 */
#include "kernels/upchannelize/upchannelize.h"
#include "tools/bench/bench.h"

#include <fftw3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pathfinder: 64 dishes of two polarisations, 16 channels of 390.625 kHz, each sampled every 2.56 us. */
enum { F = 16, X = 128, STEPS = 2048, TAPS = 4, HOWMANY = 256 };

static const double SAMPLE_SECONDS = 2.56e-6;

struct upchannelize_bench {
    struct br_upchannelize *plan;
    unsigned factor;
    uint8_t *e, *out, *out_valid;
    fftwf_complex *in, *spectrum; /* HOWMANY transforms */
    fftwf_plan fft;
};

static void beamring(void *arg)
{
    struct upchannelize_bench *b = arg;
    br_upchannelize_execute(b->plan, b->e, (size_t)F * X, NULL, 0, STEPS, b->out, b->out_valid);
}

static void transforms(void *arg)
{
    struct upchannelize_bench *b = arg;
    for (size_t i = 0; i < (size_t)F * X * STEPS / b->factor / HOWMANY; i++) fftwf_execute(b->fft);
}

static int bench_factor(struct upchannelize_bench *b, unsigned factor)
{
    const struct br_upchannelize_params params = {
        .nchannels = F, .nspectators = X, .factor = factor, .taps = TAPS};
    struct br_why why;
    int n = (int)factor;
    if (br_upchannelize_create(&b->plan, BR_CPU, &params, &why) != 0) {
        fprintf(stderr, "bench upchannelize: %s\n", why.text);
        return 1;
    }
    b->factor = factor;
    /* the vector index fastest, as the dishes are: FFTW works on several transforms at once too */
    b->fft = fftwf_plan_many_dft(1, &n, HOWMANY, b->in, NULL, HOWMANY, 1, b->spectrum, NULL, HOWMANY, 1,
                                 FFTW_FORWARD, FFTW_MEASURE);
    if (!b->fft) {
        fprintf(stderr, "bench upchannelize: FFTW has no plan for length %u\n", factor);
        br_upchannelize_destroy(b->plan);
        return 1;
    }
    memset(b->in, 0, sizeof *b->in * (size_t)factor * HOWMANY);
    double ours, theirs;
    char what[64];
    bench_pair(beamring, b, transforms, b, 5, &ours, &theirs);
    snprintf(what, sizeof what, "upchannelize, factor %u, %d taps", factor, TAPS);
    int shorts = bench_report(what, (double)F * X * STEPS / ours / 1e6, "M samples/s",
                              "FFTW's transforms alone", theirs / ours, 0, 1);
    snprintf(what, sizeof what, "  %.2f ms of a pathfinder's field", STEPS * SAMPLE_SECONDS * 1e3);
    shorts +=
        bench_report(what, ours * 1e3, "ms", "real time, one thread", STEPS * SAMPLE_SECONDS / ours, 0, 1);
    fftwf_destroy_plan(b->fft);
    br_upchannelize_destroy(b->plan);
    return shorts;
}

int bench_upchannelize(void)
{
    static const unsigned factors[] = {4, 16, 64, 128};
    struct upchannelize_bench b = {.e = bench_alloc((size_t)F * X * STEPS),
                                   .out = bench_alloc((size_t)F * X * STEPS),
                                   .out_valid = bench_alloc((size_t)F * STEPS),
                                   .in = bench_alloc(sizeof *b.in * 128 * HOWMANY),
                                   .spectrum = bench_alloc(sizeof *b.spectrum * 128 * HOWMANY)};
    int shorts = 0;
    for (size_t i = 0; i < (size_t)F * X * STEPS; i++) b.e[i] = (uint8_t)(bench_random() >> 24);
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) shorts += bench_factor(&b, factors[i]);
    return shorts;
}
