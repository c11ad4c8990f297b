/* lags_layout.h - where FRB stage 1 keeps things for grids of 12 to 24 cells each way (lags.cuh).
 *
 * One axis of the grid, of M cells, is called m: along it the autocorrelation is summed. Along the other one,
 * n, of N cells, every sample is transformed; 2N directions q. Tiles are 8 cells, or 8 pairs of directions,
 * along an axis: MT and NT of them. A block of threads takes eight samples at once. */
#ifndef BEAMRING_KERNELS_FRB_GRID_LAGS_LAYOUT_H
#define BEAMRING_KERNELS_FRB_GRID_LAGS_LAYOUT_H

#include "kernels/common/layout.h"

#include <stdbool.h>

/* ---- samples ---- */

/* A step's samples: s and s + 4 are of the same polarisation.
 *   npol 1: sample2..0 <-> time2..0   npol 2: sample2 <-> time1, sample1 <-> polarisation, sample0 <-> time0
 */
static inline BR_HD unsigned frb_lags_times(unsigned npol)
{
    return npol == 2 ? 4 : 8;
}

static inline BR_HD unsigned frb_lags_time(unsigned npol, unsigned sample)
{
    return npol == 2 ? sample / 4 * 2 + sample % 2 : sample;
}

static inline BR_HD unsigned frb_lags_pol(unsigned npol, unsigned sample)
{
    return npol == 2 ? sample / 2 % 2 : 0;
}

static inline BR_HD unsigned frb_lags_sample(unsigned npol, unsigned time, unsigned pol)
{
    return npol == 2 ? time / 2 * 4 + pol * 2 + time % 2 : time;
}

/* Bytes of one sample in shared memory, with room for a dish in each cell: those of the step's samples begin
 * in banks that are 4 apart, or 8 when four samples of two rows of cells are read at once (in_groups: by
 * wgmma). */
static inline BR_HD unsigned frb_lags_pitch(unsigned m_tiles, unsigned n_tiles, bool in_groups)
{
    return (64 * m_tiles * n_tiles + 127) / 128 * 128 + (in_groups ? 32 : 16);
}

/* ---- the field ---- */

/* Row of cells i of `rows` of a warp. */
static inline BR_HD unsigned frb_lags_row(unsigned rows, unsigned warp, unsigned i)
{
    return rows * warp + i;
}

/* Pairs of cells of a row that a lane has, of sample lane / 4: as many as it can have cells / 2. */
static inline BR_HD unsigned frb_lags_pairs(unsigned n_tiles)
{
    return n_tiles;
}

/* Cell n of half `simd` of a pair, N: none. Cells N / 2 + j and N / 2 - 1 - j are mirror images; those of one
 * lane are j = 2 l, 2 l + 1 in pairs 0 and 1 (2 and 3: 8 further), l = lane % 4, and of three tiles j = 8 + l
 * in pair 2. */
static inline BR_HD unsigned frb_lags_cell_n(unsigned N, unsigned pair, unsigned lane, unsigned simd)
{
    const unsigned l = lane % 4, lone = (N + 7) / 8 == 3 && pair == 2, mirrored = lone ? simd : pair % 2,
                   j = lone ? 8 + l : pair / 2 * 8 + 2 * l + simd;
    return j >= N / 2 ? N : mirrored ? N / 2 - 1 - j : N / 2 + j;
}

/* Where weights stand: [row][pair][lane] of (re, re', im, im') float16, in units of these 8 bytes. Lanes of
 * which the samples have the same polarisation have the same ones. */
static inline BR_HD unsigned frb_lags_weight(unsigned n_tiles, unsigned pol, unsigned m, unsigned pair,
                                             unsigned M, unsigned lane)
{
    return ((pol * M + m) * frb_lags_pairs(n_tiles) + pair) * 4 + lane % 4;
}

/* The same of one row in shared memory: [pair][2][4], in bytes; samples 0, 1, 4 and 5 have the same, and so
 * have the others. */
