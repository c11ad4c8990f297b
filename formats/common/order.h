/* order.h - how qsort() and bsearch() compare plain numbers. */
#ifndef BEAMRING_FORMATS_COMMON_ORDER_H
#define BEAMRING_FORMATS_COMMON_ORDER_H

#include <stdint.h>

/* The order of two int64_t, or of two structs that begin with one, for qsort. */
static inline int order_int64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

#endif
