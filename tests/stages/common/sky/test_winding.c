/* Gains that wind across the array: found where receivers' phases are alike, and not where they are
 * random, or where a regular grid sees the two directions alike. */
#include "stages/common/sky/winding.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 300, CHANNELS = 2 };

static uint64_t state_of_random;

/* Uniform in [0, 1). */
static double uniform(void)
{
    state_of_random = state_of_random * 6364136223846793005u + 1442695040888963407u;
    return (double)(state_of_random >> 11) / 9007199254740992.0;
}

/* An array and gains as calibration_make leaves them. */
struct array {
    double east[MOST], north[MOST], up[MOST], freq[CHANNELS];
    float gain[CHANNELS * MOST * 2];
    struct br_why why[CHANNELS];
    struct visibilities v;
    struct calibration c;
};

static void begin(struct array *a, size_t n, enum br_sideband sideband)
{
    memset(a->why, 0, sizeof a->why);
    a->freq[0] = 150;
    a->freq[1] = 170;
    a->v =
        (struct visibilities){.shape = {.ndishes = n, .npol = 1, .nchannels = CHANNELS, .sideband = sideband},
                              .freq_mhz = a->freq,
                              .east_m = a->east,
                              .north_m = a->north,
                              .up_m = a->up};
    a->c = (struct calibration){
        .nfreq = CHANNELS, .npol = 1, .ndishes = n, .gain = a->gain, .why = a->why, .nsolved = CHANNELS};
}

static void scatter(struct array *a, size_t n, double size, double height)
{
    for (size_t d = 0; d < n; d++) {
        a->east[d] = size * (uniform() - 0.5);
        a->north[d] = size * (uniform() - 0.5);
        a->up[d] = height * (uniform() - 0.5);
    }
}

static void square(struct array *a, size_t side, double spacing)
{
    for (size_t d = 0; d < side * side; d++) {
        a->north[d] = spacing * (double)(d / side);
        a->east[d] = spacing * (double)(d % side);
        a->up[d] = 0;
    }
}

static void point(double x, double y, double s[3])
{
    s[0] = x;
    s[1] = y;
    s[2] = sqrt(1 - x * x - y * y);
}

/* Gains 1 / g where the field has the phases of a source in direction `to`, those of direction `s` are taken
 * out, and receivers have phases of up to `spread` cycles, alike in groups of `group`. */
static void receive(struct array *a, const double to[3], const double s[3], double spread, size_t group)
{
    size_t n = a->c.ndishes;
    double phase[MOST];
    for (size_t d = 0; d < n; d++) phase[d] = d % group == 0 ? spread * (uniform() - 0.5) : phase[d - 1];
    for (size_t f = 0; f < CHANNELS; f++)
        for (size_t d = 0; d < n; d++) {
            double metres =
                a->north[d] * (to[0] - s[0]) + a->east[d] * (to[1] - s[1]) + a->up[d] * (to[2] - s[2]);
            double cycles = metres * a->freq[f] * 1e6 / BR_LIGHT_M_PER_S;
            cycles = phase[d] + (a->v.shape.sideband == BR_SIDEBAND_LOWER ? -cycles : cycles);
            bool dead = d % 31 == 30;
            a->gain[2 * (f * n + d)] = dead ? 0 : (float)(2 * cos(2 * M_PI * cycles));
            a->gain[2 * (f * n + d) + 1] = dead ? 0 : (float)(-2 * sin(2 * M_PI * cycles));
        }
}

static struct winding look(struct array *a, const double s[3])
{
    struct winding winding;
    assert_int_equal(winding_find(&a->c, &a->v, 0, s, &winding, NULL), 0);
    return winding;
}

