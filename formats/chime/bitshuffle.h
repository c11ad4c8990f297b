/* bitshuffle.h - decoding of HDF5 filter 32008 (bitshuffle) as it stands in the chunks of a file.
 *
 * Bitshuffle transposes the bits of blocks of elements, so that bit k of all elements stands together; the
 * blocks may then be compressed with LZ4. Elements are single bytes here. A compressed chunk starts with two
 * big-endian numbers, u64 bytes of the whole and u32 bytes of a block; then come the blocks, each behind its
 * u32 big-endian length; the last block may be shorter by multiples of 8 elements, and up to 7 elements that
 * remain are copied. Without compression there is neither header nor lengths. */
#ifndef BEAMRING_FORMATS_CHIME_BITSHUFFLE_H
#define BEAMRING_FORMATS_CHIME_BITSHUFFLE_H

#include "buffers/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads `length` bytes from `offset` of the chunk on. Errors are the callback's: any status below 0. */
typedef int bitshuffle_read(void *arg, void *buffer, size_t length, size_t offset, struct br_error *error);

/* Takes n decoded bytes, those from `at` of the chunk on. */
typedef void bitshuffle_put(void *arg, size_t at, const uint8_t *data, size_t n);

/* Takes n bytes from `at` on as they are shuffled, plane after plane (bitplanes.h); false: it rather has them
 * decoded. */
typedef bool bitshuffle_take(void *arg, size_t at, const uint8_t *shuffled, size_t n);

struct bitshuffle_chunk {
    size_t bytes;  /* decoded */
    size_t length; /* as it is stored */
    bool lz4; /* blocks are compressed; else `block` is their number of elements (0: the library's choice) */
    size_t block;
    size_t place; /* of the chunk in its file, bytes: reads go to the like place in a page, which is faster */
    bitshuffle_read *read;
    bitshuffle_put *put;
    bitshuffle_take *take; /* asked first, for each block; or NULL */
    void *arg;             /* of all */
    /* Where a block begins: byte `at` when decoded, `offset` as stored. Before decoding one from which to go
     * on, at or before what is wanted, or zeros; after it the first block that was not, or not all, wanted.
     * Not for chunks of other lengths or contents. */
    size_t at, offset;
};

/* Bytes of memory that bitshuffle_decode needs for a chunk. */
size_t bitshuffle_scratch(size_t bytes, size_t length);

/* Decodes bytes [from, to) of a chunk: reads a little of it at a time, and hands on blocks, in order, while
 * they are in the processor's cache; the first and last ones may reach beyond what is wanted. Blocks that are
 * not wanted are not decoded. Any input is safe; what comes before a damaged block is handed on. Errors:
 * BR_E_FORMAT (the caller adds the file), and those of reading. */
int bitshuffle_decode(struct bitshuffle_chunk *chunk, size_t from, size_t to, void *scratch,
                      struct br_error *error);

#endif
