/* moving.h - weights of beams that move, made ahead of time by a thread of their own: while those of one
 * interval hold, those of the next one are made. Which weights hold at a sample follows from the sample
 * alone: who needs them before they are there waits. */
#ifndef BEAMRING_STAGES_BASEBAND_BEAMFORM_MOVING_H
#define BEAMRING_STAGES_BASEBAND_BEAMFORM_MOVING_H

#include "stages/baseband_beamform/baseband_beamform.h"

struct moving;

/* What `rule` points to must live longer. `used` is what the weights are used with, NULL on the CPU; its
 * stream must live longer. NULL with `why`. */
struct moving *moving_create(const struct weights_rule *rule, const struct br_cuda *used, struct br_why *why);
void moving_destroy(struct moving *moving); /* NULL is allowed */

/* Gives `plan` the weights of an interval, and begins with those of the next one. Enqueued work goes on
 * with the weights before. -1 with `why`. Does not allocate. */
int moving_take(struct moving *moving, struct br_baseband *plan, uint64_t interval, struct br_why *why);

#endif
