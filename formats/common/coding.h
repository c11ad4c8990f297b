/* coding.h - the byte codings of one complex 4+4-bit sample, and their conversion to int4x2 (ours in memory).
 *
 *   int4x2  two's complement, real part in the low nibble; zero is 0x00
 *   chime   value + 8, real part in the HIGH nibble; zero is 0x88; the byte 0x00 is a missing sample
 *   vdif    value + 8, real part in the low nibble; zero is 0x88 */
#ifndef BEAMRING_FORMATS_COMMON_CODING_H
#define BEAMRING_FORMATS_COMMON_CODING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum coding { CODING_INT4X2, CODING_CHIME, CODING_VDIF, CODING_UNKNOWN };

/* The coding called `name`, or CODING_UNKNOWN. */
enum coding coding_from_name(const char *name);
const char *coding_name(enum coding coding);

/* Converts `count` bytes to int4x2; in place is allowed. A missing chime byte becomes a zero sample. */
void coding_convert(enum coding coding, const uint8_t *in, uint8_t *out, size_t count);

/* The other way: int4x2 into the coding. In place is allowed. -8 - 8i becomes the byte 0x00 in chime,
 * which is that value to kotekan's stages and "missing" to readers of recordings. */
void coding_encode(enum coding coding, const uint8_t *in, uint8_t *out, size_t count);

/* The same as coding_convert where `in` and `out` do not overlap and `out` is part of something larger
 * than the caches, which it passes by: memory is written without being read first. Before other threads
 * are told of it: coding_settle. */
void coding_convert_past_caches(enum coding coding, const uint8_t *in, uint8_t *out, size_t count);
void coding_settle(void);

/* True when every one of the `count` bytes says "missing" (never for codings that cannot say it). */
bool coding_all_missing(enum coding coding, const uint8_t *in, size_t count);

#endif
