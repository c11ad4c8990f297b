/* graph.h - a pipeline as a checked graph of stages and queues: what the program's subcommands look at and
 * the run uses.
 *
 * br_graph_build turns a configuration into a graph: it finds the plugins, fills the stages' parameters,
 * connects queues, and lets every stage describe its outputs, upstream first. It reports all mistakes it
 * can find in one go; a stage whose input could not be described is not asked. Nothing is started and no
 * frame memory is reserved. */
#ifndef BEAMRING_RUNTIME_GRAPH_GRAPH_H
#define BEAMRING_RUNTIME_GRAPH_GRAPH_H

#include "buffers/board.h"
#include "buffers/history.h"
#include "runtime/config/config.h"
#include "runtime/control/preview.h"
#include "runtime/control/settings.h"
#include "runtime/graph/plugin.h"
#include "runtime/run/log.h"
#include "runtime/run/pool.h"
#include "runtime/run/update_watch.h"
#include "runtime/stage.h"

#include <pthread.h>
#include <stdatomic.h>

struct br_graph;
struct br_ranks;

/* One reader's end of a queue. */
struct br_link {
    struct br_stage *stage;
    unsigned port;
    const struct br_node *at; /* where `in:` names the queue */
    enum br_policy policy;
    double history_s;     /* with BR_POLICY_HISTORY: what is kept */
    struct br_edge *edge; /* NULL until connected, or when there is no such queue */
    struct br_reader *reader;
    struct br_link *next; /* the next reader of the same queue */
};

/* One queue. */
struct br_edge {
    const char *name;
    const struct br_node *at; /* where `out:` names it */
    struct br_stage *producer;
    unsigned port;
    unsigned depth;   /* slots; 0 until known */
    bool depth_given; /* by the user */
    bool described;   /* `stream` is complete and checked */
    struct br_stream stream;
    struct br_link *readers; /* in the order of the file */
    struct br_place place;   /* where its frames live */
    struct br_queue *queue;
    struct br_preview
        *_Atomic preview;       /* asked for by the control interface; see runtime/control/preview.h */
    struct br_tap *_Atomic tap; /* likewise; see runtime/control/tap.h */
};

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

struct br_change;

/* Of a stage that takes updates; see runtime/run/updates.h. */
struct br_stage_updates {
    _Atomic uint64_t taken; /* samples before this one have been given to process */
    struct br_change
        *_Atomic first;     /* due, in order of samples; changed under the graph's mutex for updates */
    struct br_change *last; /* whose values hold; NULL: those of the pipeline file */
    struct br_change *used; /* committed, or passed over: to be discarded */
    struct br_held *held;   /* what held since when, newest first */
};

enum br_stage_phase { BR_PHASE_CONFIGURE, BR_PHASE_RUN };

struct br_stage {
    struct br_graph *graph;
    const struct br_stage_type *type;
    const struct br_node *node;
    const char *name;
    void *self;
    unsigned nin, nout;
    struct br_link in[BR_MAX_PORTS];
    struct br_edge out[BR_MAX_PORTS];
    struct br_ints affinity;
    int device;               /* the GPU it runs on; -1: the CPU */
    bool device_given;        /* by the user, rather than by `auto` */
    struct br_gpu_stream gpu; /* while it runs on one */
    bool ready;               /* parameters and connections are right: configure may be called */
    bool offered;             /* its work may be taken over, see br_stage_offer */
    bool feeds;               /* its frames may be memory of a GPU, see br_stage_feeds */
    struct br_stage *absorbed,
        *absorbed_by; /* the stage whose work it does too; the stage that does its work */

    struct br_stage_updates updates;
    const struct br_stage **source; /* [nsources] those before it that take updates, producers first */
    size_t nsources;
    struct br_config *second; /* of a stage that is made for an update: where its mistakes go; else NULL */

    double sent_per_s, received_per_s; /* bytes to and from other ranks, see br_stage_crosses */
    struct br_memory memory;           /* that it said it would reserve */
    struct br_memory held;             /* that it said it holds; all 0: it did not say */

    enum br_stage_phase phase;
    struct br_error error; /* of start, process or stop */
    struct br_stage_counters counters;
    const struct br_counter *counter; /* [ncounters] the stage's own, and what they have counted */
    _Atomic uint64_t *counted;
    size_t ncounters;
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
};

struct br_graph {
    struct br_config *config; /* not owned */
    struct br_log *log;       /* not owned */
    struct br_plugins *plugins;
    struct br_telescope *telescope; /* in the config's arena, or NULL */
    struct br_stream_hints hints;
    size_t nstages, nfile;
    struct br_stage *stage;  /* [nstages]: nfile in the order of the file, then the inserted transfers */
    struct br_stage **order; /* [nstages], producers before their readers */
    struct br_edge **edge;   /* [nedges] the queues, once all are known; NULL before */
    size_t nedges;

