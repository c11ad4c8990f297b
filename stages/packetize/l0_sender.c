/* packetize, format chime-l0: see formats/chime_l0/send.h and l0_encode.h. */
#include "formats/chime_l0/send.h"
#include "formats/common/axes.h"
#include "stages/common/stage/blocks.h"
#include "stages/common/stage/shape.h"
#include "stages/packetize/l0_encode.h"
#include "stages/packetize/packetize.h"

#include <stdlib.h>
#include <string.h>

struct l0_state {
    struct l0_sender sender;
    uint32_t *channel; /* [ncoarse][nup] of the stream */
    unsigned nencoders;
    struct l0_encoder *encoder; /* [nencoders]: of a worker */

    /* A block that lies in several frames. */
    void *gathered;          /* [freq][steps][beam] */
    uint8_t *gathered_valid; /* [freq][steps] */
    size_t value_bytes;
    struct blocks blocks;
    bool begun; /* a frame has come */
};

/* Finds the coarse channels of the stream and where their fine channels are. */
static int find_channels(struct br_stage *stage, struct l0_state *state, const struct br_stream *in)
{
    struct l0_sender *s = &state->sender;
    size_t F = in->nchannels, place[L0_CHANNELS];
    uint32_t *channel = br_stage_alloc(stage, F * sizeof *channel);
    uint16_t *ids = br_stage_alloc(stage, F * sizeof *ids),
             *filled = br_stage_alloc(stage, F * sizeof *filled);
    for (size_t i = 0; i < L0_CHANNELS; i++) place[i] = F;
    for (size_t f = 0; f < F; f++) {
        unsigned coarse, up, nup;
        if (!l0_channel(in->freq_mhz[f], in->width_mhz[f], &coarse, &up, &nup) || (f > 0 && nup != s->nup))
            return br_stage_fail(
                stage, BR_E_INVALID,
                "channel %zu (%.9g MHz wide at %.9g MHz) is not a %spart of the channels of 0.390625 MHz "
                "at 800, 799.609375, ... MHz that chime-l0 knows",
                f, in->width_mhz[f], in->freq_mhz[f], f > 0 ? "equal " : "");
        s->nup = nup;
        if (place[coarse] == F) {
            place[coarse] = s->ncoarse;
            ids[s->ncoarse++] = (uint16_t)coarse;
        }
        if ((place[coarse] + 1) * nup > F) break;
        channel[place[coarse] * nup + up] = (uint32_t)f;
        filled[place[coarse]]++;
    }
    for (size_t i = 0; i < s->ncoarse; i++)
        if (filled[i] != s->nup)
            return br_stage_fail(
                stage, BR_E_INVALID,
                "the stream has %u of the %u fine channels of coarse channel %u; chime-l0 sends "
                "whole coarse channels",
                filled[i], s->nup, ids[i]);
    state->channel = channel;
    s->coarse_id = ids;
    return BR_OK;
}

static int configure(struct br_stage *stage, struct packetize *p)
{
    const struct br_stream *in = br_stage_input(stage, 0);
    const struct br_array *a = &in->array;
    char text[160];
    if ((a->dtype != BR_F16 && a->dtype != BR_F32) || !axes_are(a, "freq,time,beam"))
        return br_stage_fail(
            stage, BR_E_INVALID,
            "its input is %s; chime-l0 sends f16 or f32 [freq][time][beam] (frb_beams makes it), "
            "which it quantizes itself",
            br_array_format(a, text, sizeof text));
    if (br_stream_is_zoned(in))
        return br_stage_fail(stage, BR_E_INVALID, "the zones of its input have different time steps");
    if (in->sample_ns.num != L0_COUNT_NS || in->sample_ns.den != 1)
        return br_stage_fail(stage, BR_E_INVALID,
                             "its base samples last %lld/%lld ns; the counts of chime-l0 last %d ns",
                             (long long)in->sample_ns.num, (long long)in->sample_ns.den, L0_COUNT_NS);
    if (in->zone[0].downsample > UINT16_MAX)
        return br_stage_fail(stage, BR_E_INVALID, "a time step of %u counts; at most %u are possible",
                             in->zone[0].downsample, UINT16_MAX);
    if ((p->steps & (p->steps - 1)) != 0)
        return br_stage_fail_at(stage, "steps", "%lld; expected a power of two", (long long)p->steps);
    struct l0_state *state = p->state = br_stage_alloc(stage, sizeof *state);
    struct l0_sender *s = &state->sender;
    int status = share_beams(stage, p, a->axis[2].length);
    if (status == BR_OK) status = find_channels(stage, state, in);
    if (status != BR_OK) return status;
    if (p->first_beam_id + (int64_t)p->nbeams - 1 > UINT16_MAX)
        return br_stage_fail_at(stage, "first_beam_id", "beam ids up to %lld; chime-l0 has 16 bits for them",
                                (long long)(p->first_beam_id + (int64_t)p->nbeams - 1));
    s->step = in->zone[0].downsample;
    s->steps = (unsigned)p->steps;
    state->blocks = (struct blocks){.step = s->step, .length = s->steps, .bridges = true};
    size_t nb = (size_t)p->packet_beams < p->nbeams ? (size_t)p->packet_beams : p->nbeams;
    size_t nf = (size_t)p->packet_channels < s->ncoarse ? (size_t)p->packet_channels : s->ncoarse;
    size_t data = nb * nf * s->nup * s->steps, all = data + l0_header_bytes((unsigned)p->version, nb, nf);
    if (data > L0_DATA_MAX || all > L0_PACKET_MAX)
        return br_stage_fail_at(
            stage, "steps",
            "packets of %zu beams x %zu channels x %u x %u steps take %zu bytes; at most %d are allowed: "
            "put fewer packet_beams, packet_channels or steps into one",
            nb, nf, s->nup, s->steps, all, L0_PACKET_MAX);
    if (p->rate > 0 && p->burst < (double)all)
        return br_stage_fail_at(stage, "burst", "%g bytes; expected at least one packet, %zu bytes", p->burst,
                                all);
    return BR_OK;
}

