/* layout.c - the tables of a packet-order frame. See layout.h. */
#include "formats/packets/layout.h"
#include "formats/common/order.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A channel and where it comes from, for sorting. */
struct origin {
    int64_t id;
    uint32_t stream;
    size_t offset;
};

/* Fails for ids that repeat or are out of range. */
static int check_ids(const char *what, struct packet_ids ids, struct br_error *error)
{
    if (ids.count == 0)
        return br_fail(error, BR_E_INVALID,
                       "the packet description does not say which %ss there are; give `%ss`", what, what);
    bool *seen = calloc(PACKET_MAX_IDS, sizeof *seen);
    if (seen == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for %d ids", PACKET_MAX_IDS);
    int status = BR_OK;
    for (size_t i = 0; i < ids.count && status == BR_OK; i++) {
        int64_t id = ids.value[i];
        if (id < 0 || id >= PACKET_MAX_IDS)
            status = br_fail(error, BR_E_INVALID, "%s %lld is out of range; expected 0 to %d", what,
                             (long long)id, PACKET_MAX_IDS - 1);
        else if (seen[id])
            status = br_fail(error, BR_E_INVALID, "%s %lld is listed twice", what, (long long)id);
        else
            seen[id] = true;
    }
    free(seen);
    return status;
}

static size_t stride_of(const struct packet_description *packet, enum packet_axis axis)
{
    for (unsigned i = 0; i < packet->naxes; i++)
        if (packet->axis[i].axis == axis) return packet->axis[i].stride;
    return 0;
}

static size_t length_of(const struct packet_description *packet, enum packet_axis axis)
{
    for (unsigned i = 0; i < packet->naxes; i++)
        if (packet->axis[i].axis == axis) return packet->axis[i].length;
    return 0;
}

static int make_channels(struct packet_layout *l, const struct packet_description *packet,
                         struct packet_memory memory, struct br_error *error)
{
    size_t stride = stride_of(packet, PACKET_FREQ), n = l->nchannels;
    struct origin *origin = calloc(n, sizeof *origin);
    if (origin == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for %zu channels", n);
    for (size_t s = 0, k = 0; s < l->nstreams; s++)
        for (size_t i = 0; i < l->packet_channels; i++)
            origin[k++] =
                (struct origin){packet->channel_base + l->stream_id[s] + packet->channel_step * (int64_t)i,
                                (uint32_t)s, s * l->packet_bytes + i * stride};
    qsort(origin, n, sizeof *origin, order_int64);
    int64_t *id = memory.alloc(memory.owner, n * sizeof *id);
    size_t *offset = memory.alloc(memory.owner, n * sizeof *offset);
    uint32_t *stream = memory.alloc(memory.owner, n * sizeof *stream);
    int status = BR_OK;
    for (size_t f = 0; f < n && status == BR_OK; f++) {
        id[f] = origin[f].id;
        offset[f] = origin[f].offset;
        stream[f] = origin[f].stream;
        if (f > 0 && id[f] == id[f - 1])
            status = br_fail(error, BR_E_INVALID, "channel %lld is in stream %lld and again in stream %lld",
                             (long long)id[f], (long long)l->stream_id[stream[f - 1]],
                             (long long)l->stream_id[stream[f]]);
    }
    free(origin);
    l->channel_id = id;
    l->channel_offset = offset;
    l->channel_stream = stream;
    return status;
}

/* The bytes of input `k` of a packet, and its place in [pol][dish of the packet]. */
static size_t input_of_packet(const struct packet_description *packet, size_t k, size_t *pol, size_t *dish)
{
    size_t offset = 0, dishes = 1;
    *pol = *dish = 0;
    for (unsigned i = packet->naxes; i-- > 0;) {
        const struct packet_payload_axis *a = &packet->axis[i];
        if (a->axis == PACKET_TIME || a->axis == PACKET_FREQ) continue;
        size_t at = k % a->length;
        k /= a->length;
        offset += at * a->stride;
        if (a->axis == PACKET_POL) {
            *pol = at;
        } else {
            *dish += at * dishes;
            dishes *= a->length;
        }
    }
    return offset;
}

static void make_inputs(struct packet_layout *l, const struct packet_description *packet,
                        struct packet_memory memory)
{
    size_t n = l->ninputs, npol = l->npol > 0 ? l->npol : 1, dishes = l->packet_inputs / npol;
    size_t *offset = memory.alloc(memory.owner, n * sizeof *offset);
    uint32_t *source = memory.alloc(memory.owner, n * sizeof *source);
    uint32_t *position = memory.alloc(memory.owner, n * sizeof *position);
    for (size_t s = 0, i = 0; s < l->nsources; s++)
        for (size_t k = 0; k < l->packet_inputs; k++, i++) {
            size_t pol, dish;
            offset[i] = s * l->nstreams * l->packet_bytes + input_of_packet(packet, k, &pol, &dish);
            source[i] = (uint32_t)s;
            position[i] = (uint32_t)(pol * l->nsources * dishes + s * dishes + dish);
        }
    l->input_offset = offset;
    l->input_source = source;
    l->position = position;
}

static const int64_t *keep_ids(struct packet_ids ids, struct packet_memory memory)
{
    int64_t *copy = memory.alloc(memory.owner, ids.count * sizeof *copy);
    memcpy(copy, ids.value, ids.count * sizeof *copy);
    return copy;
}

int packet_layout_absent(const struct packet_layout *l, struct packet_ids absent, struct packet_memory memory,
                         const bool **flags, struct br_error *error)
{
    bool *flag = memory.alloc(memory.owner, l->nsources * sizeof *flag);
    size_t gone = 0;
    for (size_t i = 0; i < absent.count; i++) {
        size_t s = 0;
        while (s < l->nsources && l->source_id[s] != absent.value[i]) s++;
        if (s == l->nsources)
            return br_fail(error, BR_E_INVALID, "%lld is not a source of this node",
                           (long long)absent.value[i]);
        gone += !flag[s];
        flag[s] = true;
    }
    *flags = flag;
    return gone < l->nsources ? BR_OK
                              : br_fail(error, BR_E_INVALID, "all sources; expected at least one that sends");
}

int packet_layout_make(struct packet_layout *layout, const struct packet_description *packet,
                       const struct packet_node *node, struct packet_memory memory, struct br_error *error)
{
    struct packet_layout *l = layout;
    struct packet_ids sources = node->sources.count > 0 ? node->sources : packet->sources;
    struct packet_ids streams = node->streams.count > 0 ? node->streams : packet->streams;
    const char *values = node->values != NULL ? node->values : packet->values;
    const char *real = node->real != NULL ? node->real : packet->real;
    size_t frame_samples = node->frame_samples;
    int status = check_ids("source", sources, error);
    if (status == BR_OK) status = check_ids("stream", streams, error);
    if (status != BR_OK) return status;
    if (values == NULL || real == NULL)
        return br_fail(error, BR_E_INVALID, "the packet description does not say %s; give `%s`",
                       values == NULL ? "how a nibble is coded" : "which nibble is the real part",
                       values == NULL ? "values: offset_binary | twos_complement" : "real: high | low");
    if (frame_samples == 0 || frame_samples % packet->nsamples != 0)
        return br_fail(error, BR_E_INVALID,
                       "a frame of %zu samples is not a whole number of packets, which have %zu",
                       frame_samples, packet->nsamples);
    *l = (struct packet_layout){.frame_samples = frame_samples,
                                .packet_samples = packet->nsamples,
                                .nblocks = frame_samples / packet->nsamples,
                                .nsources = sources.count,
                                .nstreams = streams.count,
                                .packet_channels = packet->nchannels,
                                .packet_inputs = packet->ninputs,
                                .packet_bytes = packet->payload_bytes,
                                .time_stride = stride_of(packet, PACKET_TIME),
                                .channel_stride = packet->nchannels > 1 ? stride_of(packet, PACKET_FREQ)
                                                                        : packet->payload_bytes,
                                .npol = length_of(packet, PACKET_POL),
                                .offset_binary = strcmp(values, "offset_binary") == 0,
                                .real_high = strcmp(real, "high") == 0};
    l->fill = l->offset_binary ? 0x88 : 0x00;
    /* At most 2^16 sources, streams and bytes each: 2^48. */
    l->block_bytes = l->nsources * l->nstreams * l->packet_bytes;
    l->receipt_bytes = (l->nsources * l->nstreams + 31) / 32 * 4;
    l->nchannels = l->nstreams * l->packet_channels;
    l->ninputs = l->nsources * l->packet_inputs;
    size_t frame_bytes;
    if (__builtin_mul_overflow(l->nblocks, l->block_bytes, &frame_bytes) || frame_bytes > SIZE_MAX / 8 ||
        l->nchannels > UINT32_MAX / 64 || l->ninputs > UINT32_MAX / 64)
        return br_fail(error, BR_E_INVALID,
                       "a frame of %zu samples, %zu channels and %zu inputs is larger than any memory",
                       frame_samples, l->nchannels, l->ninputs);
    l->source_id = keep_ids(sources, memory);
    l->stream_id = keep_ids(streams, memory);
    struct br_error why = {0};
    status = packet_layout_absent(l, node->absent, memory, &l->absent, &why);
    if (status != BR_OK) return br_fail(error, status, "absent: %s", why.text);
    status = make_channels(l, packet, memory, error);
    if (status == BR_OK) make_inputs(l, packet, memory);
    return status;
}

/* --- the stream -------------------------------------------------------------------------------- */

static int make_frequencies(const struct packet_layout *l, const struct packet_description *packet,
                            struct br_stream *stream, struct packet_memory memory, struct br_error *error)
{
    if (stream->freq_mhz != NULL && stream->width_mhz != NULL && stream->nchannels == l->nchannels)
        return BR_OK;
    if (stream->freq_mhz != NULL)
        return br_fail(error, BR_E_INVALID,
                       "the stream's frequencies are %zu, but the packets bring %zu channels",
                       stream->nchannels, l->nchannels);
    if (!packet->has_freq)
        return br_fail(error, BR_E_INVALID,
                       "neither the packet description (freq_mhz) nor `stream: {freq_mhz: ...}` "
                       "says the frequencies of the channels");
    double *freq = memory.alloc(memory.owner, l->nchannels * sizeof *freq);
    double *width = memory.alloc(memory.owner, l->nchannels * sizeof *width);
    for (size_t f = 0; f < l->nchannels; f++) {
        freq[f] = packet->freq_first_mhz + packet->freq_step_mhz * (double)l->channel_id[f];
        width[f] = fabs(packet->freq_step_mhz);
    }
    stream->freq_mhz = freq;
    stream->width_mhz = width;
    return BR_OK;
}

int packet_layout_describe(const struct packet_layout *l, const struct packet_description *packet,
                           struct br_stream *stream, struct packet_memory memory, struct br_error *error)
{
    int status = make_frequencies(l, packet, stream, memory, error);
    if (status != BR_OK) return status;
    if (stream->sample_ns.num == 0) stream->sample_ns = packet->sample_ns;
    if (stream->sample_ns.num == 0)
        return br_fail(
            error, BR_E_INVALID,
            "neither the packet description (sample_ns) nor `stream: {sample_ns: ...}` says the sample time");
    size_t lengths[] = {l->frame_samples, l->nchannels, l->ninputs},
           receipt[] = {l->nblocks, l->receipt_bytes};
    status = br_array_init(&stream->array, BR_UINT8, "time,freq,input", lengths, error);
    if (status == BR_OK) status = br_array_init(&stream->side, BR_UINT8, "time,input", receipt, error);
    if (status != BR_OK) return status;
    stream->frame_samples = l->frame_samples;
    stream->nchannels = l->nchannels;
    stream->nzones = 1;
    stream->zone[0] = (struct br_zone){.nchannels = l->nchannels, .factor = 1, .downsample = 1};
    stream->scale = 1;
    stream->packets = l;
    return BR_OK;
}
