/* receiver.h - the dishes' receivers: their noise is added to the sky's field, and the sum rounded to levels.
 */
#ifndef BEAMRING_STAGES_SIMULATE_RECEIVER_H
#define BEAMRING_STAGES_SIMULATE_RECEIVER_H

#include <stddef.h>
#include <stdint.h>

struct receiver {
    size_t ndishes, padded; /* padded: to whole blocks of random bits */
    float rms;              /* of each component, levels */
    uint64_t seed;
    const int16_t *table; /* gaussian_table's */
    int16_t *noise;       /* [2][padded] scratch */
    /* [lines or 1][ndishes][2], owned by the caller: what each receiver multiplies field and noise by;
     * NULL: 1 / */
    const float *gain;
    uint32_t gain_lines; /* rows of gain; line i has row i modulo this */
};

/* Returns 0, or -1 when there is no memory. `table` must outlive the receiver. Free with receiver_free in any
 * case. */
int receiver_make(struct receiver *receiver, size_t ndishes, double rms, const int16_t *table, uint64_t seed);
void receiver_free(struct receiver *receiver);

/* e[ndishes] (int4x2) = rotation gain (noise + field re[ndishes], im[ndishes]), rounded to the nearest level
 * (even when in the middle) and clamped to [-7, 7]. `line` = channel * npol + pol; `rotation` is [ndishes][2]
 * or NULL: 1. Returns the number of components beyond 7.5. */
unsigned receiver_digitize(struct receiver *receiver, uint64_t sample, uint32_t line,
                           const float *restrict re, const float *restrict im, const float *restrict rotation,
                           uint8_t *restrict e);

#endif
