/* pool.h - a few threads that work on pieces of one frame at the same time: one core does not copy as fast
 * as a GPU node takes the data. */
#ifndef BEAMRING_STAGES_COMMON_STAGE_POOL_H
#define BEAMRING_STAGES_COMMON_STAGE_POOL_H

#include <stddef.h>
#include <stdint.h>

struct pool;

/* The number of threads for `wanted`; 0: half of the processors that the program may use, 2 to 8 (1 where
 * there is but one). */
unsigned pool_threads(unsigned wanted);

/* A pool of `threads` with `scratch` bytes of memory, aligned to pages, for each; the caller of pool_run
 * counts as one of them. NULL without memory or threads. */
struct pool *pool_start(unsigned threads, size_t scratch);
void pool_stop(struct pool *pool); /* NULL is allowed */

typedef void pool_work(void *arg, size_t job, void *scratch);

/* Calls work(arg, 0), ..., work(arg, jobs - 1), begun in that order and done at the same time, and returns
 * when all are done. At most 2^32 - 1 jobs. Does not allocate. */
void pool_run(struct pool *pool, size_t jobs, pool_work *work, void *arg);

/* The same in steps, so that the caller has time for something else in between: begins, adds `more` jobs to
 * those begun (they count on from there), and does what is left of them, until all are done. */
void pool_begin(struct pool *pool, size_t jobs, pool_work *work, void *arg);
void pool_add(struct pool *pool, size_t more);
void pool_end(struct pool *pool);

#endif
