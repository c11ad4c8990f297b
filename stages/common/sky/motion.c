#include "stages/common/sky/motion.h"

bool br_motion_moves(const struct br_motion *motion)
{
    return motion->rates != NULL;
}

uint64_t br_motion_interval(const struct br_motion *motion, uint64_t sample)
{
    return br_motion_moves(motion) ? sample / motion->every : 0;
}

uint64_t br_motion_end(const struct br_motion *motion, uint64_t interval)
{
    if (!br_motion_moves(motion) || interval >= UINT64_MAX / motion->every) return UINT64_MAX;
    return (interval + 1) * motion->every;
}

void br_motion_at(const struct br_motion *motion, uint64_t interval, struct br_beam *beams)
{
    double t = 0;
    if (motion->rates != NULL)
        t = ((double)interval + 0.5) * (double)motion->every * motion->sample_s - motion->reference_s;
    for (size_t b = 0; b < motion->nbeams; b++) {
        beams[b] = motion->beams[b];
        if (motion->rates == NULL) continue;
        beams[b].x += motion->rates[b].x * t;
        beams[b].y += motion->rates[b].y * t;
    }
}
