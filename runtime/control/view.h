/* view.h - all numbers of a running pipeline at one moment, and at moments before, as plain data.
 *
 * What operators see is made from a view: metrics, status, the live page. Taking one reads atomic counters
 * and boards; no stage's thread notices. It has copies of all names, so that it outlives its graph. */
#ifndef BEAMRING_RUNTIME_CONTROL_VIEW_H
#define BEAMRING_RUNTIME_CONTROL_VIEW_H

#include "runtime/run/pipeline.h"

/* Moments that are kept, so that rates can be told; they reach VIEW_MOMENTS * VIEW_STEP_NS back. */
enum { VIEW_MOMENTS = 12 };
#define VIEW_STEP_NS ((uint64_t)250 * 1000000)

enum { VIEW_NO_QUEUE = -1 };

/* A counter of a stage's own. */
struct view_counted {
    char *of, *what;
    uint64_t value;    /* as of the last look */
    uint64_t was[2];   /* at the times of br_view.counted_ns */
    uint64_t moved_ns; /* CLOCK_MONOTONIC when it was last seen to have grown; 0: never */
};

/* What does not change while the pipeline runs, but for values of `counted`. */
struct view_stage {
    char *name, *type;
    int device;                  /* -1: the CPU */
    bool dumps;                  /* it writes what has passed */
    unsigned nin, nout;
    int in[BR_MAX_PORTS], out[BR_MAX_PORTS]; /* readers that feed it; queues that it fills */
    struct br_memory memory;
    struct view_counted *counted; /* [ncounted] */
    size_t ncounted;
};

struct view_reader {
    int stage, queue;
    enum br_policy policy;
};

struct view_queue {
    char *name;
    char *shape; /* "int4x2 [time 8192][freq 16]..." */
    int producer;
    unsigned depth, first_reader, nreaders;
    struct br_place place;
    size_t bytes, device_bytes;
    double sample_s, frame_s; /* duration of a base sample, of a full frame */
    size_t frame_bytes;
    double values_per_sample; /* numbers in a frame by base samples; a complex element is two */
    const char *unseen;       /* see pictures_refuse */
    int64_t epoch_ns;
    struct br_rational sample_ns;
};

/* What does. */
struct view_stage_now {
    struct br_stage_totals totals;
    uint64_t lost[BR_LOSS_COUNT], took[BR_TIME_BUCKETS];
    int64_t dumps[BR_DUMP_COUNT];
    uint64_t gpu_ns, gpu_calls;
    uint64_t process_since;  /* CLOCK_MONOTONIC in ns; 0: not in process, or asleep there */
    uint64_t wait_in_since;  /* since when it waits for a frame, or a GPU's work on one; 0: it does not */
    uint64_t wait_out_since; /* ... for a free frame */
    int wait_in, wait_out;   /* the queue that it waits for, or VIEW_NO_QUEUE */
    bool wait_gpu;           /* it waits for a GPU */
    const char *waits_for;   /* see br_stage_waits_for; NULL */
    char trouble[BR_TROUBLE_LENGTH]; /* see br_stage_trouble; "" */
    int64_t latency_ns;              /* INT64_MIN: not known */
    bool ended, failed;
    struct br_memory held;
};

struct view_moment {
    uint64_t at_ns;                    /* CLOCK_MONOTONIC */
    int64_t unix_ns;                   /* CLOCK_REALTIME */
    double stream_s;                   /* telescope time that left the sources */
    struct view_stage_now *stage;      /* [nstages] */
    struct br_queue_counters *queue;   /* [nqueues] */
    struct br_reader_counters *reader; /* [nreaders] */
};

struct br_view {
    size_t nstages, nqueues, nreaders;
    struct view_stage *stage;
    struct view_queue *queue;
    struct view_reader *reader; /* those of a queue follow each other */
    struct view_moment now;
    /* CLOCK_MONOTONIC when the last frame was seen to be published, or taken by a reader; the start before */
    uint64_t *queue_moved, *reader_moved;            /* [nqueues], [nreaders] */
    uint64_t *queue_frames, *reader_next;            /* as of the last look */
    struct view_moment past[VIEW_MOMENTS];           /* a ring; past[npast % VIEW_MOMENTS] is the oldest */
    uint64_t *waited, *queue_waited, *reader_waited; /* the most so far: [2 nstages], [nqueues], [nreaders] */
    uint64_t npast;                                  /* moments kept so far */
    uint64_t counted_ns[2];                          /* 1 to 2 s ago, and at most 1 s ago; 0: not yet */
    uint64_t start_ns, last_ns;                      /* of the run; of the last moment that was kept */
    char failure[BR_ERROR_LENGTH]; /* "stage 'record': ..." of the stage that failed first; "" */
    int failed_stage;              /* -1: none */
};

/* NULL when there is no memory. */
struct br_view *view_make(const struct br_graph *graph, uint64_t start_ns);
void view_free(struct br_view *view);

/* Reads all counters into `now`; keeps the moment before it when VIEW_STEP_NS have gone by. */
void view_take(struct br_view *view, const struct br_graph *graph);

/* Before the graph goes: what points into plugins is forgotten. */
void view_let_go(struct br_view *view);

/* Growth of a counter per second over the last one or two. */
double view_counted_per_s(const struct br_view *view, const struct view_counted *counted);

/* The oldest moment that is kept, at most `seconds` before now; NULL: there is none yet. */
const struct view_moment *view_before(const struct br_view *view, double seconds);

#endif
