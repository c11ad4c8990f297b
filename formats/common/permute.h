/* permute.h - the axes of an array in another order. */
#ifndef BEAMRING_FORMATS_COMMON_PERMUTE_H
#define BEAMRING_FORMATS_COMMON_PERMUTE_H

#include "buffers/array.h"

#include <stdbool.h>
#include <stddef.h>

struct permutation {
    unsigned naxes;
    size_t element; /* bytes: 1, 2 or 4 */
    /* The output's axes, slowest first: lengths, and elements between neighbours in the input and the
     * output. */
    size_t length[BR_MAX_AXES], from[BR_MAX_AXES], to[BR_MAX_AXES];
};

/* Output axis i is input axis order[i], each once. `lengths` are the input's, slowest first. */
void permutation_init(struct permutation *permutation, unsigned naxes, const size_t *lengths,
                      const unsigned *order, size_t element);

/* True when the order is that of the input. */
bool permutation_is_copy(unsigned naxes, const unsigned *order);

/* Copies a row-major array; `in` and `out` do not overlap. */
void permute(const struct permutation *permutation, const void *in, void *out);

#endif