/* Another direction is found in both sidebands, with heights, and named; the same one is not. */
static void test_elsewhere(void **state)
{
    static struct array a;
    double s[3], to[3];
    (void)state;
    for (int k = 0; k < 6; k++) {
        state_of_random = (uint64_t)k;
        begin(&a, 60, k % 2 == 0 ? BR_SIDEBAND_UPPER : BR_SIDEBAND_LOWER);
        scatter(&a, 60, 40, k % 3);
        point(uniform() - 0.5, uniform() - 0.5, s);
        point(uniform() - 0.5, uniform() - 0.5, to);
        receive(&a, to, s, 0.3, 1);
        struct winding w = look(&a, s);
        assert_true(w.found && !w.mirror && w.coherence > 0.8 && w.given < 0.5);
        assert_true(hypot(w.s[0] - to[0], w.s[1] - to[1]) < 0.01);
        receive(&a, s, s, 0.3, 1);
        assert_false(look(&a, s).found);
    }
}

/* Conjugated visibilities look like a source in -s, which is below the horizon. */
static void test_mirror(void **state)
{
    static struct array a;
    double s[3], to[3];
    (void)state;
    for (int k = 0; k < 6; k++) {
        state_of_random = (uint64_t)(100 + k);
        begin(&a, 100, k % 2 == 0 ? BR_SIDEBAND_UPPER : BR_SIDEBAND_LOWER);
        if (k < 3)
            scatter(&a, 100, 40, k % 3);
        else
            square(&a, 10, 3 + 0.1 * k);
        point(0.1 + 0.5 * uniform(), uniform() - 0.5, s);
        for (int i = 0; i < 3; i++) to[i] = -s[i];
        receive(&a, to, s, 0.3, 1);
        struct winding w = look(&a, s);
        assert_true(w.found && w.mirror && w.coherence > 0.8);
        assert_true(fabs(w.s[0] - to[0]) < 1e-9 && fabs(w.s[2] - to[2]) < 1e-9);
    }
}

/* Random receivers, in groups that share a phase, and aliases of a grid say nothing. */
static void test_nothing(void **state)
{
    static const size_t numbers[] = {4, 9, 16, 64, 100, 300};
    static struct array a;
    double s[3], to[3];
    (void)state;
    for (size_t k = 0; k < 48; k++) {
        size_t n = numbers[k % 6], side = (size_t)lround(sqrt((double)n));
        state_of_random = 1000 + k;
        begin(&a, n, BR_SIDEBAND_UPPER);
        if (side * side == n && k % 12 < 6)
            square(&a, side, 1 + 6 * uniform());
        else
            scatter(&a, n, k % 5 == 0 ? 4000 : 30, 1);
        point(uniform() - 0.5, uniform() - 0.5, s);
        point(uniform() - 0.5, uniform() - 0.5, to);
        receive(&a, to, s, 1, k % 4 == 3 && n >= 64 ? 4 : 1);
        struct winding w = look(&a, s);
        if (w.found) fail_msg("seed %zu: %zu dishes: %.2f, given %.2f", k, n, w.coherence, w.given);
    }
    begin(&a, 100, BR_SIDEBAND_UPPER);
    a.freq[1] = a.freq[0]; /* or the aliases differ */
    square(&a, 10, 5);
    point(0.2, 0, s);
    point(0.2 - BR_LIGHT_M_PER_S / 150e6 / 5, 0, to);
    receive(&a, to, s, 0.2, 1);
    assert_false(look(&a, s).found);
    point(BR_LIGHT_M_PER_S / 150e6 / 10, 0, s); /* the mirror is an alias */
    for (int i = 0; i < 3; i++) to[i] = -s[i];
    receive(&a, to, s, 0.2, 1);
    assert_false(look(&a, s).found);
    static const double sizes[] = {0, 1e-300, 1e-3, 1e9, 1e30, 1e300};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        scatter(&a, 100, sizes[k], 0);
        look(&a, s); /* it comes to an end */
    }
    memset(a.gain, 0, sizeof a.gain);
    for (size_t f = 0; f < CHANNELS; f++) a.why[f].text[0] = 'x';
    assert_false(look(&a, s).found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_elsewhere), cmocka_unit_test(test_mirror),
                                       cmocka_unit_test(test_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
