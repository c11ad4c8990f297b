/* facts.h - all that can be asked of a node, gathered: what the documents of the control interface are made
 * of. */
#ifndef BEAMRING_RUNTIME_CONTROL_FACTS_H
#define BEAMRING_RUNTIME_CONTROL_FACTS_H

#include "runtime/control/loop_time.h"
#include "runtime/control/verdict.h"

enum node_state {
    NODE_STARTING, /* stages open files and reserve memory */
    NODE_RUNNING,
    NODE_DRAINING,   /* sources were asked to end */
    NODE_RESTARTING, /* the same, and another pipeline comes after it */
    NODE_STOPPED,    /* there is no pipeline: the last one ended or was stopped */
    NODE_FAILED      /* there is no pipeline: the last one failed, or could not start */
};
extern const char *const node_state_name[NODE_FAILED + 1];

enum { HTTP_CODES = 12 };

struct http_counts {
    unsigned code[HTTP_CODES];
    uint64_t answers[HTTP_CODES]; /* by status code; code 0 ends */
    unsigned connections;
};

struct update_facts {
    bool known;        /* there is a pipeline */
    uint64_t total[5]; /* by enum br_update_state */
    size_t waiting;    /* requests that are not answered yet */
    double busy_s;     /* for how long the first of them has been worked at */
    size_t watched[4]; /* files, by enum br_watch_state */
    int journal;       /* enum br_journal_state */
};

struct node_facts {
    enum node_state state;
    const struct br_view *view; /* of the pipeline, or of the last one; NULL: there was none yet */
    struct verdict verdict;
    bool healthy, ready;
    char unhealthy[256], unready[256]; /* why not; "" */
    char message[BR_ERROR_LENGTH];     /* why there is no pipeline; "" */
    const char *file;                  /* the pipeline's */
    uint64_t restarts;                 /* pipelines after the first */
    int64_t process_start_ns;          /* CLOCK_REALTIME */
    struct http_counts http;
    const struct loop_time *loop_time; /* of the loop */
    struct update_facts updates;
    uint64_t messages[3]; /* of the log, by level */
};

/* The sentence for people: of the node where there is no pipeline, else of the pipeline. */
const char *facts_sentence(const struct node_facts *facts, char *text, size_t size);

#endif
