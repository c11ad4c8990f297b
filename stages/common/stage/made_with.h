/* made_with.h - the updates that data were made with, as products' headers say it. */
#ifndef BEAMRING_STAGES_COMMON_STAGE_MADE_WITH_H
#define BEAMRING_STAGES_COMMON_STAGE_MADE_WITH_H

#include "runtime/stage.h"

/* The updates (br_stage_updates_held) that held at base sample `first`, and those that began before `end`:
 * STAGE:SAMPLE:DIGEST:ID, with commas between, cut behind one of them, with "..." then. "" where there is
 * none. Returns its length. */
size_t made_with(const struct br_stage *stage, uint64_t first, uint64_t end, char *text, size_t size);

/* Room in a header, for some thirty of them, where there may be any; else 0. */
enum { MADE_WITH_ROOM = 2048 };
size_t made_with_room(const struct br_stage *stage);

/* One of them out of such a text: returns what follows it, or NULL where there is none. Names are as they
 * were; `id` may hold more than it says, then it is cut. */
struct made_with_one {
    char stage[80], id[80], digest[24];
    uint64_t sample;
};
const char *made_with_next(const char *text, struct made_with_one *one);

#endif
