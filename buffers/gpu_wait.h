/* gpu_wait.h - a host thread that waits for an event. */
#ifndef BEAMRING_BUFFERS_GPU_WAIT_H
#define BEAMRING_BUFFERS_GPU_WAIT_H

#include "buffers/gpu.h"

#include <stdatomic.h>

/* The state of one place in the code that waits for events. All zero at the start, except `stop`. */
enum { BR_GPU_WAITS = 4 };
struct br_gpu_waits {
    uint64_t ns[BR_GPU_WAITS]; /* lengths of the last waits */
    unsigned next;
    /* CLOCK_MONOTONIC when the present wait began, in ns; 0: not waiting. Any thread may read it */
    _Atomic uint64_t since;
    const _Atomic bool *stop; /* the wait ends when this becomes true; may be NULL */
};

/* The calling thread sleeps until the event has occurred. `waits` keeps the lengths of past waits, from which
 * the next one chooses how long to sleep. Errors: BR_E_STOPPED if waits->stop became true first; BR_E_DEVICE.
 */
int br_gpu_event_wait(br_gpu_event event, struct br_gpu_waits *waits, struct br_error *error);

#endif
