/* layout.h - where FRB stage 2's kernels keep things in shared memory. C17 and CUDA C++. */
#ifndef BEAMRING_KERNELS_FRB_BEAMS_GPU_LAYOUT_H
#define BEAMRING_KERNELS_FRB_BEAMS_GPU_LAYOUT_H

#include "kernels/common/layout.h"

/* --- wgmma/arbitrary.cuh ----------------------------------------------------------------------------- */

/* Weights U_p of the 16 MB beams of a warp, in bytes from the warp's own part: halves
 * [iteration][mb][row2 row1 row0][row3][p in iteration]. An iteration has `ps` p's (4 or 8); row is the beam
 * among the 16 of a block mb. A thread reads the p's of rows g and g + 8 at once. */
static inline BR_HD unsigned br_frb_beams_p_place(unsigned iteration, unsigned mb, unsigned blocks,
                                                  unsigned row, unsigned ps)
{
    return (((iteration * blocks + mb) * 8 + row % 8) * 2 + row / 8) * ps * 2;
}

/* Results on their way out: boxes of 64 beams by NT steps, rows of 128 bytes (one step), swizzled for the
 * copy engine. Bytes from the box's start of the octet of beams `octet` (0 to 7) of step `step`. */
static inline BR_HD unsigned br_frb_beams_out_place(unsigned step, unsigned octet)
{
    return br_swizzle_128_bytes(step * 128 + octet * 16);
}

/* --- mma/grid_whole.cuh ------------------------------------------------------------------------------- */

/* 16-byte pieces of a row (a p) of the field, of which 2 qt are used: an odd number, so that 8 rows use all
 * banks. */
static inline BR_HD unsigned br_frb_beams_row(unsigned qt)
{
    return 2 * qt + 1;
}

/* Bytes from the start of a team's results, halves in rows of `pitch`, to the octet of beams from (i, j) on.
 */
static inline BR_HD unsigned br_frb_beams_put_place(unsigned i, unsigned j, unsigned pitch)
{
    return (i * pitch + j) * 2;
}

#endif
