/* layout.h - where the correlator's kernel `spread` puts what, for it and for the layout checker.
 *
 * A tile is 128 samples of 128 inputs of one channel. It comes in as words of 4 inputs and leaves as words
 * of 4 samples: those 32 apart, so that lanes that hold neighbouring samples read different banks. The
 * order of samples within 128 is therefore the same permutation for all rows, and sums over samples do not
 * mind. */
#ifndef BEAMRING_KERNELS_CORRELATE_GPU_LAYOUT_H
#define BEAMRING_KERNELS_CORRELATE_GPU_LAYOUT_H

#include "kernels/common/layout.h"

enum {
    SPREAD_TILE = 128,
    SPREAD_WORDS = SPREAD_TILE / 4,
    SPREAD_PITCH = SPREAD_WORDS + 1,
    SPREAD_THREADS = 256
};

/* Word of shared memory with the inputs 4 word .. 4 word + 3 of sample t. */
static inline BR_HD unsigned spread_word(unsigned t, unsigned word)
{
    return t * SPREAD_PITCH + word;
}

/* The sample that byte q of a lane's word holds. */
static inline BR_HD unsigned spread_sample(unsigned lane, unsigned q)
{
    return q * 32 + lane;
}

/* Row of XY with the bytes x of input n, of `padded` inputs in blocks of `block`; those of y are *apart rows
 * further: as many as the block has inputs. */
static inline BR_HD unsigned spread_row(unsigned n, unsigned padded, unsigned block, unsigned *apart)
{
    unsigned begin = n / block * block;
    *apart = padded - begin < block ? padded - begin : block;
    return begin + n;
}

#endif
