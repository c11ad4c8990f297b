/* filterbank.h - random streams for the filterbank, and its equation, written out here once more and
 * unrounded, so that ties can be told. Include after cmocka.h. */
#ifndef BEAMRING_TESTS_KERNELS_UPCHANNELIZE_FILTERBANK_H
#define BEAMRING_TESTS_KERNELS_UPCHANNELIZE_FILTERBANK_H

#include "kernels/upchannelize/upchannelize.h"
#include "tests/kernels/common/draws.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline int part(unsigned byte, int imaginary)
{
    int value = (int)(imaginary ? byte >> 4 : byte & 15);
    return value > 7 ? value - 16 : value;
}

/* One stream: e [blocks U][row], valid [blocks U][valid_row]. */
struct stream {
    size_t F, X, U, M, blocks, row, valid_row;
    uint8_t *e, *valid;
    double *window, *gain; /* NULL: defaults */
    bool portable;         /* on a GPU: the kernels for any */
};

static inline struct stream make(size_t F, size_t X, size_t U, size_t M, size_t blocks)
{
    struct stream s = {.F = F, .X = X, .U = U, .M = M, .blocks = blocks, .row = F * X, .valid_row = F};
    s.e = malloc(blocks * U * s.row + 1);
    for (size_t i = 0; i < blocks * U * s.row; i++) {
        /* the sum of three: most outputs in range, some clamped */
        int re = (int)pick(0, 4) + (int)pick(0, 4) + (int)pick(0, 4) - 6, im = (int)pick(0, 15) - 8;
        s.e[i] = (uint8_t)((re & 15) | (im & 15) << 4);
    }
    return s;
}

static inline void add_missing(struct stream *s, size_t one_in)
{
    s->valid = malloc(s->blocks * s->U * s->valid_row);
    for (size_t i = 0; i < s->blocks * s->U * s->valid_row; i++)
        s->valid[i] = (uint8_t)(pick(0, one_in) ? pick(1, 255) : 0);
}

/* Stretches of steps in which all inputs are there, a part of them, or none, by channel. */
static inline void add_stretches(struct stream *s)
{
    size_t T = s->blocks * s->U;
    s->valid = malloc(T * s->valid_row);
    for (size_t f = 0; f < s->valid_row; f++)
        for (size_t t = 0; t < T;) {
            uint64_t kind = pick(0, 9);
            uint8_t byte = (uint8_t)(kind < 5 ? 255 : kind < 9 ? pick(1, 254) : 0);
            for (size_t n = pick(1, 6 * s->U); n > 0 && t < T; n--, t++)
                s->valid[t * s->valid_row + f] = byte;
        }
}

static inline void drop(struct stream *s)
{
    free(s->e);
    free(s->valid);
    free(s->window);
    free(s->gain);
}

static inline struct br_upchannelize *plan_for(const struct stream *s, enum br_backend backend,
                                               struct br_cuda *cuda)
{
    const struct br_upchannelize_params params = {.nchannels = s->F,
                                                  .nspectators = s->X,
                                                  .factor = (unsigned)s->U,
                                                  .taps = (unsigned)s->M,
                                                  .window = s->window,
                                                  .gain = s->gain,
                                                  .cuda = cuda,
                                                  .portable = s->portable};
    struct br_upchannelize *plan;
    struct br_why why = {""};
    if (br_upchannelize_create(&plan, backend, &params, &why) != 0) fail_msg("%s", why.text);
    return plan;
}

/* out [blocks][F U][X], out_valid [blocks][F U], both with a guard byte */
struct result {
    uint8_t *out, *out_valid;
    uint64_t clamped;
};

static inline size_t outputs(const struct stream *s)
{
    return s->blocks * s->F * s->U;
}

static inline void forget(struct result *r)
{
    free(r->out);
    free(r->out_valid);
}

/* The data mark exactly the samples that the validity calls missing. */
static inline void check_marks(const struct stream *s, const struct result *r)
{
    for (size_t o = 0; s->U > 1 && o < outputs(s); o++)
        for (size_t x = 0; x < s->X; x++) {
            uint8_t byte = r->out[o * s->X + x];
            if (r->out_valid[o] ? (byte & 15) == 8 || byte >> 4 == 8 : byte != 0x88)
                fail_msg("U=%zu M=%zu X=%zu: output %zu is 0x%02x, its validity %u", s->U, s->M, s->X, o,
                         byte, r->out_valid[o]);
        }
}

static inline void assert_same(const struct stream *s, const struct result *a, const struct result *b)
{
    assert_memory_equal(a->out_valid, b->out_valid, outputs(s));
    assert_memory_equal(a->out, b->out, outputs(s) * s->X);
    assert_int_equal(a->clamped, b->clamped);
}

/* Three channels of five, any bytes, with missing samples, through a filterbank of factor 1: to be copied. */
static inline struct stream make_to_copy(void)
{
    struct stream s = make(3, 5, 1, 4, 40);
    for (size_t i = 0; i < 40 * 15; i++) s.e[i] = (uint8_t)dump_random(&seed);
    add_missing(&s, 3);
    return s;
}

