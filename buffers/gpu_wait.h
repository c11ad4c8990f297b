/* gpu_wait.h - a host thread that waits for an event. */
#ifndef BEAMRING_BUFFERS_GPU_WAIT_H
#define BEAMRING_BUFFERS_GPU_WAIT_H

#include "buffers/gpu.h"

#include <stdatomic.h>

/* One place in the code that waits for events; all zero to begin with, but for `stop`. */
enum { BR_GPU_WAITS = 4 };
struct br_gpu_waits {
    uint64_t ns[BR_GPU_WAITS]; /* how long the last waits were */
    unsigned next;
    /* CLOCK_MONOTONIC when the present wait began, in ns; 0: none. Any thread may look */
    _Atomic uint64_t since;
    const _Atomic bool *stop; /* the wait is given up when it becomes true; may be NULL */
};

/* Host after event: the calling thread sleeps until the event has happened, and learns in `waits` for how
 * long. BR_E_STOPPED when waits->stop became true before; BR_E_DEVICE. */
int br_gpu_event_wait(br_gpu_event event, struct br_gpu_waits *waits, struct br_error *error);

#endif
