/* layout.h - where FRB stage 1 by the 2-d autocorrelation (autocorr.cuh) keeps things.
 *
 * One axis of the grid has 8 cells, it is called `across`. The other one, `along`, has L: 8 or 12. Lane 4 g +
 * j of the warp has the cells g across, all of them along, of two samples of eight. */
#ifndef BEAMRING_KERNELS_FRB_GRID_GPU_AUTOCORR_2D_LAYOUT_H
#define BEAMRING_KERNELS_FRB_GRID_GPU_AUTOCORR_2D_LAYOUT_H

#include "kernels/common/fragments.h"

#include <stdbool.h>

/* ---- a piece of a block of time: bytes as they come ---- */

/* Bytes of one time in device memory, when kept for the next call, and in shared memory, where times that the
 * four lanes of the same g want at once begin 8 banks apart. */
static inline BR_HD unsigned frb_autocorr_2d_row(unsigned L)
{
    return 16 * L;
}

static inline BR_HD unsigned frb_autocorr_2d_pitch(unsigned L)
{
    return frb_autocorr_2d_row(L) + 16;
}

/* Eight samples are multiplied at once: times of one polarisation, then, if there are two, of the other. */
static inline BR_HD unsigned frb_autocorr_2d_times(unsigned npol)
{
    return npol == 2 ? 4 : 8;
}

static inline BR_HD unsigned frb_autocorr_2d_time(unsigned npol, unsigned sample)
{
    return npol == 2 ? sample % 4 : sample;
}

static inline BR_HD unsigned frb_autocorr_2d_pol(unsigned npol, unsigned sample)
{
    return npol == 2 ? sample / 4 : 0;
}

/* ---- what a lane has of the field ---- */

/* x[L]  simd: b <-> k0  thread: t4..t0 <-> g2 g1 g0 k2 k1 */
static inline BR_HD unsigned frb_autocorr_2d_cell(unsigned lane)
{
    return lane / 4;
}

static inline BR_HD unsigned frb_autocorr_2d_sample(unsigned lane, unsigned simd)
{
    return 2 * (lane % 4) + simd;
}

/* Weights of one channel: [polarisations][L / 4][weights, offsets][8 across][4] of (re, im) float16; in units
 * of these 4 bytes. A lane loads four at once. The offset is -8 (re - im, re + im) of the
 * weight, in units of the smallest float16. */
static inline BR_HD unsigned frb_autocorr_2d_weight(unsigned L, unsigned pol, unsigned along, unsigned g)
{
    return ((pol * (L / 4) + along / 4) * 16 + g) * 4 + along % 4;
}

static inline BR_HD unsigned frb_autocorr_2d_offset(void)
{
    return 8 * 4;
}

/* ---- the autocorrelation V[lag][g][h] = sum x[m + lag][g] conj(x[m][h]) ---- */

/* Products of one lag: rows are g, of the real part and then of the imaginary one, columns are h.
 *   v[L][4]  register: r1 r0 <-> part h0  thread: t4..t0 <-> g2 g1 g0 h2 h1  [L]: lag */
static inline BR_HD unsigned frb_autocorr_2d_part(unsigned reg)
{
    return reg / 2;
}

static inline BR_HD unsigned frb_autocorr_2d_h(unsigned lane, unsigned reg)
{
    return 2 * (lane % 4) + reg % 2;
}

/* Their factors, k being real parts of eight samples and then imaginary parts: of the left one the registers
 * are re, im, im and -re of a cell, of the right one re and im, which are the same ones. */
static inline BR_HD unsigned frb_autocorr_2d_factor_part(unsigned reg)
{
    return reg == 1 || reg == 2;
}

static inline BR_HD unsigned frb_autocorr_2d_factor_negative(unsigned reg)
{
    return reg == 3;
}

/* In shared memory: V[re, im][L][8 g][8 h] float16, of which a lag takes 16 bytes more than it has: rows of
 * eight g, which stmatrix writes, lie in different banks, and so do those of eight lags, which ldmatrix
 * reads. In bytes: */
static inline BR_HD unsigned frb_autocorr_2d_lag_bytes(void)
{
    return 8 * 16 + 16;
}

