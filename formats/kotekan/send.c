#include "formats/kotekan/send.h"
#include "formats/dada/recording.h"

#include <stdlib.h>
#include <string.h>

int kotekan_sender_create(struct kotekan_sender *s, const struct br_stream *in, struct br_error *error)
{
    s->stream = in;
    s->data_bytes = br_array_bytes(&in->array);
    s->sizes[0] = CHORD_METADATA_BYTES;
    s->sizes[1] = (uint32_t)s->data_bytes;
    s->cells = br_stream_max_validity(in);
    s->whole = (struct br_frame){.data = malloc(br_stream_max_bytes(in)), .valid = malloc(s->cells)};
    s->steps = br_array_length(&in->array, "time");
    if (!s->encoder.copy) s->encoded = malloc(s->data_bytes);
    if (s->whole.data != NULL && s->whole.valid != NULL && (s->encoder.copy || s->encoded != NULL))
        return BR_OK;
    return br_fail(error, BR_E_NO_MEMORY, "no memory for frames of %zu bytes", s->data_bytes);
}

void kotekan_sender_free(struct kotekan_sender *s)
{
    free(s->encoded);
    free(s->whole.data);
    free(s->whole.valid);
}

/* A whole frame around `in`, zero where nothing is. */
static const void *fill_up(struct kotekan_sender *s, const struct br_frame *in, uint64_t first)
{
    const struct br_stream *stream = s->stream;
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

int kotekan_sender_put(struct kotekan_sender *s, struct peers *peers, const struct br_frame *in)
{
    uint64_t samples = s->stream->frame_samples, first = in->first / samples * samples;
    const void *data = in->samples != samples || !in->complete ? fill_up(s, in, first) : in->data;
    kotekan_encode_metadata(&s->encoder, first, s->steps, s->counter++ & INT32_MAX, s->bytes);
    if (!s->encoder.copy) {
        kotekan_encode(&s->encoder, s->steps, data, s->encoded);
        data = s->encoded;
    }
    for (size_t i = 0; i < peers->count; i++) {
        struct peer *peer = &peers->peer[i];
        if (!peer_ready(peers, peer)) continue;
        peer_add(peer, s->sizes, sizeof s->sizes);
        peer_add(peer, s->bytes, sizeof s->bytes);
        peer_add(peer, data, s->data_bytes);
    }
    return peers_send(peers);
}