static inline BR_HD unsigned frb_lags_kept_weight(unsigned lane)
{
    return lane / 8 % 2 * 32 + lane % 4 * 8;
}

/* ---- the transform along n: mma.sync, a row for each of 16 (halves of) directions, k: sums and differences
 * of mirror images, a column for each sample ---- */

/* Left factors, tables of cosines and sines: this many of 16 rows by 16 (or 8, then the rest is 0). */
static inline BR_HD unsigned frb_lags_waves(unsigned n_tiles)
{
    return n_tiles == 2 ? 2 : 4;
}

/* Sums S and differences D of mirror images are right factors of k 8: k is j of S0, D0; 8 + j of S1, D1; but
 * of three tiles of X: k = 2 l is the sum, k = 2 l + 1 the difference of 8 + l. Tiles of left factors: NT 2
 * cosines S0, sines D0 NT 3   cosines (S0, X), sines (D0, X), of pairs 0 to 15; 8 rows of cosines (S0, X) and
 * 8 of sines (X), of pairs 16 to 23; the latter's sines (D0) NT 4   cosines (S0, S1) of pairs 0 to 15, 16 to
 * 31, sines (D0, D1) of the same What a row and a k of a tile are: the pair of directions (of cosines when
 * !sine), and j; false: the element is 0. */
static inline BR_HD bool frb_lags_wave(unsigned n_tiles, unsigned tile, unsigned row, unsigned k, unsigned *q,
                                       unsigned *sine, unsigned *j)
{
    *q = row, *j = k, *sine = tile % 2;
    if (n_tiles == 2) return k < 8;
    if (n_tiles == 4) {
        *q = row + tile % 2 * 16, *sine = tile / 2;
        return true;
    }
    if (tile >= 2) *q = 16 + row % 8, *sine = row / 8;
    if (k >= 8) { /* X */
        *j = 8 + k % 8 / 2;
        return tile < 3 && k % 2 == *sine;
    }
    return tile < 2 || (tile == 2) == !*sine;
}

/* ---- the same by wgmma: a row for each cell m and sample, k: real and imaginary parts of cells, a column
 * for each direction's real and imaginary part ---- */

/* A tile is 8 rows of cells: those 2 w and 2 w + 1 are warp w's of the warpgroup, and a lane has samples s
 * and s + 4 of one of them, of the cells of frb_lags_cell_n of a pair. a[4]  simd: n0   register: r1 r0 <->
 * ReIm sample2   thread: t6..t0 <-> m2 m1 m0 sample1 sample0 n2 n1 */
static inline BR_HD unsigned frb_lags_group_m(unsigned lane)
{
    return lane / 16;
}

static inline BR_HD unsigned frb_lags_group_sample(unsigned lane)
{
    return lane / 4 % 4;
}

/* c[tiles of 8 columns][2]  simd: ReIm   register: r0 <-> sample2, then direction2 and up
 *                           thread: t6..t0 <-> m2 m1 m0 sample1 sample0 direction1 direction0 */
static inline BR_HD unsigned frb_lags_group_direction(unsigned tile, unsigned lane)
{
    return 4 * tile + lane % 4;
}

/* Weights of a warp's rows in shared memory, bytes: [tile of m][polarisation][m0][pair][lane % 4] of 8. */
static inline BR_HD unsigned frb_lags_group_weight(unsigned n_tiles, unsigned tile, unsigned pol, unsigned m0,
                                                   unsigned pair, unsigned lane)
{
    return (((tile * 2 + pol) * 2 + m0) * n_tiles + pair) * 32 + lane % 4 * 8;
}

/* Right factors in shared memory, bytes: [pair: NT][column / 8][ReIm][column % 8][8 k: cells of lanes 0 to 3,
 * simd]. */
static inline BR_HD unsigned frb_lags_table(unsigned directions, unsigned pair, unsigned column,
                                            unsigned part, unsigned lane, unsigned simd)
{
    return pair * directions * 64 + column / 8 * 256 + part * 128 + column % 8 * 16 + lane * 4 + simd * 2;
}