static inline void check_copied(const struct stream *s, const struct result *r)
{
    assert_memory_equal(r->out, s->e, 40 * 15);
    for (size_t i = 0; i < 40 * 3; i++) assert_int_equal(r->out_valid[i], s->valid[i]);
    assert_int_equal(r->clamped, 0);
}

/* The two channels of a zone as channels 2 and 3 of a wider row of `row` bytes, with noise around them;
 * `spare` bytes may be read behind the last row. Free with drop_wide. */
static inline struct stream make_wide(const struct stream *zone, size_t row, size_t spare)
{
    struct stream wide = *zone;
    size_t X = zone->X, T = zone->blocks * zone->U;
    wide.row = row;
    wide.valid_row = 7;
    uint8_t *e = malloc(T * row + spare), *valid = malloc(T * wide.valid_row + spare);
    for (size_t i = 0; i < T * row + spare; i++) e[i] = (uint8_t)dump_random(&seed);
    for (size_t i = 0; i < T * wide.valid_row; i++) valid[i] = (uint8_t)(i % 3);
    for (size_t t = 0; t < T; t++) {
        memcpy(e + t * row + 2 * X, zone->e + t * 2 * X, 2 * X);
        memcpy(valid + t * wide.valid_row + 2, zone->valid + t * 2, 2);
    }
    wide.e = e + 2 * X;
    wide.valid = valid + 2;
    return wide;
}

static inline void drop_wide(struct stream *wide)
{
    free(wide->e - 2 * wide->X);
    free(wide->valid - 2);
}

/* The validity of output (b, f): 0 unless every sample that it needs is there, else their mean by the square
 * of the window, of 16 samples or U together. Unrounded; 255 only where all are. */
static inline double share(const struct stream *s, size_t b, size_t f)
{
    double window[32 * 128], sum = 0, all = 0;
    size_t length = s->M * s->U, part = s->U < 16 ? s->U : 16;
    bool whole = true;
    if (b + 1 < s->M) return 0;
    br_upchannelize_window(window, (unsigned)s->U, (unsigned)s->M);
    for (size_t k = 0; k < length; k += part) {
        double weight = 0, valid = 0;
        for (size_t i = k; i < k + part; i++) {
            size_t t = (b + 1 - s->M) * s->U + i;
            int byte = s->valid ? s->valid[t * s->valid_row + f] : 255;
            if (byte == 0) return 0;
            whole &= byte == 255;
            valid += byte;
            weight += s->window ? pow(s->window[i] * 1e38, 2) : pow(window[i], 2);
        }
        sum += weight * valid / (double)part;
        all += weight;
    }
    return whole ? 255 : sum / all;
}

static inline void check_share(int byte, double share)
{
    assert_int_equal(byte == 0, share <= 0);
    assert_int_equal(byte == 255, share >= 255);
    if (fabs(byte - share) > 1 + 1e-9) fail_msg("validity %d, expected %.3f", byte, share);
}

/* Every output of r against the equation; within `tie` of a half level it may be either neighbour. Returns
 * the share of levels (an output has two) that are what float64 rounds to. */
static inline double check_equation(const struct stream *s, const struct result *r, double tie)
{
    static const double pi = 3.14159265358979323846;
    size_t U = s->U, M = s->M, length = M * U;
    double *w = malloc(length * sizeof *w), *c_re = malloc(length * sizeof *c_re),
           *c_im = malloc(length * sizeof *c_im);
    uint64_t fewest = 0, most = 0, valid = 0, equal = 0;
    for (size_t t = 0; t < length; t++) {
        double y = ((double)t - ((double)length - 1) / 2) / ((double)length + 1), z = (double)M * y;
        w[t] = s->window ? s->window[t]
                         : pow(cos(pi * y), 2) * (z != 0 ? sin(pi * z) / (pi * z) : 1) / (double)U;
    }
    for (size_t u = 0; u < U; u++) {
        double gain = s->gain ? s->gain[u] : sqrt((double)U);
        for (size_t t = 0; t < length; t++) {
            double phase =
                pi * (double)t * (double)(U - 1) / (double)U - 2 * pi * (double)(u * t) / (double)U;
            c_re[t] = w[t] * cos(phase);
            c_im[t] = w[t] * sin(phase);
        }
        for (size_t b = 0; b < s->blocks; b++)
            for (size_t f = 0; f < s->F; f++) {
                size_t at = (b * s->F + f) * U + u;
                bool whole = share(s, b, f) > 0;
                if (u == 0 || u == U - 1) check_share(r->out_valid[at], share(s, b, f));
                assert_int_equal(r->out_valid[at], r->out_valid[at - u]);
                for (size_t x = 0; x < s->X; x++) {
                    if (!whole) {
                        assert_int_equal(r->out[at * s->X + x], 0x88);
                        continue;
                    }
                    double value[2] = {0, 0};
                    for (size_t t = 0; t < length; t++) {
                        unsigned e = s->e[((b + 1 - M) * U + t) * s->row + f * s->X + x];
                        value[0] += c_re[t] * part(e, 0) - c_im[t] * part(e, 1);
                        value[1] += c_re[t] * part(e, 1) + c_im[t] * part(e, 0);
                    }
                    for (int i = 0; i < 2; i++) {
                        double v = gain * value[i], inside = fmin(fmax(v, -7), 7);
                        int level = part(r->out[at * s->X + x], i);
                        if (fabs(level - inside) > 0.5 + tie)
                            fail_msg("U=%zu M=%zu block %zu channel %zu,%zu sample %zu: %d for %.6f", U, M, b,
                                     f, u, x, level, v);
                        fewest += fabs(v) > 7.5 + tie;
                        most += fabs(v) >= 7.5 - tie;
                        equal += level == (int)fmin(fmax(rint(v), -7), 7);
                    }
                    valid++;
                }
            }
    }
    if (r->clamped < fewest || r->clamped > most)
        fail_msg("U=%zu M=%zu: %zu clamped, expected %zu", U, M, (size_t)r->clamped, (size_t)fewest);
    if (!s->valid && s->blocks >= M) assert_true(valid > 0);
    free(w);
    free(c_re);
    free(c_im);
    return valid > 0 ? (double)equal / (double)(2 * valid) : 1;
}

