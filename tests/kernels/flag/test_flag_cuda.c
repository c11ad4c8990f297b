/* The flagger on a GPU against the CPU: sums, flags, E and SK bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#if BR_WITH_CUDA
#include "tests/kernels/common/gpu.h"
#include "tests/kernels/flag/flag_run.h"

/* Twice with one plan; what is behind E and SK stays as it was. `odd`: E begins off a multiple of 16. */
static void compare(const struct flag_case *c, size_t odd)
{
    struct flag_run want, r;
    struct br_flag *plan;
    struct br_why why = {""};
    flag_make(&want, c);
    flag_make(&r, c);
    assert_int_equal(flag_run(&want, c, BR_CPU, &why), 0);
    size_t F = c->channels, N = c->inputs, bytes = flag_cells(&r) * N, all = c->nblocks * F,
           sk_bytes = r.sk ? r.rows * F * N * sizeof *r.sk : 0;
    uint8_t *e = gpu_poisoned(bytes + odd, 0), *out = gpu_poisoned(bytes + odd + 64, 0x5a),
            *got = malloc(bytes + sk_bytes + 64);
    float *sk = r.sk ? gpu_poisoned(sk_bytes + 64, 0x5a) : NULL;
    gpu_ok(cudaMemcpy(e + odd, r.e, bytes, cudaMemcpyHostToDevice));
    r.p.cuda = gpu;
    if (br_flag_create(&plan, BR_CUDA, &r.p, &why) != 0) fail_msg("%s: %s", c->name, why.text);
    for (int again = 0; again < 2; again++) {
        br_flag_begin(plan, &r.rules);
        for (size_t k = 0; k < c->calls; k++) {
            size_t from = flag_piece(c, k), to = flag_piece(c, k + 1), cell = (from - c->begin) * F;
            br_flag_add(plan, from, to - from, e + odd + cell * N, r.valid ? r.valid + cell : NULL,
                        out + odd + cell * N);
        }
        br_flag_end(plan, out + odd, sk);
    }
    flag_take(&r, plan);
    assert_memory_equal(r.s0, want.s0, all * sizeof *r.s0);
    if (memcmp(r.sums, want.sums, all * 2 * N * sizeof *r.sums) != 0) fail_msg("%s: sums", c->name);
    if (memcmp(r.lost, want.lost, all * N * sizeof *r.lost) != 0) fail_msg("%s: lost", c->name);
    if (memcmp(r.reason, want.reason, all) != 0) fail_msg("%s: flagged samples", c->name);
    if (memcmp(r.used, want.used, F * sizeof *r.used) != 0) fail_msg("%s: used", c->name);
    if (memcmp(r.input, want.input, 2 * N * sizeof *r.input) != 0) fail_msg("%s: inputs", c->name);
    gpu_fetch(got, out + odd, bytes + 64);
    if (memcmp(got, want.out, bytes) != 0) fail_msg("%s: E", c->name);
    for (size_t k = 0; k < 64; k++) assert_int_equal(got[bytes + k], 0x5a);
    if (sk) {
        gpu_fetch(got, sk, sk_bytes + 64);
        for (size_t k = 0; k < sk_bytes / sizeof(float); k++) { /* any bits are not a number */
            float x;
            memcpy(&x, got + k * sizeof x, sizeof x);
            if (x != want.sk[k] && !(isnan(x) && isnan(want.sk[k]))) fail_msg("%s: SK", c->name);
        }
        for (size_t k = 0; k < 64; k++) assert_int_equal(got[sk_bytes + k], 0x5a);
    }
    br_flag_destroy(plan);
    br_cuda_free(gpu, e);
    br_cuda_free(gpu, out);
    br_cuda_free(gpu, sk);
    free(got);
    flag_free(&want);
    flag_free(&r);
}

static void the_same_as_the_cpu(void **state)
{
    NEEDS_GPU();
    for (size_t i = 0; i < FLAG_CASES; i++) {
        compare(&flag_cases[i], 0);
        compare(&flag_cases[i], 1);
    }
}

/* As large as telescopes are. */
static void large_arrays(void **state)
{
    NEEDS_GPU();
    compare(&(struct flag_case){"chord", 256, 8, 5, 1024, 0, 2048, 1, 2, 10, PULSES, true, {0}, false}, 0);
    compare(
        &(struct flag_case){"chord_pieces", 256, 6, 3, 1024, 100, 1500, 4, 0, 10, PULSES, false, {0}, false},
        0);
    compare(&(struct flag_case){"channels", 64, 4, 400, 48, 0, 256, 2, 5, 10, PULSES, true, {0}, false}, 0);
    compare(
        &(struct flag_case){
            "chord_lost", 256, 8, 5, 1024, 0, 2048, 2, 0, 8, PULSES, true, {16, 8, 10}, false},
        0);
    compare(&(struct flag_case){"odd_lost", 100, 3, 9, 150, 7, 300, 3, 5, 10, PULSES, true, {16, 6, 5}, true},
            0);
    compare(&(struct flag_case){"odd", 100, 3, 33, 150, 7, 300, 3, 5, 10, PULSES, true, {0}, false}, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_as_the_cpu),
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
