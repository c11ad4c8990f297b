/* update_watch.h - parameters that are files which are watched: `weights: {file: noon.h5, watch: true}`.
 *
 * A file that is replaced or written again becomes an update of all parameters that name it, from now on, by
 * the same checks as any other. What cannot be used changes nothing, and is said. Files are looked at by the
 * thread that submits updates, every quarter of a second: a disk that hangs holds up nobody else, and it
 * makes no difference whether it is on this machine. */
#ifndef BEAMRING_RUNTIME_RUN_UPDATE_WATCH_H
#define BEAMRING_RUNTIME_RUN_UPDATE_WATCH_H

#include "runtime/run/state.h"

#include <sys/types.h>
#include <time.h>

enum br_watch_state {
    BR_WATCH_HOLDS,   /* the file is as it was when its values were taken */
    BR_WATCH_WAITS,   /* it changes: it may be half written */
    BR_WATCH_MISSING, /* it is not there, or no file; the old values stay */
    BR_WATCH_REFUSED  /* what it holds was refused; the old values stay */
};
extern const char *const br_watch_state_name[]; /* "holds", ... */

/* What tells one version of a file from another. */
struct br_file_version {
    dev_t device;
    ino_t number;
    off_t bytes;
    struct timespec written, changed;
    bool there;
};

struct br_watched {
    struct br_watched *next;
    const struct br_watch *file;
    struct br_file_version taken, seen;
    uint64_t seen_ns; /* CLOCK_MONOTONIC when it was first seen like this */
    uint64_t digest;  /* of what was taken; 0: of none yet */
    uint64_t taken_count;

    /* The rest under the lock of the updates' list. */
    enum br_watch_state state;
    char why[300];
};

/* How long a file must stay the same to be taken for whole. */
#define BR_WATCH_SETTLES_NS UINT64_C(1000000000)

/* Makes graph->state->watched: the files' versions before any stage reads them. */
void br_watch_begin(struct br_graph *graph);

/* Looks at all watched files. In the thread that submits. */
void br_watch_look(struct br_graph *graph);

#endif
