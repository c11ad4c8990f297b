/* frb_beams_quantize.h - FRB stage 2 and the quantizer at once, on a GPU: what frb_beams and quantize
 * would make one after the other, the same bits, without J in memory.
 *
 * For beams on a grid (factorizable), a multiple of 8 in all, 2M and 2N multiples of 8 and at most 48, in
 * blocks of 256 steps; GPUs of compute capability 9.0 (blocks of threads in clusters, wgmma). */
#ifndef BEAMRING_KERNELS_FRB_BEAMS_QUANTIZE_FRB_BEAMS_QUANTIZE_H
#define BEAMRING_KERNELS_FRB_BEAMS_QUANTIZE_FRB_BEAMS_QUANTIZE_H

#include "kernels/frb_beams/frb_beams.h"
#include "kernels/quantize/quantize.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { BR_FRB_BEAMS_QUANTIZE_BLOCK = 256 };

struct br_frb_beams_quantize;

/* Whether there is such a kernel for these shapes on GPU `device`. If not, `why` says what for. */
bool br_frb_beams_quantize_can(int device, unsigned grid_m, unsigned grid_n, size_t beams_x, size_t beams_y,
                               size_t block, struct br_why *why);

/* Whether it is faster than the two apart. Its time goes with the tiles of 96 by 32 beams that it covers,
 * whatever is empty of them. Measured on an H200: where it covers at most half as many beams again as there
 * are, it takes 0.27 to 0.84 of their time (fields of 16 x 16 to 48 x 48 cells); where twice as many, 0.52 to
 * 0.88 for 48 x 48 cells, 1.01 to 1.13 for fewer; four times, 1.61. */
bool br_frb_beams_quantize_pays(unsigned grid_m, unsigned grid_n, size_t beams_x, size_t beams_y);

/* `beams` is a BR_CUDA plan that stays the caller's and must outlive this one; its weights are the ones used,
 * as they are when the work is done. bits and levels_rms as for the quantizer. */
int br_frb_beams_quantize_create(struct br_frb_beams_quantize **plan, struct br_frb_beams *beams,
                                 unsigned bits, double levels_rms, struct br_why *why);
void br_frb_beams_quantize_destroy(struct br_frb_beams_quantize *plan);

/* One block. in: float16 bits [F][in_stride steps][2M][2N], the first 256 steps of each channel (device, a
 * multiple of 16 bytes); in_valid [F][in_stride] (host, read before this returns) or NULL; out, side: as
 * br_quantize_execute (device; out a multiple of 16 bytes). Clamped levels are added to br_cuda_counter. */
void br_frb_beams_quantize_execute(struct br_frb_beams_quantize *plan, const uint16_t *in, size_t in_stride,
                                   const uint8_t *in_valid, uint8_t *out, float *side);

#ifdef __cplusplus
}
#endif
#endif
