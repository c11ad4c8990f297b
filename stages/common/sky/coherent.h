/* coherent.h - a stage that forms coherent beams with kernels/baseband: its parameters, weights, plan and the
 * update of all of these. baseband_beamform and power_beams are made of it. */
#ifndef BEAMRING_STAGES_COMMON_SKY_COHERENT_H
#define BEAMRING_STAGES_COMMON_SKY_COHERENT_H

#include "stages/common/sky/beam_weights.h"
#include "stages/common/sky/horizon.h"
#include "stages/common/sky/moving.h"

/* Zeroed by who owns it, but for the parameters. */
struct br_coherent {
    const char *weights_file, *gains_file; /* parameters */
    const struct br_beams_param *beams;
    int64_t shift;

    struct br_weights_rule rule;
    struct br_weights weights;        /* nfreq is 1 or the input's channels; memory of the pipeline */
    struct br_baseband_params params; /* the plan's; what is not weights and shape is the stage's to set */
    size_t uploads;                   /* bytes of an execute beside validity; the stage's to set */
    struct br_baseband *plan;
    struct br_cuda *cuda; /* NULL on the CPU */

    /* For moving beams: the maker of their weights, NULL: they stand still; and the interval of those that
     * the plan has, UINT64_MAX: none of it. */
    struct br_moving *moving;
    uint64_t interval;
    struct br_pointing *pointing; /* of an update, until it is committed: where its beams point */
    struct br_horizon horizon;    /* where they point; nbeams is 0 for weights from a file */
};

/* The parameters of a stage whose struct `owner` has a br_coherent `coherent`; without BR_SHIFT_PARAM the
 * stage sets its shift before br_coherent_configure. */
#define BR_COHERENT_PARAMS(owner)                                                                            \
    BR_PARAM("weights", BR_P_PATH, owner, coherent.weights_file,                                             \
             "HDF5 file with /weights int8 [freq or 1][pol][beam][dish][2] and /shift int32 [freq or "       \
             "1][pol][beam]"),                                                                               \
        BR_BEAMS_PARAM(owner, coherent.beams, false,                                                         \
                       "directions of the beams, from which the stage computes the weights"),                \
        BR_PARAM("gains", BR_P_PATH, owner, coherent.gains_file,                                             \
                 "HDF5 file with /gain complex64 [freq or 1][pol][dish], multiplied into weights computed "  \
                 "from beams")

/* And the one that those take whose output has integers. */
#define BR_SHIFT_PARAM(owner)                                                                                \
    BR_PARAM("shift", BR_P_INT, owner, coherent.shift,                                                       \
             "bits by which sums are shifted down, for all beams; -1: those of the file, or the number "     \
             "that keeps "                                                                                   \
             "the rms of white input",                                                                       \
             .def = "-1", .min = -1, .max = 30)

/* Expects int4x2 [time][freq][pol][dish] at input 0; makes the weights and the description of the beams in
 * `out`. Status; a failure is the stage's. */
int br_coherent_configure(struct br_stage *stage, struct br_coherent *c, struct br_stream *out);

/* Adds the memory of weights and of the uploads of an execute. */
void br_coherent_memory(struct br_stage *stage, const struct br_coherent *c, struct br_memory *m);

/* Chooses the backend, makes the plan and starts the thread of moving beams; the stage calls
 * br_stage_gpu_holds when it has all. br_coherent_stop frees what there is. */
int br_coherent_start(struct br_stage *stage, struct br_coherent *c);
void br_coherent_stop(struct br_stage *stage, struct br_coherent *c);

/* Gives the plan the weights that hold at a base sample, after the stage's updates that are due there, in
 * `process`. *until is the first sample from which others hold, at most `end`. Beams below the horizon
 * (c->horizon) have weights 0; the stage counts their samples. */
int br_coherent_weights(struct br_stage *stage, struct br_coherent *c, uint64_t sample, uint64_t end,
                        uint64_t *until);

/* The stage's prepare, commit and discard, for stages whose struct begins with a br_coherent. */
extern const char *const br_coherent_updates[];
int br_coherent_prepare(struct br_stage *stage, void *fresh, const void *self);
void br_coherent_commit(struct br_stage *stage, void *self, void *fresh, uint64_t sample);
void br_coherent_discard(struct br_stage *stage, void *fresh);

#endif
