/* What FRB stage 2 makes of seeded intensities, for tests/oracle/frb_beams.py. */
#include "buffers/half.h"
#include "kernels/frb_beams/frb_beams.h"
#include "tests/kernels/common/dump.h"

struct shape {
    const char *name;
    size_t T, F, M, N, bx, by; /* bx = 0: arbitrary directions */
    int missing;
};

static const struct shape shapes[] = {
    {"chord", 3, 2, 24, 24, 0, 100, 0},      {"chord_grid", 5, 2, 24, 24, 30, 20, 1},
    {"pathfinder", 30, 3, 8, 12, 0, 333, 1}, {"pathfinder_grid", 9, 4, 8, 12, 32, 32, 0},
    {"hirax", 130, 1, 16, 16, 0, 20, 0},     {"hirax_fan", 20, 1, 16, 16, 1, 70, 0},
    {"odd_grid", 7, 2, 3, 5, 50, 3, 1},      {"one_cell", 1, 1, 1, 1, 0, 1, 0},
};

static double uniform(uint64_t *seed)
{
    return (double)(dump_random(seed) >> 11) / 0x1p53;
}

static void one(const char *directory, const struct shape *n, enum br_backend backend)
{
    uint64_t seed = 3 + n->M * n->T;
    size_t cells = 4 * n->M * n->N, B = n->bx ? n->bx * n->by : n->by;
    uint16_t *in = malloc(n->F * n->T * cells * sizeof *in), *out = malloc(n->F * n->T * B * sizeof *out);
    uint8_t *valid = malloc(n->F * n->T);
    double *freq = malloc(n->F * sizeof *freq), *beam = malloc(B * 2 * sizeof *beam);
    double *xs = malloc(B * sizeof *xs), *ys = malloc(B * sizeof *ys);
    for (size_t i = 0; i < n->F * n->T * cells; i++)
        in[i] = br_half_from_float((float)(3000 * uniform(&seed)));
    for (size_t i = 0; i < n->F * n->T; i++) valid[i] = n->missing && dump_random(&seed) % 4 == 0 ? 0 : 200;
    for (size_t f = 0; f < n->F; f++) freq[f] = 300 + 1200 * uniform(&seed);
    for (size_t b = 0; b < B; b++) {
        xs[b] = uniform(&seed) - 0.5;
        ys[b] = uniform(&seed) - 0.5;
    }
    for (size_t b = 0; b < B; b++) {
        beam[2 * b] = xs[n->bx ? b / n->by : b];
        beam[2 * b + 1] = ys[n->bx ? b % n->by : b];
    }

    const double spacing[2] = {-8.5, 6.3}; /* a negative one has the other sign of theta */
    const struct br_frb_beams_params params = {.nchannels = n->F,
                                               .freq_mhz = freq,
                                               .grid_m = (unsigned)n->M,
                                               .grid_n = (unsigned)n->N,
                                               .spacing_m_m = spacing[0],
                                               .spacing_n_m = spacing[1],
                                               .nbeams = B,
                                               .beam = beam,
                                               .beams_x = n->bx,
                                               .beams_y = n->bx ? n->by : 0,
                                               .max_steps = n->T};
    struct br_frb_beams *plan;
    struct br_why why;
    if (br_frb_beams_create(&plan, backend, &params, &why) != 0) {
        fprintf(stderr, "%s\n", why.text);
        exit(1);
    }
    br_frb_beams_execute(plan, in, n->missing ? valid : NULL, n->T, out);
    br_frb_beams_destroy(plan);

    char name[64];
    snprintf(name, sizeof name, "%s_%s", n->name, backend == BR_REFERENCE ? "reference" : "cpu");
    dump_array(directory, name, "in", "<f2", in, 4, (size_t[]){n->F, n->T, 2 * n->M, 2 * n->N});
    dump_array(directory, name, "valid", "|u1", valid, 2, (size_t[]){n->F, n->T});
    dump_array(directory, name, "freq", "<f8", freq, 1, (size_t[]){n->F});
    dump_array(directory, name, "beam", "<f8", beam, 2, (size_t[]){B, 2});
    dump_array(directory, name, "spacing", "<f8", spacing, 1, (size_t[]){2});
    dump_array(directory, name, "out", "<f2", out, 3, (size_t[]){n->F, n->T, B});
    free(in);
    free(out);
    free(valid);
    free(freq);
    free(beam);
    free(xs);
    free(ys);
}

DUMP_MAIN(shapes, one)
