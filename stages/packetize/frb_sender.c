/* packetize, format frb-node: see formats/frb_node/send.h. */
#include "formats/common/axes.h"
#include "formats/common/fileio.h"
#include "formats/frb_node/channel_lock.h"
#include "formats/frb_node/send.h"
#include "stages/common/stage/parallel.h"
#include "stages/common/stage/shape.h"
#include "stages/packetize/calibration.h"
#include "stages/packetize/packetize.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_MINICHUNKS = 4 }; /* of a calibration's memory */

struct frb_destination {
    struct frb_node_document document;
    struct file_lock lock; /* on its channels */
};

struct frb_state {
    struct frb_sender sender;
    struct frb_destination *to; /* [peers.count] */
    struct frb_beams *beams;
    uint64_t unanswered; /* minichunks that were counted as not acknowledged */
    struct calibration calibration;
    float *deviation; /* [nchannels] */
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
    bool fits = a->dtype == BR_INT4 && axes_are(a, "beam,freq,time") && in->side.naxes == 3;
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
    struct frb_state *s = p->state;
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
    struct frb_state *s = p->state;
    char *yaml;
    size_t length = 0;
    int status = make_document(stage, p, i, &s->to[i].document, &yaml, &length);
    if (status != BR_OK) return status;
    bool good = frb_sender_hello(&p->peers.peer[i], p->acks, yaml, length);
    if (good && p->document != NULL) status = save_document(stage, p, i, yaml, length);
    free(yaml);
    return good ? status : br_no_memory(stage, length);
}

static void calibrate_levels(void *arg, const uint8_t *levels, const float *side, uint16_t *scales)
{
    calibrate(arg, levels, side, scales);
}

static int start(struct br_stage *stage, struct packetize *p)
{
    const struct br_stream *in = br_stage_input(stage, 0);
    struct br_error error = {0};
    struct frb_state *s = p->state = calloc(1, sizeof *s);
    if (s == NULL) return br_no_memory(stage, sizeof *s);
    size_t n = p->destinations.count, F = in->nchannels;
    unsigned step = in->zone[0].downsample;
    s->to = calloc(n, sizeof *s->to);
    s->beams = calloc(n, sizeof *s->beams);
    s->deviation = malloc(F * sizeof *s->deviation);
    if (s->to == NULL || s->beams == NULL || s->deviation == NULL)
        return br_no_memory(stage, n * sizeof *s->to);
    for (size_t i = 0; i < n; i++) {
        s->to[i].lock.fd = -1;
        s->beams[i] =
            (struct frb_beams){(size_t)p->destination[i].first_beam, (size_t)p->destination[i].beams};
    }
    int status = start_peers(stage, p, p->acks);
    for (size_t i = 0; i < n && status == BR_OK; i++) {
        status = make_hello(stage, p, i);
        if (status == BR_OK) status = lock_channels(stage, p, i);
    }
    if (status != BR_OK) return status;
    const struct frb_node_document *d = &s->to[0].document;
    s->sender = (struct frb_sender){.peers = &p->peers,
                                    .beams = s->beams,
                                    .nbeams = p->nbeams,
                                    .nchannels = F,
                                    .step = step,
                                    .minichunk = (uint64_t)step * FRB_NODE_STEPS,
                                    .seq_base = (uint64_t)step / (uint64_t)d->seq_per_frb_time_sample,
                                    .calibrate = calibrate_levels,
                                    .arg = &s->calibration};
    if (frb_sender_create(&s->sender, &error) != BR_OK)
        return br_stage_fail(stage, error.status, "%s", error.text);
    for (size_t f = 0; f < F; f++) {
        double mhz, width;
        size_t zone = frb_node_channel(d, d->freq_channels.value[f], &mhz, &width);
        s->deviation[f] = (float)sqrt(d->noise_variance.value[d->noise_variance.count > 1 ? zone : 0]);
    }
    double minichunks = p->calibration_s / ((double)s->sender.minichunk * br_stream_sample_s(in));
    s->calibration = (struct calibration){
        .nbeams = p->nbeams,
        .nchannels = F,
        .steps = FRB_NODE_STEPS,
        .deviation = s->deviation,
        .parallel = br_stage_parallel_loop(stage),
        .follow = p->calibration_s > 0 ? FRB_NODE_STEPS * fmax(minichunks, LEAST_MINICHUNKS) : 0,
    };
    return calibration_create(&s->calibration) == 0
               ? BR_OK
               : br_no_memory(stage, p->nbeams * F * sizeof(struct br_follow));
}

/* Counts what destinations have missed, or have not acknowledged and will not. */
static int count_lost(struct br_stage *stage, struct packetize *p, int status)
{
    struct frb_state *s = p->state;
    uint64_t most = 0;
    for (size_t i = 0; i < p->peers.count; i++)
        if (p->peers.peer[i].unanswered > most) most = p->peers.peer[i].unanswered;
    if (most > s->unanswered)
        br_stage_count_lost(stage, BR_LOST_NOT_ACKNOWLEDGED, (most - s->unanswered) * s->sender.minichunk);
    if (s->sender.missed > 0) br_stage_count_lost(stage, BR_LOST_NO_DESTINATION, s->sender.missed);
    s->unanswered = most;
    s->sender.missed = 0;
    return peers_status(stage, p, status);
}

static int frame(struct br_stage *stage, struct packetize *p, const struct br_frame *in)
{
    struct frb_state *s = p->state;
    int status = peers_open(&p->peers);
    return count_lost(stage, p, status == BR_OK ? frb_sender_put(&s->sender, in) : status);
}

static int finish(struct br_stage *stage, struct packetize *p)
{
    struct frb_state *s = p->state;
    int status = frb_sender_flush(&s->sender), closed = finish_peers(stage, p);
    count_lost(stage, p, status);
    return status == BR_OK ? closed : status;
}

static int stop(struct br_stage *stage, struct packetize *p)
{
    struct frb_state *s = p->state;
    (void)stage;
    peers_report(&p->peers, "minichunks");
    if (s == NULL) return BR_OK;
    for (size_t i = 0; s->to != NULL && i < p->destinations.count; i++) {
        frb_node_free(&s->to[i].document);
        file_lock_release(&s->to[i].lock);
    }
    calibration_free(&s->calibration);
    frb_sender_free(&s->sender);
    free(s->to);
    free(s->beams);
    free(s->deviation);
    free(s);
    return BR_OK;
}

const struct wire_format frb_node_format = {"frb-node", configure, start, frame, finish, stop};
