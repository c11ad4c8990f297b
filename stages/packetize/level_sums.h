/* level_sums.h - sums over a row of 4-bit levels, two in a byte, -8 being none. */
#ifndef BEAMRING_STAGES_PACKETIZE_LEVEL_SUMS_H
#define BEAMRING_STAGES_PACKETIZE_LEVEL_SUMS_H

#include <stddef.h>
#include <stdint.h>

struct level_sums {
    int count, sum, squares; /* of the levels that are there, -7 to 7 */
};

/* `bytes` is at most 2^20. */
struct level_sums level_sums(const uint8_t *packed, size_t bytes);

#endif
