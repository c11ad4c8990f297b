/* tap.c - see tap.h. */
#include "runtime/run/tap.h"

#include "buffers/clock.h"

#include <string.h>

void br_tap_fill(struct br_tap *tap, const struct br_stream *stream, const struct br_frame *frame)
{
    uint64_t begin = br_clock_ns();
    tap->first = frame->first;
    tap->samples = frame->samples;
    tap->complete = frame->complete;
    tap->bytes = br_frame_bytes(stream, frame);
    tap->valid_bytes = frame->complete ? 0 : br_frame_cells(stream, frame);
    tap->side_bytes = br_array_bytes(&stream->side);
    memcpy(tap->memory, frame->data, tap->bytes);
    if (tap->valid_bytes > 0) memcpy(tap->memory + tap->bytes, frame->valid, tap->valid_bytes);
    if (tap->side_bytes > 0)
        memcpy(tap->memory + tap->bytes + tap->valid_bytes, frame->side, tap->side_bytes);
    tap->at_ns = br_clock_ns();
    tap->took_ns = tap->at_ns - begin;
}
