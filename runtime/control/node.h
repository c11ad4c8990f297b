/* node.h - pipelines one after the other, and what watches and steers them: the control interface, the
 * service manager, signals. */
#ifndef BEAMRING_RUNTIME_CONTROL_NODE_H
#define BEAMRING_RUNTIME_CONTROL_NODE_H

#include "runtime/run/pipeline.h"

struct br_node_options {
    const char *file; /* the pipeline's */
    size_t nset;
    const char *const *set; /* [nset] texts of --set */
    bool outlives;          /* the node stays when its pipeline ends; SIGHUP restarts */
    double again_s;         /* and starts a pipeline that has failed again after so long; 0: never */
    /* Within another program: it takes no signals and never ends the process. A thread that does not come
     * back is left behind, with all that it may use. */
    bool embedded;
    bool only_shown;  /* nothing is going to run; see br_graph_build_ranked */
    const char *text; /* of the pipeline's file, which need not be there; NULL: it is read */
    const char *more; /* stages to append to the pipeline, a list in YAML; NULL: none */
    /* Called by the loop's thread when a pipeline begins (`run` is there) and when it has ended (NULL, while
     * the counters are there still); may be NULL. */
    void (*tell)(void *arg, struct br_run *run, struct br_graph *graph);
    void *tell_arg;
    struct br_log *log;
    struct br_ranks *ranks;    /* NULL: not a rank of a job */
    struct br_run_options run; /* without guest; its loop is made where it is NULL */
};

/* Loads the file, checks it, and runs it, and again after each restart. Mistakes of the file are printed to
 * run.errors. Returns the program's exit status: that of the last pipeline; 2 when the file is wrong or the
 * control interface cannot listen. A node that outlives its pipelines returns 0 when it is asked to end. */
int br_node_run(const struct br_node_options *options);

#endif
