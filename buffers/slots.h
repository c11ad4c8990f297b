/* slots.h - the memory of a ring and who still needs which slot. Private to buffers/; callers hold the
 * queue's lock. */
#ifndef BEAMRING_BUFFERS_SLOTS_H
#define BEAMRING_BUFFERS_SLOTS_H

#include "buffers/queue.h"

struct br_slot {
    struct br_frame frame;
    uint64_t order;   /* counts the acquisitions: which slot is older */
    bool used;        /* it counts as used, see ring.h */
    unsigned needed;  /* 1 for the producer that holds it, and blocking readers that have not released it */
    unsigned reading; /* readers that do not block and are reading it */
    unsigned waiting; /* dropping readers that have yet to read it: a lap may take it away from them */

    /* While it is kept, see history.h. */
    bool kept, pinned;
    uint64_t number; /* of the entry as which it was published last */
    struct br_slot *older, *newer;
};

struct br_slots {
    struct br_slot *slot; /* [count] */
    /* The free ones, a ring of `count` from `head` on. In host memory the last in is the first out: its
     * cache is the warmest. Where a GPU works on frames the first in is the first out: what was released
     * last may be in use the longest. */
    struct br_slot **idle;
    unsigned count, nidle, head;
    uint64_t order;
    struct br_place place;
    void *memory; /* of the host: everything, or just the validity of frames on a device */
    void *device; /* data and side arrays of frames on a device */
    size_t bytes; /* of memory */
    bool pinned;
};

/* Bytes of the host's memory, and of a device's, for `count` frames of the stream; SIZE_MAX if that does
 * not fit in size_t. */
size_t br_slots_bytes(const struct br_stream *stream, struct br_place place, unsigned count);
size_t br_slots_device_bytes(const struct br_stream *stream, struct br_place place, unsigned count);

/* Reserves and touches the memory. Errors: BR_E_NO_MEMORY, BR_E_DEVICE, naming `queue`. */
int br_slots_reserve(struct br_slots *slots, const char *queue, const struct br_stream *stream,
                     struct br_place place, unsigned count, struct br_error *error);
void br_slots_free(struct br_slots *slots);

/* Its place in the ring. */
static inline unsigned br_slot_index(const struct br_slots *slots, const struct br_slot *slot)
{
    return (unsigned)(slot - slots->slot);
}

/* An empty frame that nobody needs yet; there must be an idle one. */
struct br_slot *br_slots_take(struct br_slots *slots);

static inline void br_slots_give(struct br_slots *slots, struct br_slot *slot)
{
    slots->idle[(slots->head + slots->nidle++) % slots->count] = slot;
}

#endif
