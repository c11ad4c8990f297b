/* quantize.h - intensities to 4 or 8 bits, per block of time, in the order of the wire.
 *
 * For each (beam, channel) of one block of T samples, over the valid ones:
 *   offset = mean, scale = (standard deviation) / levels_rms,   level = round half to even((J - offset) /
 * scale), clamped 4 bits: levels -7 to 7, missing = -8; int4 [B][F][T], even t in the low nibble (T even). 8
 * bits: levels -127 to 127 stored as 128 + level; missing = 0; uint8 [B][F][T]. A block without a valid
 * sample has scale = offset = 0; a constant block has scale 0 and levels 0. J may be not finite only where it
 * is missing. Value = scale * level + offset, in the units of J. Everything in float32 (float64 in the
 * reference). */
#ifndef BEAMRING_KERNELS_QUANTIZE_H
#define BEAMRING_KERNELS_QUANTIZE_H

#include "kernels/common/kernel.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct br_quantize_params {
    size_t nchannels, nbeams; /* F, B */
    size_t block;             /* T: samples per block; even for 4 bits */
    unsigned bits;            /* 4 or 8 */
    double levels_rms;        /* levels per standard deviation, > 0 */
    struct br_cuda *cuda;     /* BR_CUDA: where its work goes; must live longer than the plan */
};

struct br_quantize;

int br_quantize_create(struct br_quantize **plan, enum br_backend backend,
                       const struct br_quantize_params *params, struct br_why *why);
void br_quantize_destroy(struct br_quantize *plan);

/* One block. in: float16 bits [F][in_stride steps][B], the first `block` steps of each channel; in_valid
 * [F][in_stride], 0 = missing, NULL: all valid. out: levels as above, [B][F][T]; side: float32 [B][F][2] =
 * scale, offset. Returns the number of levels that were clamped. The plan has no state between calls.
 *
 * With BR_CUDA in, out and side are device memory (side a multiple of 8 bytes, in and out best of 16);
 * in_valid stays host memory and is read before this returns, with one upload of F T bytes; the work is
 * enqueued; the clamped levels are added to br_cuda_counter and 0 is returned. Levels may differ from the
 * reference's by one where the value before rounding is within 1e-3 of a tie. */
uint64_t br_quantize_execute(struct br_quantize *plan, const uint16_t *in, size_t in_stride,
                             const uint8_t *in_valid, uint8_t *out, float *side);

#ifdef __cplusplus
}
#endif
#endif
