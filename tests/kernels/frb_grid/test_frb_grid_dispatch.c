/* The table at the top of frb_grid.h, row by row, against what the code chooses. Needs no GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#if BR_WITH_CUDA
#include "kernels/frb_grid/gpu/autocorr_1d/autocorr_1d.h"
#include "kernels/frb_grid/gpu/autocorr_2d/autocorr_2d.h"

static bool is_one_of(unsigned T, const unsigned *some)
{
    while (*some != 0 && *some != T) some++;
    return *some != 0;
}

/* The rows for BR_CUDA as they are written there, for a device with room. */
static const char *row_of(unsigned M, unsigned N, unsigned T, unsigned P)
{
    static const unsigned two[] = {8, 12, 15, 16, 18, 19, 20, 0},
                          one[] = {16, 23, 24, 30, 31, 32, 36, 37, 38, 39, 40, 43, 44, 45, 46, 47, 48, 0};
    if (M == 8 && N == 8 && T >= 4) return "autocorr_2d";
    if (((M == 8 && N == 12) || (M == 12 && N == 8)) && T >= 7) return "autocorr_2d";
    if (M >= 12 && M <= 24 && N >= 12 && N <= 24 &&
        (P == 2 ? T >= 22 || is_one_of(T, two) : T >= 50 || is_one_of(T, one)))
        return "autocorr_1d";
    return "direct";
}

/* As gpu/launch.cu asks. */
static const char *chosen(const struct br_frb_grid *plan)
{
    return br_frb_grid_autocorr_2d_fits(plan)   ? "autocorr_2d"
           : br_frb_grid_autocorr_1d_pays(plan) ? "autocorr_1d"
                                                : "direct";
}

static void table_is_true(void **state)
{
    (void)state;
    for (unsigned M = 8; M <= 32; M += 4)
        for (unsigned N = 8; N <= 32; N += 4)
            for (unsigned P = 1; P <= 2; P++)
                for (unsigned T = 1; T <= 300; T++) {
                    const struct br_frb_grid plan = {.grid_m = M, .grid_n = N, .npol = P, .downsample = T};
                    assert_string_equal(chosen(&plan), row_of(M, N, T, P));
                }
}
#endif

int main(void)
{
#if BR_WITH_CUDA
    const struct CMUnitTest tests[] = {cmocka_unit_test(table_is_true)};
    return cmocka_run_group_tests_name("frb_grid's table", tests, NULL, NULL);
#else
    printf("built without CUDA: skipped\n");
    return 77;
#endif
}
