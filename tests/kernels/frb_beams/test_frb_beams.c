/* FRB stage 2: the weights, the matrix products beside Eq. (6), and what must not change a bit of a result.
 */
#include <complex.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/common/closeness.h"
#include "tests/kernels/common/refused.h"
#include "tests/kernels/frb_beams/beams_run.h"

static uint16_t *compute(const struct run *r, enum br_backend backend)
{
    struct br_frb_beams *plan;
    struct br_why why;
    size_t count = r->F * r->T * beams_out(r);
    uint16_t *out = malloc((count + 1) * sizeof *out);
    memset(out, 0xee, (count + 1) * sizeof *out);
    if (br_frb_beams_create(&plan, backend, &r->params, &why) != 0) fail_msg("%s", why.text);
    br_frb_beams_execute(plan, r->in, r->valid, r->T, out);
    execute_by_parts(plan, r, r->in, out);
    assert_int_equal(out[count], 0xeeee);
    br_frb_beams_destroy(plan);
    return out;
}

/* To the normative tolerance. */
static void check(const struct run *r)
{
    size_t B = beams_out(r), count = r->F * r->T * B;
    uint16_t *a = compute(r, BR_CPU), *b = compute(r, BR_REFERENCE);
    struct closeness c = {0};
    closeness_add(&c, a, b, count, 0);
    for (size_t i = 0; i < count; i++)
        if (r->valid && !r->valid[i / B]) assert_true(a[i] == 0 && b[i] == 0);
    if (!closeness_suffices(&c))
        fail_msg("%ux%u, %zu beams (%zu x %zu), T %zu: relative rms error %g, worst %g, rms %g",
                 r->params.grid_m, r->params.grid_n, B, r->params.beams_x, r->params.beams_y, r->T,
                 closeness_error(&c), c.worst, closeness_rms(&c));
    free(a);
    free(b);
}

/* At theta = k / 2 the weights select direction k; elsewhere they agree with the closed form, Eq. (8). */
static void weights(void **state)
{
    (void)state;
    double u[2 * 24];
    for (unsigned n = 1; n <= 24; n++) {
        for (int k = -60; k <= 60; k++) {
            br_frb_beams_weights(u, n, 0.5 * k);
            int chosen = (k % (int)(2 * n) + (int)(2 * n)) % (int)(2 * n);
            for (int q = 0; q < (int)(2 * n); q++) assert_true(fabs(u[q] - (q == chosen)) < 1e-12);
        }
        double theta = 7 * uniform() - 3.5;
        br_frb_beams_weights(u, n, theta);
        for (unsigned q = 0; q < 2 * n; q++) {
            double x = M_PI * (2 * theta - q);
            assert_true(fabs(u[q] - sin(x) / tan(x / (2 * n)) / (2 * n)) < 1e-9);
        }
    }
}

/* The theorem that the two stages rest on: what they make together is the beam formed directly, Eqs. (2),
 * (3). */
static void equals_direct_beams(void **state)
{
    (void)state;
    enum { M = 4, N = 6, B = 9 };
    for (int backend = BR_REFERENCE; backend <= BR_CPU; backend++) {
        struct run r = make(1, 1, M, N, 0, B, 0);
        double complex field[M][N];
        double lambda = 299.792458 / r.freq[0];
        for (int i = 0; i < M * N; i++) field[i / N][i % N] = uniform() - 0.5 + I * (uniform() - 0.5);
        for (int p = 0; p < 2 * M; p++)
            for (int q = 0; q < 2 * N; q++) {
                double complex sum = 0;
                for (int i = 0; i < M * N; i++)
                    sum += field[i / N][i % N] *
                           cexp(2 * M_PI * I * (i / N * p / (2.0 * M) + i % N * q / (2.0 * N)));
                r.in[p * 2 * N + q] = br_half_from_float((float)(creal(sum * conj(sum))));
            }
        uint16_t *out = compute(&r, (enum br_backend)backend);
        for (int b = 0; b < B; b++) {
            double complex sum = 0;
            for (int i = 0; i < M * N; i++)
                sum += field[i / N][i % N] * cexp(2 * M_PI * I *
                                                  (i / N * r.beam[2 * b] * r.params.spacing_m_m +
                                                   i % N * r.beam[2 * b + 1] * r.params.spacing_n_m) /
                                                  lambda);
            double direct = creal(sum * conj(sum));
            assert_true(fabs((double)br_half_to_float(out[b]) - direct) < 0.02);
        }
        free(out);
        finish(&r);
    }
}

static void random_shapes(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        int grid = i % 2;
        struct run r = make(pick(1, 40), pick(1, 3), (unsigned)pick(1, 9), (unsigned)pick(1, 9),
                            grid ? pick(1, 9) : 0, grid ? pick(1, 9) : pick(1, 40), i % 3 == 0);
        check(&r);
        finish(&r);
    }
}

static uint16_t *on_the_cpu(const struct run *r)
{
    return compute(r, BR_CPU);
}

