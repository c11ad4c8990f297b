/* watchdog.h - finds the stages that hang, names them, and in the end leaves them behind. */
#ifndef BEAMRING_RUNTIME_RUN_WATCHDOG_H
#define BEAMRING_RUNTIME_RUN_WATCHDOG_H

#include "runtime/run/state.h"

/* A thread that has been in one call for too long. */
struct br_hang {
    /* whose work does not end: where a GPU is waited for, the one that holds it up */
    const struct br_stage *stage;
    bool gpu;       /* it works on a GPU: it can be neither interrupted nor waited for */
    uint64_t since; /* CLOCK_MONOTONIC, in ns */
    char text[512]; /* what does not end, since when, and who waits; without the stage's name */
};

/* Looks for the thread that has been in one call for the longest time, and for more than `limit_ns`.
 * False: there is none. Takes no lock that a hanging thread could hold. Main thread. */
bool br_watchdog_find(const struct br_graph *graph, uint64_t limit_ns, struct br_hang *hang);

/* True when nothing is enqueued on any stage's stream any more. */
bool br_watchdog_gpus_idle(const struct br_graph *graph);

/* Before the process ends without its hanging threads: says of every stage that has not ended where it is,
 * and stops those on the host that have, so that their files are complete. Where a GPU's driver does not
 * answer any more the process ends in here, with exit status 1. Frames that a hanging stage holds count as
 * held in its queue's balance. */
void br_watchdog_leave(struct br_graph *graph);

#endif
