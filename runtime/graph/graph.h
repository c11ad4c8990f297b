/* graph.h - a pipeline as a checked graph of stages and queues: what the program's subcommands look at and
 * the run uses.
 *
 * br_graph_read and br_graph_describe turn a configuration into a graph: they find the plugins, fill the
 * stages' parameters, connect queues, and let every stage describe its outputs, upstream first. They report
 * all mistakes that they can find in one go; a stage whose input could not be described is not asked.
 * Nothing is started and no frame memory is reserved. From then on the graph does not change; what changes
 * while it runs is in runtime/run/state.h. */
#ifndef BEAMRING_RUNTIME_GRAPH_GRAPH_H
#define BEAMRING_RUNTIME_GRAPH_GRAPH_H

#include "buffers/queue.h"
#include "runtime/base/log.h"
#include "runtime/config/config.h"
#include "runtime/graph/plugin.h"
#include "runtime/graph/settings.h"
#include "runtime/stage.h"

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
    int device;        /* the GPU it runs on; -1: the CPU */
    bool device_given; /* by the user, rather than by `auto` */
    bool ready;        /* parameters and connections are right: configure may be called */
    bool feeds;        /* its frames may be memory of a GPU, see br_stage_feeds */

    struct br_config *second; /* of a stage that is made for an update: where its mistakes go; else NULL */

    double sent_per_s, received_per_s; /* bytes to and from other ranks, see br_stage_crosses */
    struct br_memory memory;           /* that it said it would reserve */
    enum br_stage_phase phase;
    const struct br_counter *counter; /* [ncounters] the stage's own */
    size_t ncounters;
    struct br_stage_state *state; /* runtime/run/state.h; NULL until the graph is built */
};

/* A file whose changes become updates: `weights: {file: noon.h5, watch: true}`. */
struct br_watch {
    struct br_watch *next;
    const char *path;
    const char *params; /* "one.file, two.file" */
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
    const char *journal;    /* where updates are kept; NULL: nowhere */
    struct br_watch *watch; /* files that become updates when they change */

    struct br_ranks *ranks; /* not owned; NULL: this is no rank of a job */
    bool only_shown;        /* nothing is going to run */
    unsigned not_now;       /* mistakes that are not the file's, see br_stage_fail_run_at */
    int64_t run_ns;         /* Unix time of br_graph_build */
    bool sideband_told;     /* see br_stage_sideband */
    double watchdog_s;      /* a call on a GPU that takes longer ends the run; 0: never */
    double stall_s;         /* a rank that gives no sign of life for longer counts as failed */

    unsigned threads;    /* that work at the stages' jobs at the same time; at least 1 */
    struct br_ints cpus; /* on which; none: all that the program may use */

    int ngpus;              /* that can be used; -1: not asked for yet */
    struct br_error no_gpu; /* why there is none */
    bool gpu_wanted;        /* a stage would run on one */

    struct br_graph_state *state; /* runtime/run/state.h; NULL until br_pipeline_build has made it */
};

/* The first half, which does not look at the stages' inputs. `only_shown`: for commands that only show the
 * graph, for which an obstacle to a run is not a mistake. `config`, `log` and `ranks` (NULL: not a rank of a
 * job) must live longer than the graph. Errors: BR_E_INVALID with mistakes in `config`
 * (br_config_print_errors shows them), BR_E_NO_MEMORY with a message. After BR_OK `config` may have mistakes
 * too, and the second half finds more. After an error the graph is made as far as it got. */
int br_graph_read(struct br_graph **graph, struct br_config *config, struct br_log *log,
                  struct br_ranks *ranks, bool only_shown, struct br_error *error);

/* The second half: the stages describe their outputs, transfers are inserted, queues are made. The same
 * errors; BR_OK: the graph has no mistakes. */
int br_graph_describe(struct br_graph *graph, struct br_error *error);
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

/* --- parts of these two in files of their own --- */

/* The parameter of a stage's schema, or NULL. */
const struct br_param *br_stage_type_param(const struct br_stage_type *type, const char *name);

/* True if the parameter may be updated while the stage runs. */
bool br_stage_type_updates(const struct br_stage_type *type, const char *param);

/* The stage's map with plain names in the place of {file: NAME, watch: BOOL}, wherever a parameter is a file.
 * Adds files to watch to graph->watch. NULL: a mistake is in the config. */
const struct br_node *br_graph_read_watches(struct br_graph *graph, const struct br_stage *stage,
                                            const struct br_node *node);

/* Reads `telescope:` and `stream:` into the graph; mistakes go to the config. */
void br_graph_read_telescope(struct br_graph *graph, const struct br_node *node);
void br_graph_read_hints(struct br_graph *graph, const struct br_node *node);

/* Decides on which device the stages run: the file's `device:` and each stage's own. */
void br_graph_place_stages(struct br_graph *graph, const struct br_node *root);

/* Inserts a transfer wherever the two sides of a queue live in different memory, and says where each queue
 * lives. */
void br_graph_insert_transfers(struct br_graph *graph);

/* Puts `order` in order; false when there is a cycle, and then the stages that could be placed come first. */
bool br_graph_sort(struct br_graph *graph, bool *placed);

/* Reads the stages' `in:` and `out:` and connects them; finds unread queues and cycles; puts `order` in
 * order. */
void br_graph_connect(struct br_graph *graph);

#endif
