/* planner_hooks.h - watches FFTW's planner from a test program.
 *
 * fftw_make_planner_thread_safe() hands two functions to the planner, which calls them before and after it
 * works. A program that is linked with its symbols exported and has PLANNER_HOOKS(fftw) or
 * PLANNER_HOOKS(fftwf) stands between: it counts how often the planner worked, and notices whether two
 * threads were ever in it at once. */
#ifndef BEAMRING_TESTS_KERNELS_COMMON_PLANNER_HOOKS_H
#define BEAMRING_TESTS_KERNELS_COMMON_PLANNER_HOOKS_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef void planner_hook(void);

static struct {
    planner_hook *before, *after; /* FFTW's own */
    atomic_int inside, most, works;
} planner;

static void planner_enters(void)
{
    planner.before();
    int inside = atomic_fetch_add(&planner.inside, 1) + 1, most = atomic_load(&planner.most);
    while (inside > most && !atomic_compare_exchange_weak(&planner.most, &most, inside)) {
    }
    atomic_fetch_add(&planner.works, 1);
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* long enough for another thread to come in */
}

static void planner_leaves(void)
{
    atomic_fetch_sub(&planner.inside, 1);
    planner.after();
}

/* NAME: fftw or fftwf, whose function of this name the program's own goes before. */
#define PLANNER_HOOKS(NAME)                                                                                  \
    void NAME##_set_planner_hooks(planner_hook *before, planner_hook *after);                                \
    void NAME##_set_planner_hooks(planner_hook *before, planner_hook *after)                                 \
    {                                                                                                        \
        void (*set)(planner_hook *, planner_hook *);                                                         \
        void *found = dlsym(RTLD_NEXT, #NAME "_set_planner_hooks");                                          \
        if (found == NULL) abort();                                                                          \
        memcpy(&set, &found, sizeof set);                                                                    \
        planner.before = before;                                                                             \
        planner.after = after;                                                                               \
        set(planner_enters, planner_leaves);                                                                 \
    }

#endif
