/* planner.h - what the thread of `inject` (planner.c) and the ledger (ledger.c) share. */
#ifndef BEAMRING_STAGES_INJECT_PLANNER_H
#define BEAMRING_STAGES_INJECT_PLANNER_H

#include "stages/inject/inject.h"

enum { INJECT_KEPT = 256, INJECT_OPEN = 256 };

/* An accepted event that is not over: it takes a part of the band. */
struct open {
    struct burst_params burst;
    uint64_t sample, end;
    char id[INJECT_ID];
};

/* An event as it was told last. */
struct told {
    char id[INJECT_ID];
    char *text; /* JSON */
    bool saved; /* the ledger has it */
};

struct inject_planner {
    struct br_stage *stage;
    struct inject *s;
    unsigned nworkers;
    int fd;        /* -1: the ledger could not be opened */
    json_t *known; /* ids that the ledger has had */

    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool has_thread, started, quit;
    uint64_t busy;              /* the first sample of the event that the thread works at; UINT64_MAX: none */
    uint64_t position;          /* no event is accepted that begins before it */
    uint64_t wanted;            /* the end of the frame for which the stage asks */
    uint64_t slot;              /* of the schedule, the next one */
    struct inject_gains *gains; /* that hold */
    struct inject_event *inbox; /* new ones */
    struct inject_event *accepted; /* for the stage's thread, in order of `begin` */
    struct inject_event *finished; /* from the stage's thread */
    uint64_t clipped;              /* by events that are over, not counted by the stage yet */
    uint64_t disk_since;           /* when the thread began to wait for the disk; 0: it does not */
    unsigned looks;                /* how often the stage has looked since, with an event that is due */
    char trouble[200];             /* why the ledger cannot be written; "": it can */
    struct open open[INJECT_OPEN];
    size_t nopen;
    struct told told[INJECT_KEPT]; /* a ring; the newest is ntold - 1 */
    size_t ntold, nunsaved;
};

/* --- ledger.c --- */

/* Opens the file for appending. -1: it cannot be; `why` says why. */
int ledger_open(const char *path, char *why, size_t size);

/* Takes the ids that an earlier run has written. A line that is none of the ledger's is told of and left
 * alone. */
void ledger_read(struct br_stage *stage, struct inject_planner *p, const char *path);

/* Writes the event into the ledger, and remembers it for those who ask. False: the ledger does not have it.
 * For the thread, without the mutex. */
bool ledger_tell(struct inject_planner *p, const struct inject_event *event);

/* Writes what the ledger does not have yet, where it can be written again. Likewise. */
void ledger_save_rest(struct inject_planner *p);

/* The share of the event's energy that was added, weighted as its spectrum. */
double ledger_share_added(const struct inject *s, const struct inject_event *event);

#endif
