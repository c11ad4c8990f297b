/* baseband_beamform.h - inside the stage: its parameters, and what its weights follow from. */
#ifndef BEAMRING_STAGES_BASEBAND_BEAMFORM_BASEBAND_BEAMFORM_H
#define BEAMRING_STAGES_BASEBAND_BEAMFORM_BASEBAND_BEAMFORM_H

#include "formats/tables/hdf5_tables.h"
#include "kernels/baseband/baseband.h"
#include "runtime/stage.h"
#include "stages/common/sky/directions.h"

/* Input of the weights of directions; all in memory of the pipeline. */
struct weights_rule {
    const struct br_telescope *telescope;
    enum br_sideband sideband;
    const double *freq_mhz; /* [nchannels] */
    size_t nchannels, npol, ndishes;
    struct br_gains gains; /* value NULL: all 1 */
    double largest;        /* |gain| */
    int64_t shift;         /* for all; -1: what keeps the rms */
    struct br_motion motion;
};

struct moving;

struct baseband_beamform {
    const char *weights_file, *gains_file; /* parameters */
    const struct br_beams_param *beams;
    int64_t shift;

    struct weights_rule rule;
    struct br_weights weights; /* nfreq is 1 or the input's channels; memory of the pipeline */
    struct br_baseband *plan;
    struct br_cuda *cuda; /* NULL on the CPU */
    uint64_t *saturated;  /* [beam] components clamped */
    uint64_t components;  /* computed per beam */

    /* For moving beams: the maker of their weights, NULL: they stand still; and the interval of those that
     * the plan has, UINT64_MAX: none of it. */
    struct moving *moving;
    uint64_t interval;

    /* For frames within which new weights begin to hold: pieces of them, up to PIECE steps */
    uint8_t *piece;                /* [B][F][P][PIECE], where the frames are */
    uint8_t *piece_valid, *before; /* [F][PIECE]; [T][F]: the frame's validity up to there */
};

/* weights.c: reads the file; or fills in the rule but for its motion, and makes the weights at the reference
 * time. Status; a failure is the stage's. */
int baseband_take_file(struct br_stage *stage, struct baseband_beamform *bb, const struct br_stream *in);
int baseband_take_beams(struct br_stage *stage, struct baseband_beamform *bb, const struct br_stream *in);

/* The weights for these directions [rule.motion.nbeams] into weight [nchannels][npol][beam][ndishes][2] and
 * shift [nchannels][npol][beam]. Any thread. */
void baseband_weights_of(const struct weights_rule *rule, const struct br_beam *beams, int8_t *weight,
                         int32_t *shift);

#endif
