/* slots.h - the memory of a ring and who still needs which slot. Private to buffers/; callers hold the
 * queue's lock. */
#ifndef BEAMRING_BUFFERS_SLOTS_H
#define BEAMRING_BUFFERS_SLOTS_H

#include "buffers/queue.h"

struct br_slot {
    struct br_frame frame;
    uint64_t order;   /* number of its acquisition: smaller is older */
    bool used;        /* counts as used, see ROOM in ring.h */
    unsigned needed;  /* 1 if the producer holds it, plus the blocking readers that have not released it */
    unsigned reading; /* dropping and history readers that are reading it */
    unsigned waiting; /* dropping readers that have not read it yet: the producer may take it from them */

    /* For a frame that is kept, see history.h. */
    bool kept, pinned;
    uint64_t number; /* of the entry as which it was last published */
    struct br_slot *older, *newer;
};

struct br_slots {
    struct br_slot *slot; /* [count] */
    /* Free slots, a ring of `count` that starts at `head`. In host memory the last one in is the first one
     * out, because it is most likely still cached. If a GPU works on frames the first one in is the first one
     * out, because the GPU may still use the slots that were released last. */
    struct br_slot **idle;
    unsigned count, nidle, head;
    uint64_t order;
    struct br_place place;
    void *memory; /* host memory: everything, or only the validity of frames on a device */
    void *device; /* data and side arrays of frames on a device */
    size_t bytes; /* of memory */
    bool pinned;
};

/* Bytes of host memory, and of device memory, for `count` frames of the stream; SIZE_MAX if the number does
 * not fit in size_t. */
size_t br_slots_bytes(const struct br_stream *stream, struct br_place place, unsigned count);
size_t br_slots_device_bytes(const struct br_stream *stream, struct br_place place, unsigned count);

/* Reserves and touches the memory of `count` frames; all slots are free then. Errors: BR_E_NO_MEMORY,
 * BR_E_DEVICE; the message names `queue`, and nothing needs to be freed. */
int br_slots_reserve(struct br_slots *slots, const char *queue, const struct br_stream *stream,
                     struct br_place place, unsigned count, struct br_error *error);
void br_slots_free(struct br_slots *slots);

/* Index of the slot. */
static inline unsigned br_slot_index(const struct br_slots *slots, const struct br_slot *slot)
{
    return (unsigned)(slot - slots->slot);
}

/* Takes a free slot and empties its frame. There must be a free slot. */
struct br_slot *br_slots_take(struct br_slots *slots);

static inline void br_slots_give(struct br_slots *slots, struct br_slot *slot)
{
    slots->idle[(slots->head + slots->nidle++) % slots->count] = slot;
}

#endif
