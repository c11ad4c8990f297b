/* bitshuffle.h - decoding of HDF5 filter 32008 (bitshuffle) as it stands in the chunks of a file.
 *
 * Bitshuffle transposes the bits of blocks of elements, so that bit k of all elements stands together; the
 * blocks may then be compressed with LZ4. Elements are single bytes here. A compressed chunk starts with two
 * big-endian numbers, u64 bytes of the whole and u32 bytes of a block; then come the blocks, each behind its
 * u32 big-endian length; the last block may be shorter by multiples of 8 elements, and up to 7 elements that
 * remain are copied. Without compression there is neither header nor lengths. */
#ifndef BEAMRING_STAGES_COMMON_BITSHUFFLE_H
#define BEAMRING_STAGES_COMMON_BITSHUFFLE_H

#include "buffers/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that bitshuffle_decode needs as scratch for a chunk of `bytes`. */
size_t bitshuffle_scratch(size_t bytes);

/* Decodes `length` bytes into exactly `bytes`. `lz4`: blocks are compressed; else `block` is the number of
 * elements in a block (0: the library's choice). Any input is safe. Errors: BR_E_FORMAT (the caller adds the
 * file). */
int bitshuffle_decode(uint8_t *out, size_t bytes, const uint8_t *in, size_t length, bool lz4, size_t block,
                      void *scratch, struct br_error *error);

#endif