static void incoherent_sums(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        int grid = i % 2;
        struct run r = make(pick(1, 40), pick(1, 3), (unsigned)pick(1, 9), (unsigned)pick(1, 9),
                            grid ? pick(1, 9) : 0, grid ? pick(1, 9) : pick(1, 40), i % 3 == 0);
        const char *wrong = incoherent_is_wrong(&r, on_the_cpu);
        if (wrong) fail_msg("%s", wrong);
        for (int how = BR_INCOHERENT_NONE; how <= BR_INCOHERENT_SUBTRACT; how++) {
            r.params.incoherent = (enum br_frb_beams_incoherent)how;
            if (how != BR_INCOHERENT_SUBTRACT) check(&r);
        }
        finish(&r);
    }
}

/* By Parseval it is the sum of the dishes' powers. */
static void the_incoherent_sum_is_that_of_the_dishes(void **state)
{
    (void)state;
    enum { M = 3, N = 5 };
    for (int backend = BR_REFERENCE; backend <= BR_CPU; backend++) {
        struct run r = make(1, 1, M, N, 0, 4, 0);
        double complex field[M * N];
        double power = 0;
        r.params.incoherent = BR_INCOHERENT_APPEND;
        for (int i = 0; i < M * N; i++) {
            field[i] = i % 4 == 3 ? 0 : uniform() - 0.5 + I * (uniform() - 0.5); /* some cells have no dish */
            power += creal(field[i] * conj(field[i]));
        }
        for (int p = 0; p < 2 * M; p++)
            for (int q = 0; q < 2 * N; q++) {
                double complex sum = 0;
                for (int i = 0; i < M * N; i++)
                    sum += field[i] * cexp(M_PI * I * (i / N * p / (double)M + i % N * q / (double)N));
                r.in[p * 2 * N + q] = br_half_from_float((float)(creal(sum * conj(sum))));
            }
        uint16_t *out = compute(&r, (enum br_backend)backend);
        assert_true(fabs((double)br_half_to_float(out[4]) / power - 1) < 1e-3);
        free(out);
        finish(&r);
    }
}

/* More than one tile of steps, block of beams and depth of weights; both orders of the two-step product. */
static void larger_shapes(void **state)
{
    (void)state;
    static const size_t shape[6][5] = {{3, 24, 24, 0, 50},   {140, 2, 3, 0, 300}, {2, 1, 200, 0, 7},
                                       {20, 16, 16, 1, 100}, {20, 16, 16, 90, 2}, {17, 8, 12, 32, 32}};
    for (int i = 0; i < 6; i++) {
        struct run r = make(shape[i][0], 1, (unsigned)shape[i][1], (unsigned)shape[i][2], shape[i][3],
                            shape[i][4], i == 1);
        check(&r);
        finish(&r);
    }
}

/* Beams on, and just beside, directions of the grid, where the closed form of the weights is 0/0. */
static void degenerate_directions(void **state)
{
    (void)state;
    enum { B = 200 };
    struct run r = make(3, 1, 5, 8, 0, B, 0);
    for (size_t b = 0; b < B; b++) {
        double off = b % 5 == 0 ? 0 : (b % 2 ? -1 : 1) * pow(10, -(double)pick(3, 14));
        double lambda = 299.792458 / r.freq[0];
        r.beam[2 * b] = (0.5 * ((double)pick(0, 40) - 20) + off) * lambda / (5 * 8.5);
        r.beam[2 * b + 1] = (0.5 * ((double)pick(0, 40) - 20) - off) * lambda / (8 * 6.3);
    }
    check(&r);
    finish(&r);
}

/* A step's result is the same bits whatever else is computed with it. */
static void steps_are_independent(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        int grid = i % 2;
        size_t T = pick(1, 150), lone[4] = {0, T / 2, T - 1, pick(0, T - 1)};
        struct run r = make(T, 1, (unsigned)pick(1, 12), (unsigned)pick(1, 12), grid ? pick(1, 13) : 0,
                            grid ? pick(1, 13) : pick(1, 300), i % 3 == 0);
        uint16_t *all = compute(&r, BR_CPU);
        for (int j = 0; j < 4; j++) {
            struct run one = r;
            size_t length = j == 3 ? (T - lone[j] + 1) / 2 : 1; /* alone, or some */
            one.T = length;
            one.in += lone[j] * r.cells;
            if (one.valid) one.valid += lone[j];
            uint16_t *got = compute(&one, BR_CPU);
            assert_memory_equal(got, all + lone[j] * r.params.nbeams, length * r.params.nbeams * sizeof *got);
            free(got);
        }
        free(all);
        finish(&r);
    }
}

/* With very many beams and channels the weights are not kept: the same bits as with one channel, where they
 * are. */
static void weights_made_again(void **state)
{
    (void)state;
    struct run r = make(2, 30, 4, 4, 0, 20000, 0);
    uint16_t *all = compute(&r, BR_CPU);
    for (size_t f = 0; f < 30; f += 29) {
        struct run one = r;
        one.F = one.params.nchannels = 1;
        one.in += f * r.T * r.cells;
        one.params.freq_mhz += f;
        uint16_t *got = compute(&one, BR_CPU);
        assert_memory_equal(got, all + f * r.T * 20000, r.T * 20000 * sizeof *got);
        free(got);
    }
    free(all);
    finish(&r);
}

