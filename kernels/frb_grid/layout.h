/* layout.h - where FRB stage 1 keeps things: which cell, direction or sum a lane has, and where it stands in memory.
 *
 * A tile is 8 cells or 8 pairs of directions along one axis; `tiles` of an axis of N cells is (N + 7) / 8. */
#ifndef BEAMRING_KERNELS_FRB_GRID_LAYOUT_H
#define BEAMRING_KERNELS_FRB_GRID_LAYOUT_H

#include "kernels/common/layout.h"

/* The field of one sample, right factor of the first transform:
 *   x[pair]  simd: b <-> m0   thread: t4..t0 <-> n2 n1 n0 m2 m1   [pair]: frb_grid_pair of the tiles of m and n */
static inline BR_HD unsigned frb_grid_cell_m(unsigned tile, unsigned lane, unsigned simd)
{
    return 8 * tile + 2 * (lane % 4) + simd;
}

static inline BR_HD unsigned frb_grid_cell_n(unsigned tile, unsigned lane)
{
    return 8 * tile + lane / 4;
}

static inline BR_HD unsigned frb_grid_pair(unsigned m_tiles, unsigned m_tile, unsigned n_tile)
{
    return n_tile * m_tiles + m_tile;
}

/* Weights of one channel and polarisation: [(pairs + 1) / 2][lane][2] of (re, re', im, im') float16, the weights of
 * cells m and m' = m + 1; in units of these 8 bytes. A lane loads two pairs at once. */
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
static inline BR_HD unsigned frb_grid_wave(unsigned tiles, unsigned p_tile, unsigned m_tile, unsigned lane)
{
    return (p_tile * tiles + m_tile) * 32 + lane;
}

static inline BR_HD unsigned frb_grid_wave_p(unsigned tile, unsigned lane)
{
    return 8 * tile + lane / 4;
}

static inline BR_HD unsigned frb_grid_wave_m(unsigned tile, unsigned lane, unsigned simd)
{
    return 8 * tile + 2 * (lane % 4) + simd;
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
static inline BR_HD unsigned frb_grid_sum(unsigned n_tiles, unsigned p_tile, unsigned n_tile, unsigned odd, unsigned lane)
{
    return ((p_tile * n_tiles + n_tile) * 2 + odd) * 32 + lane;
}

/* The place among 2 N directions of the positive and the negative one of pair q; 0 and N make up pair 0. */
static inline BR_HD unsigned frb_grid_direction(unsigned N, unsigned q, unsigned minus)
{
    return !minus ? q : q == 0 ? N : 2 * N - q;
}

#endif
