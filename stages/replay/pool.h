/* pool.h - a few threads that read pieces of one frame at the same time: one core does not copy from the page
 * cache as fast as a GPU node takes the data. */
#ifndef BEAMRING_STAGES_REPLAY_POOL_H
#define BEAMRING_STAGES_REPLAY_POOL_H

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

/* Calls work(arg, 0), ..., work(arg, jobs - 1), in any order and at the same time, and returns when all are
 * done. Does not allocate. */
void pool_run(struct pool *pool, size_t jobs, void (*work)(void *arg, size_t job, void *scratch), void *arg);

#endif
