/* dtype.h - the element types of arrays; the one header that kernels/ and buffers/ share. */
#ifndef BEAMRING_BUFFERS_DTYPE_H
#define BEAMRING_BUFFERS_DTYPE_H

#include "buffers/api.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The names in quotes appear as DTYPE in recordings and in the program's output. */
enum br_dtype {
    BR_INT4X2,  /* "int4x2": complex, nibbles in two's complement, real part LOW; in products -8: missing */
    BR_INT8X2,  /* "int8x2": complex, real byte first */
    BR_INT8,    /* "int8" */
    BR_UINT8,   /* "uint8" */
    BR_INT4,    /* "int4": real, two elements a byte, the even element in the LOW nibble; -8 means missing */
    BR_F16,     /* "f16": IEEE 754 binary16 */
    BR_F32,     /* "f32" */
    BR_UINT32,  /* "uint32" */
    BR_INT32X2, /* "int32x2": complex, real part first */
    BR_DTYPES   /* how many there are */
};

/* Bits per element (a complex element counts as one); 0 if the value is not a dtype. */
BR_API unsigned br_dtype_bits(enum br_dtype dtype);

/* The name above; "?" if the value is not a dtype. */
BR_API const char *br_dtype_name(enum br_dtype dtype);

/* The dtype called `name`, or BR_DTYPES if `name` is unknown. */
BR_API enum br_dtype br_dtype_from_name(const char *name);

#ifdef __cplusplus
}
#endif
#endif
