/* state.h - what changes while a pipeline runs, of each stage and of the whole. The graph itself
 * (runtime/graph/graph.h) does not change any more. br_pipeline_build makes the state, br_pipeline_destroy
 * frees it. */
#ifndef BEAMRING_RUNTIME_RUN_STATE_H
#define BEAMRING_RUNTIME_RUN_STATE_H

#include "buffers/board.h"
#include "runtime/base/pool.h"
#include "runtime/graph/graph.h"
#include "runtime/stage_history.h"

#include <pthread.h>
#include <stdatomic.h>

struct br_change;
struct br_held;
struct br_preview;
struct br_tap;
struct br_updates;
struct br_watched;

/* Calls of process by how long they took: up to 16 us, 32 us, ... 8.4 s, and longer. */
enum { BR_TIME_BUCKETS = 21, BR_TIME_FIRST_SHIFT = 4 };

/* Words of a text of br_stage_trouble. */
enum { BR_TROUBLE_WORDS = 30, BR_TROUBLE_LENGTH = BR_TROUBLE_WORDS * 8 };

/* Written by the stage's thread only, read by anyone. */
struct br_stage_counters {
    _Atomic uint64_t calls;   /* of process */
    _Atomic uint64_t busy_ns; /* spent in process */
    _Atomic uint64_t saturated;
    _Atomic uint64_t cpu_ns;    /* of the stage's thread, once it has ended */
    _Atomic uint64_t helped_ns; /* processor time of the pool's threads on its jobs */
    _Atomic uint64_t gpu_ns,
        gpu_calls;           /* GPU time of those calls of process that were sampled, and their number */
    _Atomic uint64_t gained; /* base samples that are out and were not in, see br_stage_count_gained */
    _Atomic uint64_t lost[BR_LOSS_COUNT];   /* base samples, by enum br_loss */
    _Atomic uint64_t took[BR_TIME_BUCKETS]; /* calls of process by their time */
    _Atomic int64_t dumps[BR_DUMP_COUNT];   /* of a stage with a history, by enum br_dump_number */
    /* of a stage without outputs: the time by the clock when it was done with its last frame, less the time
     * of the sample behind it, in ns; INT64_MIN: it has had none */
    _Atomic int64_t latency_ns;
};

/* Only the stage's own thread adds, so that a load and a store do; no locked instruction is needed. */
static inline void br_counter_add(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* The updates of a stage that takes updates; see updates.h. */
struct br_stage_updates {
    _Atomic uint64_t taken; /* samples before this one have been given to process */
    struct br_change
        *_Atomic first;     /* due, in order of samples; changed under the graph's mutex for updates */
    struct br_change *last; /* whose values hold; NULL: those of the pipeline file */
    struct br_change *used; /* committed, or passed over: to be discarded */
    struct br_held *held;   /* what held since when, newest first */
};

struct br_stage_state {
    struct br_gpu_stream gpu; /* while it runs on one */
    struct br_memory held;    /* that it said it holds; all 0: it did not say */
    struct br_error error;    /* of start, process or stop */
    struct br_stage_counters counters;
    _Atomic uint64_t *counted; /* [ncounters] what the stage's own counters have counted */
    pthread_t thread;
    bool start_called, has_thread;
    /* CLOCK_MONOTONIC when process was called, in ns; 0: it is not, or sleeps */
    _Atomic uint64_t process_since;
    const char *_Atomic waits_for;    /* see br_stage_waits_for */
    br_board_version trouble_version; /* see br_stage_trouble */
    _Atomic uint64_t trouble[BR_TROUBLE_WORDS];
    struct br_round round;  /* of br_stage_parallel */
    bool in_round;          /* it is begun */
    _Atomic bool misused;   /* br_stage_parallel */
    _Atomic bool ended;     /* process will not be called again */
    _Atomic bool completed; /* ... because all its input was worked off: its balance must add up */

    /* [nout] that the control interface asks for; see preview.h */
    struct br_preview *_Atomic preview[BR_MAX_PORTS];
    struct br_tap *_Atomic tap[BR_MAX_PORTS]; /* likewise; see tap.h */

    struct br_stage_updates updates;
    const struct br_stage **source; /* [nsources] those before it that take updates, producers first */
    size_t nsources;
};

struct br_graph_state {
    struct br_stage_state *stage; /* [graph->nstages] */
    struct br_updates *updates;
    struct br_watched *watched; /* one for each of graph->watch */
    struct br_pool *pool;       /* from start to finish */
    struct br_stage *_Atomic first_failed;
    struct br_stage *_Atomic starting; /* the last one whose start was called */
    _Atomic bool prepared;             /* all stages have started */
    _Atomic bool stopping;             /* sources are asked to end */
    bool stop_signalled;               /* under the mutex: the same, for sleepers */
    bool left_behind;                  /* the run ends without some of its threads */
    _Atomic bool kept;                 /* its memory stays, see br_stage_keep_memory */
    bool embedded; /* in another program's process: it takes no signals, and must not end it */
    pthread_mutex_t mutex;
    pthread_cond_t wake;       /* on CLOCK_MONOTONIC */
    void (*on_end)(void *arg); /* called by each stage's thread when it ends; may be NULL */
    void *on_end_arg;
    int home; /* CPU of the GPU stages' threads; -1: not chosen */
};

#endif
