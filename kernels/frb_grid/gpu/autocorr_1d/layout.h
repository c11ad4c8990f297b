/* layout.h - where FRB stage 1 keeps things for grids of 12 to 24 cells each way (autocorr.cuh).
 *
 * One axis of the grid, of M cells, is called m: along it the autocorrelation is summed. Along the other one,
 * n, of N cells, every sample is transformed; 2N directions q. Tiles are 8 cells, or 8 pairs of directions,
 * along an axis: MT and NT of them. A block of threads takes eight samples at once. */
#ifndef BEAMRING_KERNELS_FRB_GRID_GPU_AUTOCORR_1D_LAYOUT_H
#define BEAMRING_KERNELS_FRB_GRID_GPU_AUTOCORR_1D_LAYOUT_H

#include "kernels/common/layout.h"

#include <stdbool.h>

/* ---- samples ---- */

/* A step's samples: s and s + 4 are of the same polarisation.
 *   npol 1: sample2..0 <-> time2..0   npol 2: sample2 <-> time1, sample1 <-> polarisation, sample0 <-> time0
 */
static inline BR_HD unsigned frb_autocorr_1d_times(unsigned npol)
{
    return npol == 2 ? 4 : 8;
}

static inline BR_HD unsigned frb_autocorr_1d_time(unsigned npol, unsigned sample)
{
    return npol == 2 ? sample / 4 * 2 + sample % 2 : sample;
}

static inline BR_HD unsigned frb_autocorr_1d_pol(unsigned npol, unsigned sample)
{
    return npol == 2 ? sample / 2 % 2 : 0;
}

static inline BR_HD unsigned frb_autocorr_1d_sample(unsigned npol, unsigned time, unsigned pol)
{
    return npol == 2 ? time / 2 * 4 + pol * 2 + time % 2 : time;
}

/* Where a dish's byte of a sample stands in shared memory. A gap of 32 bytes behind each 128 (gap: 0 or 32)
 * brings apart rows of cells that would be in the same banks. */
static inline BR_HD unsigned frb_autocorr_1d_byte(unsigned dish, unsigned gap)
{
    return dish + dish / 128 * gap;
}

/* Bytes of one sample in shared memory, with room for a dish in each cell and for gaps: those of the step's
 * samples begin in banks that are 4 apart. */
static inline BR_HD unsigned frb_autocorr_1d_pitch(unsigned m_tiles, unsigned n_tiles)
{
    return (80 * m_tiles * n_tiles + 127) / 128 * 128 + 16;
}

/* ---- the field ---- */

/* Row of cells i of `rows` of a warp. */
static inline BR_HD unsigned frb_autocorr_1d_row(unsigned rows, unsigned warp, unsigned i)
{
    return rows * warp + i;
}

/* Pairs of cells of a row that a lane has, of sample lane / 4: as many as it can have cells / 2. */
static inline BR_HD unsigned frb_autocorr_1d_pairs(unsigned n_tiles)
{
    return n_tiles;
}

/* Cells N / 2 + j and N / 2 - 1 - j are mirror images; that of k of a left factor. */
static inline BR_HD unsigned frb_autocorr_1d_image(unsigned k)
{
    return k / 8 * 8 + k % 8 / 2 + k % 2 * 4;
}

/* Cell n of half `simd` of a pair, N: none. Those of one lane are of j = l, l + 4 in pairs 0 and 1 (2 and 3:
 * 8 further), l = lane % 4, and of three tiles j = 8 + l in pair 2. */
static inline BR_HD unsigned frb_autocorr_1d_cell_n(unsigned N, unsigned pair, unsigned lane, unsigned simd)
{
    const unsigned l = lane % 4, lone = (N + 7) / 8 == 3 && pair == 2, mirrored = lone ? simd : pair % 2,
                   j = lone ? 8 + l : frb_autocorr_1d_image(pair / 2 * 8 + 2 * l + simd);
    return j >= N / 2 ? N : mirrored ? N / 2 - 1 - j : N / 2 + j;
}

/* Where weights stand: [row][pair][lane] of (re, re', im, im') float16, in units of these 8 bytes. Lanes of
 * which the samples have the same polarisation have the same ones. */
static inline BR_HD unsigned frb_autocorr_1d_weight(unsigned n_tiles, unsigned pol, unsigned m, unsigned pair,
                                                    unsigned M, unsigned lane)
{
    return ((pol * M + m) * frb_autocorr_1d_pairs(n_tiles) + pair) * 4 + lane % 4;
}

/* The same of one row in shared memory: [pair][2][4], in bytes; samples 0, 1, 4 and 5 have the same, and so
 * have the others. */
static inline BR_HD unsigned frb_autocorr_1d_kept_weight(unsigned lane)
{
    return lane / 8 % 2 * 32 + lane % 4 * 8;
}

/* ---- the transform along n by mma.sync ----
 *
 * A row for each of 16 (halves of) directions, k: sums and differences of mirror images, a column for each
 * sample. */

