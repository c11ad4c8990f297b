/* The output of the quantizer with slow statistics for a sequence of blocks, for
 * tests/oracle/quantize_slow.py. */
#include "buffers/half.h"
#include "kernels/quantize/quantize.h"
#include "tests/kernels/common/dump.h"

#include <stdbool.h>

enum { BLOCKS = 40, STEP_AT = 22, BURST_AT = 12 };

struct shape {
    const char *name;
    size_t F, B, T, stride;
    unsigned bits;
    double levels_rms, follow, mean, spread;
    int missing; /* per cent */
};

static const struct shape shapes[] = {
    {"eight", 3, 70, 64, 64, 8, 3, 650, 5, 1, 0},
    {"eight_missing", 4, 9, 64, 71, 8, 3, 510, 1000, 30, 40},
    {"four", 3, 33, 256, 256, 4, 2.5, 2500, 5, 1, 0},
    {"four_missing", 3, 260, 32, 40, 4, 2.5, 130, 5, 1, 20},
    {"short", 2, 20, 8, 8, 8, 3, 33, 5, 1, 30},
    {"uneven", 2, 5, 100, 100, 8, 3, 490, 20000, 700, 10},
};

/* Whether a channel is not there in block k: late ones, and one that goes away for long. */
static bool is_away(size_t f, size_t k)
{
    return (f == 1 && k < 3) || (f == 0 && k > 23 && k < 37);
}

/* Noise with a drift; from STEP_AT on another gain; a burst around BURST_AT; a beam that is constant at
 * first, a channel that is not there at first. */
static void fill(const struct shape *n, uint16_t *in, uint8_t *valid)
{
    uint64_t seed = n->B + n->T;
    for (size_t k = 0; k < BLOCKS; k++)
        for (size_t f = 0; f < n->F; f++)
            for (size_t t = 0; t < n->stride; t++) {
                size_t at = (k * n->F + f) * n->stride + t;
                double gain = (1 + 0.002 * (double)k) * (k >= STEP_AT ? 1.6 : 1);
                bool burst = k * n->T + t - BURST_AT * n->T - n->T / 2 < n->T;
                valid[at] =
                    (int)(dump_random(&seed) % 100) < n->missing || (n->missing && is_away(f, k)) ? 0 : 200;
                for (size_t b = 0; b < n->B; b++) {
                    double sum = 0;
                    for (int j = 0; j < 6; j++) sum += (double)(dump_random(&seed) >> 11) / 0x1p53;
                    double x = gain * (n->mean + n->spread * (sum - 3 + (burst ? (double)(b % 7) : 0)));
                    if (b == 2 && k < 4) x = n->mean;
                    in[at * n->B + b] = br_half_from_float((float)x);
                }
                if (!valid[at]) in[at * n->B] = 0x7c01;
            }
}

static void one(const char *directory, const struct shape *n, enum br_backend backend)
{
    size_t values = n->F * n->stride * n->B, bytes = n->B * n->F * n->T * n->bits / 8,
           cells = n->F * n->stride;
    uint16_t *in = malloc(BLOCKS * values * sizeof *in);
    uint8_t *valid = malloc(BLOCKS * cells), *out = malloc(BLOCKS * bytes);
    float *side = malloc(BLOCKS * n->B * n->F * 2 * sizeof *side);
    int64_t clamped[BLOCKS], numbers[1] = {n->bits};
    fill(n, in, valid);
    const struct br_quantize_params params = {.nchannels = n->F,
                                              .nbeams = n->B,
                                              .block = n->T,
                                              .bits = n->bits,
                                              .levels_rms = n->levels_rms,
                                              .follow = n->follow};
    struct br_quantize *plan;
    struct br_why why;
    if (br_quantize_create(&plan, backend, &params, &why) != 0) {
        fprintf(stderr, "%s\n", why.text);
        exit(1);
    }
    for (size_t k = 0; k < BLOCKS; k++)
        clamped[k] = (int64_t)br_quantize_execute(plan, in + k * values, n->stride,
                                                  n->missing ? valid + k * cells : NULL, out + k * bytes,
                                                  side + k * n->B * n->F * 2);
    br_quantize_destroy(plan);
    if (!n->missing) memset(valid, 200, BLOCKS * cells);

    char name[64];
    snprintf(name, sizeof name, "%s_%s", n->name, backend == BR_REFERENCE ? "reference" : "cpu");
    dump_array(directory, name, "in", "<f2", in, 4, (size_t[]){BLOCKS, n->F, n->stride, n->B});
    dump_array(directory, name, "valid", "|u1", valid, 3, (size_t[]){BLOCKS, n->F, n->stride});
    dump_array(directory, name, "bits", "<i8", numbers, 1, (size_t[]){1});
    dump_array(directory, name, "clamped", "<i8", clamped, 1, (size_t[]){BLOCKS});
    dump_array(directory, name, "levels_rms", "<f8", &n->levels_rms, 0, NULL);
    dump_array(directory, name, "follow", "<f8", &n->follow, 0, NULL);
    dump_array(directory, name, "out", "|u1", out, 4, (size_t[]){BLOCKS, n->B, n->F, n->T * n->bits / 8});
    dump_array(directory, name, "side", "<f4", side, 4, (size_t[]){BLOCKS, n->B, n->F, 2});
    free(in);
    free(valid);
    free(out);
    free(side);
}

DUMP_MAIN(shapes, one)