    struct br_claim *claims; /* files that stages write; see claim.c */
    struct br_claim *reads;  /* of files that are read */

    struct br_control_settings control;
    struct br_updates *updates;
    const char *journal;        /* where they are kept; NULL: nowhere */
    struct br_watched *watched; /* files that become updates */

    struct br_ranks *ranks; /* not owned; NULL: this is no rank of a job */
    bool only_shown;        /* nothing is going to run */
    bool sideband_told;     /* see br_stage_sideband */
    double watchdog_s;      /* a call on a GPU that takes longer ends the run; 0: never */

    unsigned threads;     /* that work at the stages' jobs at the same time; at least 1 */
    struct br_ints cpus;  /* on which; none: all that the program may use */
    struct br_pool *pool; /* while running */

    int ngpus;              /* that can be used; -1: not asked for yet */
    struct br_error no_gpu; /* why there is none */
    bool gpu_wanted;        /* a stage would run on one */

    /* While running. */
    struct br_stage *_Atomic first_failed;
    _Atomic bool stopping; /* sources are asked to end */
    bool stop_signalled;   /* under the mutex: the same, for sleepers */
    bool left_behind;      /* the run ends without some of its threads */
    _Atomic bool kept;     /* its memory stays, see br_stage_keep_memory */
    bool embedded;         /* another program's process: it takes no signals here, and must not be ended */
    pthread_mutex_t mutex;
    pthread_cond_t wake;       /* on CLOCK_MONOTONIC */
    void (*on_end)(void *arg); /* called by each stage's thread when it ends; may be NULL */
    void *on_end_arg;
};

/* Errors: BR_E_INVALID when mistakes were recorded in `config` (br_config_print_errors shows them; the
 * graph is made as far as it got), BR_E_NO_MEMORY with a message. `config` and `log` must live longer than
 * the graph. */
int br_graph_build(struct br_graph **graph, struct br_config *config, struct br_log *log,
                   struct br_error *error);
/* The same for a rank of a job. `only_shown`: for commands that only show the graph, for which what keeps a
 * run from beginning is not a mistake. `ranks` may be NULL, and must live longer than the graph. */
int br_graph_build_ranked(struct br_graph **graph, struct br_config *config, struct br_log *log,
                          struct br_ranks *ranks, bool only_shown, struct br_error *error);
void br_graph_destroy(struct br_graph *graph);

/* The keys that every stage has; NULL-terminated. */
extern const char *const br_graph_common_keys[];

/* Number of a graph's queues; and each, in the order of the file. */
size_t br_graph_nedges(const struct br_graph *graph);
struct br_edge *br_graph_edge(const struct br_graph *graph, size_t i);

/* The i-th kind of files that stages write, "DIRECTORY/PREFIX*SUFFIX"; false: there are fewer. */
bool br_graph_written(const struct br_graph *graph, size_t i, char *names, size_t size);

/* Bytes that all queues reserve when the run starts: of the host (locked or not), and of a device. */
size_t br_graph_bytes(const struct br_graph *graph);
size_t br_graph_device_bytes(const struct br_graph *graph, int device);

/* What queues (and what queues and stages) reserve together when the run starts; `device` counts the memory
 * of one device. CUDA's own memory, some hundreds of MiB on each device, is not in it. */
struct br_memory br_graph_queue_memory(const struct br_graph *graph, int device);
struct br_memory br_graph_memory(const struct br_graph *graph, int device);

/* --- parts of br_graph_build in files of their own --- */

/* Reads `telescope:` and `stream:` into the graph; mistakes go to the config. */
void br_graph_read_telescope(struct br_graph *graph, const struct br_node *node);
void br_graph_read_hints(struct br_graph *graph, const struct br_node *node);

/* Decides on which device the stages run: the file's `device:` and each stage's own. */
void br_graph_place_stages(struct br_graph *graph, const struct br_node *root);

/* Makes stages that do the work of the one before them read what that one read; it is left without inputs
 * and outputs. */
void br_graph_absorb(struct br_graph *graph);

/* Inserts a transfer wherever the two sides of a queue live in different memory, and says where each queue
 * lives. */
void br_graph_insert_transfers(struct br_graph *graph);

/* Puts `order` in order; false when there is a cycle, and then the stages that could be placed come first. */
bool br_graph_sort(struct br_graph *graph, bool *placed);

/* Reads the stages' `in:` and `out:` and connects them; finds unread queues and cycles; puts `order` in
 * order. */
void br_graph_connect(struct br_graph *graph);

#endif
