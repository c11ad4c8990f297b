/* shape.h - shapes of the baseband beamformer, for its tests. */
#ifndef BEAMRING_TESTS_KERNELS_BASEBAND_SHAPE_H
#define BEAMRING_TESTS_KERNELS_BASEBAND_SHAPE_H

#include "kernels/baseband/baseband.h"

/* Samples, channels, polarisations, dishes, beams, channels of the weights. */
struct shape {
    size_t T, F, P, D, B, WF;
};

static inline struct br_baseband_params params_of(struct shape n, const int8_t *weights, const int32_t *shift)
{
    return (struct br_baseband_params){.nchannels = n.F,
                                       .npol = n.P,
                                       .nbeams = n.B,
                                       .ndishes = n.D,
                                       .weights = weights,
                                       .shift = shift,
                                       .weight_channels = n.WF};
}

#endif
