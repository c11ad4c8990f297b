/* array.h - the description of an array: element type and named axes, row-major, slowest axis first.
 *
 * A description owns nothing and is copied by value. The known axes are time, freq, pol, dish, input (of a
 * correlator: one polarisation of one dish; of packets: an input as they number it), beam, gridp, gridq,
 * moment (of sums of powers), baseline (pairs of inputs). */
#ifndef BEAMRING_BUFFERS_ARRAY_H
#define BEAMRING_BUFFERS_ARRAY_H

#include "buffers/dtype.h"
#include "buffers/error.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { BR_MAX_AXES = 6, BR_AXIS_NAME = 12 };

struct br_axis {
    char name[BR_AXIS_NAME];
    size_t length;
};

struct br_array {
    enum br_dtype dtype;
    unsigned naxes; /* 0: no array */
    struct br_axis axis[BR_MAX_AXES];
};

/* Describes an array from "time,freq,pol,dish" (slowest first) and as many lengths.
 * Lengths may be 0 (a streamed axis in a file header). Errors: BR_E_INVALID for an empty, repeated, overlong
 * or unknown axis name, too many axes, or a byte count that does not fit in size_t. */
BR_API int br_array_init(struct br_array *array, enum br_dtype dtype, const char *axes, const size_t *lengths,
                         struct br_error *error);

/* Position of the axis called `name`, or -1. */
BR_API int br_array_axis(const struct br_array *array, const char *name);

/* Length of the axis called `name`; 1 if the array has no such axis, so that lengths can be multiplied. */
BR_API size_t br_array_length(const struct br_array *array, const char *name);

/* Number of elements; 0 if naxes is 0. */
BR_API size_t br_array_elements(const struct br_array *array);

/* Number of bytes; an odd number of 4-bit elements is rounded up to whole bytes. */
BR_API size_t br_array_bytes(const struct br_array *array);

/* True when dtype, axis names, order and lengths all agree. */
BR_API bool br_array_equal(const struct br_array *a, const struct br_array *b);

/* Writes "int4x2 [time 8192][freq 16][pol 2][dish 64]" into `text`, always terminated, and returns `text`. */
BR_API const char *br_array_format(const struct br_array *array, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
