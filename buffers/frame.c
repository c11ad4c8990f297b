#include "buffers/frame.h"

#include <string.h>

uint8_t br_validity(uint64_t valid, uint64_t total)
{
    if (valid == 0 || total == 0) return BR_MISSING;
    if (valid >= total) return BR_VALID;
    uint64_t w = (uint64_t)(((__uint128_t)valid * 255 + total / 2) / total);
    return (uint8_t)(w < 1 ? 1 : w > 254 ? 254 : w);
}

size_t br_frame_cells(const struct br_stream *stream, const struct br_frame *frame)
{
    size_t cells = 0;
    for (unsigned i = 0; i < br_stream_nparts(stream); i++) {
        struct br_part part = br_stream_part(stream, i, frame->first, frame->samples);
        cells += part.nsteps * part.nchannels;
    }
    return cells;
}

size_t br_frame_bytes(const struct br_stream *stream, const struct br_frame *frame)
{
    unsigned last = br_stream_nparts(stream) - 1;
    struct br_part part = br_stream_part(stream, last, frame->first, frame->samples);
    return part.offset + part.bytes;
}

void br_frame_open_validity(const struct br_stream *stream, struct br_frame *frame)
{
    if (!frame->complete) return;
    memset(frame->valid, BR_VALID, br_frame_cells(stream, frame));
    frame->complete = false;
    frame->missing = 0;
}

void br_frame_close_validity(const struct br_stream *stream, struct br_frame *frame)
{
    if (frame->complete) {
        frame->missing = 0;
        return;
    }
    size_t cells = br_frame_cells(stream, frame), zeros = 0;
    uint8_t all = BR_VALID;
    const uint8_t *valid = frame->valid;
    for (size_t i = 0; i < cells; i++) {
        zeros += valid[i] == BR_MISSING;
        all &= valid[i];
    }
    frame->missing = zeros;
    frame->complete = all == BR_VALID;
}