static inline BR_HD unsigned frb_lags_table_bytes(unsigned n_tiles, unsigned directions)
{
    return n_tiles * directions * 64;
}

/* The place among 2 N directions of the positive and the negative one of pair q; 0 and N make up pair 0. */
static inline BR_HD unsigned frb_lags_direction(unsigned N, unsigned q, unsigned minus)
{
    return !minus ? q : q == 0 ? N : 2 * N - q;
}

/* ---- its result y[direction][m][l: 4][ReIm][2]: from here on complex, two samples together ---- */

/* Bytes from one direction to the next, so that four of them stand in different banks. */
static inline BR_HD unsigned frb_lags_y_pitch(unsigned m_tiles)
{
    return m_tiles * 256 + 32;
}

/* 8 bytes: (re, re', im, im') of samples 2 l and 2 l + 1, or, by wgmma, of l and l + 4: products sum over
 * all. */
static inline BR_HD unsigned frb_lags_y(unsigned m_tiles, unsigned direction, unsigned m, unsigned l)
{
    return direction * frb_lags_y_pitch(m_tiles) + m * 32 + l * 8;
}

/* ---- products, summed over samples ---- */

/* Direction i of one of `warps` warps. */
static inline BR_HD unsigned frb_lags_mine(unsigned warps, unsigned warp, unsigned i)
{
    return warp + warps * i;
}

/* Sums of tile d: of products of cells m + 8 d + g by the conjugate ones of cells m + h, m a multiple of 8.
 *   c[4]  register: r1 r0 <-> ReIm h0   thread: t4..t0 <-> g2 g1 g0 h2 h1
 * Their lag is 8 d + g - h. After three exchanges lane has that of direction lane % 4 of four and of residue
 */
static inline BR_HD unsigned frb_lags_residue(unsigned lane)
{
    const unsigned g = lane / 4;
    return ((g - lane % 2 * 2) & 7) ^ (lane & 2) * 2;
}

/* for each d, by exchanging first with the lane of the next g, then with */
static inline BR_HD unsigned frb_lags_partner(unsigned lane)
{
    const unsigned g = lane / 4, odd = lane % 2;
    return odd ? ((g - 2) & 7) * 4 + lane % 4 - 1 : ((g + 2) & 7) * 4 + lane % 4 + 1;
}

/* and last with lane ^ 18. In shared memory float16 (re, im), in bytes: */
static inline BR_HD unsigned frb_lags_lag(unsigned m_tiles, unsigned direction, unsigned lag)
{
    return direction * (m_tiles * 32 + (m_tiles == 3 ? 0 : 32)) + lag * 4;
}

/* ---- the transform of lags: rows are 8 p, of the even part, then of the odd one; columns are directions
 * ---- */

/* Element k of the left factor: the lag and whether it is its imaginary part. */
static inline BR_HD unsigned frb_lags_k_lag(unsigned step, unsigned k)
{
    return 8 * step + k % 8 / 2 * 2 + k / 8; /* both of a lane side by side */
}

/* Tables: [tiles of p][steps: MT][lane] of a[4] as mma.sync, in units of 16 bytes. */
static inline BR_HD unsigned frb_lags_turn(unsigned m_tiles, unsigned tile, unsigned step, unsigned lane)
{
    return (tile * m_tiles + step) * 32 + lane;
}

/* Images: N / 4 tiles of directions by MT of p. In memory, unfinished, [tiles of q][tiles of p][lane] of four
 * float32. */
static inline BR_HD unsigned frb_lags_units(unsigned m_tiles, unsigned N)
{
    return m_tiles * (N / 4);
}

/* Place in the image of 2M x 2N directions; transposed: m is the second axis. */
static inline BR_HD unsigned frb_lags_place(unsigned M, unsigned N, bool transposed, unsigned p, unsigned q)
{
    return transposed ? q * 2 * M + p : p * 2 * N + q;
}

#endif
