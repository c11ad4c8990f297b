/* libFuzzer: any bytes from two senders of the FRB-node protocol, in any pieces. Input: a byte whose top bit
 * is the sender and whose rest is a count (0: the sender goes away, and another one comes), then so many
 * bytes. */
#include "formats/frb_node/receive.h"
#include "tests/fuzz/pieces.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Hands on what is ready, as a stage does. */
static void hand_on(struct frb_receiver *r, struct br_stream *stream, struct br_frame *frame, bool flush)
{
    if (!r->ready) return;
    if (stream->nchannels == 0) {
        if (frb_node_stream(&r->document, stream, keep, NULL, NULL) != BR_OK) abort();
        *frame = (struct br_frame){.data = malloc(br_stream_max_bytes(stream)),
                                   .valid = malloc(br_stream_max_validity(stream)),
                                   .side = malloc(br_array_bytes(&stream->side))};
    }
    uint64_t last = 0;
    while (assembly_take(&r->assembly, stream, flush, frame)) {
        must(frame->first >= last);
        last = frame->first;
        frb_receiver_retry(r);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct frb_receiver r;
    struct br_stream stream = {0};
    struct br_frame frame = {0};
    memset(&r, 0, sizeof r);
    r.senders = 1;
    r.base.window = 3;
    r.max_bytes = 1 << 22;
    for (unsigned i = 0; i < 2; i++) frb_connection_begin(&r, &r.connection[i]);
    while (size > 0 && r.failure.status == BR_OK) {
        struct frb_connection *c = &r.connection[*data >> 7];
        size_t count = *data & 127;
        data++;
        size--;
        if (count > size) count = size;
        bool open = count > 0;
        while (count > 0 && open) {
            size_t room;
            uint8_t *to = frb_connection_room(c, &room);
            if (room == 0) break; /* held, or waiting: the bytes stay in the socket; here they are lost */
            if (room > count) room = count;
            memcpy(to, data, room);
            open = frb_connection_got(&r, c, room);
            if (open && c->state == FRB_FREE) break;
            data += room;
            size -= room;
            count -= room;
            c->nanswers = 0;
            hand_on(&r, &stream, &frame, false);
        }
        data += count;
        size -= count;
        if (!open) frb_connection_end(&r, c);
        if (c->state == FRB_FREE) frb_connection_begin(&r, c);
    }
    hand_on(&r, &stream, &frame, true);
    frb_receiver_free(&r);
    free(frame.data);
    free(frame.valid);
    free(frame.side);
    free_pieces();
    return 0;
}
