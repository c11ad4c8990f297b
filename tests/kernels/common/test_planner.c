/* FFTW's planner is one for a process, but plugins have a copy each of the code that calls it: however many
 * of them plan at the same time, one thread at a time is in the planner.
 *
 *     test_kernels_planner MODULE MODULE    two planner_module.c */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>
#include <fftw3.h>

#include "tests/kernels/common/planner_hooks.h"

PLANNER_HOOKS(fftwf)

enum { MODULES = 2, ROUNDS = 20 };

static void *plan_often(void *name)
{
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 64);
    while (length > 0 && path[length - 1] != '/') length--;
    if (length <= 0) return (void *)3;
    strcpy(path + length, name);
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL),
         *found = module ? dlsym(module, "plan_and_destroy") : NULL;
    if (found == NULL) return (void *)1;
    int (*plan_and_destroy)(void);
    memcpy(&plan_and_destroy, &found, sizeof plan_and_destroy);
    for (int i = 0; i < ROUNDS; i++)
        if (plan_and_destroy() != 0) return (void *)2;
    return NULL;
}

static void one_thread_at_a_time(void **state)
{
    (void)state;
    char modules[MODULES][32] = {"planner_one.so", "planner_two.so"};
    pthread_t thread[MODULES];
    for (int i = 0; i < MODULES; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, plan_often, modules[i]), 0);
    for (int i = 0; i < MODULES; i++) {
        void *result;
        pthread_join(thread[i], &result);
        assert_null(result);
    }
    assert_int_equal(planner.works, MODULES * ROUNDS * 4); /* two transforms, planned and destroyed */
    assert_int_equal(planner.most, 1);
}

int main(void)
{
    fftwf_cleanup(); /* does nothing yet, but links the program with FFTW, which the modules then share */
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_thread_at_a_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
