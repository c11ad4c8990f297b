/* frb_beams_quantize.h - FRB stage 2 and the quantizer in one kernel on a GPU: what frb_beams and quantize
 * would make one after the other, the same bits, without J in memory.
 *
 * Which file computes it; the files are in kernels/frb_beams_quantize/:
 *
 *   beams                   field                     block     architecture  file
 *   grid, beams_x beams_y   2M, 2N multiples of 8,    256       Hopper        gpu/quantize_beams.cuh,
 *   a multiple of 8         at most 48                steps                   form_y.cuh
 *   the rest                                                                  none: frb_beams, then quantize
 *
 * Hopper is compute capability 9.0 (blocks of threads in clusters, wgmma). docs/kernels.md says how it
 * works. */
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
 * as they are when the work is done. So is `levels`, of the same device, beams and channels, blocks of
 * BR_FRB_BEAMS_QUANTIZE_BLOCK: its rule is used, and its slow statistics are gone on with, in whichever order
 * the two execute. -1 with `why`. */
int br_frb_beams_quantize_create(struct br_frb_beams_quantize **plan, struct br_frb_beams *beams,
                                 struct br_quantize *levels, struct br_why *why);
void br_frb_beams_quantize_destroy(struct br_frb_beams_quantize *plan);

/* One block:
 *
 * in        [F][in_stride][2M][2N]  float16 bits, the first 256 steps of each channel; device, 16-byte
 *                                   aligned
 * in_valid  [F][in_stride]          0: missing; NULL: all valid; host, read before this returns out
 * [B][F][T]               levels as br_quantize_execute's; device, 16-byte aligned side      [B][F][2]
 * float32: scale, offset; device
 *
 * The work is enqueued. Clamped levels are added to br_cuda_counter. Not for the first block of slow
 * statistics (br_quantize_begins): that is the quantizer's alone. */
void br_frb_beams_quantize_execute(struct br_frb_beams_quantize *plan, const uint16_t *in, size_t in_stride,
                                   const uint8_t *in_valid, uint8_t *out, float *side);

#ifdef __cplusplus
}
#endif
#endif
