/* journal.h - the file in which a node keeps its updates, so that it can go on with them after a restart.
 *
 * Lines of JSON. The first says what the file is, and which stages of the pipeline take updates. Then one
 * line for each update that is scheduled, with its values, before whoever asked for it is answered, and one
 * for what has become of it:
 *
 *   {"journal": 1, "stages": {"up": "upchannelize"}}
 *   {"id": "noon", "state": "scheduled", "at": {"sample": 8400}, "sample": 8400,
 *    "time_ns": 17600000, "epoch_ns": 0, "sample_ns": [2560, 1], "digest": "1f...",
 *    "stages": {"up": {"gain": 4}}}
 *   {"id": "noon", "state": "applied", "sample": 8448, ...}
 *
 * Each line is on the disk (fsync) before the next thing happens. A last line without its end was being
 * written when the power went: it is dropped. Anything else that cannot be read makes the whole file
 * worthless. */
#ifndef BEAMRING_RUNTIME_RUN_JOURNAL_H
#define BEAMRING_RUNTIME_RUN_JOURNAL_H

#include "buffers/error.h"

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum br_journal_state {
    BR_JOURNAL_NONE,    /* none was asked for */
    BR_JOURNAL_KEPT,    /* all that is scheduled stands in it */
    BR_JOURNAL_REFUSED, /* what is there cannot be used; nothing is written to it */
    BR_JOURNAL_FAILED   /* something could not be written; nothing is written any more */
};
extern const char *const br_journal_state_name[]; /* "none", ... */

struct br_journal {
    pthread_mutex_t mutex; /* held while something is written */
    const char *path;
    int fd;               /* -1: closed */
    pthread_mutex_t told; /* what others look at: all that follows */
    enum br_journal_state state;
    char why[300];
    size_t resumed, dropped; /* updates that hold or wait as before; half lines at its end */
};

/* Opens the file, or makes it. `stages` is {name: type} of the stages that take updates (borrowed). *lines
 * receives the lines that stand in it but the first, an array of objects that were checked, each with its
 * number as "line". On failure the state is BR_JOURNAL_REFUSED, and says why, and *lines is NULL. */
void br_journal_open(struct br_journal *journal, const char *path, json_t *stages, json_t **lines);

/* Replaces all lines by these (an array of objects), in one step. Before there are other threads. */
void br_journal_replace(struct br_journal *journal, json_t *stages, const json_t *lines);

/* Appends one line, from json_object(); it is freed. Any thread. False: it is not on the disk. */
bool br_journal_append(struct br_journal *journal, json_t *line);

/* Nothing is written any more. Waits at most `wait_ns` for what is being written; a disk that hangs longer
 * keeps the file open. */
void br_journal_close(struct br_journal *journal, uint64_t wait_ns);

#endif
