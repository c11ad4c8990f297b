/* validity.h - a byte for every (time, channel): 0 missing, 255 complete, between them the share of the
 * inputs that is there, in 255ths. */
#ifndef BEAMRING_KERNELS_COMMON_VALIDITY_H
#define BEAMRING_KERNELS_COMMON_VALIDITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { VALID_WHOLE = 255, VALID_AT_ONCE = 4096 };

/* Whether all of n bytes are 255: the first is, and each is like the one before it. */
static inline bool validity_complete(const uint8_t *valid, size_t n)
{
    return n == 0 || (valid[0] == VALID_WHOLE && memcmp(valid, valid + 1, n - 1) == 0);
}

/* Whether any of n bytes is neither 0 nor 255. */
static inline bool validity_has_shares(const uint8_t *valid, size_t n)
{
    for (size_t at = 0; at < n; at += VALID_AT_ONCE) {
        size_t end = n - at < VALID_AT_ONCE ? n : at + VALID_AT_ONCE;
        uint8_t share = 0;
        for (size_t i = at; i < end; i++) share |= (uint8_t)(valid[i] + 1); /* 0 and 255 leave but bit 0 */
        if (share > 1) return true;
    }
    return false;
}

/* sum / total in 255ths, rounded: 0 only for a sum of 0, 255 only for the whole. */
static inline uint8_t validity_share(uint64_t sum, uint64_t total)
{
    if (sum == 0 || sum == total) return sum ? VALID_WHOLE : 0;
    uint64_t byte = (sum * VALID_WHOLE + total / 2) / total;
    return (uint8_t)(byte < 1 ? 1 : byte > VALID_WHOLE - 1 ? VALID_WHOLE - 1 : byte);
}

#endif
