/* The FRB-node protocol, sending: see formats/frb_node/frb_node.h. The frames of a 4-bit quantizer with
 * blocks of 256 samples are what a minichunk holds, byte for byte; only the head of a minichunk and its
 * scales are made here. */
#include "formats/common/fileio.h"
#include "stages/common/stage/parallel.h"
#include "stages/common/stage/shape.h"
#include "stages/packetize/calibration.h"
#include "stages/packetize/channel_lock.h"
#include "stages/packetize/packetize.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_MINICHUNKS = 4 }; /* of a calibration's memory */

struct frb_destination {
    struct frb_node_document document;
    struct file_lock lock; /* on its channels */
};

struct frb_sender {
    struct frb_destination *to; /* [peers.count] */
    size_t nchannels;
    uint64_t minichunk;  /* base samples */
    uint64_t unanswered; /* minichunks that were counted as not acknowledged */
    uint64_t seq_base;   /* base samples per sequence number */
    struct calibration calibration;
    float *deviation; /* [nchannels] */
    uint16_t *scales; /* [beam][freq][2], f16 */
    uint8_t *levels;  /* [beam][freq][128]: a minichunk of which the stream covers a part */
    uint8_t header[FRB_NODE_HEADER];

    /* A minichunk of which a part has come: its scale and offset, number and base samples. */
    bool holding;
    float *side; /* [beam][freq][2] */
    uint64_t held, held_samples;
};

static struct document_param document_params(const struct packetize *p)
{
    return (struct document_param){.zones = p->zones,
                                   .site = p->site,
                                   .beamset = p->beamset,
                                   .first_beam_id = p->first_beam_id,
                                   .noise_variance = p->noise_variance};
}

/* Fails at the parameter from which the key comes with which the error begins; other keys come from the
 * stream. */
static int document_failed(struct br_stage *stage, const struct packetize *p, const struct br_error *error)
{
    static const char *const from[][2] = {{"tel_grid_", "site"},
                                          {"tel_dish_elev", "site"},
                                          {"tel_dish_vert", "site"},
                                          {"tel_dish_co", "site"},
                                          {"noise_variance", "noise_variance"},
                                          {"zone", "zones"}};
    const char *param = NULL;
    for (size_t i = 0; i < sizeof from / sizeof *from; i++)
        if (strncmp(error->text, from[i][0], strlen(from[i][0])) == 0) param = from[i][1];
    bool given = param != NULL && (strcmp(param, "site") == 0    ? p->site != NULL
                                   : strcmp(param, "zones") == 0 ? p->zones != NULL
                                                                 : true);
    if (error->status == BR_E_NO_MEMORY || !given)
        return br_stage_fail(stage, error->status == BR_E_NO_MEMORY ? BR_E_NO_MEMORY : BR_E_INVALID, "%s",
                             error->text);
    return br_stage_fail_at(stage, param, "%s", error->text);
}

/* The document of the stream for destination i, and its text, *length bytes with the final 0. It is
 * read twice, by code that shares nothing, before anybody is connected: receivers end for all their senders
 * when one of them sends a document that breaks a rule. */
static int make_document(struct br_stage *stage, const struct packetize *p, size_t i,
                         struct frb_node_document *document, char **yaml, size_t *length)
{
    struct document_param param = document_params(p);
    struct br_error error = {0};
    *yaml = NULL;
    int status = document_make(document, br_stage_input(stage, 0), &param,
                               (size_t)p->destination[i].first_beam, (size_t)p->destination[i].beams, &error);
    if (status == BR_OK) status = frb_node_write(document, yaml, length, &error);
    if (status == BR_OK) status = frb_node_rules(*yaml, *length, &error);
    if (status == BR_OK) return BR_OK;
    frb_node_free(document);
    free(*yaml);
    *yaml = NULL;
    return document_failed(stage, p, &error);
}

static int configure(struct br_stage *stage, struct packetize *p)
{
    const struct br_stream *in = br_stage_input(stage, 0);
    const struct br_array *a = &in->array;
    char text[160];
    bool fits = a->naxes == 3 && a->dtype == BR_INT4 && br_array_axis(a, "beam") == 0 &&
                br_array_axis(a, "freq") == 1 && br_array_axis(a, "time") == 2 && in->side.naxes == 3;
    if (!fits || a->axis[2].length != FRB_NODE_STEPS)
        return br_stage_fail(stage, BR_E_INVALID,
                             "its input is %s%s; frb-node sends int4 [beam][freq][time 256] with scales: put "
                             "`quantize` with bits: 4, block: 256 in front",
                             br_array_format(a, text, sizeof text), fits ? "" : ", or has no scales");
    if (br_stream_is_zoned(in))
        return br_stage_fail(stage, BR_E_INVALID, "the zones of its input have different time steps");
    int status = share_beams(stage, p, a->axis[0].length);
    if (status != BR_OK) return status;
    for (size_t i = 0; i < p->destinations.count; i++) {
        struct frb_node_document document = {0};
        char *yaml;
        size_t length;
        status = make_document(stage, p, i, &document, &yaml, &length);
        if (status != BR_OK) return status;
        frb_node_free(&document);
        free(yaml);
        for (size_t k = 0; k < i; k++) {
            const struct destination_param *x = &p->destination[i], *y = &p->destination[k];
            if (strcmp(x->address, y->address) == 0)
                return br_stage_fail_at(
                    stage, "destinations",
                    "%s stands there twice: it would receive its channels from two senders", x->address);
        }
    }
    return BR_OK;
}

