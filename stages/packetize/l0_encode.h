/* l0_encode.h - intensities to the bytes of CHIME's L0 packets.
 *
 * For every block (beam, coarse channel, packet's steps), over what is valid: scale = (max - min)/253, offset
 * = min - scale, byte = round((x - offset)/scale) in 1..254, ties to even; missing: 0. A block without a
 * valid sample has scale = offset = 0. A constant block would divide by zero: it has scale = 0, offset = the
 * constant, byte = 1. All in float32. */
#ifndef BEAMRING_STAGES_PACKETIZE_L0_ENCODE_H
#define BEAMRING_STAGES_PACKETIZE_L0_ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct l0_encoder {
    size_t nbeams;       /* of the input: distance between two time steps */
    unsigned nup, steps; /* fine channels of a coarse one; time steps of a block */
    bool half;           /* input f16, else f32 */
    float factor;        /* physical value = factor * stored value */
    uint8_t *levels;     /* [nup steps][L0_GROUP] */
    uint16_t *copy;      /* [nup steps][L0_GROUP] */
    const struct l0_loops *loops;
};

enum { L0_GROUP = 64 };

/* Allocates; 0 or -1. */
int l0_encoder_create(struct l0_encoder *encoder);
void l0_encoder_free(struct l0_encoder *encoder);

/* One coarse channel of beams [first, first + count), count <= L0_GROUP. `in` [freq][stride steps][beam],
 * `valid` [freq][stride] or NULL; channel[up] is the index of each fine channel. Beam i's bytes go to
 * data[i], [up][steps]; scale[i], offset[i] are set. */
void l0_encode(struct l0_encoder *encoder, const void *in, const uint8_t *valid, size_t stride,
               const uint32_t *channel, size_t first, size_t count, uint8_t *const *data, float *scale,
               float *offset);

#endif
