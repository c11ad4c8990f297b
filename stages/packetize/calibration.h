/* calibration.h - from the quantizer's scale and offset to those of the wire: baseline removed, noise of a
 * known variance.
 *
 * For each (beam, channel) the mean and the variance of the noise are followed over blocks, with a time
 * constant; then wire scale = scale k, wire offset = (offset - mean) k, k = sqrt(noise_variance) /
 * sqrt(variance). A block's own mean and variance would take a part of every burst away; following them
 * leaves it, and takes out what changes slowly. The variance of a block is scale^2 E[x^2], E[x^2] being that
 * of rounded and clamped Gaussian levels (calibration_levels). A block that is much noisier than the last
 * ones (a burst, interference) counts as four times them at most. */
#ifndef BEAMRING_STAGES_PACKETIZE_CALIBRATION_H
#define BEAMRING_STAGES_PACKETIZE_CALIBRATION_H

#include <stddef.h>
#include <stdint.h>

struct calibration {
    size_t nbeams, nchannels;
    const float *deviation; /* [nchannels] square root of the noise variance asked for */
    float levels_variance;  /* E[x^2] */
    float follow;           /* weight of a block once there were many; 1: every block for itself */
    float *mean, *variance; /* [beam][freq] */
    uint32_t *blocks;       /* [beam][freq] that were seen */
    float *row;             /* [2 nchannels] */
};

/* E[x^2] of x = clamp(round(g), -7, 7) with g Gaussian of standard deviation `rms`. */
double calibration_levels(double rms);

/* Allocates; 0 or -1. Free with calibration_free. */
int calibration_create(struct calibration *calibration);
void calibration_free(struct calibration *calibration);

/* One block: side f32 [beam][freq][2] = {scale, offset} -> f16 bits of the same shape. A scale of 0 (all
 * missing, or constant) is not followed. */
void calibrate(struct calibration *calibration, const float *side, uint16_t *wire);

#endif
