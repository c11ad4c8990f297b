/* gains.h - gains of a stage's input from a file, /gain complex64 [freq][pol][dish]. */
#ifndef BEAMRING_STAGES_COMMON_STAGE_GAINS_H
#define BEAMRING_STAGES_COMMON_STAGE_GAINS_H

#include "formats/tables/hdf5_tables.h"
#include "runtime/stage.h"

/* The shape that the gains must have: one frequency, or one for each coarse or each fine channel. */
struct br_gains_shape {
    const struct br_stream *stream; /* whose channels those of the file must be; NULL: not looked at */
    size_t ncoarse, nfine, npol, ndishes;
};

/* In configure: reads the file of the parameter `gains` into memory of the pipeline. `path` NULL: value
 * becomes NULL. Status; a failure is the stage's, at `gains`. */
int br_stage_gains(struct br_stage *stage, const char *path, const struct br_gains_shape *shape,
                   struct br_gains *gains);

#endif
