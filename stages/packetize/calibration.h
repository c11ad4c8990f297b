/* calibration.h - from the quantizer's scale and offset to those of the wire: baseline removed, noise of a
 * known variance.
 *
 * Mean and variance of the values that the levels stand for are followed from minichunk to minichunk, for
 * each (beam, channel), as kernels/quantize/follow.h has it; then wire scale = scale k, wire offset =
 * (offset - mean) k, k = sqrt(noise_variance) / sqrt(variance). A minichunk's own mean and variance would
 * take a part of every burst away; following them leaves it, and takes out what changes slowly. They come
 * from the levels, so that whatever the quantizer did (its rms, its statistics, rounding and clamping) is
 * in them. */
#ifndef BEAMRING_STAGES_PACKETIZE_CALIBRATION_H
#define BEAMRING_STAGES_PACKETIZE_CALIBRATION_H

#include "kernels/common/parallel.h"
#include "kernels/quantize/follow.h"

#include <stddef.h>
#include <stdint.h>

struct calibration {
    size_t nbeams, nchannels;
    size_t steps;                      /* of a minichunk, even */
    const float *deviation;            /* [nchannels] square root of the noise variance asked for */
    double follow;                     /* time constant in steps; 0: every minichunk for itself */
    struct br_parallel parallel;       /* beams are divided among its threads; zero: none */
    struct br_follow_clock clock;      /* of [beam][freq] */
    struct br_follow *state;           /* [beam][freq] */
    struct calibration_weight *weight; /* [worker][steps + 1] */
    float *row;                        /* [worker][2 nchannels] */
};

/* Allocates; 0 or -1. The bits of what it gives do not depend on the number of threads. Free with
 * calibration_free. */
int calibration_create(struct calibration *calibration);
void calibration_free(struct calibration *calibration);

/* One minichunk: levels, 4 bits [beam][freq][steps], and side f32 [beam][freq][2] = {scale, offset} -> f16
 * bits of the shape of side. A scale of 0 (all missing, or constant) stays 0, and is not followed. */
void calibrate(struct calibration *calibration, const uint8_t *levels, const float *side, uint16_t *wire);

#endif
