/* The baseband beamformer against an exact sum written here from the equation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/baseband/shape.h"
#include "tests/kernels/common/draws.h"
#include "tests/kernels/common/refused.h"

/* Everything about one run; `shift_low..high` and the fillers below decide what is in it. */
struct run {
    struct shape n;
    uint8_t *e, *e_valid, *expected;
    int8_t *w;
    int32_t *shift;
    uint64_t *clamped, total;
};

static int nibble(unsigned byte, int imaginary)
{
    int value = (int)(imaginary ? byte >> 4 : byte & 15);
    return value > 7 ? value - 16 : value;
}

static int one(int64_t sum, int32_t s, uint64_t *clamped)
{
    /* floor(sum / 2^s + 1/2) by search, so that no shift of this file repeats one of the library */
    int64_t level = -8;
    while (level < 8 &&
           (s == 0 ? level + 1 <= sum : 2 * (level + 1) * ((int64_t)1 << s) - ((int64_t)1 << s) <= 2 * sum))
        level++;
    if (level == -8 || level == 8) ++*clamped;
    return level == -8 ? -7 : level == 8 ? 7 : (int)level;
}

static struct run make(struct shape n, int32_t shift_low, int32_t shift_high, int missing)
{
    struct run r = {.n = n};
    size_t inputs = n.T * n.F * n.P * n.D, outputs = n.B * n.F * n.P * n.T, beams = n.WF * n.P * n.B;
    r.e = malloc(inputs);
    r.e_valid = missing ? malloc(n.T * n.F) : NULL;
    r.expected = malloc(outputs);
    r.w = malloc(beams * n.D * 2);
    r.shift = malloc(beams * sizeof *r.shift);
    r.clamped = calloc(n.B, sizeof *r.clamped);
    for (size_t i = 0; i < inputs; i++) r.e[i] = (uint8_t)dump_random(&seed);
    for (size_t i = 0; i < beams * n.D * 2; i++) r.w[i] = (int8_t)((int)(dump_random(&seed) % 255) - 127);
    for (size_t i = 0; i < beams; i++) r.shift[i] = (int32_t)pick((size_t)shift_low, (size_t)shift_high);
    for (size_t i = 0; missing && i < n.T * n.F; i++) r.e_valid[i] = (uint8_t)(pick(0, 3) ? pick(1, 255) : 0);
    return r;
}

static void expect(struct run *r)
{
    struct shape n = r->n;
    r->total = 0;
    memset(r->clamped, 0, n.B * sizeof *r->clamped);
    for (size_t t = 0; t < n.T; t++)
        for (size_t f = 0; f < n.F; f++)
            for (size_t p = 0; p < n.P; p++)
                for (size_t b = 0; b < n.B; b++) {
                    size_t beam = ((n.WF == 1 ? 0 : f) * n.P + p) * n.B + b;
                    const int8_t *w = r->w + beam * n.D * 2;
                    const uint8_t *e = r->e + ((t * n.F + f) * n.P + p) * n.D;
                    int64_t re = 0, im = 0;
                    for (size_t d = 0; d < n.D; d++) {
                        int x = nibble(e[d], 0), y = nibble(e[d], 1), u = w[2 * d], v = w[2 * d + 1];
                        re += u * x - v * y;
                        im += u * y + v * x;
                    }
                    uint8_t *out = &r->expected[((b * n.F + f) * n.P + p) * n.T + t];
                    if (r->e_valid && !r->e_valid[t * n.F + f]) {
                        *out = 0x88;
                        continue;
                    }
                    uint64_t count = 0;
                    int low = one(re, r->shift[beam], &count), high = one(im, r->shift[beam], &count);
                    *out = (uint8_t)((low & 15) | (high & 15) * 16);
                    r->clamped[b] += count;
                    r->total += count;
                }
}

