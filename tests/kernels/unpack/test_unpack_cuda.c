/* The unpacker on a GPU against its definition, bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#if BR_WITH_CUDA
#include "tests/kernels/common/gpu.h"
#include "tests/kernels/unpack/packets_run.h"

/* E and the sums end where they should: what is behind them stays as it was. Packets hold random bytes, or
 * `byte` if it is not negative. */
static void compare_bytes(const struct packets_case *c, int byte)
{
    struct packets_run r;
    struct br_unpack *plan;
    struct br_why why;
    packets_make(&r, c);
    if (byte >= 0) memset(r.in, byte, r.in_bytes);
    size_t sum_bytes = r.sum_count * sizeof *r.sums, out_bytes = r.out_bytes;
    uint8_t *out = malloc(out_bytes + 64), *sums = malloc(sum_bytes + 64);
    void *in = gpu_poisoned(r.in_bytes, 0), *to = gpu_poisoned(out_bytes + 64, 0x5a),
         *sums_to = gpu_poisoned(sum_bytes + 64, 0x5a), *receipt = NULL;
    gpu_ok(cudaMemcpy(in, r.in, r.in_bytes, cudaMemcpyHostToDevice));
    if (r.receipt) {
        receipt = gpu_poisoned(r.receipt_bytes, 0);
        gpu_ok(cudaMemcpy(receipt, r.receipt, r.receipt_bytes, cudaMemcpyHostToDevice));
    }
    assert_int_equal(br_unpack_create(&plan, BR_REFERENCE, &r.p, &why), 0);
    br_unpack_execute(plan, r.nblocks, r.in, r.receipt, r.out, r.sums);
    br_unpack_destroy(plan);
    r.p.cuda = gpu;
    if (br_unpack_create(&plan, BR_CUDA, &r.p, &why) != 0) fail_msg("%s: %s", c->name, why.text);
    br_unpack_execute(plan, r.nblocks, in, receipt, to, sums_to);
    gpu_fetch(out, to, out_bytes + 64);
    gpu_fetch(sums, sums_to, sum_bytes + 64);
    br_unpack_destroy(plan);
    if (memcmp(out, r.out, out_bytes) != 0) fail_msg("%s: E", c->name);
    if (memcmp(sums, r.sums, sum_bytes) != 0) fail_msg("%s: sums", c->name);
    for (size_t i = 0; i < 64; i++) assert_true(out[out_bytes + i] == 0x5a && sums[sum_bytes + i] == 0x5a);
    br_cuda_free(gpu, in);
    br_cuda_free(gpu, to);
    br_cuda_free(gpu, sums_to);
    br_cuda_free(gpu, receipt);
    free(out);
    free(sums);
    packets_free(&r);
}

static void compare(const struct packets_case *c)
{
    compare_bytes(c, -1);
}

static void the_same_as_the_reference(void **state)
{
    NEEDS_GPU();
    for (size_t i = 0; i < PACKETS_CASES; i++) compare(&packets_cases[i]);
}

/* More packets in a sum block than one mask of receipts has bits, and a last block that is shorter. */
static void long_sum_blocks(void **state)
{
    NEEDS_GPU();
    compare(&(struct packets_case){
        "long", "fti", {4, 4, 8}, 3, 2, 150, 2, true, true, 70, 0, 20, SOURCES_REVERSED});
    compare(&(struct packets_case){
        "wide", "fti", {3, 16, 8}, 128, 1, 18, 1, true, true, 16, 0, 1, SOURCES_REVERSED});
}

/* 32768 samples of -8 - 8i. */
static void the_largest_sums_are_exact(void **state)
{
    NEEDS_GPU();
    compare_bytes(
        &(struct packets_case){"8", "fti", {1, 256, 8}, 1, 1, 128, 1, false, false, 128, 0, 0, AS_SENT},
        0x88);
    compare_bytes(
        &(struct packets_case){"pairs", "ftp", {1, 256, 2}, 4, 1, 128, 1, true, false, 128, 0, 0, AS_SENT},
        0);
}

static void too_many_inputs_are_refused(void **state)
{
    NEEDS_GPU();
    const struct packets_case c = {"", "fti", {1, 64, 8}, 1100, 1, 1, 1, true, true, 1, 0, 0, AS_SENT};
    struct packets_run r;
    struct br_unpack *plan;
    struct br_why why = {""};
    packets_make(&r, &c);
    r.p.cuda = gpu;
    assert_int_equal(br_unpack_create(&plan, BR_CUDA, &r.p, &why), -1);
    assert_non_null(strstr(why.text, "unpack on the CPU"));
    packets_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_as_the_reference),
        cmocka_unit_test(long_sum_blocks),
        cmocka_unit_test(the_largest_sums_are_exact),
        cmocka_unit_test(too_many_inputs_are_refused),
    };
    return cmocka_run_group_tests(tests, gpu_open, gpu_close);
}
#else
int main(void)
{
    return 77; /* skipped */
}
#endif
