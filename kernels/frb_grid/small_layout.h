/* small_layout.h - where FRB stage 1 keeps things for small grids (small.cuh).
 *
 * One axis of the grid has 8 cells, it is called `across`. The other one, `along`, has L: 8 or 12. Lane 4 g +
 * j of the warp has the cells g across, all of them along, of two samples of eight. */
#ifndef BEAMRING_KERNELS_FRB_GRID_SMALL_LAYOUT_H
#define BEAMRING_KERNELS_FRB_GRID_SMALL_LAYOUT_H

#include "kernels/common/fragments.h"

#include <stdbool.h>

/* ---- a piece of a block of time: bytes as they come ---- */

/* Bytes of one time in device memory, when kept for the next call, and in shared memory, where times that the
 * four lanes of the same g want at once begin 8 banks apart. */
static inline BR_HD unsigned frb_small_row(unsigned L)
{
    return 16 * L;
}

static inline BR_HD unsigned frb_small_pitch(unsigned L)
{
    return frb_small_row(L) + 16;
}

/* Eight samples are multiplied at once: times of one polarisation, then, if there are two, of the other. */
static inline BR_HD unsigned frb_small_times(unsigned npol)
{
    return npol == 2 ? 4 : 8;
}

static inline BR_HD unsigned frb_small_time(unsigned npol, unsigned sample)
{
    return npol == 2 ? sample % 4 : sample;
}

static inline BR_HD unsigned frb_small_pol(unsigned npol, unsigned sample)
{
    return npol == 2 ? sample / 4 : 0;
}

/* ---- what a lane has of the field ---- */

/* x[L]  simd: b <-> k0  thread: t4..t0 <-> g2 g1 g0 k2 k1 */
static inline BR_HD unsigned frb_small_cell(unsigned lane)
{
    return lane / 4;
}

static inline BR_HD unsigned frb_small_sample(unsigned lane, unsigned simd)
{
    return 2 * (lane % 4) + simd;
}

/* Weights of one channel: [polarisations][L / 4][8 across][4] of (re, im) float16; in units of these 4 bytes.
 * A lane loads four at once. */
static inline BR_HD unsigned frb_small_weight(unsigned L, unsigned pol, unsigned along, unsigned g)
{
    return ((pol * (L / 4) + along / 4) * 8 + g) * 4 + along % 4;
}

/* ---- the autocorrelation V[lag][g][h] = sum x[m + lag][g] conj(x[m][h]) ---- */

/* Products of tile i: rows are g of lags 2 i and 2 i + 1, columns are h.
 *   c[L / 2][4]  register: r1 r0 <-> lag0 h0  thread: t4..t0 <-> g2 g1 g0 h2 h1  [L / 2]: lag1 and up */
static inline BR_HD unsigned frb_small_lag(unsigned tile, unsigned reg)
{
    return 2 * tile + reg / 2;
}

/* Their factors, k being eight samples of cell m and then of cell m + 1 along, m even: the cell along in
 * register `reg` of the left factor of tile i. The right one's are m and m + 1. L: none. */
static inline BR_HD unsigned frb_small_factor(unsigned L, unsigned m, unsigned tile, unsigned reg)
{
    const unsigned cell = m + 2 * tile + reg % 2 + reg / 2;
    return cell < L ? cell : L;
}

static inline BR_HD unsigned frb_small_h(unsigned lane, unsigned reg)
{
    return 2 * (lane % 4) + reg % 2;
}

/* In shared memory: [L][8][8] complex float32, from a multiple of 128 on, turned so that half a warp, which reads the
 * same g and four h of each of four lags, finds them in different banks. In bytes; what is the same for all of a lane
 * stands first. */
static inline BR_HD unsigned frb_small_product(unsigned base, unsigned lag, unsigned g, unsigned h)
{
    return ((base + lag * 512) ^ ((lag >> 1 & 1) * 64 | (lag & 1) * 32) ^ g % 2 * 64 ^ h * 8) + g / 2 * 128;
}

/* Sums over diagonals: lane 4 i + j has those of lag 8 tile + i and differences j and j + 4, and j - 8 and j
 * - 4: b[2]  register: r <-> d2   thread: t4..t0 <-> lag2 lag1 lag0 d1 d0 */
static inline BR_HD unsigned frb_small_diagonal_lag(unsigned tile, unsigned lane)
{
    return 8 * tile + lane / 4;
}

static inline BR_HD unsigned frb_small_difference(unsigned lane, unsigned reg)
{
    return lane % 4 + 4 * reg;
}

/* Lane and register that have the difference -d; those of differences 0 and 4 have it themselves. */
static inline BR_HD unsigned frb_small_opposite_lane(unsigned lane)
{
    return lane - lane % 4 + (4 - lane % 4) % 4;
}

static inline BR_HD unsigned frb_small_opposite(unsigned lane, unsigned reg)
{
    return lane % 4 ? 1 - reg : reg;
}

/* ---- its transforms ---- */

/* Tables, left factor of the transform across and right factor of the one along, both float16.
 *   across: [lane] of a[4] as mma.sync, in units of 16 bytes; row: direction, k: (cosine, sine) of a
 * difference along:  behind it, [tiles of lags][L / 4 tiles of directions][lane] of b[2], in units of 8
 * bytes; column: direction, k: (cosine, sine) of a lag */
static inline BR_HD unsigned frb_small_wave_across(unsigned lane)
{
    return lane;
}

static inline BR_HD unsigned frb_small_wave_along(unsigned L, unsigned lag_tile, unsigned tile, unsigned lane)
{
    return 64 + (lag_tile * (L / 4) + tile) * 32 + lane;
}

/* Difference of row k of the transform across, and whether it is the sine's. */
static inline BR_HD unsigned frb_small_k_difference(unsigned k)
{
    return k % 8 / 2 + k % 2 * 4;
}

/* Image: [L / 4][4] as mma.sync's c; in memory [L / 4][4][lane] float32. */
static inline BR_HD unsigned frb_small_image_across(unsigned lane, unsigned reg)
{
    return lane / 4 + reg / 2 * 8;
}

static inline BR_HD unsigned frb_small_image_along(unsigned tile, unsigned lane, unsigned reg)
{
    return 8 * tile + 2 * (lane % 4) + reg % 2;
}

/* Place in the image of 2M x 2N directions; transposed: along is the first axis. */
static inline BR_HD unsigned frb_small_direction(unsigned L, bool transposed, unsigned across, unsigned along)
{
    return transposed ? along * 16 + across : across * 2 * L + along;
}

#endif
