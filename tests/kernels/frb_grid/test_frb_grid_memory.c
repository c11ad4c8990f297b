/* The host memory that a plan of FRB stage 1 declares, against the memory that it takes. */
#include "kernels/frb_grid/plan.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/kernels/frb_grid/grid_run.h"

static size_t in_use(void)
{
#if __GLIBC_PREREQ(2, 33)
    struct mallinfo2 now = mallinfo2();
#else
    struct mallinfo now = mallinfo();
#endif
    return (size_t)now.uordblks + (size_t)now.hblkhd;
}

static void is_what_it_says(void **state)
{
    (void)state;
    static const struct {
        unsigned m, n, downsample;
        size_t channels, npol, dishes;
    } cases[] = {{8, 12, 12, 300, 2, 64},  {8, 12, 384, 300, 2, 64},  {8, 12, 1, 300, 2, 64},
                 {24, 24, 12, 40, 2, 512}, {16, 16, 600, 40, 2, 256}, {8, 8, 40, 500, 1, 33}};
    for (size_t k = 0; k < 2 * sizeof cases / sizeof *cases; k++) {
        size_t i = k % (sizeof cases / sizeof *cases);
        struct run r = make(1, cases[i].channels, cases[i].npol, cases[i].m, cases[i].n, cases[i].dishes,
                            cases[i].downsample, 0, 0);
        struct br_frb_grid *plan;
        struct br_why why;
        size_t before = in_use();
        if (br_frb_grid_create(&plan, BR_CPU, &r.params, &why) != 0) fail_msg("%s", why.text);
        size_t took = in_use() - before, weights = (size_t)2 * r.params.npol * r.cells * sizeof(float),
               told = br_frb_grid_host_bytes(&r.params, 1);
        br_frb_grid_destroy(plan);
        finish(&r);
        if (k < sizeof cases / sizeof *cases) continue; /* FFTW's planner keeps what it learned */
        if (before == 0) continue;                      /* not glibc's own malloc, as with a sanitizer */
        /* besides: tables of the cells, FFTW's plans */
        if (took > told + weights + 65536 || took < told - told / 8)
            fail_msg("%u x %u, %u samples: %zu bytes, said %zu", cases[i].m, cases[i].n, cases[i].downsample,
                     took, told);
    }
}

int main(void)
{
    seed = 5;
    const struct CMUnitTest tests[] = {cmocka_unit_test(is_what_it_says)};
    return cmocka_run_group_tests_name("frb_grid's memory", tests, NULL, NULL);
}
