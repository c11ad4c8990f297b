/* planes.h - pieces that lie one behind the other, put side by side: channels of a block, or the payloads of
 * several inputs, become rows of a frame. */
#ifndef BEAMRING_FORMATS_CHIME_PLANES_H
#define BEAMRING_FORMATS_CHIME_PLANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Planes in[0], ..., in[planes - 1] of n units of `unit` bytes each, into n rows, `pitch` bytes apart:
 *     out[t * pitch + c * step + b] = in[c][t * unit + b] ^ flip,  t < n, c < planes, b < unit
 * with step >= unit, pitch >= planes * step. Nothing else of `out` is written. `far`: `out` is part of
 * something larger than the caches; whole cache lines then pass them by, so that memory need not be read
 * first, and coding_settle must be called before other threads are told. */
void planes_to_rows(const uint8_t *const *in, size_t planes, size_t unit, size_t n, uint8_t flip,
                    uint8_t *out, size_t pitch, size_t step, bool far);

#endif
