/* beams_run.h - FRB stage 2: cases by chance, for its tests on the CPU and on a GPU. */
#ifndef BEAMRING_TESTS_KERNELS_FRB_BEAMS_BEAMS_RUN_H
#define BEAMRING_TESTS_KERNELS_FRB_BEAMS_BEAMS_RUN_H

#include "buffers/half.h"
#include "kernels/frb_beams/frb_beams.h"
#include "tests/kernels/common/draws.h"

#include <math.h>

struct run {
    size_t T, F, cells;
    size_t off; /* values by which in and out are moved from their alignment, even; set by who wants it */
    double *freq, *beam; /* [F]; [beams][2] */
    uint16_t *in;        /* [F][T][cells] */
    uint8_t *valid;      /* [F][T] or NULL */
    struct br_frb_beams_params params;
};

/* Free with finish. bx = 0: `by` beams in arbitrary directions. */
static inline struct run make(size_t T, size_t F, size_t M, size_t N, size_t bx, size_t by, int missing)
{
    struct run r = {.T = T, .F = F, .cells = 4 * M * N};
    size_t B = bx ? bx * by : by;
    r.freq = malloc(F * sizeof *r.freq);
    r.beam = malloc(B * 2 * sizeof *r.beam);
    r.in = malloc(F * T * r.cells * sizeof *r.in);
    r.valid = missing ? malloc(F * T) : NULL;
    for (size_t f = 0; f < F; f++) r.freq[f] = 400 + 400 * uniform();
    for (size_t b = 0; b < B; b++)
        for (int c = 0; c < 2; c++) {
            size_t same = c == 0 ? b / by * by : b % by; /* the beam that has this coordinate too */
            r.beam[2 * b + (size_t)c] = bx && same != b ? r.beam[2 * same + (size_t)c] : uniform() - 0.5;
        }
    for (size_t i = 0; i < F * T * r.cells; i++) r.in[i] = br_half_from_float((float)(2000 * uniform()));
    for (size_t i = 0; missing && i < F * T; i++) {
        r.valid[i] = (uint8_t)(pick(0, 2) ? pick(1, 255) : 0);
        if (!r.valid[i]) memset(r.in + i * r.cells, 0xff, r.cells * sizeof *r.in); /* must not be looked at */
    }
    r.params = (struct br_frb_beams_params){.nchannels = F,
                                            .freq_mhz = r.freq,
                                            .grid_m = (unsigned)M,
                                            .grid_n = (unsigned)N,
                                            .spacing_m_m = -8.5, /* of an upper sideband */
                                            .spacing_n_m = 6.3,
                                            .nbeams = B,
                                            .beam = r.beam,
                                            .beams_x = bx,
                                            .beams_y = bx ? by : 0,
                                            .max_steps = T};
    return r;
}

/* Beams of the output: with the incoherent sum behind them. */
static inline size_t beams_out(const struct run *r)
{
    return r->params.nbeams + (r->params.incoherent == BR_INCOHERENT_APPEND);
}

/* Executes all of a run by parts, as beams that are steered within a frame are formed. */
static inline void execute_by_parts(struct br_frb_beams *plan, const struct run *r, const uint16_t *in,
                                    uint16_t *out)
{
    for (size_t at = 0, count; at < r->T; at += count) {
        count = pick(1, r->T - at);
        br_frb_beams_execute_steps(plan, in, r->valid, r->T, at, count, out);
    }
}

/* The mean over the map beside the beams, and off them: beams are the same bits as without it. `how` computes
 * all of a run. Returns what is wrong, or NULL. */
static inline const char *incoherent_is_wrong(struct run *r, uint16_t *(*how)(const struct run *r))
{
    size_t B = r->params.nbeams;
    const char *wrong = NULL;
    r->params.incoherent = BR_INCOHERENT_NONE;
    uint16_t *none = how(r);
    r->params.incoherent = BR_INCOHERENT_APPEND;
    uint16_t *append = how(r);
    r->params.incoherent = BR_INCOHERENT_SUBTRACT;
    uint16_t *subtract = how(r);
    for (size_t k = 0; k < r->F * r->T; k++) {
        double mean = 0;
        if (r->valid == NULL || r->valid[k])
            for (size_t i = 0; i < r->cells; i++)
                mean += (double)br_half_to_float(r->in[k * r->cells + i]) / (double)r->cells;
        double got = (double)br_half_to_float(append[k * (B + 1) + B]);
        if (memcmp(none + k * B, append + k * (B + 1), B * sizeof *none) != 0) wrong = "a beam has changed";
        if (fabs(got - mean) > 0x1p-11 * mean + 1e-5 * mean) wrong = "the incoherent sum";
        for (size_t b = 0; b < B; b++) {
            double less = (double)br_half_to_float(none[k * B + b]) - mean;
            got = (double)br_half_to_float(subtract[k * B + b]);
            if (fabs(got - less) > 0x1p-11 * fabs(less) + 1e-5 * mean) wrong = "what it was subtracted from";
        }
    }
    free(none);
    free(append);
    free(subtract);
    r->params.incoherent = BR_INCOHERENT_NONE;
    return wrong;
}

static inline void finish(struct run *r)
{
    free(r->freq);
    free(r->beam);
    free(r->in);
    free(r->valid);
}

/* Sums beyond float16, one of them negative, which intensities never are. */
static inline void overflow(struct run *r)
{
    for (size_t i = 0; i < r->cells; i++) r->in[i] = 0x7bff;
    r->in[0] = 0xfbff;
}

/* All outputs are finite, some the largest there is. */
static inline void check_overflow(const struct run *r, const uint16_t *out)
{
    int large = 0;
    for (size_t b = 0; b < r->params.nbeams; b++) {
        assert_true((out[b] & 0x7fff) <= 0x7bff);
        large += (out[b] & 0x7fff) == 0x7bff;
    }
    assert_true(large > 0);
}

#endif