/* Receivers take the same channels from two senders without a word, and mix them. */
static int lock_channels(struct br_stage *stage, const struct packetize *p, size_t i)
{
    struct frb_sender *s = p->state;
    const struct peer *peer = &p->peers.peer[i];
    const struct frb_node_ints *channels = &s->to[i].document.freq_channels;
    struct br_error error = {0};
    int status =
        channel_lock_take(&s->to[i].lock, peer->to.resolved, channels->value, channels->count, &error);
    if (status == BR_E_INVALID)
        return br_stage_fail(
            stage, status,
            "%s to %s already; the receiver would mix them. Stop it, or send it other channels (lock: %s)",
            error.text, peer->to.text, s->to[i].lock.path);
    if (status == BR_E_IO) {
        br_stage_warn(stage, "%s: whether another program sends the same channels to %s is not known",
                      error.text, peer->to.text);
        return BR_OK;
    }
    return status == BR_OK ? BR_OK : br_stage_fail(stage, status, "%s", error.text);
}

static int save_document(struct br_stage *stage, const struct packetize *p, size_t i, const char *yaml,
                         size_t length)
{
    char path[4200];
    if (i == 0)
        snprintf(path, sizeof path, "%s", p->document);
    else
        snprintf(path, sizeof path, "%s.%zu", p->document, i);
    struct br_error error = {0};
    int status = fileio_keep(path, yaml, length - 1, p->overwrite, &error);
    if (status == BR_OK) return BR_OK;
    return br_stage_fail(stage, status,
                         "%s; the document of this run would be another one: give another name, or "
                         "`overwrite: true`",
                         error.text);
}

/* The first message to destination i. */
static int make_hello(struct br_stage *stage, struct packetize *p, size_t i)
{
    struct frb_sender *s = p->state;
    char *yaml;
    size_t length = 0;
    int status = make_document(stage, p, i, &s->to[i].document, &yaml, &length);
    if (status != BR_OK) return status;
    uint32_t prefix[3] = {FRB_NODE_MAGIC, p->acks ? FRB_NODE_ACK : 0, (uint32_t)length};
    struct peer *peer = &p->peers.peer[i];
    peer->hello = malloc(sizeof prefix + length);
    if (peer->hello != NULL) {
        memcpy(peer->hello, prefix, sizeof prefix);
        memcpy((char *)peer->hello + sizeof prefix, yaml, length);
        peer->hello_bytes = sizeof prefix + length;
        if (p->document != NULL) status = save_document(stage, p, i, yaml, length);
    }
    free(yaml);
    return peer->hello != NULL ? status : br_no_memory(stage, sizeof prefix + length);
}

