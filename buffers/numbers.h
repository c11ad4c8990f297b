/* numbers.h - small arithmetic that several folders need. */
#ifndef BEAMRING_BUFFERS_NUMBERS_H
#define BEAMRING_BUFFERS_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

/* FNV-1a of 64 bits, which tells apart what differs by accident, not by intent: the hash with these bytes
 * behind those that it is of already. It begins with BR_FNV_START. */
#define BR_FNV_START UINT64_C(0xcbf29ce484222325)
static inline uint64_t br_fnv(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *b = (const unsigned char *)data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ b[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* The greatest common divisor; that of 0 and b is b. */
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
