/* preview.c - see preview.h. */
#include "runtime/run/preview.h"

#include "buffers/clock.h"

#include <math.h>
#include <string.h>

/* --- elements --- */

static float from_half(const uint8_t *bytes)
{
    unsigned bits = bytes[0] | (unsigned)bytes[1] << 8, exponent = bits >> 10 & 31, fraction = bits & 1023;
    float magnitude = exponent == 0    ? ldexpf((float)fraction, -24)
                      : exponent == 31 ? (fraction != 0 ? NAN : INFINITY)
                                       : ldexpf((float)(fraction + 1024), (int)exponent - 25);
    return bits >> 15 ? -magnitude : magnitude;
}

static int nibble(unsigned bits)
{
    return (int)((bits & 15) ^ 8) - 8;
}

static float intensity(enum br_dtype dtype, const uint8_t *data, size_t element)
{
    float value;
    uint32_t whole;
    int32_t part[2];
    int re, im;
    switch (dtype) {
    case BR_INT4X2:
        re = nibble(data[element]);
        im = nibble(data[element] >> 4);
        return (float)(re * re + im * im);
    case BR_INT8X2:
        re = (int8_t)data[2 * element];
        im = (int8_t)data[2 * element + 1];
        return (float)(re * re + im * im);
    case BR_INT8:
        return (int8_t)data[element];
    case BR_UINT8:
        return data[element];
    case BR_INT4:
        return (float)nibble(data[element / 2] >> 4 * (element % 2));
    case BR_F16:
        return from_half(data + 2 * element);
    case BR_F32:
        memcpy(&value, data + 4 * element, sizeof value);
        return value;
    case BR_UINT32:
        memcpy(&whole, data + 4 * element, sizeof whole);
        return (float)whole;
    case BR_INT32X2:
        memcpy(part, data + 8 * element, sizeof part);
        return hypotf((float)part[0], (float)part[1]);
    case BR_DTYPES:
        break;
    }
    return NAN;
}

/* --- where elements are --- */

/* One part of a frame: strides in elements, time and frequency apart from the items. */
struct grid {
    struct br_part part;
    size_t time_stride, freq_stride;
    unsigned nother; /* axes of the items */
    size_t other_length[BR_MAX_AXES], other_stride[BR_MAX_AXES];
    bool time_first; /* time is slower than frequency, in validity too */
};

static void look_at_part(struct grid *g, const struct br_stream *stream, struct br_part part)
{
    const struct br_array *a = &stream->array;
    size_t stride = 1;
    *g = (struct grid){.part = part};
    g->time_first = br_array_axis(a, "time") < br_array_axis(a, "freq");
    for (unsigned i = a->naxes; i-- > 0;) {
        size_t length = a->axis[i].length;
        if (strcmp(a->axis[i].name, "time") == 0) {
            g->time_stride = stride;
            length = part.nsteps;
        } else if (strcmp(a->axis[i].name, "freq") == 0) {
            g->freq_stride = stride;
            length = part.nchannels;
        } else {
            /* The last axis comes first here: items are counted like the array's own elements. */
            g->other_length[g->nother] = length;
            g->other_stride[g->nother++] = stride;
        }
        stride *= length;
    }
}

static size_t offset_of_item(const struct grid *g, size_t item)
{
    size_t offset = 0;
    for (unsigned i = 0; i < g->nother; i++) {
        offset += item % g->other_length[i] * g->other_stride[i];
        item /= g->other_length[i];
    }
    return offset;
}

static bool is_missing(const struct grid *g, const struct br_frame *frame, size_t step, size_t channel)
{
    if (frame->complete) return false;
    size_t cell = g->time_first ? step * g->part.nchannels + channel : channel * g->part.nsteps + step;
    return frame->valid[g->part.valid_offset + cell] == BR_MISSING;
}

/* --- pictures --- */

/* `count` places out of `length`, evenly. */
static size_t pick(size_t i, size_t count, size_t length)
{
    return (2 * i + 1) * length / (2 * count);
}

static size_t at_most(size_t n, size_t most)
{
    return n < most ? n : most;
}

