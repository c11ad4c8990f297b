/* pool.h - jobs that each need a piece of scratch memory, done by the caller's threads. */
#ifndef BEAMRING_FORMATS_PIECES_POOL_H
#define BEAMRING_FORMATS_PIECES_POOL_H

#include "formats/caller.h"

struct pool;

/* How many of the caller's threads read files when `wanted` are asked for; 0: half
 * of them, 2 to 8. */
unsigned pool_threads(struct caller *caller, unsigned wanted);

/* For `threads` of the caller's threads, with `scratch` bytes of memory, aligned to pages, for each. NULL
 * without memory. */
struct pool *pool_start(struct caller *caller, unsigned threads, size_t scratch);
void pool_stop(struct pool *pool); /* waits for the jobs that have been begun; NULL is allowed */

typedef void pool_work(void *arg, size_t job, void *scratch);

/* Calls work(arg, 0), ..., work(arg, jobs - 1), begun in that order and done at the same time, and returns
 * when all are done. Fewer than 2^32 jobs. Does not allocate. */
void pool_run(struct pool *pool, size_t jobs, pool_work *work, void *arg);

/* The same in steps, so that the caller has time for something else in between: begins, adds `more` jobs to
 * those begun (they count on from there), and does what is left of them, until all are done. */
void pool_begin(struct pool *pool, size_t jobs, pool_work *work, void *arg);
void pool_add(struct pool *pool, size_t more);
void pool_end(struct pool *pool);

#endif
