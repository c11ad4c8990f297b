/* tap.c - see tap.h. */
#include "runtime/run/tap.h"

#include "buffers/clock.h"

#include <string.h>

static size_t most_steps(const struct br_stream *s)
{
    return br_stream_max_validity(s) / s->nchannels;
}

/* Elements of one step without a break: the axes behind time. */
static size_t elements_behind_time(const struct br_array *array)
{
    size_t elements = 1;
    for (unsigned i = array->naxes; i-- > 0 && strcmp(array->axis[i].name, "time") != 0;)
        elements *= array->axis[i].length;
    return elements;
}

unsigned br_tap_every(const struct br_stream *s, size_t most)
{
    size_t side = br_array_bytes(&s->side);
    size_t whole = br_tap_room(s, 1);
    if (whole <= most) return 1;
    if (br_stream_is_zoned(s) || s->packets != NULL || br_array_axis(&s->array, "time") < 0 || side > most ||
        elements_behind_time(&s->array) * br_dtype_bits(s->array.dtype) % 8 != 0)
        return 0;
    size_t steps = most_steps(s), left = (most - side) / ((whole - side) / steps);
    return left > 0 ? (unsigned)((steps + left - 1) / left) : 0;
}

size_t br_tap_room(const struct br_stream *s, unsigned every)
{
    size_t side = br_array_bytes(&s->side), steps = most_steps(s);
    size_t whole = br_stream_max_bytes(s) + br_stream_max_validity(s);
    return side + (every == 1 ? whole : whole / steps * ((steps + every - 1) / every));
}

/* Every n-th of `steps` rows, which `outer` times lie one behind the other in `bytes`. Returns the bytes that
 * it has written. */
static size_t copy_rows(uint8_t *to, const void *from, size_t bytes, size_t outer, size_t steps, size_t every)
{
    const uint8_t *row = from;
    size_t row_bytes = steps > 0 && outer > 0 ? bytes / (outer * steps) : 0, written = 0;
    if (every == 1) memcpy(to, from, bytes);
    if (every == 1) return bytes;
    for (size_t i = 0; i < outer; i++, row += steps * row_bytes)
        for (size_t step = 0; step < steps; step += every, written += row_bytes)
            memcpy(to + written, row + step * row_bytes, row_bytes);
    return written;
}

void br_tap_fill(struct br_tap *tap, const struct br_stream *stream, const struct br_frame *frame)
{
    uint64_t begin = br_clock_ns();
    uint8_t *to = tap->memory + tap->head;
    const struct br_array *array = &stream->array;
    size_t steps = br_stream_part(stream, 0, frame->first, frame->samples).nsteps, outer = 1;
    for (unsigned i = 0; i < array->naxes && strcmp(array->axis[i].name, "time") != 0; i++)
        outer *= array->axis[i].length;
    bool time_first = br_array_axis(array, "time") < br_array_axis(array, "freq");
    tap->first = frame->first;
    tap->samples = frame->samples;
    tap->complete = frame->complete;
    tap->bytes = copy_rows(to, frame->data, br_frame_bytes(stream, frame), outer, steps, tap->every);
    tap->valid_bytes = 0;
    if (!frame->complete)
        tap->valid_bytes = copy_rows(to + tap->bytes, frame->valid, br_frame_cells(stream, frame),
                                     time_first ? 1 : stream->nchannels, steps, tap->every);
    tap->side_bytes = br_array_bytes(&stream->side);
    if (tap->side_bytes > 0) memcpy(to + tap->bytes + tap->valid_bytes, frame->side, tap->side_bytes);
    tap->at_ns = br_clock_ns();
    tap->took_ns = tap->at_ns - begin;
}
