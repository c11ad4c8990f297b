/* products.h - the correlator's matrix products, by cuBLASLt. Internal to kernels/correlate/gpu/.
 *
 * Inputs stand in blocks of BLOCK. For each channel, XY has 2 Np rows of `pitch` bytes: block after block,
 * first the rows x of its inputs, then their rows y (see launch.cu), Np = inputs rounded up to 16. The
 * product of column block b, of the first K bytes of rows, is
 *   D_b[column][row] = sum over k of XY[row][k] x[column][k],  row from the block's first row of XY on,
 * [nb][Mb] with Mb = 2 (Np - b BLOCK): the lower triangle of blocks, and nothing of the upper one. */
#ifndef BEAMRING_KERNELS_CORRELATE_GPU_PRODUCTS_PRODUCTS_H
#define BEAMRING_KERNELS_CORRELATE_GPU_PRODUCTS_PRODUCTS_H

#include "kernels/common/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PRODUCTS_BLOCK = 256, PRODUCTS_WORKSPACE = 32 << 20 };

struct products;

static inline size_t products_padded(size_t ninputs)
{
    return (ninputs + 15) / 16 * 16;
}

static inline size_t products_blocks(size_t padded)
{
    return (padded + PRODUCTS_BLOCK - 1) / PRODUCTS_BLOCK;
}

/* Where D_b begins in a channel's sums, in elements; b = products_blocks(padded): how many there are. */
static inline size_t products_offset(size_t padded, size_t b)
{
    size_t at = 0;
    for (size_t k = 0; k < b; k++) {
        size_t left = padded - k * PRODUCTS_BLOCK;
        at += 2 * left * (left < PRODUCTS_BLOCK ? left : PRODUCTS_BLOCK);
    }
    return at;
}

/* Whether the library is there. False with `why`. */
bool products_there(struct br_why *why);

/* xy is [channels][2 Np][pitch], sums [channels][products_offset(Np, blocks)]. They are used to find out
 * which of the library's algorithms is the fastest here: what sums hold is lost. -1 with `why`. */
int products_create(struct products **products, struct br_cuda *cuda, size_t channels, size_t padded,
                    size_t pitch, const int8_t *xy, int32_t *sums, struct br_why *why);
void products_destroy(struct products *products); /* NULL is allowed */

/* Enqueues the products of the first K bytes of all rows, a multiple of 256. `more`: adds them to the sums,
 * else writes them. A failure is kept for br_cuda_check. */
void products_enqueue(struct products *products, size_t K, bool more);

#ifdef __cplusplus
}
#endif
#endif
