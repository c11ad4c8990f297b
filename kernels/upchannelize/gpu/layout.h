/* layout.h - layouts of the filterbank's tensor-core kernels (gpu/mma/pfb_u16.cuh,
 * gpu/mma/pfb_u32up.cuh, and on Hopper gpu/wgmma/pfb_u16.cuh, gpu/wgmma/pfb_u128.cuh and
 * gpu/wgmma/pfb_u32_64.cuh).
 *
 * A warp multiplies matrices of coefficients (a, 16 rows by 16) with samples (b, 16 times by 8 samples of
 * the row): `lane` and `reg` are those of mma.sync m16n8k16 (kernels/common/fragments.h), column n of b is
 * lane / 4, and tile j is the j-th b of a warp. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_GPU_LAYOUT_H
#define BEAMRING_KERNELS_UPCHANNELIZE_GPU_LAYOUT_H

#include "kernels/common/layout.h"

enum {
    /* U up to 16: time steps of a chunk, and rows of a matrix: (pair of fine channels, cos or sin) */
    BR_PFB_CHUNK = 16,
    BR_PFB_U16_WARPS = 4,   /* mma, U up to 16: warps of a block, next to each other along the row */
    BR_PFB_U32UP_SPAN = 64, /* mma, U from 32 on: samples of the row of a block */
    BR_PFB_U32UP_TAPS = 4,
    BR_PFB_U32UP_STEPS = 2,  /* output steps between barriers */
    BR_PFB_U32UP_TILES = 4,  /* of a warp in the transform */
    BR_PFB_SPAN = 64,        /* Hopper: samples of the row of a warpgroup */
    BR_PFB_LAGS = 4,         /* Hopper, U up to 16: lags, and chunks of an iteration */
    BR_PFB_ZONES = 8,        /* of a launch */
    BR_PFB_PIECES = 64,      /* most of a column */
    BR_PFB_FEW_CHUNKS = 128, /* chunks for each block below which all pieces are alike */
    BR_PFB_TAPS = 4,         /* Hopper, U from 32 on */
    BR_PFB_TAP_UNIT = 8192   /* Hopper, U = 128: taps are at most this */
};

/* ---- mma: samples of the row ---- */

/* Sample, counted from the warp's first, of column n of tile j: a lane loads `tiles` consecutive bytes of one
 * time, and stores 2 * tiles consecutive bytes of two columns (2 q and 2 q + 1 of c). */
static inline BR_HD unsigned br_pfb_sample(unsigned tiles, unsigned n, unsigned tile)
{
    return n * tiles + tile;
}

/* ---- mma, U up to 16 ---- */

/* Time within the chunk of row k of b. For lane q = lane % 4, rows 2 q, 2 q + 1, 2 q + 8, 2 q + 9
 * are the times q, q + 4, q + 8, q + 12: each load of a warp has 4 successive rows of the field. */
static inline BR_HD unsigned br_pfb_u16_time(unsigned k)
{
    return (k >> 3) * 8 + (k & 1) * 4 + ((k & 7) >> 1);
}

/* ---- Hopper ---- */

/* Byte of 16 samples (piece: 0 to 3, of the warpgroup's 64) of a row in shared memory: of a time of the
 * field, or of a fine channel of the levels. Whole rows are written or read by four threads, or by the
 * accelerator, whose 64-byte swizzle this is; a piece of eight successive rows by ldmatrix and stmatrix. */
static inline BR_HD unsigned br_pfb_row_place(unsigned row, unsigned piece)
{
    return row * BR_PFB_SPAN + (piece ^ (row >> 1 & 3)) * 16;
}

/* The matrix in shared memory has, K-major, blocks of columns of the lags 0, 1, ... lags - 1, 0, 1, ... lags
 * - 2: at which of these blocks a product begins where the ring's block `ring` is that of lag 0. */
static inline BR_HD unsigned br_pfb_lag_block(unsigned lags, unsigned ring)
{
    return (lags - ring) % lags;
}

/* Cuts columns of so many chunks into pieces for `blocks` that run at once: piece i is chunks from[i] to
 * from[i + 1] - 1; all columns have their first piece before any has its second. Returns how many pieces
 * there are. Each is a part of what is then left for each block, so that they end together; 4 n + 1 chunks
 * take n + 1 iterations, the first of which reaches back over the lags. */
