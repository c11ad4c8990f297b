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
    struct br_log *log;
    struct br_ranks *ranks;    /* NULL: not a rank of a job */
    struct br_run_options run; /* without loop and guest */
};

/* Loads the file, checks it, and runs it, and again after each restart. Mistakes of the file are printed to
 * stderr. Returns the program's exit status: that of the last pipeline; 2 when the file is wrong or the
 * control interface cannot listen. A node that outlives its pipelines returns 0 when it is asked to end. */
int br_node_run(const struct br_node_options *options);

#endif
