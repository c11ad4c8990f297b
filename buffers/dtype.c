#include "buffers/dtype.h"

#include <string.h>

static const struct {
    const char *name;
    unsigned bits;
} dtypes[BR_DTYPES] = {
    [BR_INT4X2] = {"int4x2", 8}, [BR_INT8X2] = {"int8x2", 16}, [BR_INT8] = {"int8", 8},
    [BR_UINT8] = {"uint8", 8},   [BR_INT4] = {"int4", 4},      [BR_F16] = {"f16", 16},
    [BR_F32] = {"f32", 32},      [BR_UINT32] = {"uint32", 32}, [BR_INT32X2] = {"int32x2", 64},
};

unsigned br_dtype_bits(enum br_dtype dtype)
{
    return (unsigned)dtype < BR_DTYPES ? dtypes[dtype].bits : 0;
}

const char *br_dtype_name(enum br_dtype dtype)
{
    return (unsigned)dtype < BR_DTYPES ? dtypes[dtype].name : "?";
}

enum br_dtype br_dtype_from_name(const char *name)
{
    for (unsigned i = 0; i < BR_DTYPES; i++)
        if (strcmp(dtypes[i].name, name) == 0) return (enum br_dtype)i;
    return BR_DTYPES;
}