static inline unsigned br_pfb_cut_columns(unsigned from[BR_PFB_PIECES + 1], unsigned columns, unsigned chunks,
                                          unsigned blocks)
{
    const unsigned percent = 80, least = 25; /* as measured */
    unsigned pieces = 0;
    for (from[0] = 0; from[pieces] < chunks; pieces++) {
        unsigned left = chunks - from[pieces];
        uint64_t share = columns < blocks ? (uint64_t)left * columns / blocks : left;
        unsigned each = (unsigned)(share * percent / 100);
        if (each < least) each = least;
        each = (each + 2) / 4 * 4 + 1;
        if (left < each + least / 2 || pieces + 1 == BR_PFB_PIECES) each = left;
        from[pieces + 1] = from[pieces] + each;
    }
    return pieces;
}

/* The time of a row of shared memory in gpu/wgmma/pfb_u128.cuh where even times and odd ones are
 * transformed apart. */
static inline BR_HD unsigned br_pfb_u128_time(unsigned factor, unsigned row)
{
    return row % (factor / 2) * 2 + row / (factor / 2);
}

/* The time of a row of a window in gpu/wgmma/pfb_u32_64.cuh: 16 rows have the times that are 0 modulo U /
 * 16, then 16 those that are 1, ... */
static inline BR_HD unsigned br_pfb_u32_64_time(unsigned factor, unsigned row)
{
    return row % 16 * (factor / 16) + row / 16;
}

/* Whether a sample is unpacked there as 7 - n instead of 8 + n. k: row of its 16. */
static inline BR_HD unsigned br_pfb_u32_64_is_negated(unsigned k)
{
    return k / 4 % 2;
}

/* The fine channels of levels there in the order in which they are made: u = 0 to 7, and those 16, 32, ...
 * after them; then those that mirror them. */
static inline BR_HD unsigned br_pfb_u32_64_channel(unsigned factor, unsigned row)
{
    unsigned low = row % (factor / 2), u = low / 8 * 16 + low % 8;
    return row < factor / 2 ? u : factor - 1 - u;
}

/* The lag of a block of columns of gpu/wgmma/pfb_u32_64.cuh's matrices: after those of br_pfb_lag_block 1, 2,
 * ... lags - 1, and then as many that are none (lags and more), whose columns are 0. */
static inline BR_HD unsigned br_pfb_u32_64_lag(unsigned lags, unsigned block)
{
    return block < 2 * lags - 1 ? block % lags : block - (2 * lags - 2);
}

/* With which of these blocks a product begins whose window is `lags` - i (i = 1 to lags - 1) before the first
 * output of a thread block, which has block 0 of the ring: of the block's outputs it belongs to the first
 * i. */
static inline BR_HD unsigned br_pfb_u32_64_first_block(unsigned lags, unsigned i)
{
    return 2 * lags - 1 + (lags - 1 - i);
}

/* ---- mma, U from 32 on ---- */

/* The partner of time k (0 to U/2 - 1): row k of the products is the sum or difference of both. */
static inline BR_HD unsigned br_pfb_u32up_partner(unsigned factor, unsigned k)
{
    return k == 0 ? factor / 2 : factor - k;
}

/* 32-bit words of shared memory of one output step: 4 planes (re and im of the differences, re and im of the
 * sums). */
static inline BR_HD unsigned br_pfb_u32up_words(unsigned factor)
{
    return 4 * (factor / 4) * BR_PFB_U32UP_SPAN;
}

/* Word of a plane's rows 2 pair, 2 pair + 1 and of the first of four samples, 4 quad to 4
 * quad + 3. Written by 16 lanes along quads, read by lanes of four successive pairs and 8 quads. */
static inline BR_HD unsigned br_pfb_u32up_place(unsigned factor, unsigned plane, unsigned pair, unsigned quad)
{
    return (plane * (factor / 4) + pair) * BR_PFB_U32UP_SPAN + (quad ^ (pair & 3) << 1) * 4;
}

/* In the transform: what a warp has of an iteration. */
struct br_pfb_u32up_share {
    unsigned step; /* of BR_PFB_U32UP_STEPS */
    unsigned rows; /* of U/32 groups of 16 pairs of fine channels */
    unsigned half; /* of the 64 samples */
};

static inline BR_HD struct br_pfb_u32up_share br_pfb_u32up_share(unsigned warp)
{
    struct br_pfb_u32up_share share = {warp >> 1 & 1, warp >> 2, warp & 1};
    return share;
}

#endif
