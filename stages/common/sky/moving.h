/* moving.h - weights of beams that move, made ahead of time by a thread of their own: while those of one
 * interval hold, those of the next one are made. Which weights hold at a sample follows from the sample
 * alone: who needs them before they are there waits. */
#ifndef BEAMRING_STAGES_COMMON_SKY_MOVING_H
#define BEAMRING_STAGES_COMMON_SKY_MOVING_H

#include "kernels/baseband/baseband.h"
#include "stages/common/sky/beam_weights.h"

struct br_moving;

/* The thread's plans are like those that `like` makes, but for weights, shifts, the br_cuda and the workers.
 * Data that `rule` points to must live longer. `used` is what the weights are used with, NULL on the CPU; its
 * stream must live longer. NULL with `why`. */
struct br_moving *br_moving_create(const struct br_weights_rule *rule, const struct br_baseband_params *like,
                                   const struct br_cuda *used, struct br_why *why);
void br_moving_destroy(struct br_moving *moving); /* NULL is allowed */

/* Gives `plan` the weights of an interval, says where they point (beams [nbeams]), and begins with those of
 * the next one. Enqueued work goes on with the weights before. -1 with `why`. Does not allocate. */
int br_moving_take(struct br_moving *moving, struct br_baseband *plan, uint64_t interval,
                   struct br_beam *beams, struct br_why *why);

#endif
