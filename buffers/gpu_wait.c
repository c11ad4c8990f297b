/* gpu_wait.c - see gpu_wait.h.
 *
 * An event that the driver can wait for without spinning raises an interrupt when it happens, waited for
 * or not, and wakes a thread of the driver's: on an H200 in a virtual machine a wait cost 78 us of
 * processor time and came back 370 us late. Frames come at a regular pace, so it is known well
 * how long to sleep: most of the shortest of the last waits at one go, then short naps, each a small part
 * of the time waited so far. */
#include "buffers/gpu_wait.h"
#include "buffers/clock.h"

#include <time.h>

enum { NAP_NS = 20000, LONGEST_NAP_NS = 1000000 };

static void nap(uint64_t ns)
{
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}

static bool given_up(const struct br_gpu_waits *waits)
{
    return waits->stop != NULL && atomic_load_explicit(waits->stop, memory_order_relaxed);
}

int br_gpu_event_wait(br_gpu_event event, struct br_gpu_waits *waits, struct br_error *error)
{
    uint64_t begin = br_clock_ns(), expected = UINT64_MAX;
    int happened = br_gpu_event_query(event, error);
    for (int i = 0; i < BR_GPU_WAITS; i++)
        if (waits->ns[i] < expected) expected = waits->ns[i];
    if (happened == 0) atomic_store_explicit(&waits->since, begin, memory_order_relaxed);
    if (happened == 0 && expected > 4 * NAP_NS) {
        nap(expected - expected / 16);
        happened = br_gpu_event_query(event, error);
    }
    while (happened == 0 && !given_up(waits)) {
        uint64_t part = (br_clock_ns() - begin) / 32;
        nap(part < NAP_NS ? NAP_NS : part > LONGEST_NAP_NS ? LONGEST_NAP_NS : part);
        happened = br_gpu_event_query(event, error);
    }
    atomic_store_explicit(&waits->since, 0, memory_order_relaxed);
    waits->ns[waits->next++ % BR_GPU_WAITS] = br_clock_ns() - begin;
    if (happened == 0) return BR_E_STOPPED;
    return happened > 0 ? BR_OK : happened;
}
