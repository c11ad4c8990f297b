/* bitplanes.h - the inner loop of bitshuffle: bytes from their bits, which stand apart. */
#ifndef BEAMRING_FORMATS_CHIME_BITPLANES_H
#define BEAMRING_FORMATS_CHIME_BITPLANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* n bytes (a multiple of 8) from 8 planes of n / 8 bytes, one behind the other: bit k of out[8 i + j] is bit
 * j of byte i of plane k. The two do not overlap. */
void bitplanes_join(uint8_t *out, const uint8_t *in, size_t n);

/* The same with the instructions that every processor has; and with AVX2, which returns false and does
 * nothing where there is none. bitplanes_join takes the better one. */
void bitplanes_join_plain(uint8_t *out, const uint8_t *in, size_t n);
bool bitplanes_join_avx2(uint8_t *out, const uint8_t *in, size_t n);

/* The bytes of n groups of 8 (a multiple of 32), from planes `plane` bytes apart, of the coding chime, as
 * int4x2: joined and converted in one go (coding.h), and written past the caches if `far` (coding_settle).
 * `out` is aligned to 32 bytes. *written: whether any byte is not 0. False, and nothing is done, without
 * AVX2. */
bool bitplanes_join_chime(uint8_t *out, const uint8_t *in, size_t plane, size_t n, bool far, bool *written);

#endif
