/* motion.h - beams that move: where they point at a sample.
 *
 *   x(t) = x + rate (t - t_ref)
 *
 * Directions hold for `every` base samples, counted from sample 0, and are those of the middle of that
 * interval: which ones hold at a sample depends on the sample alone. They are off by rate x every / 2 at
 * most. */
#ifndef BEAMRING_STAGES_COMMON_SKY_MOTION_H
#define BEAMRING_STAGES_COMMON_SKY_MOTION_H

#include "buffers/stream.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct br_motion {
    size_t nbeams;
    const struct br_beam *beams; /* [nbeams] at the reference time */
    const struct br_beam *rates; /* [nbeams] direction cosines per second; NULL: they stand still */
    uint64_t every;              /* base samples; at least 1 where there are rates */
    double sample_s;             /* seconds of a base sample */
    double reference_s;          /* of the reference time, from sample 0 on */
};

/* Whether they move at all. */
bool br_motion_moves(const struct br_motion *motion);

/* The number of the interval in which a base sample lies; 0 where beams stand still. */
uint64_t br_motion_interval(const struct br_motion *motion, uint64_t sample);

/* The first base sample behind it; UINT64_MAX: there is none. */
uint64_t br_motion_end(const struct br_motion *motion, uint64_t interval);

/* Where the beams point in it: beams[nbeams]. */
void br_motion_at(const struct br_motion *motion, uint64_t interval, struct br_beam *beams);

#endif
