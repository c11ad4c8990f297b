/* horizon.h - beams that follow the sky, as they run: where they point now, which of them are below the
 * horizon, and telling people of it. */
#ifndef BEAMRING_STAGES_COMMON_SKY_HORIZON_H
#define BEAMRING_STAGES_COMMON_SKY_HORIZON_H

#include "formats/sky/motion.h"
#include "runtime/stage.h"

/* Zeroed by who owns it. */
struct br_horizon {
    struct br_beam *there; /* [nbeams], x = y = NAN below the horizon; memory of the pipeline */
    size_t nbeams, nbelow; /* so many of them are below it now */
    bool *rose;            /* [nbeams]: was above the horizon at some time */
    bool old;              /* directions are now for a time outside of the IERS file's days */
    bool told_below, told_old;
    uint64_t below, aged; /* base samples: of all beams below the horizon; with such directions */
};

/* In configure: memory, and the stage's counters. */
void br_horizon_configure(struct br_stage *stage, size_t nbeams, struct br_horizon *h);

/* The beams point where they are in an interval, which is in `there` already. */
void br_horizon_look(struct br_stage *stage, struct br_horizon *h, const struct br_motion *motion,
                     uint64_t interval);

/* Counts base samples for which the beams point there. */
void br_horizon_count(struct br_stage *stage, struct br_horizon *h, uint64_t samples);

/* The next run of neighbouring beams below the horizon: from *first on, of *count beams. Returns false when
 * there is none at or after *first. */
bool br_horizon_below(const struct br_horizon *h, size_t *first, size_t *count);

/* Sets steps [begin, end) of beams below the horizon to 0, since they have no power, in float16
 * [freq][nsteps][beam] of output 0. Status. */
int br_horizon_clear(struct br_stage *stage, const struct br_horizon *h, void *data, size_t nsteps,
                     size_t begin, size_t end);

/* In commit: goes on with new beams. In stop: names beams that were below the horizon all the time. */
void br_horizon_commit(struct br_horizon *now, const struct br_horizon *with);
void br_horizon_end(struct br_stage *stage, const struct br_horizon *h);

#endif