/* The mean of each item over a few cells of one part, chosen along the diagonals of time and frequency. */
static void take_means(struct br_preview *p, const struct grid *g, enum br_dtype dtype,
                       const struct br_frame *frame, size_t items)
{
    const uint8_t *data = (const uint8_t *)frame->data + g->part.offset;
    size_t cells = at_most(g->part.nsteps * g->part.nchannels, PREVIEW_CELLS), used = 0;
    p->item_step = (items + PREVIEW_ITEMS - 1) / PREVIEW_ITEMS;
    p->nitems = (items + p->item_step - 1) / p->item_step;
    memset(p->mean, 0, p->nitems * sizeof *p->mean);
    for (size_t i = 0; i < cells; i++) {
        size_t step = pick(i, cells, g->part.nsteps), channel = pick(i * 5 % cells, cells, g->part.nchannels);
        if (is_missing(g, frame, step, channel)) continue;
        size_t at = step * g->time_stride + channel * g->freq_stride;
        used++;
        for (size_t k = 0; k < p->nitems; k++)
            p->mean[k] += intensity(dtype, data, at + offset_of_item(g, k * p->item_step));
    }
    for (size_t k = 0; k < p->nitems; k++) p->mean[k] = used > 0 ? p->mean[k] / (float)used : NAN;
}

/* One channel of the waterfall. */
static void take_channel(struct br_preview *p, const struct grid *g, enum br_dtype dtype,
                         const struct br_frame *frame, size_t channel, float *row)
{
    const uint8_t *data = (const uint8_t *)frame->data + g->part.offset;
    size_t item = offset_of_item(g, p->item);
    for (unsigned t = 0; t < p->ntimes; t++) {
        size_t step = pick(t, p->ntimes, g->part.nsteps);
        row[t] = is_missing(g, frame, step, channel)
                     ? NAN
                     : intensity(dtype, data, step * g->time_stride + channel * g->freq_stride + item);
    }
}

size_t br_preview_items(const struct br_stream *stream)
{
    size_t items = 1;
    for (unsigned i = 0; i < stream->array.naxes; i++)
        if (strcmp(stream->array.axis[i].name, "time") != 0 &&
            strcmp(stream->array.axis[i].name, "freq") != 0)
            items *= stream->array.axis[i].length;
    return items;
}

const char *br_preview_refuses(const struct br_stream *stream)
{
    if (stream->packets != NULL) return "its frames hold packets as they came; look behind `unpack`";
    if (br_array_axis(&stream->array, "time") < 0 || br_array_axis(&stream->array, "freq") < 0)
        return "its frames have no axes of time and frequency";
    return NULL;
}

void br_preview_fill(struct br_preview *p, const struct br_stream *stream, const struct br_frame *frame)
{
    uint64_t begin = br_clock_ns();
    size_t items = br_preview_items(stream), channels = 0, first = 0;
    unsigned nparts = br_stream_nparts(stream), part = 0;
    struct grid g;
    p->ntimes = PREVIEW_TIMES;
    for (unsigned i = 0; i < nparts; i++) {
        struct br_part one = br_stream_part(stream, i, frame->first, frame->samples);
        p->ntimes = (unsigned)at_most(one.nsteps, p->ntimes);
        channels += one.nchannels;
    }
    p->nchannels = p->ntimes > 0 ? (unsigned)at_most(channels, PREVIEW_CHANNELS) : 0;
    p->first = frame->first;
    p->samples = frame->samples;
    p->nitems = 0;
    if (p->item >= items) p->item = 0;
    look_at_part(&g, stream, br_stream_part(stream, 0, frame->first, frame->samples));
    if (p->nchannels > 0) take_means(p, &g, stream->array.dtype, frame, items);
    for (unsigned c = 0; c < p->nchannels; c++) {
        size_t channel = pick(c, p->nchannels, channels);
        while (channel >= first + g.part.nchannels) {
            first += g.part.nchannels;
            look_at_part(&g, stream, br_stream_part(stream, ++part, frame->first, frame->samples));
        }
        p->freq_mhz[c] = stream->freq_mhz[g.part.first_channel + channel - first];
        take_channel(p, &g, stream->array.dtype, frame, channel - first, p->waterfall[c]);
    }
    p->at_ns = br_clock_ns();
    p->took_ns = p->at_ns - begin;
}
