/* baseband.h - the baseband beamformer, Eq. (1) of the kernel note, exact.
 *
 *   J[b][f][p][t] = clamp((sum_d A[f][p][b][d] E[t][f][p][d] + 2^(s-1)) >> s, -7, 7), component by component,
 *
 * s = s[f][p][b] >= 0, no rounding term at s = 0, arithmetic shift (rounds half up); sums exact in integers. */
#ifndef BEAMRING_KERNELS_BASEBAND_H
#define BEAMRING_KERNELS_BASEBAND_H

#include "kernels/common/kernel.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct br_baseband_params {
    size_t nchannels, npol, nbeams, ndishes; /* F, P, B, D, each >= 1; D <= 65536 so that sums fit 32 bits */
    const int8_t *weights;    /* [weight_channels][P][B][D][2] = re, im in [-127, 127] */
    const int32_t *shift;     /* [weight_channels][P][B], 0 to 30 */
    size_t weight_channels;   /* F, or 1 when all channels share them */
};

struct br_baseband;

/* Copies the weights into its own layout. Returns -1 with `why` (a weight of -128 or a shift out of range is named with its
 * position). The plan has no state between calls. */
int br_baseband_create(struct br_baseband **plan, enum br_backend backend, const struct br_baseband_params *params,
                       struct br_why *why);
void br_baseband_destroy(struct br_baseband *plan);

/* e         [T][F][P][D] int4x2, components in [-8, 7]
 * e_valid   [T][F], 0 = missing; NULL: all valid
 * out       [B][F][P][T] int4x2; missing samples are 0x88 = (-8, -8)
 * out_valid [F][T], 0 or 255; may be NULL when e_valid is NULL
 * saturated [B], the number of components clamped is added per beam; NULL if not wanted
 * Returns the total number of clamped components. */
uint64_t br_baseband_execute(struct br_baseband *plan, const uint8_t *e, const uint8_t *e_valid, size_t nsteps,
                             uint8_t *out, uint8_t *out_valid, uint64_t *saturated);

#ifdef __cplusplus
}
#endif
#endif
