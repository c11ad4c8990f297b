#include "stages/common/stage/finite.h"

#include "formats/common/axes.h"
#include "formats/dada/recording.h"

#include <inttypes.h>
#include <string.h>

enum { PIECE = 4096 };

/* Whether all exponent bits of a value are set: infinity or NaN. */
static bool is_bad16(uint16_t bits)
{
    return (bits & 0x7c00) == 0x7c00;
}

static bool is_bad32(uint32_t bits)
{
    return (bits & 0x7f800000) == 0x7f800000;
}

/* Whether any of `count` values is not finite; no branches, so that compilers make vectors of it. */
static bool any16(const uint16_t *x, size_t count)
{
    unsigned bad = 0;
    for (size_t i = 0; i < count; i++) bad |= is_bad16(x[i]);
    return bad != 0;
}

static bool any32(const uint32_t *x, size_t count)
{
    unsigned bad = 0;
    for (size_t i = 0; i < count; i++) bad |= is_bad32(x[i]);
    return bad != 0;
}

/* Where element i of a part lies in the part's validity. */
static size_t cell_of(const struct br_array *array, const struct br_part *part, size_t i)
{
    int time = br_array_axis(array, "time"), freq = br_array_axis(array, "freq");
    size_t t = 0, f = 0;
    for (int axis = (int)array->naxes - 1; axis >= 0; axis--) {
        size_t length = axis == time   ? part->nsteps
                        : axis == freq ? part->nchannels
                                       : array->axis[axis].length;
        if (axis == time) t = i % length;
        if (axis == freq) f = i % length;
        i /= length;
    }
    return part->valid_offset + (time < freq ? t * part->nchannels + f : f * part->nsteps + t);
}

static uint64_t clean_data(const struct br_stream *stream, struct br_frame *frame)
{
    const struct br_array *array = &stream->array;
    const bool half = array->dtype == BR_F16;
    uint64_t found = 0;
    if (!half && array->dtype != BR_F32) return 0;
    for (unsigned k = 0; k < br_stream_nparts(stream); k++) {
        struct br_part part = br_stream_part(stream, k, frame->first, frame->samples);
        uint16_t *x = (uint16_t *)(void *)((uint8_t *)frame->data + part.offset);
        uint32_t *y = (uint32_t *)(void *)x;
        size_t count = part.bytes / (half ? sizeof *x : sizeof *y);
        for (size_t from = 0; from < count; from += PIECE) {
            size_t end = count - from < PIECE ? count : from + PIECE;
            if (!(half ? any16(x + from, end - from) : any32(y + from, end - from))) continue;
            br_frame_open_validity(stream, frame);
            for (size_t i = from; i < end; i++) {
                if (!(half ? is_bad16(x[i]) : is_bad32(y[i]))) continue;
                uint8_t *valid = &frame->valid[cell_of(array, &part, i)];
                found += *valid != BR_MISSING;
                *valid = BR_MISSING;
                if (half)
                    x[i] = 0;
                else
                    y[i] = 0;
            }
        }
    }
    return found;
}

/* Levels of a quantized frame, [beam][freq][time]. */
struct levels {
    uint8_t *data;
    size_t nchannels, nsteps;
    bool nibbles;
    uint8_t missing; /* code */
};

static uint8_t level_at(const struct levels *l, size_t i)
{
    return l->nibbles ? l->data[i / 2] >> (i % 2 * 4) & 15 : l->data[i];
}

static void lose_row(const struct levels *l, size_t row)
{
    for (size_t t = 0, i = row * l->nsteps; t < l->nsteps; t++, i++) {
        if (!l->nibbles)
            l->data[i] = l->missing;
        else if (i % 2 == 0)
            l->data[i / 2] = (uint8_t)((l->data[i / 2] & 0xf0) | l->missing);
        else
            l->data[i / 2] = (uint8_t)((l->data[i / 2] & 0x0f) | l->missing << 4);
    }
}

static bool any_beam(const struct levels *l, size_t nbeams, size_t f, size_t t)
{
    for (size_t b = 0; b < nbeams; b++)
        if (level_at(l, (b * l->nchannels + f) * l->nsteps + t) != l->missing) return true;
    return false;
}

static uint64_t clean_side(const struct br_stream *stream, struct br_frame *frame)
{
    const struct br_array *array = &stream->array, *side = &stream->side;
    if (side->naxes == 0 || side->dtype != BR_F32) return 0;
    size_t count = br_array_elements(side), F = stream->nchannels, B = br_array_length(array, "beam");
    uint32_t *pair = frame->side;
    uint64_t found = 0;
    if (!any32(pair, count)) return 0;
    struct levels l = {.data = frame->data,
                       .nchannels = F,
                       .nsteps = br_stream_part(stream, 0, frame->first, frame->samples).nsteps,
                       .nibbles = array->dtype == BR_INT4,
                       .missing = recording_missing_byte(stream) & (array->dtype == BR_INT4 ? 0x0f : 0xff)};
    bool ours = (array->dtype == BR_INT4 || array->dtype == BR_UINT8) && axes_are(array, "beam,freq,time") &&
                !br_stream_is_zoned(stream) && count == 2 * B * F;
    br_frame_open_validity(stream, frame);
    for (size_t i = 0; i + 1 < count; i += 2) {
        if (!is_bad32(pair[i]) && !is_bad32(pair[i + 1])) continue;
        pair[i] = pair[i + 1] = 0;
        found++;
        if (ours) lose_row(&l, i / 2);
        for (size_t t = 0, f = i / 2 % F; ours && t < l.nsteps; t++)
            if (!any_beam(&l, B, f, t)) frame->valid[f * l.nsteps + t] = BR_MISSING;
    }
    if (!ours) memset(frame->valid, BR_MISSING, br_frame_cells(stream, frame)); /* whose it was is unknown */
    return found;
}

uint64_t finite_clean(const struct br_stream *stream, struct br_frame *frame)
{
    uint64_t found = clean_data(stream, frame) + clean_side(stream, frame);
    br_frame_close_validity(stream, frame);
    return found;
}

static bool has_floats(const struct br_stream *stream)
{
    return stream->packets == NULL && (stream->array.dtype == BR_F16 || stream->array.dtype == BR_F32 ||
                                       (stream->side.naxes > 0 && stream->side.dtype == BR_F32));
}

void finite_configure(struct br_stage *stage)
{
    static const struct br_counter counter[] = {{"values", "not finite"}};
    if (has_floats(br_stage_output(stage, 0))) br_stage_has_counters(stage, counter, 1);
}

void finite_take(struct br_stage *stage, struct finite *finite, struct br_frame *frame)
{
    const struct br_stream *stream = br_stage_output(stage, 0);
    uint64_t found = has_floats(stream) ? finite_clean(stream, frame) : 0;
    if (found == 0) return;
    if (finite->values == 0)
        br_stage_warn(stage,
                      "values that are not finite (NaN, infinity), the first in the frame at sample %" PRIu64
                      ": they are taken as missing, and counted",
                      frame->first);
    finite->values += found;
    br_stage_count(stage, 0, finite->values);
}
