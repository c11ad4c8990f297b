/* The quantizer's output for seeded intensities, for tests/oracle/quantize.py. */
#include "buffers/half.h"
#include "kernels/quantize/quantize.h"
#include "tests/kernels/common/dump.h"

struct shape {
    const char *name;
    size_t F, B, T, stride;
    unsigned bits;
    double levels_rms, mean, spread;
    int missing; /* per cent */
};

static const struct shape shapes[] = {
    {"four", 5, 33, 256, 256, 4, 2.5, 0, 1, 0},        {"four_missing", 4, 300, 100, 111, 4, 2.5, 3, 0.5, 30},
    {"eight", 3, 70, 256, 300, 8, 16, 20000, 1000, 0}, {"eight_missing", 6, 9, 77, 77, 8, 16, 1000, 1, 60},
    {"clamped", 2, 20, 64, 64, 8, 200, 5, 1, 10},      {"clamped_four", 2, 20, 64, 64, 4, 9, 5, 1, 0},
    {"constant", 3, 4, 50, 50, 8, 16, 123.4, 0, 20},   {"shortest", 2, 3, 2, 2, 4, 1, 0, 1, 50},
};

static void one(const char *directory, const struct shape *n, enum br_backend backend)
{
    uint64_t seed = n->B;
    size_t values = n->F * n->stride * n->B, bytes = n->B * n->F * n->T * n->bits / 8;
    uint16_t *in = malloc(values * sizeof *in);
    uint8_t *valid = malloc(n->F * n->stride), *out = malloc(bytes);
    float *side = malloc(n->B * n->F * 2 * sizeof *side);
    for (size_t i = 0; i < values; i++) {
        double sum = 0;
        for (int j = 0; j < 6; j++) sum += (double)(dump_random(&seed) >> 11) / 0x1p53;
        in[i] = br_half_from_float((float)(n->mean + n->spread * (sum - 3)));
    }
    for (size_t i = 0; i < n->F * n->stride; i++) {
        valid[i] = (int)(dump_random(&seed) % 100) < n->missing ? 0 : 100;
        if (i < n->stride && n->missing) valid[i] = 0; /* the first channel has none */
        if (!valid[i]) in[i * n->B] = 0x7c01;
    }
    const struct br_quantize_params params = {
        .nchannels = n->F, .nbeams = n->B, .block = n->T, .bits = n->bits, .levels_rms = n->levels_rms};
    struct br_quantize *plan;
    struct br_why why;
    if (br_quantize_create(&plan, backend, &params, &why) != 0) {
        fprintf(stderr, "%s\n", why.text);
        exit(1);
    }
    int64_t numbers[2] = {
        n->bits, (int64_t)br_quantize_execute(plan, in, n->stride, n->missing ? valid : NULL, out, side)};
    br_quantize_destroy(plan);

    char name[64];
    snprintf(name, sizeof name, "%s_%s", n->name, backend == BR_REFERENCE ? "reference" : "cpu");
    dump_array(directory, name, "in", "<f2", in, 3, (size_t[]){n->F, n->stride, n->B});
    dump_array(directory, name, "valid", "|u1", valid, 2, (size_t[]){n->F, n->stride});
    dump_array(directory, name, "numbers", "<i8", numbers, 1, (size_t[]){2});
    dump_array(directory, name, "levels_rms", "<f8", &n->levels_rms, 0, NULL);
    dump_array(directory, name, "out", "|u1", out, 3, (size_t[]){n->B, n->F, n->T * n->bits / 8});
    dump_array(directory, name, "side", "<f4", side, 3, (size_t[]){n->B, n->F, 2});
    free(in);
    free(valid);
    free(out);
    free(side);
}

DUMP_MAIN(shapes, one)
