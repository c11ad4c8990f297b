/* quantize.h - intensities to 4 or 8 bits, per block of time, in the order of the wire.
 *
 * For each (beam, channel) of one block of T samples, over the valid ones:
 *
 *   level = clamp(round half to even((J - offset) / scale)),   value = scale level + offset in units of J
 *
 *   statistics   offset             scale
 *   of the block its mean           its standard deviation / levels_rms
 *   slow         expected mean E    sqrt(V) / levels_rms; for 4 bits at least (largest J - E) / 7
 *
 * E and V are what earlier blocks say of mean and variance (kernels/quantize/follow.h): a burst does not
 * lower its own levels. With 8 bits scales vary slowly, so that levels alone are data that a search can
 * take; what is too bright for them is clamped. With 4 bits the scale, which goes with them, makes room
 * for the largest value.
 *
 *   bits  levels       stored as                missing  out
 *   4     -7 to 7      two's complement nibble  -8       [B][F][T/2], even t in the low nibble (T even)
 *   8     -127 to 127  128 + level              0        [B][F][T]
 *
 * A block without a valid sample has scale = offset = 0; a constant block has scale 0 and levels 0. J may
 * be not finite only where it is missing. Everything is float32 (float64 in the reference).
 *
 * Which file computes it. A row applies where no row above it does; the files are in kernels/quantize/:
 *
 *   backend       shape and call                               architecture  file
 *   BR_REFERENCE  all                                          host          reference.c
 *   BR_CPU        all                                          any host      cpu/cpu.c (AVX2 where there is)
 *   BR_CUDA       T = 64, 128, 256, B a multiple of 8,         any GPU       gpu/tile.cuh, rows.cuh
 *                 `in` and `out` multiples of 16 bytes
 *   BR_CUDA       all                                          any GPU       gpu/any.cuh
 *
 * Any GPU is one of compute capability 8.0 or newer. gpu/launch.cu chooses; docs/kernels.md says how each
 * works. */
#ifndef BEAMRING_KERNELS_QUANTIZE_QUANTIZE_H
#define BEAMRING_KERNELS_QUANTIZE_QUANTIZE_H

#include "kernels/common/kernel.h"
#include "kernels/common/parallel.h"

#include <stdbool.h>
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
    double follow; /* slow statistics: their time constant in samples, at least 1; 0: those of the block */
    struct br_parallel parallel; /* BR_CPU: shares the work, by channels and beams; may be zeroed */
};

struct br_quantize;

/* `*plan` is freed with br_quantize_destroy. Returns -1 with `why` on a bad parameter or no memory. */
int br_quantize_create(struct br_quantize **plan, enum br_backend backend,
                       const struct br_quantize_params *params, struct br_why *why);
void br_quantize_destroy(struct br_quantize *plan);

/* Forgets what earlier blocks say: the next one is the first. */
void br_quantize_restart(struct br_quantize *plan);

/* One block:
 *
 * in        [F][in_stride][B]  float16 bits, the first `block` steps of each channel
 * in_valid  [F][in_stride]     0: missing; NULL: all valid
 * out       [B][F][T]          levels as above, 4 or 8 bits
 * side      [B][F][2]          float32: scale, offset
 *
 * Returns the number of levels that were clamped. With slow statistics the plan remembers them from call to
 * call, and blocks are to come in the order of time; else it has no state.
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