static int start(struct br_stage *stage, struct packetize *p)
{
    const struct br_stream *in = br_stage_input(stage, 0);
    struct frb_sender *s = p->state = calloc(1, sizeof *s);
    if (s == NULL) return br_no_memory(stage, sizeof *s);
    size_t n = p->destinations.count;
    s->nchannels = in->nchannels;
    s->to = calloc(n, sizeof *s->to);
    size_t cells = p->nbeams * s->nchannels;
    s->scales = malloc(cells * 2 * sizeof *s->scales);
    s->levels = malloc(cells * FRB_NODE_ROW);
    s->side = malloc(cells * 2 * sizeof *s->side);
    s->deviation = malloc(s->nchannels * sizeof *s->deviation);
    if (s->to == NULL || s->scales == NULL || s->levels == NULL || s->side == NULL || s->deviation == NULL)
        return br_no_memory(stage, cells * FRB_NODE_CELL);
    for (size_t i = 0; i < n; i++) s->to[i].lock.fd = -1;
    int status = start_peers(stage, p, p->acks);
    for (size_t i = 0; i < n && status == BR_OK; i++) {
        status = make_hello(stage, p, i);
        if (status == BR_OK) status = lock_channels(stage, p, i);
    }
    if (status != BR_OK) return status;
    const struct frb_node_document *d = &s->to[0].document;
    s->seq_base = (uint64_t)in->zone[0].downsample / (uint64_t)d->seq_per_frb_time_sample;
    s->minichunk = (uint64_t)in->zone[0].downsample * FRB_NODE_STEPS;
    for (size_t f = 0; f < s->nchannels; f++) {
        double mhz, width;
        size_t zone = frb_node_channel(d, d->freq_channels.value[f], &mhz, &width);
        s->deviation[f] = (float)sqrt(d->noise_variance.value[d->noise_variance.count > 1 ? zone : 0]);
    }
    double minichunk_s = (double)s->minichunk * br_stream_sample_s(in);
    double minichunks = p->calibration_s / minichunk_s;
    s->calibration = (struct calibration){
        .nbeams = p->nbeams,
        .nchannels = s->nchannels,
        .steps = FRB_NODE_STEPS,
        .deviation = s->deviation,
        .parallel = br_stage_parallel_loop(stage),
        .follow = p->calibration_s > 0 ? FRB_NODE_STEPS * fmax(minichunks, LEAST_MINICHUNKS) : 0,
    };
    return calibration_create(&s->calibration) == 0 ? BR_OK
                                                    : br_no_memory(stage, cells * sizeof(struct br_follow));
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

/* Minichunks that a destination has not acknowledged, and will not. */
static void count_unanswered(struct br_stage *stage, struct packetize *p)
{
    struct frb_sender *s = p->state;
    uint64_t most = 0;
    for (size_t i = 0; i < p->peers.count; i++)
        if (p->peers.peer[i].unanswered > most) most = p->peers.peer[i].unanswered;
    if (most > s->unanswered)
        br_stage_count_lost(stage, BR_LOST_NOT_ACKNOWLEDGED, (most - s->unanswered) * s->minichunk);
    s->unanswered = most;
}

static int send_minichunk(struct br_stage *stage, struct packetize *p, uint64_t number, const uint8_t *levels,
                          const float *side, uint64_t samples)
{
    struct frb_sender *s = p->state;
    calibrate(&s->calibration, levels, side, s->scales);
    uint32_t magic = FRB_NODE_MAGIC;
    uint64_t seq = number * s->minichunk / s->seq_base;
    memcpy(s->header, &magic, sizeof magic);
    memcpy(s->header + 4, &seq, sizeof seq);
    for (size_t i = 0; i < p->peers.count; i++) {
        struct peer *peer = &p->peers.peer[i];
        size_t first = (size_t)p->destination[i].first_beam * s->nchannels,
               cells = (size_t)p->destination[i].beams * s->nchannels;
        if (!peer_ready(&p->peers, peer)) continue;
        peer_add(peer, s->header, sizeof s->header);
        peer_add(peer, s->scales + 2 * first, 4 * cells);
        peer_add(peer, levels + first * FRB_NODE_ROW, cells * FRB_NODE_ROW);
    }
    int missed = peers_send(&p->peers);
    if (missed > 0) br_stage_count_lost(stage, BR_LOST_NO_DESTINATION, samples);
    count_unanswered(stage, p);
    return missed < 0 ? missed : BR_OK;
}

/* Sends the minichunk that is held, if there is one. */
static int flush(struct br_stage *stage, struct packetize *p)
{
    struct frb_sender *s = p->state;
    if (!s->holding) return BR_OK;
    s->holding = false;
    return send_minichunk(stage, p, s->held, s->levels, s->side, s->held_samples);
}

/* A frame that is a whole minichunk goes out as it is. In a shorter one (at the ends of the stream, next to a
 * hole) the rest is masked; it is held until a later minichunk begins, for behind a hole another part of it
 * may come, and seq may not stand still. */
static int frame(struct br_stage *stage, struct packetize *p, const struct br_frame *in)
{
    struct frb_sender *s = p->state;
    unsigned step = br_stage_input(stage, 0)->zone[0].downsample;
    int status = BR_OK;
    if (!p->opened) status = peers_open(&p->peers);
    p->opened = true;
    uint64_t number = in->first / s->minichunk;
    if (status == BR_OK && s->holding && s->held != number) status = flush(stage, p);
    if (status != BR_OK) return status;
    size_t steps = br_time_steps(in->first, in->samples, step), rows = p->nbeams * s->nchannels;
    if (steps == FRB_NODE_STEPS && !s->holding)
        return send_minichunk(stage, p, number, in->data, in->side, in->samples);
    if (!s->holding) {
        memset(s->levels, 0x88, rows * FRB_NODE_ROW);
        memcpy(s->side, in->side, 2 * rows * sizeof *s->side);
        s->held_samples = 0;
    }
    s->holding = true;
    s->held = number;
    s->held_samples += in->samples;
    add_part(s, rows, in->data, in->side, steps, (size_t)(in->first / step % FRB_NODE_STEPS));
    return BR_OK;
}

static int finish(struct br_stage *stage, struct packetize *p)
{
    int status = flush(stage, p);
    if (p->opened) peers_close(&p->peers);
    count_unanswered(stage, p);
    return status == BR_OK ? peers_verdict(&p->peers) : status;
}

static int stop(struct br_stage *stage, struct packetize *p)
{
    struct frb_sender *s = p->state;
    report_peers(stage, p, "minichunks");
    if (s == NULL) return BR_OK;
    for (size_t i = 0; s->to != NULL && p->peers.peer != NULL && i < p->destinations.count; i++) {
        frb_node_free(&s->to[i].document);
        free(p->peers.peer[i].hello);
        file_lock_release(&s->to[i].lock);
    }
    calibration_free(&s->calibration);
    free(s->to);
    free(s->deviation);
    free(s->scales);
    free(s->levels);
    free(s->side);
    free(s);
    return BR_OK;
}

const struct wire_format frb_node_format = {"frb-node", configure, start, frame, finish, stop};
