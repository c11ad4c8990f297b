/* The quantizer beside the least that anything could do with the same samples: turning them from [time][beam]
 * to [beam][time] as they are. One thread. */
#include "kernels/quantize/quantize.h"
#include "buffers/half.h"
#include "tools/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>

enum { F = 4, B = 1024, T = 256, TILE = 32 };

struct quantize_bench {
    struct br_quantize *plan;
    uint16_t *in, *transposed;
    uint8_t *out;
    float *side;
};

static void quantize(void *arg)
{
    struct quantize_bench *b = arg;
    br_quantize_execute(b->plan, b->in, T, NULL, b->out, b->side);
}

static void transpose(void *arg)
{
    struct quantize_bench *q = arg;
    for (size_t f = 0; f < F; f++)
        for (size_t b0 = 0; b0 < B; b0 += TILE)
            for (size_t t0 = 0; t0 < T; t0 += TILE)
                for (size_t b = b0; b < b0 + TILE; b++)
                    for (size_t t = t0; t < t0 + TILE; t++)
                        q->transposed[(b * F + f) * T + t] = q->in[(f * T + t) * B + b];
}

static int bench_bits(struct quantize_bench *b, unsigned bits)
{
    const struct br_quantize_params params = {
        .nchannels = F, .nbeams = B, .block = T, .bits = bits, .levels_rms = bits == 4 ? 2.5 : 16};
    struct br_why why;
    if (br_quantize_create(&b->plan, BR_CPU, &params, &why) != 0) {
        fprintf(stderr, "bench quantize: %s\n", why.text);
        return 1;
    }
    double ours, theirs;
    char what[96];
    bench_pair(quantize, b, transpose, b, 9, &ours, &theirs);
    snprintf(what, sizeof what, "quantize to %u bits, %d beams", bits, B);
    int shorts = bench_report(what, (double)F * B * T / ours / 1e6, "M/s", "turning the samples alone",
                              ours / theirs, 0, 0);
    br_quantize_destroy(b->plan);
    return shorts;
}

int bench_quantize(void)
{
    struct quantize_bench b = {.in = bench_alloc((size_t)F * B * T * sizeof *b.in),
                               .transposed = bench_alloc((size_t)F * B * T * sizeof *b.transposed),
                               .out = bench_alloc((size_t)F * B * T),
                               .side = bench_alloc((size_t)F * B * 2 * sizeof *b.side)};
    for (size_t i = 0; i < (size_t)F * B * T; i++)
        b.in[i] = br_half_from_float((float)(bench_random() >> 8) / 0x1p20f);
    return bench_bits(&b, 4) + bench_bits(&b, 8);
}