static inline BR_HD unsigned frb_autocorr_2d_product(unsigned L, unsigned part, unsigned lag, unsigned g)
{
    return (part * L + lag) * frb_autocorr_2d_lag_bytes() + g * 16;
}

/* The row of which a lane gives the address to stmatrix is frb_autocorr_2d_store_row +
 * frb_autocorr_2d_store. Four matrices are stored at once, products of lags 2 tile and 2 tile + 1, the
 * first two of the real part. */
static inline BR_HD unsigned frb_autocorr_2d_store_row(unsigned L, unsigned lane)
{
    return frb_autocorr_2d_product(L, lane / 16, lane / 8 % 2, lane % 8);
}

static inline BR_HD unsigned frb_autocorr_2d_store(unsigned L, unsigned tile)
{
    return frb_autocorr_2d_product(L, 0, 2 * tile, 0);
}

/* The same for ldmatrix: eight lags, g = 2 step and 2 step + 1, right factors of the real part, then of the
 * imaginary one. In place of lags that do not exist others are loaded. */
static inline BR_HD unsigned frb_autocorr_2d_load_row(unsigned L, unsigned lane, unsigned lag_tile)
{
    return frb_autocorr_2d_product(L, lane / 16, 8 * lag_tile + (8 * lag_tile + 8 <= L ? lane % 8 : lane % 4),
                                   lane / 8 % 2);
}

static inline BR_HD unsigned frb_autocorr_2d_load(unsigned L, unsigned step)
{
    return frb_autocorr_2d_product(L, 0, 0, 2 * step);
}

/* ---- its transforms ---- */

/* Tables of float16, in units of 16 bytes: left factors of the transform across, right ones of the one along.
 *
 *   across: [4 steps][lane] of a[4] as mma.sync
 *           row: frb_autocorr_2d_row_across; k: (g, h), g = 2 step and 2 step + 1
 *   along:  behind it, [tiles of lags][pairs of tiles of directions][lane] of b[2] of a tile and of the next
 *           one
 *           column: frb_autocorr_2d_along; k: (cosine, sine) of a lag */
static inline BR_HD unsigned frb_autocorr_2d_wave_across(unsigned step, unsigned lane)
{
    return step * 32 + lane;
}

static inline BR_HD unsigned frb_autocorr_2d_wave_along(unsigned L, unsigned lag_tile, unsigned pair,
                                                        unsigned lane)
{
    return 128 + (lag_tile * ((L + 7) / 8) + pair) * 32 + lane;
}

/* Rows of the transform across are cosines for q = row, 0 to 7, then sines for q = row - 8: with cosine sums
 * C and sine sums S of V, G[+-q] = C +- i S. In the place of q = 0, which has no sine, stands the cosine of
 * q = 8. */
static inline BR_HD unsigned frb_autocorr_2d_row_is_sine(unsigned row)
{
    return row > 8;
}

static inline BR_HD unsigned frb_autocorr_2d_row_across(unsigned row)
{
    return row <= 8 ? row : row - 8;
}

/* Columns of the transform along, so that a lane has four directions in a row of the first two tiles. */
static inline BR_HD unsigned frb_autocorr_2d_along(unsigned tile, unsigned column)
{
    return tile < 2 ? column / 2 * 4 + tile * 2 + column % 2 : 8 * tile + column;
}

/* Image: [L / 4][4]; the first two registers are of direction q, the others of -q; in memory
 * [L / 4][4][lane] float32. */
static inline BR_HD unsigned frb_autocorr_2d_image_across(unsigned lane, unsigned reg)
{
    return reg / 2 == 0 ? lane / 4 : lane < 4 ? 8 : 16 - lane / 4;
}

static inline BR_HD unsigned frb_autocorr_2d_image_along(unsigned tile, unsigned lane, unsigned reg)
{
    return frb_autocorr_2d_along(tile, 2 * (lane % 4) + reg % 2);
}

/* Place in the image of 2M x 2N directions; transposed: along is the first axis. */
static inline BR_HD unsigned frb_autocorr_2d_direction(unsigned L, bool transposed, unsigned across,
                                                       unsigned along)
{
    return transposed ? along * 16 + across : across * 2 * L + along;
}

#endif
