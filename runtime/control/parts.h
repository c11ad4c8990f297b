/* parts.h - what the files of a node share: see node.h. */
#ifndef BEAMRING_RUNTIME_CONTROL_PARTS_H
#define BEAMRING_RUNTIME_CONTROL_PARTS_H

#include "runtime/control/loop_time.h"
#include "runtime/control/node.h"
#include "runtime/control/picture.h"
#include "runtime/control/server.h"
#include "runtime/control/taps.h"
#include "runtime/control/update_desk.h"

#include <ev.h>
#include <stdio.h>

/* A pipeline file, loaded and checked. */
struct node_pipeline {
    struct br_config *config;
    struct br_graph *graph;
};

/* One whose desk hangs in a file: it is kept until that comes back. */
struct node_left {
    struct node_left *next;
    struct node_pipeline pipeline;
    struct desk *desk;
};

struct node {
    const struct br_node_options *options;
    struct ev_loop *ev;
    struct server *server;              /* NULL: there is no control interface */
    char *listen, *token_file;          /* of the first pipeline; they hold for the process */
    double late_s;                      /* of the present pipeline */
    struct node_pipeline current, next; /* next: what a restart has loaded; graph NULL: nothing */
    struct loading *loading;            /* a restart whose file is being read; NULL: none */
    struct br_run *run;                 /* while a pipeline runs */
    bool threads_run;                   /* its stages have started, and have not stopped */
    struct br_view *view;               /* of the present or the last pipeline */
    struct pictures *pictures;          /* of the present pipeline; NULL: there is none */
    struct taps *taps;                  /* likewise */
    struct desk *desk;                  /* while its stages run; NULL: nothing there is updated */
    struct desk *hung;                  /* of a pipeline that has just ended */
    struct node_left *left;
    bool live; /* the view's graph is there */
    enum node_state state;
    char message[BR_ERROR_LENGTH]; /* why there is no pipeline */
    uint64_t restarts, told_ns, watchdog_told_ns, trimmed_ns;
    struct loop_time loop_time; /* of the loop */
    int64_t process_start_ns;
    char told[512];   /* the last STATUS */
    bool quit;        /* asked to end */
    bool was_ready;   /* READY=1 has been sent */
    unsigned signals; /* that ask for an end */
    struct br_run_guest guest;
    ev_timer tick, again; /* again: until a pipeline that failed is tried again */
    ev_signal hangup, interrupt, terminate, report;
};

/* Reads all numbers that are asked for now. */
void node_look(struct node *node, struct node_facts *facts);

/* Drains (or aborts) the pipeline, and calls off a restart. False: there is none that runs or is to start, or
 * it drains already; `why` says so. */
bool node_stop(struct node *node, bool abort, const char *who, char *why, size_t size);

/* --- restart.c --- */

/* Reads and checks the pipeline's file. 0, or an exit status; what is wrong goes to `out`, which `for_others`
 * quotes no file but a pipeline's. Any thread. */
int node_load(const struct br_node_options *options, struct node_pipeline *pipeline, bool for_others,
              FILE *out);
void node_unload(struct node_pipeline *pipeline);

/* Reads the file again, in a thread of its own; where it is right the pipeline drains and the new one starts.
 * Where not, all goes on. `asked` (NULL: nobody) is answered then. False: it cannot be, and `why` says so. */
bool node_restart(struct node *node, bool abort, const char *who, struct deferred *asked, char *why,
                  size_t size);

/* A restart that is on its way does not come. */
void node_call_off(struct node *node);

/* When the node ends. False: the thread hangs in the file, and needs node and loop for as long as it does. */
bool node_end_loading(struct node *node);

/* --- routes.c --- */
extern const struct control_route node_routes[];

#endif
