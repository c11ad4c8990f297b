/* pool.h - the threads of a pipeline that help its stages with what can be done in pieces.
 *
 * A round is a number of jobs that one stage has at the same time. Its thread works at it itself; helpers
 * join where there are jobs, the round with the fewest first, and look again after a while: stages that have
 * work at the same time share the helpers, and those that wait cost nothing. A round never waits for a
 * helper that has not begun, so that it makes no difference to it whether any are free.
 *
 * The helpers are started with the first round. */
#ifndef BEAMRING_RUNTIME_BASE_POOL_H
#define BEAMRING_RUNTIME_BASE_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BR_POOL_MOST = 256 };

struct br_pool;

/* For `threads` (1 to BR_POOL_MOST) in all, the one that has a round counted. They run on the `ncpus` CPUs
 * of the list; without any on those of the caller. NULL without memory. */
struct br_pool *br_pool_create(unsigned threads, const int64_t *cpu, size_t ncpus);
void br_pool_destroy(struct br_pool *pool); /* when no round is open; NULL is allowed */

unsigned br_pool_threads(const struct br_pool *pool);

/* The number of CPUs that are listed, or, with none, that the program may use; at most BR_POOL_MOST. */
unsigned br_pool_default_threads(size_t ncpus);

/* Whether the caller is in a job of any pool: it must not begin a round then. */
bool br_pool_in_job(void);

/* `worker` is below the round's `most`, 0 for the thread that has the round; no two calls of a round that run
 * at the same time have the same. */
typedef void br_pool_work(void *arg, size_t job, unsigned worker);

struct br_round {
    struct br_pool *pool;
    br_pool_work *work;
    void *arg;
    unsigned most;           /* threads that work at it */
    _Atomic uint64_t ticket; /* its jobs above the number of those taken */
    struct br_round *next;
    unsigned helpers;                  /* at work; this and what follows under the pool's lock */
    bool waiting;                      /* its thread sleeps until there are none */
    uint64_t taken[BR_POOL_MOST / 64]; /* workers */
    _Atomic bool idle;                 /* no helper is at work */
    _Atomic uint64_t helped_ns;        /* processor time of helpers */
};

/* Begins a round, for at most `most` threads (0: all): helpers do its jobs from now on. At most 2^32 - 1
 * jobs. Not from within a job: the pool's threads could wait for each other. Without a pool the jobs are
 * done in br_round_end. */
void br_round_begin(struct br_round *round, struct br_pool *pool, unsigned most, size_t jobs,
                    br_pool_work *work, void *arg);
void br_round_add(struct br_round *round, size_t more); /* jobs that count on from those begun */
void br_round_end(struct br_round *round);              /* does what is left; all is done when it returns */

#endif