static bool make_encoders(struct l0_state *s, const struct packetize *p, unsigned workers, float factor)
{
    s->encoder = calloc(workers, sizeof *s->encoder);
    for (; s->encoder != NULL && s->nencoders < workers; s->nencoders++) {
        s->encoder[s->nencoders] = (struct l0_encoder){.nbeams = p->nbeams,
                                                       .nup = s->sender.nup,
                                                       .steps = s->sender.steps,
                                                       .half = s->value_bytes == 2,
                                                       .factor = factor};
        if (l0_encoder_create(&s->encoder[s->nencoders]) == 0) continue;
        l0_encoder_free(&s->encoder[s->nencoders]);
        return false;
    }
    return s->encoder != NULL;
}

static int start(struct br_stage *stage, struct packetize *p)
{
    const struct br_stream *in = br_stage_input(stage, 0);
    struct l0_state *state = p->state;
    struct l0_sender *s = &state->sender;
    size_t n = p->destinations.count;
    struct br_error error = {0};
    s->wire = wire_of(stage, p);
    s->version = (unsigned)p->version;
    s->packet_beams = (size_t)p->packet_beams;
    s->packet_channels = (size_t)p->packet_channels;
    s->first_beam_id = (size_t)p->first_beam_id;
    s->epoch_ns = in->epoch_ns;
    state->value_bytes = in->array.dtype == BR_F16 ? 2 : 4;
    s->to = calloc(n, sizeof *s->to);
    state->gathered = malloc(in->nchannels * s->steps * p->nbeams * state->value_bytes);
    state->gathered_valid = malloc(in->nchannels * s->steps);
    if (s->to == NULL || state->gathered == NULL || state->gathered_valid == NULL ||
        !make_encoders(state, p, br_stage_threads(stage), (float)in->scale))
        return br_no_memory(stage, in->nchannels * s->steps * p->nbeams * state->value_bytes);
    s->count = n;
    for (size_t i = 0; i < n; i++)
        s->to[i] = (struct l0_destination){.link.address = p->destination[i].address,
                                           .first_beam = (size_t)p->destination[i].first_beam,
                                           .beams = (size_t)p->destination[i].beams};
    int status = l0_sender_create(s, &error);
    return status == BR_OK ? BR_OK : br_stage_fail(stage, status, "%s", error.text);
}

/* A block that is quantized into the packets of a destination. */
struct encoding {
    struct l0_state *state;
    const struct l0_destination *to;
    const void *in;
    const uint8_t *valid; /* or NULL */
    size_t stride;
};

