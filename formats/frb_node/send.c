#include "formats/frb_node/send.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int frb_sender_create(struct frb_sender *s, struct br_error *error)
{
    size_t cells = s->nbeams * s->nchannels;
    s->scales = malloc(cells * 2 * sizeof *s->scales);
    s->levels = malloc(cells * FRB_NODE_ROW);
    s->side = malloc(cells * 2 * sizeof *s->side);
    if (s->scales != NULL && s->levels != NULL && s->side != NULL) return BR_OK;
    return br_fail(error, BR_E_NO_MEMORY, "no memory for minichunks of %zu bytes", cells * FRB_NODE_CELL);
}

void frb_sender_free(struct frb_sender *s)
{
    free(s->scales);
    free(s->levels);
    free(s->side);
}

bool frb_sender_hello(struct peer *peer, bool acks, const char *yaml, size_t length)
{
    uint32_t prefix[3] = {FRB_NODE_MAGIC, acks ? FRB_NODE_ACK : 0, (uint32_t)length};
    peer->hello = malloc(sizeof prefix + length);
    if (peer->hello == NULL) return false;
    memcpy(peer->hello, prefix, sizeof prefix);
    memcpy((char *)peer->hello + sizeof prefix, yaml, length);
    peer->hello_bytes = sizeof prefix + length;
    return true;
}

/* Level of another part of the minichunk in the scale and offset of this one; -8 stays -8. */
static int rescaled(int level, const float *from, const float *to)
{
    if (level == -8) return -8;
    float x = to[0] > 0 ? rintf((from[0] * (float)level + from[1] - to[1]) / to[0]) : 0;
    return (int)fminf(fmaxf(x, -7), 7);
}

/* Adds a frame of `steps` steps, packed without gaps, to the minichunk that is held, from step `at` on. Where
 * the held part has no scale of its own (nothing valid in it, or a constant) the new one's is taken. */
static void add_part(struct frb_sender *s, size_t rows, const uint8_t *packed, const float *side,
                     size_t steps, size_t at)
{
    for (size_t row = 0, from = 0; row < rows; row++, side += 2) {
        uint8_t *levels = s->levels + row * FRB_NODE_ROW;
        float *held = s->side + 2 * row, other[2] = {held[0], held[1]};
        bool adopt = !(held[0] > 0) && side[0] > 0;
        for (size_t t = 0; adopt && t < FRB_NODE_STEPS; t++) {
            unsigned shift = t % 2 * 4;
            int level = (levels[t / 2] >> shift & 15) == 8 ? -8 : rescaled(0, other, side);
            levels[t / 2] = (uint8_t)((levels[t / 2] & (0xf0 >> shift)) | ((unsigned)level & 15) << shift);
        }
        if (adopt) memcpy(held, side, sizeof other);
        for (size_t t = at; t < at + steps; t++, from++) {
            unsigned shift = t % 2 * 4;
            int level = (int)((packed[from / 2] >> (from % 2 * 4) & 15) ^ 8) - 8;
            if (level == -8) continue;
            if (held[0] > 0 && memcmp(held, side, sizeof other) != 0) level = rescaled(level, side, held);
            levels[t / 2] = (uint8_t)((levels[t / 2] & (0xf0 >> shift)) | ((unsigned)level & 15) << shift);
        }
    }
}

static int send_minichunk(struct frb_sender *s, uint64_t number, const uint8_t *levels, const float *side,
                          uint64_t samples)
{
    uint32_t magic = FRB_NODE_MAGIC;
    uint64_t seq = number * s->minichunk / s->seq_base;
    s->calibrate(s->arg, levels, side, s->scales);
    memcpy(s->header, &magic, sizeof magic);
    memcpy(s->header + 4, &seq, sizeof seq);
    for (size_t i = 0; i < s->peers->count; i++) {
        struct peer *peer = &s->peers->peer[i];
        size_t first = s->beams[i].first * s->nchannels, cells = s->beams[i].count * s->nchannels;
        if (!peer_ready(s->peers, peer)) continue;
        peer_add(peer, s->header, sizeof s->header);
        peer_add(peer, s->scales + 2 * first, 4 * cells);
        peer_add(peer, levels + first * FRB_NODE_ROW, cells * FRB_NODE_ROW);
    }
    int missed = peers_send(s->peers);
    if (missed > 0) s->missed += samples;
    return missed < 0 ? missed : BR_OK;
}

int frb_sender_flush(struct frb_sender *s)
{
    if (!s->holding) return BR_OK;
    s->holding = false;
    return send_minichunk(s, s->held, s->levels, s->side, s->held_samples);
}

int frb_sender_put(struct frb_sender *s, const struct br_frame *in)
{
    uint64_t number = in->first / s->minichunk;
    int status = s->holding && s->held != number ? frb_sender_flush(s) : BR_OK;
    if (status != BR_OK) return status;
    size_t steps = br_time_steps(in->first, in->samples, s->step), rows = s->nbeams * s->nchannels;
    if (steps == FRB_NODE_STEPS && !s->holding)
        return send_minichunk(s, number, in->data, in->side, in->samples);
    if (!s->holding) {
        memset(s->levels, 0x88, rows * FRB_NODE_ROW);
        memcpy(s->side, in->side, 2 * rows * sizeof *s->side);
        s->held_samples = 0;
    }
    s->holding = true;
    s->held = number;
    s->held_samples += in->samples;
    add_part(s, rows, in->data, in->side, steps, (size_t)(in->first / s->step % FRB_NODE_STEPS));
    return BR_OK;
}
