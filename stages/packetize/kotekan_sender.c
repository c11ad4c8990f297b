/* kotekan's bufferSend: every frame is u32 metadata bytes, u32 frame bytes, chordMetadata, the array.
 * Receivers know one size of frame only, so that short frames are filled up; a sample that is missing is sent
 * as zero, for the link has no word for it. */
#include "stages/common/formats/chord_metadata.h"
#include "stages/common/formats/recording.h"
#include "stages/common/stage/shape.h"
#include "stages/packetize/packetize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct kotekan_sender {
    struct chord_metadata metadata;
    int32_t coarse[CHORD_MAX_FREQ];
    uint32_t sizes[2];
    uint8_t bytes[CHORD_METADATA_BYTES];
    struct br_frame whole; /* for frames that are short or have missing samples */
    size_t data_bytes, cells;
    int32_t counter;
};

static enum chord_type type_of(enum br_dtype dtype)
{
    switch (dtype) {
    case BR_INT4X2:
        return CHORD_INT4X2;
    case BR_INT8:
        return CHORD_INT8;
    case BR_UINT8:
        return CHORD_UINT8;
    case BR_F16:
        return CHORD_FLOAT16;
    case BR_F32:
        return CHORD_FLOAT32;
    default:
        return CHORD_UNKNOWN;
    }
}

static const char *name_of(const char *axis)
{
    static const char *const names[][2] = {{"time", "T"},     {"freq", "F"}, {"pol", "P"},
                                           {"dish", "D"},     {"beam", "B"}, {"gridp", "beamP"},
                                           {"gridq", "beamQ"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i][0], axis) == 0) return names[i][1];
    return axis;
}

/* The numbers of the F-engine's channels: multiples of their width, as CHORD counts them. */
static int number_channels(struct br_stage *stage, struct kotekan_sender *s, const struct br_stream *in)
{
    unsigned factor = in->zone[0].factor;
    size_t n = in->nchannels / factor;
    if (n > CHORD_MAX_FREQ)
        return br_stage_fail(stage, BR_E_INVALID, "%zu coarse channels; kotekan's metadata has room for %d",
                             n, CHORD_MAX_FREQ);
    for (size_t i = 0; i < n; i++) {
        double mhz = 0, width = 0;
        for (unsigned u = 0; u < factor; u++) {
            mhz += in->freq_mhz[i * factor + u] / factor;
            width += in->width_mhz[i * factor + u];
        }
        s->coarse[i] = (int32_t)round(mhz / width);
    }
    return BR_OK;
}

static int configure(struct br_stage *stage, struct packetize *p)
{
    const struct br_stream *in = br_stage_input(stage, 0);
    struct kotekan_sender *s = p->state = br_stage_alloc(stage, sizeof *s);
    bool one_zone = !br_stream_is_zoned(in);
    for (unsigned z = 1; z < in->nzones; z++) one_zone = one_zone && in->zone[z].factor == in->zone[0].factor;
    if (!one_zone || in->side.naxes > 0 || type_of(in->array.dtype) == CHORD_UNKNOWN)
        return br_stage_fail(stage, BR_E_INVALID, "its input has %s, which a frame of kotekan cannot hold",
                             !one_zone            ? "zones"
                             : in->side.naxes > 0 ? "scales and offsets"
                                                  : br_dtype_name(in->array.dtype));
    if (br_array_bytes(&in->array) > INT32_MAX)
        return br_stage_fail(stage, BR_E_INVALID, "frames of %zu bytes; at most %d are possible",
                             br_array_bytes(&in->array), INT32_MAX);
    size_t beams = p->destinations.count; /* everybody gets everything */
    const struct destination_param *d = p->destinations.value;
    for (size_t i = 0; i < p->destinations.count; i++)
        if (d[i].first_beam != 0 || d[i].beams != 0)
            return br_stage_fail_at(stage, "destinations",
                                    "first_beam and beams are not for format kotekan: all get whole frames");
    int status = share_beams(stage, p, beams);
    return status == BR_OK ? number_channels(stage, s, in) : status;
}

static int start(struct br_stage *stage, struct packetize *p)
{
    const struct br_stream *in = br_stage_input(stage, 0);
    struct kotekan_sender *s = p->state;
    bool field = in->array.naxes == 4 && br_array_axis(&in->array, "time") == 0 &&
                 br_array_axis(&in->array, "dish") == 3;
    chord_metadata_init(&s->metadata,
                        field                                    ? "E"
                        : br_array_axis(&in->array, "beam") >= 0 ? "J"
                                                                 : "I",
                        type_of(in->array.dtype));
    for (unsigned i = 0; i < in->array.naxes; i++)
        chord_metadata_add(&s->metadata, name_of(in->array.axis[i].name), in->array.axis[i].length);
    chord_metadata_finish(&s->metadata);
    s->data_bytes = br_array_bytes(&in->array);
    s->sizes[0] = CHORD_METADATA_BYTES;
    s->sizes[1] = (uint32_t)s->data_bytes;
    s->cells = br_stream_max_validity(in);
    s->whole = (struct br_frame){.data = malloc(br_stream_max_bytes(in)), .valid = malloc(s->cells)};
    if (s->whole.data == NULL || s->whole.valid == NULL) return br_no_memory(stage, s->data_bytes);
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
    s->metadata.frame_counter = s->counter++ & INT32_MAX;
    chord_metadata_set_times(&s->metadata, stream->nchannels / stream->zone[0].factor, s->coarse,
                             stream->zone[0].factor, first, stream->zone[0].downsample);
    chord_metadata_encode(&s->metadata, s->bytes);
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
    free(s->whole.data);
    free(s->whole.valid);
    return BR_OK;
}

const struct wire_format kotekan_format = {"kotekan", configure, start, frame, finish, stop};