static void clamps(void **state)
{
    (void)state;
    struct run r = make(1, 1, 1, 2, 0, 30, 0);
    overflow(&r);
    for (int backend = BR_REFERENCE; backend <= BR_CPU; backend++) {
        uint16_t *out = compute(&r, (enum br_backend)backend);
        check_overflow(&r, out);
        free(out);
    }
    finish(&r);
}

static void bad_parameters(void **state)
{
    (void)state;
    struct run r = make(1, 3, 3, 4, 2, 5, 0);
    for (int backend = BR_REFERENCE; backend <= BR_CPU; backend++) {
        struct br_frb_beams *plan = (struct br_frb_beams *)&r;
        struct br_why why;
        struct br_frb_beams_params bad = r.params;
#define REFUSED(TEXT)                                                                                        \
    do {                                                                                                     \
        int status = br_frb_beams_create(&plan, (enum br_backend)backend, &bad, &why);                       \
        assert_refused(status, plan, &why, TEXT);                                                            \
        bad = r.params;                                                                                      \
    } while (0)
        bad.nbeams = 9;
        REFUSED("9 beams are not 2 x 5");
        bad.nbeams = 0;
        REFUSED("0 beams");
        bad.grid_n = 0;
        REFUSED("3 x 0");
        bad.spacing_m_m = 0;
        REFUSED("spacing");
        bad.spacing_n_m = NAN;
        REFUSED("spacing");
        double keep = r.freq[1];
        r.freq[1] = 0;
        REFUSED("channel 1 is at 0 MHz");
        r.freq[1] = keep;
        keep = r.beam[2 * 7];
        r.beam[2 * 7] = NAN;
        REFUSED("beam 7");
        r.beam[2 * 7] = keep + 1e-3;
        REFUSED("beam 7");
        r.beam[2 * 7] = keep;
        assert_int_equal(br_frb_beams_create(&plan, (enum br_backend)backend, &bad, &why), 0);
        br_frb_beams_destroy(plan);
    }
    br_frb_beams_destroy(NULL);
    finish(&r);
}

/* Beams steered within an execute, at its ends and later: the same bits as plans for each set of beams. */
static void steered(void **state)
{
    (void)state;
    enum { T = 20, F = 2 };
    static const size_t when[] = {0, 1, 7, 19, 20, 33};
    for (int i = 0; i < 24; i++) {
        size_t bx = i % 2 ? 3 : 0, at = when[i % 6];
        enum br_backend backend = i < 12 ? BR_CPU : BR_REFERENCE;
        struct run r = make(T, F, 3, 4, bx, 5, i % 4 == 0), other = make(1, F, 3, 4, bx, 5, 0), later = r;
        size_t B = r.params.nbeams, count = T * F * B;
        struct br_frb_beams *plan;
        struct br_why why;
        later.params.beam = other.beam;
        uint16_t *out = malloc(2 * count * sizeof *out),
                 *expected[2] = {compute(&r, backend), compute(&later, backend)};
        assert_int_equal(br_frb_beams_create(&plan, backend, &r.params, &why), 0);
        assert_int_equal(br_frb_beams_steer(plan, other.beam, at, &why), -1);
        assert_non_null(strstr(why.text, "steered"));
        br_frb_beams_destroy(plan);
        r.params.steered = true;
        assert_int_equal(br_frb_beams_create(&plan, backend, &r.params, &why), 0);
        assert_int_equal(br_frb_beams_steer(plan, r.beam, 3, &why), 0);
        assert_int_equal(br_frb_beams_steer(plan, other.beam, at, &why), 0); /* replaces it */
        for (size_t e = 0; e < 2; e++) br_frb_beams_execute(plan, r.in, r.valid, T, out + e * count);
        for (size_t e = 0; e < 2; e++)
            for (size_t f = 0; f < F; f++)
                for (size_t t = 0; t < T; t++)
                    assert_memory_equal(out + e * count + (f * T + t) * B,
                                        expected[e * T + t >= at] + (f * T + t) * B, B * sizeof *out);
        other.beam[0] = NAN;
        assert_int_equal(br_frb_beams_steer(plan, other.beam, 0, &why), -1);
        br_frb_beams_destroy(plan);
        free(out);
        free(expected[0]);
        free(expected[1]);
        finish(&r);
        finish(&other);
    }
}

int main(void)
{
    seed = 4711;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights),
        cmocka_unit_test(equals_direct_beams),
        cmocka_unit_test(random_shapes),
        cmocka_unit_test(incoherent_sums),
        cmocka_unit_test(the_incoherent_sum_is_that_of_the_dishes),
        cmocka_unit_test(larger_shapes),
        cmocka_unit_test(degenerate_directions),
        cmocka_unit_test(steps_are_independent),
        cmocka_unit_test(weights_made_again),
        cmocka_unit_test(clamps),
        cmocka_unit_test(steered),
        cmocka_unit_test(bad_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
