/* beam_weights.h - the weights of coherent beams, from a file or from directions, for the stages that form
 * beams with kernels/baseband. */
#ifndef BEAMRING_STAGES_COMMON_SKY_BEAM_WEIGHTS_H
#define BEAMRING_STAGES_COMMON_SKY_BEAM_WEIGHTS_H

#include "formats/tables/hdf5_tables.h"
#include "kernels/common/parallel.h"
#include "runtime/stage.h"
#include "stages/common/sky/directions.h"

/* Input of the weights of directions; all in memory of the pipeline. */
struct br_weights_rule {
    const struct br_telescope *telescope;
    enum br_sideband sideband;
    const double *freq_mhz; /* [nchannels] */
    size_t nchannels, npol, ndishes;
    struct br_gains gains; /* value NULL: all 1 */
    double largest;        /* |gain| */
    int64_t shift;         /* for all; -1: what keeps the rms, times 2^fine */
    int fine;
    struct br_motion motion;
};

/* Reads weights for the stage's input [time][freq][pol][dish] from a file; a `shift` >= 0 replaces the
 * file's. They are in memory of the pipeline. Status; a failure is the stage's, at `weights`. */
int br_beam_weights_read(struct br_stage *stage, const char *path, int64_t shift, struct br_weights *weights);

/* Fills in `rule` but for its motion, which is there already, and makes the weights at the reference time
 * [nchannels][npol][beam][ndishes], in memory of the pipeline. `gains_file` may be NULL; `shift` is the
 * rule's. Status; a failure is the stage's. */
int br_beam_weights_make(struct br_stage *stage, const char *gains_file, int64_t shift,
                         struct br_weights_rule *rule, struct br_weights *weights);

/* The weights for these directions [rule.motion.nbeams] into weight [nchannels][npol][beam][ndishes][2] and
 * shift [nchannels][npol][beam]; all 0 for a beam that is NAN, below the horizon. `parallel` shares the
 * channels. Any thread. */
void br_beam_weights_of(const struct br_weights_rule *rule, const struct br_parallel *parallel,
                        const struct br_beam *beams, int8_t *weight, int32_t *shift);

/* How much |E|^2 counts in the sum over all inputs beside such beams: |A|^2, [nchannels][npol][ndishes], in
 * memory of the pipeline. */
const int32_t *br_beam_weights_incoherent(struct br_stage *stage, const struct br_weights_rule *rule);

#endif
