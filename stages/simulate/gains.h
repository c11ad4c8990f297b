/* gains.h - what the receivers multiply the sky's field and their noise by: gains, and phases that drift. */
#ifndef BEAMRING_STAGES_SIMULATE_GAINS_H
#define BEAMRING_STAGES_SIMULATE_GAINS_H

#include "runtime/stage.h"

struct gains_params {
    const char *gains_file, *drifts_file;
    double drift_rms; /* cycles per hour */
    uint64_t seed;
    size_t nchannels, npol, ndishes;
};

struct gains {
    float *gain;  /* [lines][dish][2], lines being pol or freq x pol; NULL: all 1 */
    size_t lines; /* rows of gain */
    float *drift; /* [pol][dish] radians per second; NULL: none */
};

/* Reads and draws what `params` say, into memory of the pipeline; fails at the stage's parameters. */
int gains_take(struct gains *gains, struct br_stage *stage, const struct gains_params *params);

/* rotation[pol][dish][2] = exp(i drift t) after t seconds, of `count` inputs. */
void gains_rotation(const float *drift, size_t count, double t, float *rotation);

#endif
