/* send.h - frames as kotekan's bufferSend sends them: u32 metadata bytes, u32 frame bytes, chordMetadata, the
 * array. Receivers know one size of frame only, so that short frames are filled up. A missing sample is sent
 * as zero, because kotekan's stages have no word for it. */
#ifndef BEAMRING_FORMATS_KOTEKAN_SEND_H
#define BEAMRING_FORMATS_KOTEKAN_SEND_H

#include "buffers/frame.h"
#include "formats/kotekan/kotekan_encode.h"
#include "formats/links/peers.h"

struct kotekan_sender {
    struct kotekan_encoder encoder; /* kotekan_encoder_init, before kotekan_sender_create */
    const struct br_stream *stream;
    uint32_t sizes[2];
    uint8_t bytes[CHORD_METADATA_BYTES];
    struct br_frame whole; /* for frames that are short or have missing samples */
    uint8_t *encoded;      /* in kotekan's order and coding; NULL where they are ours */
    size_t data_bytes, cells, steps;
    int32_t counter;
};

/* Reserves memory for frames of the stream. Errors: BR_E_NO_MEMORY; kotekan_sender_free follows in either
 * case. */
int kotekan_sender_create(struct kotekan_sender *sender, const struct br_stream *stream,
                          struct br_error *error);
void kotekan_sender_free(struct kotekan_sender *sender);

/* Sends a frame to all peers, which are open. Returns as peers_send. */
int kotekan_sender_put(struct kotekan_sender *sender, struct peers *peers, const struct br_frame *in);

#endif