/* Left factors, tables of cosines and sines: this many of 16 rows by 16 (or 8, then the rest is 0). */
static inline BR_HD unsigned frb_autocorr_1d_waves(unsigned n_tiles)
{
    return n_tiles == 2 ? 2 : 4;
}

/* Sums S and differences D of mirror images are right factors of k 8: k is that of S0, D0; 8 + k of S1, D1;
 * but of three tiles of X: k = 2 l is the sum, k = 2 l + 1 the difference of 8 + l. Tiles of left factors:
 *
 *   NT 2   cosines S0, sines D0
 *
 *   NT 3   cosines (S0, X), sines (D0, X), of pairs 0 to 15; 8 rows of cosines (S0, X) and 8 of sines (X), of
 *          pairs 16 to 23; the latter's sines (D0)
 *
 *   NT 4   cosines (S0, S1) of pairs 0 to 15, 16 to 31, sines (D0, D1) of the same
 *
 * The meaning of a row and a k of a tile: the pair of directions (of cosines when !sine), and j; false: the
 * element is 0. */
static inline BR_HD bool frb_autocorr_1d_wave(unsigned n_tiles, unsigned tile, unsigned row, unsigned k,
                                              unsigned *q, unsigned *sine, unsigned *j)
{
    *q = row, *j = frb_autocorr_1d_image(k), *sine = tile % 2;
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

/* ---- the same by wgmma ----
 *
 * A row for each cell m and sample, k: sums S and differences D of mirror images, a column for each
 * direction. The real part of y is S_re cos - D_im sin, the imaginary one S_im cos + D_re sin. */

/* A tile is 8 rows of cells, one for each four lanes; warp w of the warpgroup has samples w and w + 4 of
 * them, of mirror images j of frb_autocorr_1d_cell_n. Left factors, the first one for real, the second one
 * for imaginary parts, the third one (of three tiles) for both:
 *
 *   a[2][4]  simd: j2   register: part of y, r1 r0 <-> (S_re or -D_im, S_im or D_re) sample2
 *            thread: t6..t0 <-> sample1 sample0 m2 m1 m0 j1 j0
 *
 *   a[4]     simd: S or D   register: r1 r0 <-> ReIm sample2   thread: the same, of 8 + j */
static inline BR_HD unsigned frb_autocorr_1d_group_m(unsigned lane)
{
    return lane / 4;
}

/* c[ReIm][directions / 8][2]  simd: direction0   register: r0 <-> sample2, then direction3 and up, ReIm
 *                             thread: t6..t0 <-> sample1 sample0 m2 m1 m0 direction2 direction1
 *
 * It is stored by matrices of 8 rows of 16 bytes: y[direction][tile of m][ReIm][8 samples][8 m], float16,
 * eight directions in different banks. */
static inline BR_HD unsigned frb_autocorr_1d_group_y_pitch(unsigned m_tiles)
{
    return m_tiles * 256 + 16;
}

static inline BR_HD unsigned frb_autocorr_1d_group_y(unsigned m_tiles, unsigned direction, unsigned tile,
                                                     unsigned part, unsigned sample)
{
    return direction * frb_autocorr_1d_group_y_pitch(m_tiles) + (tile * 2 + part) * 128 + sample * 16;
}

/* Which of these rows a lane's address is for: samples w and w + 4 of eight directions, then of eight more.
 */
static inline BR_HD unsigned frb_autocorr_1d_group_store(unsigned m_tiles, unsigned warp, unsigned lane)
{
    return frb_autocorr_1d_group_y(m_tiles, lane / 16 * 8 + lane % 8, 0, 0, warp % 4 + lane / 8 % 2 * 4);
}

/* The same when they are read, real and imaginary parts of a tile of m: matrices transposed, so that a lane
 * has samples 2 l and 2 l + 1 of m = lane / 4, l = lane % 4. */
static inline BR_HD unsigned frb_autocorr_1d_group_load(unsigned m_tiles, unsigned direction, unsigned lane)
{
    return frb_autocorr_1d_group_y(m_tiles, direction, 0, lane / 8 % 2, lane % 8);
}

/* Right factors: that of the first and second left ones, and that of the third one, of which the second half
 * of the columns is for imaginary parts. mirror_of: the element of mirror images *j at k
 * that a column of real (part 0) or imaginary parts takes. */
enum { FRB_AUTOCORR_1D_NOTHING, FRB_AUTOCORR_1D_COSINE, FRB_AUTOCORR_1D_SINE, FRB_AUTOCORR_1D_MINUS_SINE };

static inline BR_HD unsigned frb_autocorr_1d_group_wave(unsigned third, unsigned part, unsigned k,
                                                        unsigned *j)
{
    *j = third ? 8 + k % 8 / 2 : frb_autocorr_1d_image(k % 8);
    if (!third) return k < 8 ? FRB_AUTOCORR_1D_COSINE : FRB_AUTOCORR_1D_SINE;
    const unsigned difference = k % 2, of_imaginary = k / 8;
    if (difference)
        return of_imaginary == part ? FRB_AUTOCORR_1D_NOTHING
               : part               ? FRB_AUTOCORR_1D_SINE
                                    : FRB_AUTOCORR_1D_MINUS_SINE;
    return of_imaginary == part ? FRB_AUTOCORR_1D_COSINE : FRB_AUTOCORR_1D_NOTHING;
}

/* They stand in shared memory one after the other, bytes: [column / 8][k / 8][column % 8][k % 8]. */
static inline BR_HD unsigned frb_autocorr_1d_table(unsigned directions, unsigned third, unsigned column,
                                                   unsigned k)
{
    return third * directions * 32 + column / 8 * 256 + k / 8 * 128 + column % 8 * 16 + k % 8 * 2;
}

static inline BR_HD unsigned frb_autocorr_1d_table_bytes(unsigned n_tiles, unsigned directions)
{
    return directions * (n_tiles == 3 ? 96 : 32);
}

/* The place among 2 N directions of the positive and the negative one of pair q; 0 and N make up pair 0. */
static inline BR_HD unsigned frb_autocorr_1d_direction(unsigned N, unsigned q, unsigned minus)
{
    return !minus ? q : q == 0 ? N : 2 * N - q;
}

/* ---- the result of mma.sync, y[direction][m][l: 4][ReIm][2]: complex, two samples together ---- */

/* Bytes from one direction to the next, so that four of them stand in different banks. */
static inline BR_HD unsigned frb_autocorr_1d_y_pitch(unsigned m_tiles)
{
    return m_tiles * 256 + 32;
}

/* 8 bytes: (re, re', im, im') of samples 2 l and 2 l + 1. */
static inline BR_HD unsigned frb_autocorr_1d_y(unsigned m_tiles, unsigned direction, unsigned m, unsigned l)
{
    return direction * frb_autocorr_1d_y_pitch(m_tiles) + m * 32 + l * 8;
}

/* ---- products, summed over samples ---- */

/* Direction i of one of `warps` warps. */
static inline BR_HD unsigned frb_autocorr_1d_mine(unsigned warps, unsigned warp, unsigned i)
{
    return warp + warps * i;
}

/* Sums of tile d: of products of cells m + 8 d + g by the conjugate ones of cells m + h, m a multiple of 8.
 *
 *   c[4]  register: r1 r0 <-> ReIm h0   thread: t4..t0 <-> g2 g1 g0 h2 h1
 *
 * Their lag is 8 d + g - h. Three exchanges among lanes add up the diagonals: with the lane of the next g,
 * with frb_autocorr_1d_partner, with lane ^ 18. Then a lane has the lags 8 d + residue of direction lane % 4
 * of four. */
static inline BR_HD unsigned frb_autocorr_1d_residue(unsigned lane)
{
    const unsigned g = lane / 4;
    return ((g - lane % 2 * 2) & 7) ^ (lane & 2) * 2;
}

/* The lane of the second exchange. */
static inline BR_HD unsigned frb_autocorr_1d_partner(unsigned lane)
{
    const unsigned g = lane / 4, odd = lane % 2;
    return odd ? ((g - 2) & 7) * 4 + lane % 4 - 1 : ((g + 2) & 7) * 4 + lane % 4 + 1;
}

/* Where a lag stands in shared memory, float16 (re, im), in bytes. */
static inline BR_HD unsigned frb_autocorr_1d_lag(unsigned m_tiles, unsigned direction, unsigned lag)
{
    return direction * (m_tiles * 32 + (m_tiles == 3 ? 0 : 32)) + lag * 4;
}

/* ---- the transform of lags: rows are 8 p, even part, then odd part; columns are directions ---- */

/* Element k of the left factor: the lag and whether it is its imaginary part. */
static inline BR_HD unsigned frb_autocorr_1d_k_lag(unsigned step, unsigned k)
{
    return 8 * step + k % 8 / 2 * 2 + k / 8; /* a lane's two lags are consecutive */
}

/* Tables: [tiles of p][steps: MT][lane] of a[4] as mma.sync, in units of 16 bytes. */
static inline BR_HD unsigned frb_autocorr_1d_lag_wave(unsigned m_tiles, unsigned tile, unsigned step,
                                                      unsigned lane)
{
    return (tile * m_tiles + step) * 32 + lane;
}

/* Images: N / 4 tiles of directions by MT of p. In memory, unfinished, [tiles of q][tiles of p][lane] of four
 * float32. */
static inline BR_HD unsigned frb_autocorr_1d_units(unsigned m_tiles, unsigned N)
{
    return m_tiles * (N / 4);
}

/* The direction p of a row of a tile. The last tile may have four: the other rows do the same ones again. */
static inline BR_HD unsigned frb_autocorr_1d_p(unsigned M, unsigned tile, unsigned row)
{
    return 8 * tile + row < M ? 8 * tile + row : 8 * tile + row - 4;
}

/* Place in the image of 2M x 2N directions; transposed: m is the second axis. */
static inline BR_HD unsigned frb_autocorr_1d_place(unsigned M, unsigned N, bool transposed, unsigned p,
                                                   unsigned q)
{
    return transposed ? q * 2 * M + p : p * 2 * N + q;
}

#endif