/* A tone at fine channel `at` (which may lie between two), of which sample x of X has the phase 2 pi x / X,
 * as int4x2; gain 1. */
enum { TONE = 5 };

static inline void make_tone(struct stream *s, double at)
{
    static const double pi = 3.14159265358979323846;
    double cycles = (at - ((double)s->U - 1) / 2) / (double)s->U;
    for (size_t t = 0; t < s->blocks * s->U; t++)
        for (size_t x = 0; x < s->X; x++) {
            double phase = 2 * pi * (cycles * (double)t + (double)x / (double)s->X);
            int re = (int)lrint(TONE * cos(phase)), im = (int)lrint(TONE * sin(phase));
            s->e[t * s->row + x] = (uint8_t)((re & 15) | (im & 15) << 4);
        }
}

/* The last output of a tone against the analytic response of each fine channel, TONE sum_s W[s] e^{2 i pi (at
 * - u) s / U}, rotated by the samples' phases: every output must be it and what the filter makes of the
 * tone's own rounding to int4, rounded; and the response, averaged over the samples with their phases taken
 * off, comes near it without knowing of that. */
static inline void check_tone(const struct stream *s, const struct result *r, double at)
{
    static const double pi = 3.14159265358979323846;
    size_t U = s->U, length = s->M * U, b = s->blocks - 1, first = (b + 1 - s->M) * U;
    double *w = malloc(length * sizeof *w), cycles = (at - ((double)U - 1) / 2) / (double)U;
    br_upchannelize_window(w, (unsigned)U, (unsigned)s->M);
    for (size_t u = 0; u < U; u++) {
        double h_re = 0, h_im = 0, mean_re = 0, mean_im = 0;
        for (size_t t = 0; t < length; t++) {
            double phase = 2 * pi * (cycles * (double)first + (at - (double)u) * (double)t / (double)U);
            h_re += TONE * w[t] * cos(phase);
            h_im += TONE * w[t] * sin(phase);
        }
        for (size_t x = 0; x < s->X; x++) {
            unsigned out = r->out[(b * U + u) * s->X + x];
            double angle = 2 * pi * (double)x / (double)s->X, c = cos(angle), d = sin(angle),
                   re = part(out, 0), im = part(out, 1), want_re = h_re * c - h_im * d,
                   want_im = h_re * d + h_im * c;
            for (size_t t = 0; t < length; t++) {
                unsigned e = s->e[(first + t) * s->row + x];
                double tone = 2 * pi * cycles * (double)(first + t) + angle,
                       error_re = part(e, 0) - TONE * cos(tone), error_im = part(e, 1) - TONE * sin(tone),
                       phase = pi * (double)t * ((double)U - 1 - 2 * (double)u) / (double)U;
                want_re += w[t] * (error_re * cos(phase) - error_im * sin(phase));
                want_im += w[t] * (error_re * sin(phase) + error_im * cos(phase));
            }
            if (fabs(re - fmin(fmax(want_re, -7), 7)) > 0.51 || fabs(im - fmin(fmax(want_im, -7), 7)) > 0.51)
                fail_msg("U=%zu tone at %.1f, channel %zu: (%g, %g), expected (%.3f, %.3f)", U, at, u, re, im,
                         want_re, want_im);
            mean_re += (re * c + im * d) / (double)s->X;
            mean_im += (im * c - re * d) / (double)s->X;
        }
        /* the noise of both roundings over the samples; where all of them are rounded alike, at most half a
         * level */
        double far = hypot(mean_re - h_re, mean_im - h_im), level = hypot(h_re, h_im);
        if (far > (level > 1 ? 0.35 : 0.75))
            fail_msg("U=%zu tone at %.1f, channel %zu: response (%.3f, %.3f), expected (%.3f, %.3f)", U, at,
                     u, mean_re, mean_im, h_re, h_im);
    }
    free(w);
}

#endif
