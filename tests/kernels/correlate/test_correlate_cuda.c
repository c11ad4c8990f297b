/* The correlator on a GPU against its definition, bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#if BR_WITH_CUDA
#include "tests/kernels/common/gpu.h"
#include "tests/kernels/correlate/correlate_run.h"

/* Twice, to check that the second integration begins at 0. Memory after V must not change. */
static void compare(const struct correlate_case *c)
{
    struct correlate_run r;
    struct br_correlate *plan;
    struct br_why why = {""};
    correlate_make(&r, c);
    size_t row = c->channels * c->inputs, bytes = r.v_count * sizeof *r.v;
    assert_int_equal(
        correlate_run(&r, c, r.samples * row * c->inputs > 20000000 ? BR_CPU : BR_REFERENCE, &why), 0);
    uint8_t *got = malloc(bytes + 64);
    void *e = gpu_poisoned(c->samples * row, 0), *v = gpu_poisoned(bytes + 64, 0x5a);
    gpu_ok(cudaMemcpy(e, r.e, c->samples * row, cudaMemcpyHostToDevice));
    r.p.cuda = gpu;
    if (br_correlate_create(&plan, BR_CUDA, &r.p, &why) != 0) fail_msg("%s: %s", c->name, why.text);
    for (int i = 0; i < 2; i++) {
        for (size_t k = 0; k < c->calls; k++) {
            size_t from = correlate_piece(c, k), to = correlate_piece(c, k + 1);
            assert_int_equal(br_correlate_add(plan, to - from, (const uint8_t *)e + from * row,
                                              r.valid ? r.valid + from * c->channels : NULL, &why),
                             0);
        }
        br_correlate_read(plan, v);
        gpu_fetch(got, v, bytes + 64);
        if (memcmp(got, r.v, bytes) != 0) fail_msg("%s, integration %d", c->name, i);
        for (size_t k = 0; k < 64; k++) assert_int_equal(got[bytes + k], 0x5a);
    }
    br_correlate_read(plan, v); /* an integration without samples */
    gpu_fetch(got, v, bytes);
    for (size_t k = 0; k < bytes; k++) assert_int_equal(got[k], 0);
    br_correlate_destroy(plan);
    br_cuda_free(gpu, e);
    br_cuda_free(gpu, v);
    free(got);
    correlate_free(&r);
}

static void the_same_as_the_reference(void **state)
{
    NEEDS_GPU();
    for (size_t i = 0; i < CORRELATE_CASES; i++) compare(&correlate_cases[i]);
}

/* More than one block of inputs, many channels, more samples than fit into the rows. */
static void large_arrays(void **state)
{
    NEEDS_GPU();
    if (getenv("BEAMRING_GPU_SMALL")) skip(); /* set for compute-sanitizer, whose racecheck takes minutes */
    compare(&(struct correlate_case){"chord", 1300, 3, 1024, 2, 1, false, ANY_VALUE});
    compare(&(struct correlate_case){"chord_extreme", 1024, 2, 1024, 1, 0, false, EXTREME});
    compare(&(struct correlate_case){"pathfinder", 1100, 70, 128, 1, 0, false, ANY_VALUE});
    compare(&(struct correlate_case){"channels", 200, 150, 520, 1, 0, false, ANY_VALUE});
    compare(
        &(struct correlate_case){"rows", 20000, 2, 20, 5, 2, false, ANY_VALUE}); /* the rows fill up twice */
    compare(&(struct correlate_case){"autos_large", 5000, 3, 1030, 2, 3, true, ANY_VALUE});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_as_the_reference),
        cmocka_unit_test(large_arrays),
    };
    return cmocka_run_group_tests(tests, gpu_open, gpu_close);
}
#else
int main(void)
{
    return 77; /* skipped */
}
#endif
