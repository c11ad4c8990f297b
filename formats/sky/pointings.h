/* pointings.h - where beams point later on.
 *
 * The motion in a stream's description is that of the pipeline file. Updates and steering point its beams
 * elsewhere, from base samples on. The stage that forms the beams enters that before it publishes the first
 * of these samples; stages behind it look. Any thread. */
#ifndef BEAMRING_FORMATS_SKY_POINTINGS_H
#define BEAMRING_FORMATS_SKY_POINTINGS_H

#include "formats/sky/motion.h"

#include <pthread.h>
#include <stdatomic.h>

enum { POINTINGS_KEPT = 64 }; /* of those that hold already */

/* From a base sample on. */
struct br_pointing {
    struct br_pointing *later;
    uint64_t from;
    atomic_uint users;
    struct br_motion motion; /* with tables of its own */
};

/* Those of one stream, in order of time. Zeroed by who owns it; it lives as long as the stream. */
struct br_pointings {
    pthread_mutex_t lock; /* held for microseconds */
    struct br_pointing *first;
};

/* One with a copy of the motion and of all that it refers to; the caller's until it is entered. NULL: no
 * memory. */
struct br_pointing *br_pointing_make(const struct br_motion *motion, uint64_t from);
void br_pointing_free(struct br_pointing *pointing); /* with the later ones; NULL is allowed */

/* `file` is the motion of the stream's description; NULL, or one without pointings: nothing is ever
 * entered.
 *
 * From `sample` on, beams point where `chain` says (NULL: as before), and no longer where earlier calls
 * said. Its first entries may begin before that; the last one of these holds from `sample` on. Takes the
 * chain. */
void br_pointings_enter(const struct br_motion *file, struct br_pointing *chain, uint64_t sample);

/* None is left: for the owner's end. */
void br_pointings_clear(const struct br_motion *file);

/* The motion that holds at a base sample: `file`, or one that was entered, which is *held then, to be
 * released when the caller no longer needs it. */
const struct br_motion *br_pointings_hold(const struct br_motion *file, uint64_t sample,
                                          struct br_pointing **held);
void br_pointing_release(struct br_pointing *held); /* NULL is allowed */

/* The first base sample behind `sample` from which another one holds; UINT64_MAX: none is known. */
uint64_t br_pointings_next(const struct br_motion *file, uint64_t sample);

#endif
