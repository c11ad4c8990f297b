/* kotekan's bufferSend: every frame is u32 metadata bytes, u32 frame bytes, chordMetadata, the array.
 * Receivers know one size of frame only, so that short frames are filled up; a sample that is missing is sent
 * as zero, for kotekan's stages have no word for it. */
#include "formats/dada/recording.h"
#include "formats/kotekan/kotekan_encode.h"
#include "stages/common/stage/shape.h"
#include "stages/packetize/packetize.h"

#include <stdlib.h>
#include <string.h>

struct kotekan_sender {
    struct kotekan_encoder encoder;
    uint32_t sizes[2];
    uint8_t bytes[CHORD_METADATA_BYTES];
    struct br_frame whole; /* for frames that are short or have missing samples */
    uint8_t *encoded;      /* in kotekan's order and coding; NULL where they are ours */
    size_t data_bytes, cells, steps;
    int32_t counter;
};

static int configure(struct br_stage *stage, struct packetize *p)
{
    const struct br_stream *in = br_stage_input(stage, 0);
    struct kotekan_sender *s = p->state = br_stage_alloc(stage, sizeof *s);
    struct br_error error = {0};
    int status = kotekan_encoder_init(&s->encoder, in, strcmp(p->coding, "int4p4chime") == 0, &error);
    if (status != BR_OK) return br_stage_fail(stage, BR_E_INVALID, "%s", error.text);
    size_t beams = p->destinations.count; /* everybody gets everything */
    const struct destination_param *d = p->destinations.value;
    for (size_t i = 0; i < p->destinations.count; i++)
        if (d[i].first_beam != 0 || d[i].beams != 0)
            return br_stage_fail_at(stage, "destinations",
                                    "first_beam and beams are not for format kotekan: all get whole frames");
    return share_beams(stage, p, beams);
}

static int start(struct br_stage *stage, struct packetize *p)
{
    const struct br_stream *in = br_stage_input(stage, 0);
    struct kotekan_sender *s = p->state;
    s->data_bytes = br_array_bytes(&in->array);
    s->sizes[0] = CHORD_METADATA_BYTES;
    s->sizes[1] = (uint32_t)s->data_bytes;
    s->cells = br_stream_max_validity(in);
    s->whole = (struct br_frame){.data = malloc(br_stream_max_bytes(in)), .valid = malloc(s->cells)};
    s->steps = br_array_length(&in->array, "time");
    if (!s->encoder.copy) s->encoded = malloc(s->data_bytes);
    if (s->whole.data == NULL || s->whole.valid == NULL || (!s->encoder.copy && s->encoded == NULL))
        return br_no_memory(stage, s->data_bytes);
    return start_peers(stage, p, false);
}

/* A whole frame around `in`, zero where nothing is. */
static const void *fill_up(const struct br_stream *stream, struct kotekan_sender *s,
                           const struct br_frame *in, uint64_t first)
{
    struct br_frame *w = &s->whole;
    w->first = first;
    w->samples = stream->frame_samples;
    w->complete = false;
    memset(w->data, 0, s->data_bytes);
    memset(w->valid, BR_MISSING, s->cells);
    recording_place(stream, w, in, in->first, in->first + in->samples);
    if (br_array_axis(&stream->array, "time") != 0 || br_array_axis(&stream->array, "freq") != 1)
        return w->data;
    size_t cells = stream->array.axis[0].length * stream->nchannels, bytes = s->data_bytes / cells;
    for (size_t i = 0; i < cells; i++)
        if (w->valid[i] == BR_MISSING) memset((uint8_t *)w->data + i * bytes, 0, bytes);
    return w->data;
}

static int frame(struct br_stage *stage, struct packetize *p, const struct br_frame *in)
{
    const struct br_stream *stream = br_stage_input(stage, 0);
    struct kotekan_sender *s = p->state;
    int status = BR_OK;
    if (!p->opened) status = peers_open(&p->peers);
    p->opened = true;
    if (status != BR_OK) return status;
    uint64_t first = in->first / stream->frame_samples * stream->frame_samples;
    const void *data = in->data;
    if (in->samples != stream->frame_samples || !in->complete) data = fill_up(stream, s, in, first);
    kotekan_encode_metadata(&s->encoder, first, s->steps, s->counter++ & INT32_MAX, s->bytes);
    if (!s->encoder.copy) {
        kotekan_encode(&s->encoder, s->steps, data, s->encoded);
        data = s->encoded;
    }
    for (size_t i = 0; i < p->peers.count; i++) {
        struct peer *peer = &p->peers.peer[i];
        if (!peer_ready(&p->peers, peer)) continue;
        peer_add(peer, s->sizes, sizeof s->sizes);
        peer_add(peer, s->bytes, sizeof s->bytes);
        peer_add(peer, data, s->data_bytes);
    }
    int missed = peers_send(&p->peers);
    if (missed > 0) br_stage_count_lost(stage, BR_LOST_NO_DESTINATION, in->samples);
    return missed < 0 ? missed : BR_OK;
}

static int finish(struct br_stage *stage, struct packetize *p)
{
    (void)stage;
    if (p->opened) peers_close(&p->peers);
    return peers_verdict(&p->peers);
}

static int stop(struct br_stage *stage, struct packetize *p)
{
    struct kotekan_sender *s = p->state;
    report_peers(stage, p, "frames");
    free(s->encoded);
    free(s->whole.data);
    free(s->whole.valid);
    return BR_OK;
}

const struct wire_format kotekan_format = {"kotekan", configure, start, frame, finish, stop};
