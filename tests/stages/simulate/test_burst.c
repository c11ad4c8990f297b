/* Bursts that several threads make at once, as several stages do, plan their transforms one thread at a
 * time. */
#include "stages/common/sky/burst.h"
#include "stages/common/stage/random.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/kernels/common/planner_hooks.h"

PLANNER_HOOKS(fftw)

enum { THREADS = 4, BURSTS = 5 };

static void *make_bursts(void *table)
{
    const double freq_mhz[] = {600};
    for (uint32_t i = 0; i < BURSTS; i++) {
        struct burst_params params = {.dm = 1,
                                      .arrival_s = 0.1,
                                      .ref_mhz = 600,
                                      .width_s = 1e-4,
                                      .rms = 2,
                                      .sample_s = 2.56e-6,
                                      .nchannels = 1,
                                      .npol = 1,
                                      .freq_mhz = freq_mhz,
                                      .number = i};
        struct burst burst;
        struct br_error error;
        int status = burst_make(&burst, &params, table, &error);
        burst_free(&burst);
        if (status != BR_OK) return (void *)1;
    }
    return NULL;
}

static void one_thread_at_a_time(void **state)
{
    (void)state;
    static int16_t table[GAUSSIAN_ENTRIES];
    pthread_t thread[THREADS];
    gaussian_table(table);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, make_bursts, table), 0);
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(thread[i], &result);
        assert_null(result);
    }
    assert_int_equal(planner.works, THREADS * BURSTS * 4); /* two transforms, planned and destroyed */
    assert_int_equal(planner.most, 1);
}

/* Samples as far from the burst as there are. */
static void outside(void **state)
{
    (void)state;
    int64_t first[3] = {-4000000000000000000, 0, 4000000000000000000};
    float field[2 * 3 * 8] = {0};
    struct burst burst = {.nchannels = 3, .npol = 1, .length = 8, .first = first, .field = field};
    for (size_t c = 0; c < 3; c++) {
        assert_null(burst_at(&burst, INT64_MIN, c, 0));
        assert_null(burst_at(&burst, INT64_MAX, c, 0));
        assert_null(burst_at(&burst, first[c] - 1, c, 0));
        assert_null(burst_at(&burst, first[c] + 8, c, 0));
        assert_ptr_equal(burst_at(&burst, first[c] + 7, c, 0), field + 2 * (8 * c + 7));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_thread_at_a_time), cmocka_unit_test(outside)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
