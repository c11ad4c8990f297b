/* journal.h - the file in which a node keeps its updates, so that it can go on with them after a restart.
 *
 * It is a YAML file with the updates that hold or are scheduled, the newest first (update_resume.c). It is
 * replaced in one step: a reader sees the old text or the new one. A file that this program did not write
 * stays as it is. */
#ifndef BEAMRING_RUNTIME_RUN_JOURNAL_H
#define BEAMRING_RUNTIME_RUN_JOURNAL_H

#include "buffers/error.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum br_journal_state {
    BR_JOURNAL_NONE,    /* none was asked for */
    BR_JOURNAL_KEPT,    /* all that holds or is scheduled stands in it */
    BR_JOURNAL_REFUSED, /* what is there cannot be used; nothing is written to it */
    BR_JOURNAL_FAILED   /* it could not be written the last time */
};
extern const char *const br_journal_state_name[]; /* "none", ... */

struct br_journal {
    pthread_mutex_t mutex; /* held while something is written */
    const char *path;
    int fd;               /* holds the lock on the file; -1: none is there yet, or closed */
    bool closed;          /* nothing is written any more */
    pthread_mutex_t told; /* what others look at: all that follows */
    enum br_journal_state state;
    char why[300];
    size_t resumed; /* updates that hold or wait as before */
};

/* Locks and reads the file. *text receives its bytes, which the caller frees; NULL: there is none yet, or it
 * is empty. On failure the state is BR_JOURNAL_REFUSED, and *text NULL. */
void br_journal_open(struct br_journal *journal, const char *path, char **text, size_t *length);

/* What is there cannot be used, for this reason. Always false. */
bool br_journal_refuse(struct br_journal *journal, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Replaces the file; it is on the disk when this returns. Any thread. False: the old one is still there. */
bool br_journal_write(struct br_journal *journal, const char *text, size_t length);

/* Nothing is written any more. Waits at most `wait_ns` for what is being written; a disk that hangs longer
 * keeps the file locked. */
void br_journal_close(struct br_journal *journal, uint64_t wait_ns);

#endif
