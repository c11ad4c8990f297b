/* calibrate_run.h - seeded visibilities of a source, seen with gains, and the gains that come of them. */
#ifndef BEAMRING_TESTS_KERNELS_CALIBRATE_CALIBRATE_RUN_H
#define BEAMRING_TESTS_KERNELS_CALIBRATE_CALIBRATE_RUN_H

#include "kernels/calibrate/calibrate.h"
#include "tests/kernels/common/dump.h"

#include <math.h>

struct calibrate_case {
    const char *name;
    size_t inputs;
    double flux;      /* of the source, in units of an input's noise */
    double samples;   /* of each pair; 0: exact, without noise */
    unsigned missing; /* per cent of pairs without samples */
    bool uneven;      /* numbers of samples that differ */
};

static const struct calibrate_case calibrate_cases[] = {
    {"few", 4, 0.5, 1e6, 0, false},     {"exact", 9, 0.3, 0, 0, false},
    {"sixteen", 16, 0.1, 1e5, 0, true}, {"holes", 40, 0.2, 1e4, 20, true},
    {"bright", 30, 50, 1e4, 0, false},  {"pathfinder", 64, 0.02, 62500, 0, false},
    {"large", 110, 0.05, 5e3, 5, true},
};

struct calibrate_run {
    struct br_calibrate_params p;
    size_t pairs;
    double *sum, *samples, *truth; /* truth [n][2]: the receivers' gains */
    struct br_calibrate_result result;
};

/* A normal deviate: the sum of twelve uniform ones. */
static inline double calibrate_normal(uint64_t *seed)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += (double)(dump_random(seed) >> 11) / 9007199254740992.0;
    return sum;
}

static inline void calibrate_make(struct calibrate_run *r, const struct calibrate_case *c)
{
    size_t n = c->inputs;
    uint64_t seed = n * 77 + c->missing;
    *r = (struct calibrate_run){.p = {n, 5, 3, 0.3, 1 % n}, .pairs = n * (n + 1) / 2};
    r->sum = calloc(2 * r->pairs, sizeof *r->sum);
    r->samples = calloc(r->pairs, sizeof *r->samples);
    r->truth = calloc(2 * n, sizeof *r->truth);
    for (size_t i = 0; i < n; i++) {
        double amplitude = exp(0.3 * calibrate_normal(&seed)), phase = 3 * calibrate_normal(&seed);
        r->truth[2 * i] = amplitude * cos(phase);
        r->truth[2 * i + 1] = amplitude * sin(phase);
    }
    for (size_t i = 0; i < n; i++)
        for (size_t j = i; j < n; j++) {
            size_t k = br_calibrate_pair(n, i, j);
            const double *a = r->truth + 2 * i, *b = r->truth + 2 * j;
            double re = a[0] * b[0] + a[1] * b[1], im = a[1] * b[0] - a[0] * b[1];
            double norm = hypot(a[0], a[1]) * hypot(b[0], b[1]) * (1 + c->flux);
            double count = c->samples > 0 ? c->samples : 100;
            if (c->uneven && i != j) count *= 0.5 + (double)(dump_random(&seed) % 1000) / 1000;
            if (i != j && dump_random(&seed) % 100 < c->missing) count = 0;
            double error = i != j && c->samples > 0 && count > 0 ? norm / sqrt(2 * count) : 0;
            double power = i == j ? 1 + c->flux : c->flux;
            r->samples[k] = count;
            r->sum[2 * k] = count * (power * re + error * calibrate_normal(&seed));
            r->sum[2 * k + 1] = i == j ? 0 : count * (power * im + error * calibrate_normal(&seed));
        }
    r->result = (struct br_calibrate_result){.gain = calloc(2 * n, sizeof(double)),
                                             .gain_snr = calloc(n, sizeof(double)),
                                             .misfit = calloc(n, sizeof(double)),
                                             .flag = calloc(n, 1)};
}

static inline void calibrate_free(struct calibrate_run *r)
{
    free(r->sum);
    free(r->samples);
    free(r->truth);
    free(r->result.gain);
    free(r->result.gain_snr);
    free(r->result.misfit);
    free(r->result.flag);
}

#endif