/* One coarse channel of L0_GROUP beams. */
static void encode_group(void *arg, size_t job, unsigned worker)
{
    const struct encoding *e = arg;
    const struct l0_sender *s = &e->state->sender;
    size_t pb = s->packet_beams, pc = s->packet_channels, cell = (size_t)s->nup * s->steps;
    size_t c = job % s->ncoarse, b0 = job / s->ncoarse * L0_GROUP;
    size_t count = e->to->beams - b0 < L0_GROUP ? e->to->beams - b0 : L0_GROUP;
    const struct l0_slot *slot[L0_GROUP] = {NULL};
    uint8_t *data[L0_GROUP] = {NULL};
    float scale[L0_GROUP], offset[L0_GROUP];
    for (size_t k = 0; k < count; k++) {
        slot[k] = &e->to->slot[(b0 + k) / pb * e->to->per_beams + c / pc];
        data[k] = slot[k]->data + ((b0 + k) % pb * slot[k]->ncoarse + c % pc) * cell;
    }
    l0_encode(&e->state->encoder[worker], e->in, e->valid, e->stride, e->state->channel + c * s->nup,
              e->to->first_beam + b0, count, data, scale, offset);
    for (size_t k = 0; k < count; k++) {
        size_t at = (b0 + k) % pb * slot[k]->ncoarse + c % pc;
        memcpy(slot[k]->scales + 4 * at, &scale[k], 4);
        memcpy(slot[k]->scales + 4 * (slot[k]->nbeams * slot[k]->ncoarse + at), &offset[k], 4);
    }
}

static int send_block(struct br_stage *stage, struct packetize *p, uint64_t number, const void *in,
                      const uint8_t *valid, size_t stride)
{
    struct l0_state *state = p->state;
    struct l0_sender *s = &state->sender;
    struct br_error error = {0};
    int status = BR_OK;
    for (size_t i = 0; i < s->count && status == BR_OK; i++) {
        struct l0_destination *d = &s->to[i];
        struct encoding e = {.state = state, .to = d, .in = in, .valid = valid, .stride = stride};
        status =
            br_stage_parallel(stage, (d->beams + L0_GROUP - 1) / L0_GROUP * s->ncoarse, encode_group, &e);
        if (status != BR_OK) return status;
        status = l0_sender_send(s, d, number * s->steps * s->step, &error);
    }
    return status == BR_OK ? BR_OK : br_stage_fail(stage, status, "%s", error.text);
}

/* Sends the block that was gathered, if there is one. */
static int flush(struct br_stage *stage, struct packetize *p)
{
    struct l0_state *s = p->state;
    if (!s->blocks.open) return BR_OK;
    s->blocks.open = false;
    return send_block(stage, p, s->blocks.number, s->gathered, s->gathered_valid, s->sender.steps);
}

/* Copies a piece of the frame into the block. */
static void gather(const struct packetize *p, const struct br_frame *in, const struct blocks_piece *piece)
{
    struct l0_state *s = p->state;
    size_t row = p->nbeams * s->value_bytes, F = s->sender.ncoarse * s->sender.nup;
    for (size_t f = 0; f < F; f++)
        for (size_t t = 0; t < piece->count; t++) {
            size_t from = f * piece->nsteps + piece->from + t, to = f * s->sender.steps + piece->at + t;
            uint8_t valid = in->complete ? BR_VALID : in->valid[from];
            if (valid <= s->gathered_valid[to])
                continue; /* of two frames that share a step the one that has more of it */
            s->gathered_valid[to] = valid;
            memcpy((uint8_t *)s->gathered + to * row, (const uint8_t *)in->data + from * row, row);
        }
}

static int frame(struct br_stage *stage, struct packetize *p, const struct br_frame *in)
{
    struct l0_state *s = p->state;
    size_t row = p->nbeams * s->value_bytes;
    uint64_t given_up = s->sender.wire.given_up;
    int status = blocks_gap(&s->blocks, in) ? flush(stage, p) : BR_OK;
    s->begun = true;
    while (status == BR_OK) {
        bool begins = !s->blocks.open;
        struct blocks_piece piece = blocks_take(&s->blocks, in);
        if (piece.whole) {
            s->blocks.open = false;
            status = send_block(stage, p, s->blocks.number, (const uint8_t *)in->data + piece.from * row,
                                in->complete ? NULL : in->valid + piece.from, piece.nsteps);
        } else {
            if (begins)
                memset(s->gathered_valid, BR_MISSING, s->sender.ncoarse * s->sender.nup * s->sender.steps);
            gather(p, in, &piece);
            if (piece.ends) status = flush(stage, p);
        }
        if (blocks_used(&s->blocks, in)) break;
    }
    if (s->sender.wire.given_up > given_up) br_stage_count_lost(stage, BR_LOST_NOT_SENT, in->samples);
    return status;
}

static int stop(struct br_stage *stage, struct packetize *p)
{
    struct l0_state *state = p->state;
    struct l0_sender *s = &state->sender;
    for (size_t i = 0; i < s->count && state->begun; i++) wire_report(stage, &s->to[i].link);
    l0_sender_free(s);
    free(s->to);
    for (unsigned i = 0; i < state->nencoders; i++) l0_encoder_free(&state->encoder[i]);
    free(state->encoder);
    free(state->gathered);
    free(state->gathered_valid);
    return BR_OK;
}

const struct wire_format chime_l0_format = {"chime-l0", configure, start, frame, flush, stop};
