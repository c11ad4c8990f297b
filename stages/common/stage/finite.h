/* finite.h - floats that come from outside: a value that is not finite (NaN, infinity) is missing.
 *
 * Every stage that brings floats into a pipeline (replay, receive) passes its frames through finite_take;
 * what follows may take finite values for granted wherever a frame says that they are valid. */
#ifndef BEAMRING_STAGES_COMMON_STAGE_FINITE_H
#define BEAMRING_STAGES_COMMON_STAGE_FINITE_H

#include "runtime/stage.h"

/* Makes missing what is not finite in a filled frame in the host's memory, whose validity is closed:
 *
 *   data f16 or f32   the value becomes 0, and its cell (time, freq) missing
 *   side f32          of a (beam, freq): scale and offset become 0, and the levels what the format has for
 *                     missing; a cell that has no other beam's level becomes missing
 *
 * Validity is closed again. Returns how many valid values and pairs of the side were not finite. */
uint64_t finite_clean(const struct br_stream *stream, struct br_frame *frame);

/* In configure, with output 0 described: the stage counts what was not finite, where its frames have floats.
 */
void finite_configure(struct br_stage *stage);

/* The state in a stage; zeroed. */
struct finite {
    uint64_t values;
};

/* finite_clean for a frame of output 0; counts, and warns the first time. */
void finite_take(struct br_stage *stage, struct finite *finite, struct br_frame *frame);

#endif
