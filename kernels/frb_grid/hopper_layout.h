/* hopper_layout.h - where FRB stage 1 for Hopper keeps things (hopper.cuh).
 *
 * Both axes are counted from the middle of the grid: then cosines are even and sines are odd, and sums and i
 * times differences of mirror images are all that the transforms need. An axis of `cells` cells has groups of
 * 8, (cells + 7) / 8 of them: of two groups the first has the cells 8 i to 8 i + 7 behind the middle and the
 * second their mirror images; of an odd number of groups the last one has 4 cells and their 4 mirror images.
 * Once folded, sums stand where the cells behind the middle were and i times differences where the mirror
 * images were. */
#ifndef BEAMRING_KERNELS_FRB_GRID_HOPPER_LAYOUT_H
#define BEAMRING_KERNELS_FRB_GRID_HOPPER_LAYOUT_H

#include "kernels/common/fragments.h"

/* ---- a folded axis ---- */

static inline BR_HD unsigned frb_hopper_groups(unsigned cells)
{
    return (cells + 7) / 8;
}

/* Cells between the middle and member 0 to 7 of a group. */
static inline BR_HD unsigned frb_hopper_distance(unsigned groups, unsigned group, unsigned member)
{
    return groups % 2 && group == groups - 1 ? group / 2 * 8 + member % 4 : group / 2 * 8 + member;
}

static inline BR_HD unsigned frb_hopper_mirrored(unsigned groups, unsigned group, unsigned member)
{
    return groups % 2 && group == groups - 1 ? member / 4 : group % 2;
}

/* `cells`: none. */
static inline BR_HD unsigned frb_hopper_cell(unsigned cells, unsigned group, unsigned member)
{
    const unsigned groups = frb_hopper_groups(cells), distance = frb_hopper_distance(groups, group, member);
    if (distance >= cells / 2) return cells;
    return frb_hopper_mirrored(groups, group, member) ? cells / 2 - 1 - distance : cells / 2 + distance;
}

/* Mirror images that stand in the same group come with a factor -i in their weights: then both of a pair
 * become their sum, or i times their difference, by adding i times the other one. */
static inline BR_HD unsigned frb_hopper_turned(unsigned groups, unsigned group, unsigned member)
{
    return groups % 2 && group == groups - 1 && member >= 4;
}

/* ---- the field of one sample, one warp ---- */

/* Right factor of the first transform, along m:
 *   x[groups of n][groups of m]  simd: b <-> m0   thread: t4..t0 <-> n2 n1 n0 m2 m1   (members) */
static inline BR_HD unsigned frb_hopper_member_m(unsigned lane, unsigned simd)
{
    return 2 * (lane % 4) + simd;
}

static inline BR_HD unsigned frb_hopper_member_n(unsigned lane)
{
    return lane / 4;
}

static inline BR_HD unsigned frb_hopper_pair(unsigned m_groups, unsigned n_group, unsigned m_group)
{
    return n_group * m_groups + m_group;
}

/* Weights of one channel and polarisation: [pairs][lane] of (re, re', im, im') float16; in units of these 8
 * bytes. Dishes the same in units of 4 bytes. */
static inline BR_HD unsigned frb_hopper_weight(unsigned pair, unsigned lane)
{
    return pair * 32 + lane;
}

/* ---- the first transform: 2 M directions p as rows, in tiles of 16 ---- */

static inline BR_HD unsigned frb_hopper_tiles(unsigned M)
{
    return (2 * M + 15) / 16;
}

/* Left factor: [tiles][groups of m][lane] of (row, k), (row, k + 1), (row + 8, k), (row + 8, k + 1); in units
 * of these 8 bytes. */
static inline BR_HD unsigned frb_hopper_wave(unsigned m_groups, unsigned tile, unsigned m_group,
                                             unsigned lane)
{
    return (tile * m_groups + m_group) * 32 + lane;
}

static inline BR_HD unsigned frb_hopper_wave_p(unsigned tile, unsigned lane, unsigned below)
{
    return 16 * tile + 8 * below + lane / 4;
}

/* ---- the second transform: 2 N directions q as columns ---- */

/* Its right factor in shared memory, as wgmma wants it (K-major, plain): groups of 8 along k. An odd number
 * of groups of n leaves half of the last product, which real and imaginary parts share: they stand beside
 * each other, and what is multiplied by the other one is zero. So there are two groups more, zeros and the
 * last one again. */
static inline BR_HD unsigned frb_hopper_table_groups(unsigned n_groups)
{
    return n_groups % 2 ? n_groups + 2 : n_groups;
}

/* Group of n that stands at k_group; n_groups: zeros. */
static inline BR_HD unsigned frb_hopper_table_group(unsigned n_groups, unsigned k_group)
{
    return k_group > n_groups ? n_groups - 1 : k_group;
}

static inline BR_HD unsigned frb_hopper_table_leading(unsigned N) /* bytes from a group along k to the next */
{
    return N / 4 * 128;
}

static inline BR_HD unsigned frb_hopper_table_bytes(unsigned N)
{
    return frb_hopper_table_groups(frb_hopper_groups(N)) * frb_hopper_table_leading(N);
}

/* First k_group of product `step` of 16 along k. */
static inline BR_HD unsigned frb_hopper_table_step(unsigned n_groups, unsigned step, unsigned imaginary)
{
    return 2 * step + (2 * step + 1 == n_groups && imaginary);
}

/* ---- intensities: sum[tiles][N] of one lane ---- */

static inline BR_HD unsigned frb_hopper_sum_p(unsigned tile, unsigned i, unsigned lane)
{
    return 16 * tile + i / 2 % 2 * 8 + lane / 4;
}

static inline BR_HD unsigned frb_hopper_sum_q(unsigned i, unsigned lane)
{
    return i / 4 * 8 + 2 * (lane % 4) + i % 2;
}

/* Those that wait for the next call, in device memory, and second sums of long blocks, in shared memory:
 * [tiles][N / 4][thread] of four float32; in units of 16 bytes. */
static inline BR_HD unsigned frb_hopper_kept(unsigned N, unsigned tile, unsigned four, unsigned thread)
{
    return (tile * (N / 4) + four) * 128 + thread;
}

static inline BR_HD unsigned frb_hopper_kept_count(unsigned M, unsigned N)
{
    return frb_hopper_tiles(M) * (N / 4) * 128;
}

/* An image of each warp, to be added up: [warp][2 M][pitch] float32. Four rows that are written at once are 8
 * banks apart. */
static inline BR_HD unsigned frb_hopper_pitch(unsigned N)
{
    return 2 * N % 32 == 8 || 2 * N % 32 == 24 ? 2 * N : 2 * N + 8;
}

static inline BR_HD unsigned frb_hopper_image(unsigned M, unsigned N, unsigned warp, unsigned p, unsigned q)
{
    return (warp * 2 * M + p) * frb_hopper_pitch(N) + q;
}

/* ---- samples ---- */

enum { FRB_HOPPER_SLOTS = 4 }; /* turns whose bytes are in shared memory */

/* The four warps do a turn of four samples: times and polarisations. */
static inline BR_HD unsigned frb_hopper_times(unsigned npol)
{
    return 4 / npol;
}

static inline BR_HD unsigned frb_hopper_time(unsigned npol, unsigned warp)
{
    return warp / npol;
}

static inline BR_HD unsigned frb_hopper_pol(unsigned npol, unsigned warp)
{
    return warp % npol;
}

#endif
