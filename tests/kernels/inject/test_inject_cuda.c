/* Bursts on a GPU against the CPU: field and sums bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#if BR_WITH_CUDA
#include "tests/kernels/common/gpu.h"
#include "tests/kernels/inject/inject_gpu.h"

/* `odd`: the field begins off a multiple of 4; what is beside it stays. */
static void compare(const struct inject_case *c, size_t odd)
{
    struct inject_run want, r;
    struct br_inject *plan;
    struct br_why why = {""};
    inject_make(&want, c);
    inject_make(&r, c);
    if (inject_run_cpu(&want, &why) != 0) fail_msg("%s: %s", c->name, why.text);
    size_t bytes = r.total * r.row, sums = br_inject_sums_bytes(&r.p);
    r.p.cuda = gpu;
    if (br_inject_create(&plan, BR_CUDA, &r.p, &why) != 0) fail_msg("%s: %s", c->name, why.text);
    uint8_t *e = gpu_poisoned(bytes + odd + 64, 0x5a), *got = malloc(bytes + odd + 64);
    void *device = gpu_poisoned(sums, 0);
    gpu_ok(cudaMemcpy(e + odd, r.e, bytes, cudaMemcpyHostToDevice));
    inject_run_gpu(&r, plan, e + odd, device);
    gpu_fetch(got, e, bytes + odd + 64);
    if (br_inject_fetch(plan, r.sums, device, &why) != 0) fail_msg("%s: %s", c->name, why.text);
    for (size_t i = 0; i < bytes; i++)
        if (got[odd + i] != want.e[i])
            fail_msg("%s: sample %zu of input %zu: %02x, expected %02x", c->name, i / r.row, i % r.row,
                     got[odd + i], want.e[i]);
    for (size_t i = 0; i < odd; i++) assert_int_equal(got[i], 0x5a);
    for (size_t i = 0; i < 64; i++) assert_int_equal(got[odd + bytes + i], 0x5a);
    if (memcmp(r.sums, want.sums, sums) != 0) fail_msg("%s: sums", c->name);
    br_inject_destroy(plan);
    br_cuda_free(gpu, e);
    br_cuda_free(gpu, device);
    free(got);
    inject_free(&want);
    inject_free(&r);
}

static void the_same_as_the_cpu(void **state)
{
    NEEDS_GPU();
    for (size_t i = 0; i < INJECT_CASES; i++) {
        compare(&inject_cases[i], 0);
        compare(&inject_cases[i], 1);
    }
}

static void large_arrays(void **state)
{
    NEEDS_GPU();
    compare(&(struct inject_case){"chord", 4, 2, 512, 2048, 2, 2000, 4096, 1, true, true}, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_same_as_the_cpu), cmocka_unit_test(large_arrays)};
    return cmocka_run_group_tests(tests, gpu_open, gpu_close);
}
#else
int main(void)
{
    return 77;
}
#endif
