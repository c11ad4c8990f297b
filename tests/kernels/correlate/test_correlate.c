/* The correlator's fast loops against its definition, and what it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/kernels/common/refused.h"
#include "tests/kernels/correlate/correlate_run.h"

static void run(const struct correlate_case *c, enum br_backend backend, struct correlate_run *r)
{
    struct br_why why = {""};
    correlate_make(r, c);
    if (correlate_run(r, c, backend, &why) != 0) fail_msg("%s: %s", c->name, why.text);
    assert_int_equal((uint32_t)r->v[r->v_count], 0xa5a5a5a5);
}

static void the_same_as_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < CORRELATE_CASES; i++) {
        struct correlate_run reference, cpu;
        run(&correlate_cases[i], BR_REFERENCE, &reference);
        run(&correlate_cases[i], BR_CPU, &cpu);
        if (memcmp(reference.v, cpu.v, cpu.v_count * sizeof *cpu.v) != 0)
            fail_msg("%s", correlate_cases[i].name);
        correlate_free(&reference);
        correlate_free(&cpu);
    }
}

/* The largest products, and more samples than fit into the sums that the fast loops keep in 16 bits: all
 * -8 - 8i, then -8 + 7i with 7 - 8i. */
static void the_largest_sums_are_exact(void **state)
{
    (void)state;
    enum { SAMPLES = 2 * 2048 + 1, INPUTS = 5 };
    struct br_correlate_params p = {1, INPUTS, false, NULL};
    struct br_correlate *plan;
    uint8_t *e = malloc((size_t)SAMPLES * INPUTS);
    int32_t v[INPUTS * (INPUTS + 1)];
    assert_non_null(e);
    assert_int_equal(br_correlate_create(&plan, BR_CPU, &p, NULL), 0);
    memset(e, 0x88, (size_t)SAMPLES * INPUTS);
    assert_int_equal(br_correlate_add(plan, SAMPLES, e, NULL, NULL), 0);
    br_correlate_read(plan, v);
    for (size_t b = 0; b < INPUTS * (INPUTS + 1) / 2; b++) {
        assert_int_equal(v[2 * b], 128 * SAMPLES);
        assert_int_equal(v[2 * b + 1], 0);
    }
    for (size_t k = 0; k < (size_t)SAMPLES * INPUTS; k++) e[k] = k % INPUTS % 2 ? 0x87 : 0x78;
    assert_int_equal(br_correlate_add(plan, SAMPLES, e, NULL, NULL), 0);
    br_correlate_read(plan, v);
    assert_int_equal(v[0], 113 * SAMPLES);  /* |-8 + 7i|^2 */
    assert_int_equal(v[2], -112 * SAMPLES); /* (-8 + 7i) conj(7 - 8i) = -112 - 15i */
    assert_int_equal(v[3], -15 * SAMPLES);
    br_correlate_destroy(plan);
    free(e);
}

/* After they were read the sums begin at 0 again. */
static void integrations_are_independent(void **state)
{
    (void)state;
    const struct correlate_case *c = &correlate_cases[2];
    struct correlate_run r;
    struct br_correlate *plan;
    run(c, BR_REFERENCE, &r);
    int32_t *v = malloc(r.v_count * sizeof *v);
    for (enum br_backend backend = BR_REFERENCE; backend <= BR_CPU; backend++) {
        assert_int_equal(br_correlate_create(&plan, backend, &r.p, NULL), 0);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(br_correlate_add(plan, r.samples, r.e, r.valid, NULL), 0);
            br_correlate_read(plan, v);
            assert_memory_equal(v, r.v, r.v_count * sizeof *v);
        }
        br_correlate_read(plan, v);
        for (size_t k = 0; k < r.v_count; k++) assert_int_equal(v[k], 0);
        br_correlate_destroy(plan);
    }
    free(v);
    correlate_free(&r);
}

static void what_might_overflow_is_refused(void **state)
{
    (void)state;
    enum { MANY = 1 << 16 };
    struct br_correlate_params p = {1, 1, true, NULL};
    struct br_correlate *plan;
    struct br_why why = {""};
    uint8_t *e = malloc(MANY);
    int32_t v[2];
    memset(e, 0x88, MANY);
    assert_int_equal(br_correlate_create(&plan, BR_CPU, &p, NULL), 0);
    for (int i = 0; i < 255; i++) assert_int_equal(br_correlate_add(plan, MANY, e, NULL, &why), 0);
    assert_int_equal(br_correlate_add(plan, MANY, e, NULL, &why), -1);
    assert_non_null(strstr(why.text, "more than 16777215 samples"));
    assert_int_equal(br_correlate_add(plan, MANY - 1, e, NULL, &why), 0);
    br_correlate_read(plan, v);
    assert_int_equal(v[0], 128 * BR_CORRELATE_MAX_SAMPLES); /* 2^31 - 128 */
    br_correlate_destroy(plan);
    free(e);
}

static void wrong_shapes_are_refused(void **state)
{
    (void)state;
    struct br_correlate *plan;
    struct br_why why = {""};
    const struct br_correlate_params wrong[] = {
        {0, 4, false, NULL}, {1, 0, false, NULL}, {1, 8193, false, NULL}};
    for (size_t i = 0; i < 3; i++) {
        int status = br_correlate_create(&plan, BR_CPU, &wrong[i], &why);
        assert_refused(status, plan, &why, "expected 1 to 65536, 1 to 8192");
    }
    br_correlate_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_as_the_reference),    cmocka_unit_test(the_largest_sums_are_exact),
        cmocka_unit_test(integrations_are_independent), cmocka_unit_test(what_might_overflow_is_refused),
        cmocka_unit_test(wrong_shapes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
