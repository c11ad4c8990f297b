/* numbers.h - small arithmetic that several folders need. */
#ifndef BEAMRING_BUFFERS_NUMBERS_H
#define BEAMRING_BUFFERS_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

/* FNV-1a with 64 bits: continues `hash` with `bytes` more bytes; the first call passes BR_FNV_START. It
 * distinguishes data that differ by accident, but not data that somebody chose to collide. */
#define BR_FNV_START UINT64_C(0xcbf29ce484222325)
static inline uint64_t br_fnv(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *b = (const unsigned char *)data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ b[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* The greatest common divisor of a and b; if a is 0, b. */
static inline uint64_t br_common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

#endif
