/* receive.h - frames of E, or of beams, as kotekan's bufferSend sends them: u32 metadata bytes, u32 frame
 * bytes, chordMetadata, the array. The frames may have any length and begin anywhere: they are cut anew. */
#ifndef BEAMRING_FORMATS_KOTEKAN_RECEIVE_H
#define BEAMRING_FORMATS_KOTEKAN_RECEIVE_H

#include "formats/common/coding.h"
#include "formats/kotekan/chord_metadata.h"
#include "formats/kotekan/kotekan_array.h"
#include "formats/links/receiver.h"
#include "formats/links/tcp_server.h"

enum { KOTEKAN_LINKS = 16 };

enum kotekan_link_state { LINK_FREE, LINK_SIZES, LINK_METADATA, LINK_BODY, LINK_HELD };

struct kotekan_link {
    enum kotekan_link_state state;
    uint32_t sizes[2]; /* metadata, frame */
    uint8_t metadata[CHORD_METADATA_BYTES];
    enum coding coding; /* of the frame held */
    uint8_t *body;
    uint8_t *valid; /* [cells] of the frame held, where its coding says what is missing */
    size_t room, got, want;
    struct kotekan_array array;    /* how the frame is made; not for plain ones */
    uint64_t first, end, heard_at; /* base samples of the frame held, or of the last one */
    bool any, known;               /* there was one; its header was accepted */
    bool doubted;                  /* it waits for the others */
};

struct kotekan_receiver {
    struct receiver base;

    /* what is expected */
    const struct br_stream *stream;
    enum coding coding; /* of the field, over what the metadata says; CODING_UNKNOWN: as that says */
    uint64_t max_frame_bytes;

    struct tcp_server server; /* its peers have the numbers of the links */
    struct kotekan_link link[KOTEKAN_LINKS];
    size_t row;     /* bytes of a time step */
    uint8_t *spare; /* [spare_room] a frame's bytes before they are as ours */
    size_t spare_room;
    /* E as the F-engine gives it, in rows; else time steps are placed wherever the array has them */
    bool plain;
    bool any;
    uint64_t cursor; /* the next sample to be written */

    /* the frame being filled */
    bool filling;
    uint64_t begin;
};

/* True for E as the F-engine gives it, which comes in rows of a sample. */
bool kotekan_is_plain(const struct br_stream *stream);

/* The calls of receiver.h. */
extern const struct receiver_format kotekan_receiver;

#endif
