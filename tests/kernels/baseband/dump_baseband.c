/* The output of the baseband beamformer for seeded input, for tests/oracle/baseband.py. */
#include "kernels/baseband/baseband.h"
#include "tests/kernels/common/dump.h"

struct shape {
    const char *name;
    size_t T, F, P, D, B, WF;
    unsigned shift; /* shifts are this and up to 3 more */
    int missing;
};

static const struct shape shapes[] = {
    {"chord", 50, 2, 2, 512, 96, 2, 10, 0}, {"pathfinder", 100, 4, 2, 64, 10, 4, 8, 1},
    {"shared", 33, 5, 1, 100, 17, 1, 9, 0}, {"largest", 7, 1, 2, 1024, 128, 1, 10, 1},
    {"smallest", 1, 1, 1, 8, 1, 1, 0, 0},
};

static void one(const char *directory, const struct shape *n, enum br_backend backend)
{
    uint64_t seed = 77 + n->D;
    size_t input = n->T * n->F * n->P * n->D, beams = n->WF * n->P * n->B, output = n->B * n->F * n->P * n->T;
    uint8_t *e = malloc(input), *valid = malloc(n->T * n->F), *out = malloc(output),
            *out_valid = malloc(n->F * n->T);
    int8_t *weights = malloc(beams * n->D * 2);
    int32_t *shift = malloc(beams * sizeof *shift);
    uint64_t *saturated = calloc(n->B, sizeof *saturated);
    for (size_t i = 0; i < input; i++) e[i] = (uint8_t)dump_random(&seed);
    for (size_t i = 0; i < beams * n->D * 2; i++)
        weights[i] = (int8_t)((int)(dump_random(&seed) % 255) - 127);
    for (size_t i = 0; i < beams; i++)
        shift[i] = (int32_t)(n->shift + (n->shift ? dump_random(&seed) % 4 : 0));
    for (size_t i = 0; i < n->T * n->F; i++) {
        uint64_t draw = dump_random(&seed);
        valid[i] = n->missing && draw % 5 == 0   ? 0
                   : n->missing && draw % 7 == 0 ? (uint8_t)(1 + i % 254)
                                                 : 255;
    }

    const struct br_baseband_params params = {.nchannels = n->F,
                                              .npol = n->P,
                                              .nbeams = n->B,
                                              .ndishes = n->D,
                                              .weights = weights,
                                              .shift = shift,
                                              .weight_channels = n->WF};
    struct br_baseband *plan;
    struct br_why why;
    if (br_baseband_create(&plan, backend, &params, &why) != 0) {
        fprintf(stderr, "%s\n", why.text);
        exit(1);
    }
    br_baseband_execute(plan, e, n->missing ? valid : NULL, n->T, out, out_valid, saturated);
    br_baseband_destroy(plan);

    char name[64];
    snprintf(name, sizeof name, "%s_%s", n->name, backend == BR_REFERENCE ? "reference" : "cpu");
    dump_array(directory, name, "e", "|u1", e, 4, (size_t[]){n->T, n->F, n->P, n->D});
    dump_array(directory, name, "valid", "|u1", valid, 2, (size_t[]){n->T, n->F});
    dump_array(directory, name, "weights", "|i1", weights, 5, (size_t[]){n->WF, n->P, n->B, n->D, 2});
    dump_array(directory, name, "shift", "<i4", shift, 3, (size_t[]){n->WF, n->P, n->B});
    dump_array(directory, name, "out", "|u1", out, 4, (size_t[]){n->B, n->F, n->P, n->T});
    dump_array(directory, name, "out_valid", "|u1", out_valid, 2, (size_t[]){n->F, n->T});
    dump_array(directory, name, "saturated", "<i8", saturated, 1, (size_t[]){n->B});
    free(e);
    free(valid);
    free(out);
    free(out_valid);
    free(weights);
    free(shift);
    free(saturated);
}

DUMP_MAIN(shapes, one)
