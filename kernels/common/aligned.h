/* aligned.h - memory that loops on vectors, and FFTW, load from on the CPU. */
#ifndef BEAMRING_KERNELS_COMMON_ALIGNED_H
#define BEAMRING_KERNELS_COMMON_ALIGNED_H

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static inline size_t br_round_up(size_t count, size_t multiple)
{
    return (count + multiple - 1) / multiple * multiple;
}

/* Zeros that begin on a line of the cache, to be freed by free(); NULL: no memory. */
static inline void *br_aligned_zeros(size_t count, size_t size)
{
    enum { LINE = 64 };
    size_t bytes = br_round_up(count * size, LINE);
    void *memory = aligned_alloc(LINE, bytes);
    if (memory != NULL) memset(memory, 0, bytes);
    return memory;
}

#endif