static void check_backend(const struct run *r, enum br_backend backend)
{
    struct shape n = r->n;
    size_t outputs = n.B * n.F * n.P * n.T;
    struct br_baseband *plan;
    struct br_why why;
    uint8_t *out = malloc(outputs + 1), *out_valid = malloc(n.F * n.T + 1);
    uint64_t *saturated = calloc(n.B, sizeof *saturated);
    /* the plan has its own copy of weights and shifts */
    int8_t *w = malloc(n.WF * n.P * n.B * n.D * 2);
    memcpy(w, r->w, n.WF * n.P * n.B * n.D * 2);
    struct br_baseband_params params = params_of(n, w, r->shift);
    assert_int_equal(br_baseband_create(&plan, backend, &params, &why), 0);
    memset(w, 77, n.WF * n.P * n.B * n.D * 2);
    free(w);
    out[outputs] = out_valid[n.F * n.T] = 0x5a;
    for (int again = 0; again < 2; again++) { /* no state between calls, counts are added */
        memset(out, 0xee, outputs);
        uint64_t total = br_baseband_execute(plan, r->e, r->e_valid, n.T, out, out_valid, saturated);
        assert_memory_equal(out, r->expected, outputs);
        assert_int_equal(total, r->total);
    }
    for (size_t b = 0; b < n.B; b++) assert_int_equal(saturated[b], 2 * r->clamped[b]);
    for (size_t f = 0; f < n.F; f++)
        for (size_t t = 0; t < n.T; t++)
            assert_int_equal(out_valid[f * n.T + t], r->e_valid ? r->e_valid[t * n.F + f] : 255);
    assert_int_equal(out[outputs], 0x5a);
    assert_int_equal(out_valid[n.F * n.T], 0x5a);
    if (!r->e_valid) assert_int_equal(br_baseband_execute(plan, r->e, NULL, n.T, out, NULL, NULL), r->total);
    br_baseband_destroy(plan);
    free(out);
    free(out_valid);
    free(saturated);
}

static void check_run(struct run *r)
{
    expect(r);
    check_backend(r, BR_REFERENCE);
    check_backend(r, BR_CPU);
    free(r->e);
    free(r->e_valid);
    free(r->expected);
    free(r->w);
    free(r->shift);
    free(r->clamped);
}

static void random_shapes(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        struct shape n = {.F = pick(1, 3), .P = pick(1, 2), .D = pick(8, 1024), .B = pick(1, 128)};
        size_t most = 6000000 / (n.F * n.P * n.D * n.B) + 1;
        n.T = pick(1, most > 300 ? 300 : most);
        n.WF = pick(0, 1) ? n.F : 1;
        struct run r = make(n, 0, 20, round % 3 == 0);
        check_run(&r);
    }
}

static void small_and_ragged(void **state)
{
    (void)state;
    for (size_t D = 1; D <= 40; D++)
        for (size_t T = 1; T <= 28; T += 3) {
            struct shape n = {.T = T, .F = 2, .P = 1, .D = D, .B = 1 + (D + T) % 18, .WF = 1};
            struct run r = make(n, 3, 12, T % 2 == 0);
            check_run(&r);
        }
    struct shape longest = {.T = 1000, .F = 1, .P = 2, .D = 17, .B = 9, .WF = 1};
    struct run r = make(longest, 6, 12, 1);
    check_run(&r);
}

/* Gaps one by one, whole stretches of them, and both in one call: validity is transposed in two ways. */
static void few_gaps_and_many(void **state)
{
    (void)state;
    struct shape n = {.T = 500, .F = 7, .P = 1, .D = 3, .B = 2, .WF = 1};
    for (int round = 0; round < 20; round++) {
        struct run r = make(n, 3, 6, 1);
        memset(r.e_valid, 255, n.T * n.F);
        for (size_t i = pick(0, 60); i < n.T * n.F; i += pick(1, 200)) r.e_valid[i] = 0;
        size_t from = pick(0, n.T * n.F - 1), to = pick(from, n.T * n.F - 1);
        memset(r.e_valid + from, 0, to - from);
        check_run(&r);
    }
}

/* The largest sums there are must not overflow an intermediate: every sign of weight and field, full
 * scale. */
static void extremes(void **state)
{
    (void)state;
    static const uint8_t fields[] = {0x88, 0x77, 0x87, 0x78, 0x08, 0x80};
    static const int8_t weights[][2] = {{127, 127},  {-127, -127}, {127, -127},
                                        {-127, 127}, {0, 127},     {-127, 0}};
    static const size_t dishes[] = {1, 8, 16, 31, 512, 1024};
    for (size_t i = 0; i < 6; i++)
        for (size_t j = 0; j < 6; j++)
            for (size_t k = 0; k < 6; k++) {
                struct shape n = {.T = 4, .F = 1, .P = 1, .D = dishes[k], .B = 9, .WF = 1};
                struct run r = make(n, 0, 20, 0);
                memset(r.e, fields[i], n.T * n.D);
                for (size_t d = 0; d < n.B * n.D; d++) memcpy(r.w + 2 * d, weights[j], 2);
                for (size_t b = 0; b < n.B; b++) r.shift[b] = (int32_t)(b == 0 ? 0 : 10 + b);
                check_run(&r);
            }
    struct shape most = {.T = 2, .F = 1, .P = 1, .D = 65536, .B = 2, .WF = 1};
    struct run r = make(most, 0, 0, 0);
    r.shift[0] = 30;
    r.shift[1] = 24;
    memset(r.e, 0x88, 2 * 65536);
    memset(r.w, -127, 2 * 2 * 65536);
    check_run(&r);
}

