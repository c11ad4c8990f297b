/* parallel.h - work in pieces that several threads may do: kernels are handed a parallel loop by whoever
 * owns threads, and know nothing of them.
 *
 * A piece of work must not depend on which thread does it, nor on what others do meanwhile: the bits of a
 * result are the same for every number of threads. */
#ifndef BEAMRING_KERNELS_COMMON_PARALLEL_H
#define BEAMRING_KERNELS_COMMON_PARALLEL_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* worker < threads says which scratch memory is this call's: no two calls at the same time share it. */
typedef void br_parallel_work(void *arg, size_t job, unsigned worker);

struct br_parallel {
    unsigned threads; /* 0, as in a zeroed struct: all is done by the caller */
    void *context;
    /* Calls work(arg, job, worker) for job = 0 to jobs - 1, in any order, and returns when all are done. */
    void (*run)(void *context, size_t jobs, br_parallel_work *work, void *arg);
};

/* Sets of scratch memory that a plan needs; at least 1. */
static inline unsigned br_parallel_workers(const struct br_parallel *parallel)
{
    return parallel->run != NULL && parallel->threads > 1 ? parallel->threads : 1;
}

static inline void br_parallel_for(const struct br_parallel *parallel, size_t jobs, br_parallel_work *work,
                                   void *arg)
{
    if (br_parallel_workers(parallel) > 1 && jobs > 1)
        parallel->run(parallel->context, jobs, work, arg);
    else
        for (size_t job = 0; job < jobs; job++) work(arg, job, 0);
}

#ifdef __cplusplus
}
#endif
#endif
