/* pace.h - frames of a source at real time: `realtime` of replay and simulate. */
#ifndef BEAMRING_STAGES_COMMON_STAGE_PACE_H
#define BEAMRING_STAGES_COMMON_STAGE_PACE_H

#include "buffers/clock.h"
#include "runtime/stage.h"

struct pace {
    bool running;
    uint64_t started_ns, first; /* when the first frame was made, and its first base sample */
};

/* Waits until the frame's last sample would have been taken, counted from the first call. True when the
 * pipeline stops. */
static inline bool pace_wait(struct pace *pace, struct br_stage *stage, const struct br_frame *frame)
{
    if (!pace->running) *pace = (struct pace){true, br_clock_ns(), frame->first};
    const struct br_rational *t = &br_stage_output(stage, 0)->sample_ns;
    __uint128_t samples = frame->first + frame->samples - pace->first;
    return br_stage_sleep_until(stage,
                                pace->started_ns + (uint64_t)(samples * (uint64_t)t->num / (uint64_t)t->den));
}

#endif