/* Shifts at which from a tenth to nine tenths of the components are clamped. */
static void partly_clamped(void **state)
{
    (void)state;
    int seen = 0;
    for (int32_t s = 4; s <= 12; s++) {
        struct shape n = {.T = 50, .F = 2, .P = 2, .D = 100, .B = 20, .WF = 2};
        struct run r = make(n, s, s, 0);
        expect(&r);
        double fraction = (double)r.total / (2.0 * 50 * 2 * 2 * 20);
        if (fraction >= 0.1 && fraction <= 0.9) seen++;
        check_run(&r);
    }
    assert_true(seen >= 2);
}

static void ties_round_up(void **state)
{
    (void)state;
    /* one dish, weight w (real), field 1: sum = w; (w + 2) >> 2 */
    static const int8_t weight[8] = {2, -2, 6, -6, 1, -3, 26, 30};
    static const int expected[8] = {1, 0, 2, -1, 0, -1, 7, 7};
    for (int backend = BR_REFERENCE; backend <= BR_CPU; backend++) {
        int8_t w[16] = {0};
        int32_t shift[8];
        for (int b = 0; b < 8; b++) w[2 * b] = weight[b], shift[b] = 2;
        const struct br_baseband_params params =
            params_of((struct shape){.F = 1, .P = 1, .D = 1, .B = 8, .WF = 1}, w, shift);
        struct br_baseband *plan;
        uint8_t e = 0x01, out[8];
        assert_int_equal(br_baseband_create(&plan, (enum br_backend)backend, &params, NULL), 0);
        assert_int_equal(br_baseband_execute(plan, &e, NULL, 1, out, NULL, NULL), 1);
        for (int b = 0; b < 8; b++) assert_int_equal(out[b], expected[b] & 15);
        br_baseband_destroy(plan);
    }
}

static void bad_parameters(void **state)
{
    (void)state;
    int8_t w[2 * 1 * 3 * 5 * 2] = {0};
    int32_t shift[2 * 3] = {0};
    const struct br_baseband_params good =
        params_of((struct shape){.F = 2, .P = 1, .D = 5, .B = 3, .WF = 2}, w, shift);
    for (int backend = BR_REFERENCE; backend <= BR_CPU; backend++) {
        struct br_baseband *plan;
        struct br_why why;
        struct br_baseband_params bad = good;
        w[((1 * 3 + 2) * 5 + 4) * 2 + 1] = -128;
        int status = br_baseband_create(&plan, (enum br_backend)backend, &bad, &why);
        assert_refused(status, plan, &why, "weights[1][0][2][4][1]");
        assert_non_null(strstr(why.text, "-128"));
        w[((1 * 3 + 2) * 5 + 4) * 2 + 1] = 0;
        shift[4] = 31;
        assert_int_equal(br_baseband_create(&plan, (enum br_backend)backend, &bad, &why), -1);
        assert_non_null(strstr(why.text, "shift[1][0][1]"));
        shift[4] = -1;
        assert_int_equal(br_baseband_create(&plan, (enum br_backend)backend, &bad, NULL), -1);
        shift[4] = 0;
        bad.weight_channels = 3;
        assert_int_equal(br_baseband_create(&plan, (enum br_backend)backend, &bad, &why), -1);
        bad = good;
        bad.ndishes = 65537;
        assert_int_equal(br_baseband_create(&plan, (enum br_backend)backend, &bad, &why), -1);
        bad = good;
        bad.nbeams = 0;
        assert_int_equal(br_baseband_create(&plan, (enum br_backend)backend, &bad, &why), -1);
        assert_int_equal(br_baseband_create(&plan, (enum br_backend)backend, &good, &why), 0);
        br_baseband_destroy(plan);
    }
    br_baseband_destroy(NULL);
}

int main(void)
{
    seed = 20240;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_shapes),     cmocka_unit_test(small_and_ragged),
        cmocka_unit_test(few_gaps_and_many), cmocka_unit_test(extremes),
        cmocka_unit_test(partly_clamped),    cmocka_unit_test(ties_round_up),
        cmocka_unit_test(bad_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
