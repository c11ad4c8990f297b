/* The table at the top of upchannelize.h, row by row, against what the code chooses. Needs no GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#if BR_WITH_CUDA
#include "tests/kernels/upchannelize/dispatch.h"

/* The rows for BR_CUDA as they are written there. */
static const char *row_of(unsigned U, unsigned M, size_t X, int on_hopper)
{
    if (X % 64 != 0) return "fp32/pfb.cuh";
    if (U <= 16 ? M > 8 : M > 4) return "fp32/pfb.cuh";
    if (on_hopper && U <= 16 && 1 + ((M - 1) * U + 15) / 16 <= 4) return "wgmma/pfb_u16.cuh";
    if (on_hopper && (U == 32 || U == 64)) return "wgmma/pfb_u32_64.cuh";
    if (on_hopper && U == 128) return "wgmma/pfb_u128.cuh";
    return U <= 16 ? "mma/pfb_u16.cuh" : "mma/pfb_u32up.cuh";
}

static void table_is_true(void **state)
{
    (void)state;
    static const size_t spectators[] = {64, 2048, 1, 63, 96};
    for (unsigned U = 2; U <= 128; U *= 2)
        for (unsigned M = 1; M <= 32; M++)
            for (size_t i = 0; i < sizeof spectators / sizeof *spectators; i++)
                for (int on_hopper = 0; on_hopper < 2; on_hopper++) {
                    const char *got = pfb_file(U, M, spectators[i], 1, on_hopper);
                    assert_non_null(got);
                    assert_string_equal(got, row_of(U, M, spectators[i], on_hopper));
                }
}

/* 8 sqrt(2) max|G| sum|W| is 20 (U = 2) to 143 (U = 128) with the default gain, and must stay below 1400. */
static void strong_gains_take_float32(void **state)
{
    (void)state;
    for (unsigned U = 2; U <= 128; U *= 2)
        for (int on_hopper = 0; on_hopper < 2; on_hopper++) {
            assert_string_not_equal(pfb_file(U, 4, 64, 1, on_hopper), "fp32/pfb.cuh");
            assert_string_equal(pfb_file(U, 4, 64, 125, on_hopper), "fp32/pfb.cuh");
        }
}
#endif

int main(void)
{
#if BR_WITH_CUDA
    const struct CMUnitTest tests[] = {cmocka_unit_test(table_is_true),
                                       cmocka_unit_test(strong_gains_take_float32)};
    return cmocka_run_group_tests(tests, NULL, NULL);
#else
    return 77; /* skipped */
#endif
}
