/* layout.h - where FRB stage 1 keeps things: which cell, direction or sum a lane has, and where it stands in
 * memory.
 *
 * A tile is 8 cells or 8 pairs of directions along one axis; `tiles` of an axis of N cells is (N + 7) / 8. */
#ifndef BEAMRING_KERNELS_FRB_GRID_GPU_DIRECT_LAYOUT_H
#define BEAMRING_KERNELS_FRB_GRID_GPU_DIRECT_LAYOUT_H

#include "kernels/common/layout.h"

/* The field of one sample, right factor of the first transform:
 *   x[pair]  simd: b <-> m0   thread: t4..t0 <-> n2 n1 n0 m2 m1   [pair]: frb_grid_pair */
static inline BR_HD unsigned frb_grid_cell_m(unsigned tile, unsigned lane, unsigned simd)
{
    return 8 * tile + 2 * (lane % 4) + simd;
}

/* Along n, from two tiles on, cells that are mirror images of each other, N / 2 + j and N / 2 - 1 - j, stand
 * in the same column of different tiles, j = 0 to 7 (and 8 to 15) first of the one half and then of the
 * other; or, in three tiles, those of j = 8 to 11 in columns of the third one that are 4 apart. N: no cell.
 */
static inline BR_HD unsigned frb_grid_cell_n(unsigned N, unsigned tile, unsigned lane)
{
    const unsigned tiles = (N + 7) / 8, column = lane / 4;
    if (tiles < 2) return column;
    const unsigned j = tiles == 4 ? tile % 2 * 8 + column : tile < 2 ? column : 8 + column % 4;
    const unsigned mirrored = tiles == 4 ? tile / 2 : tile < 2 ? tile : column / 4;
    return j >= N / 2 ? N : mirrored ? N / 2 - 1 - j : N / 2 + j;
}

/* Sums and differences of mirror images take the places of the cells: sums tile 0 (and 1), differences tile 1
 * (or 2 and 3); in the third of three tiles sums are the first four columns. How many tiles a product over
 * sums, or over differences, takes. */
static inline BR_HD unsigned frb_grid_sum_tiles(unsigned n_tiles)
{
    return (n_tiles + 1) / 2;
}

/* Which tile is the k'th of them. */
static inline BR_HD unsigned frb_grid_sum_tile(unsigned n_tiles, unsigned difference, unsigned k)
{
    return n_tiles == 1 ? 0 : n_tiles == 3 ? (k == 1 ? 2 : difference) : difference * (n_tiles / 2) + k;
}

static inline BR_HD unsigned frb_grid_pair(unsigned m_tiles, unsigned m_tile, unsigned n_tile)
{
    return n_tile * m_tiles + m_tile;
}

/* Weights of one channel and polarisation: [(pairs + 1) / 2][lane][2] of (re, re', im, im') float16, the
 * weights of cells m and m' = m + 1; in units of these 8 bytes. A lane loads two pairs at once. */
static inline BR_HD unsigned frb_grid_weight(unsigned pair, unsigned lane)
{
    return (pair / 2 * 32 + lane) * 2 + pair % 2;
}

static inline BR_HD unsigned frb_grid_weights(unsigned pairs)
{
    return (pairs + 1) / 2 * 64;
}

/* Tables of cosines and sines, left factor of the first transform and right factor of the second:
 *   simd: b <-> m0   thread: t4..t0 <-> p2 p1 p0 m2 m1
 * [tiles of p][tiles of m][lane] of (C, C', S, S') float16; in units of these 8 bytes. */
static inline BR_HD unsigned frb_grid_wave(unsigned m_tiles, unsigned p_tile, unsigned m_tile, unsigned lane)
{
    return (p_tile * m_tiles + m_tile) * 32 + lane;
}

static inline BR_HD unsigned frb_grid_wave_p(unsigned tile, unsigned lane)
{
    return 8 * tile + lane / 4;
}

static inline BR_HD unsigned frb_grid_wave_m(unsigned tile, unsigned lane, unsigned simd)
{
    return 8 * tile + 2 * (lane % 4) + simd;
}

/* Along n the same with frb_grid_sum_tiles; cells are then j of sums (cosines) and differences (sines).
 * 16: none. */
static inline BR_HD unsigned frb_grid_wave_j(unsigned n_tiles, unsigned difference, unsigned k, unsigned lane,
                                             unsigned simd)
{
    const unsigned column = 2 * (lane % 4) + simd;
    if (n_tiles != 3 || k == 0) return 8 * k + column;
    return column / 4 == difference ? 8 + column % 4 : 16;
}

/* Tiles of p that one warp makes: what fits into its registers. */
static inline BR_HD unsigned frb_grid_p_tiles(unsigned m_tiles, unsigned n_tiles)
{
    return m_tiles == 4 ? 2 : m_tiles == 3 && n_tiles == 4 ? 1 : m_tiles;
}

/* Sums of intensity:
 *   even, odd [p_tiles][n_tiles][4]  register: r1 r0 <-> minus q0   thread: t4..t0 <-> p2 p1 p0 q2 q1 */
static inline BR_HD unsigned frb_grid_sum_p(unsigned tile, unsigned lane)
{
    return 8 * tile + lane / 4;
}

static inline BR_HD unsigned frb_grid_sum_q(unsigned tile, unsigned lane, unsigned i)
{
    return 8 * tile + 2 * (lane % 4) + i % 2;
}

/* In memory: [p_tiles][n_tiles][even, odd][lane] of four float32; in units of 16 bytes. */
static inline BR_HD unsigned frb_grid_sum(unsigned n_tiles, unsigned p_tile, unsigned n_tile, unsigned odd,
                                          unsigned lane)
{
    return ((p_tile * n_tiles + n_tile) * 2 + odd) * 32 + lane;
}

/* The place among 2 N directions of the positive and the negative one of pair q; 0 and N make up pair 0. */
static inline BR_HD unsigned frb_grid_direction(unsigned N, unsigned q, unsigned minus)
{
    return !minus ? q : q == 0 ? N : 2 * N - q;
}

#endif
