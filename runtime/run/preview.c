/* preview.c - see preview.h. */
#include "runtime/run/preview.h"

#include "buffers/clock.h"

#include <math.h>
#include <string.h>

/* --- elements --- */

static float from_half(const uint8_t *bytes)
{
    uint32_t half = bytes[0] | (uint32_t)bytes[1] << 8, bits = (half & 0x7fff) << 13;
    float value;
    memcpy(&value, &bits, sizeof value);
    value *= 0x1p112f; /* the exponents' biases differ by so much; subnormal numbers come out right too */
    if ((half & 0x7c00) == 0x7c00) value = (half & 0x3ff) != 0 ? NAN : INFINITY;
    return (half & 0x8000) != 0 ? -value : value;
}

static int nibble(unsigned bits)
{
    return (int)((bits & 15) ^ 8) - 8;
}

/* With a constant `dtype` the compiler leaves one case. */
static inline __attribute__((always_inline)) float intensity(enum br_dtype dtype, const uint8_t *data,
                                                             size_t element)
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

/* sum[k] += the intensity of element at + k stride. */
static void add_row(enum br_dtype dtype, const uint8_t *data, size_t at, size_t stride, size_t n, float *sum)
{
#define ADD(DTYPE)                                                                                           \
    case DTYPE:                                                                                              \
        for (size_t k = 0; k < n; k++) sum[k] += intensity(DTYPE, data, at + k * stride);                    \
        break
    switch (dtype) {
        ADD(BR_INT4X2);
        ADD(BR_INT8X2);
        ADD(BR_INT8);
        ADD(BR_UINT8);
        ADD(BR_INT4);
        ADD(BR_F16);
        ADD(BR_F32);
        ADD(BR_UINT32);
        ADD(BR_INT32X2);
    case BR_DTYPES:
        break;
    }
#undef ADD
}

/* --- where elements are --- */

/* One part of a frame: strides in elements, time and frequency apart from the items. */
struct grid {
    struct br_part part;
    size_t time_stride, freq_stride;
    unsigned nother; /* axes of the items */
    size_t other_length[BR_MAX_AXES], other_stride[BR_MAX_AXES];
    bool even;       /* item k stands at k other_stride[0] */
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
    if (g->nother == 0) g->other_length[g->nother] = g->other_stride[g->nother] = 1;
    g->even = true;
    for (unsigned i = 1; i < g->nother; i++)
        g->even &= g->other_stride[i] == g->other_stride[i - 1] * g->other_length[i - 1];
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

/* --- sums --- */

/* A frame and its parts. */
struct sight {
    enum br_dtype dtype;
    const struct br_frame *frame;
    unsigned nparts;
    struct grid grid[BR_MAX_ZONES];
    size_t channels, steps; /* of all parts; the steps of the part with the fewest */
    uint32_t random;        /* never 0 */
};

/* A number from 0 to n - 1: which elements are looked at must not beat with what is in them. */
static size_t any_of(struct sight *s, size_t n)
{
    s->random ^= s->random << 13;
    s->random ^= s->random >> 17;
    s->random ^= s->random << 5;
    return (size_t)((uint64_t)s->random * n >> 32);
}

static const struct grid *grid_of(const struct sight *s, size_t *channel)
{
    const struct grid *g = s->grid;
    while (*channel >= g->part.nchannels) *channel -= (g++)->part.nchannels;
    return g;
}

/* The steps of a part that belong to column `i` of `n`: from *begin to the value before the one returned. */
static size_t steps_of(const struct grid *g, unsigned i, unsigned n, size_t *begin)
{
    *begin = g->part.nsteps * i / n;
    return g->part.nsteps * (i + 1) / n;
}

/* Adds one cell of all items to the sums, unless it is missing. */
static void add_cell(struct br_preview *p, const struct sight *s, const struct grid *g, size_t step,
                     size_t channel)
{
    if (is_missing(g, s->frame, step, channel)) return;
    const uint8_t *data = (const uint8_t *)s->frame->data + g->part.offset;
    size_t at = step * g->time_stride + channel * g->freq_stride;
    p->cells++;
    if (g->even) add_row(s->dtype, data, at, g->other_stride[0] * p->item_step, p->nitems, p->sum);
    for (size_t k = 0; !g->even && k < p->nitems; k++)
        p->sum[k] += intensity(s->dtype, data, at + offset_of_item(g, k * p->item_step));
}

/* Cells of the time of column `i` of `n`: all, or a random choice. */
static void add_to_sums(struct br_preview *p, struct sight *s, unsigned i, unsigned n)
{
    size_t most = PREVIEW_ELEMENTS / p->nitems > 0 ? PREVIEW_ELEMENTS / p->nitems : 1, all = 0, begin, end;
    for (const struct grid *g = s->grid; g < s->grid + s->nparts; g++) {
        end = steps_of(g, i, n, &begin);
        all += (end - begin) * g->part.nchannels;
    }
    for (size_t c = 0; all <= most && c < s->channels; c++) {
        size_t channel = c;
        const struct grid *g = grid_of(s, &channel);
        end = steps_of(g, i, n, &begin);
        for (size_t t = begin; t < end; t++) add_cell(p, s, g, t, channel);
    }
    for (size_t k = 0; all > most && k < most; k++) {
        size_t channel = any_of(s, s->channels);
        const struct grid *g = grid_of(s, &channel);
        end = steps_of(g, i, n, &begin);
        add_cell(p, s, g, begin + any_of(s, end - begin), channel);
    }
}

struct mean {
    float sum[PREVIEW_LOOKS];
    unsigned cells;
};

static void add_to_mean(const struct br_preview *p, const struct sight *s, const struct grid *g, size_t step,
                        size_t channel, struct mean *mean)
{
    if (is_missing(g, s->frame, step, channel)) return;
    const uint8_t *data = (const uint8_t *)s->frame->data + g->part.offset;
    size_t at = step * g->time_stride + channel * g->freq_stride;
    mean->cells++;
    for (unsigned l = 0; l < p->nlooks; l++)
        mean->sum[l] += intensity(s->dtype, data, at + offset_of_item(g, p->item[l]));
}

/* One row of a column: the stream's channels from `first` to `last` - 1. */
static void take_cell(const struct br_preview *p, struct sight *s, unsigned i, unsigned n, size_t first,
                      size_t last, struct mean *mean)
{
    size_t all = 0, begin, end;
    for (size_t c = first; c < last; c++) {
        size_t channel = c;
        end = steps_of(grid_of(s, &channel), i, n, &begin);
        all += end - begin;
    }
    for (size_t c = first; all <= PREVIEW_PICKS && c < last; c++) {
        size_t channel = c;
        const struct grid *g = grid_of(s, &channel);
        end = steps_of(g, i, n, &begin);
        for (size_t t = begin; t < end; t++) add_to_mean(p, s, g, t, channel, mean);
    }
    for (size_t k = 0; all > PREVIEW_PICKS && k < PREVIEW_PICKS; k++) {
        size_t channel = first + any_of(s, last - first);
        const struct grid *g = grid_of(s, &channel);
        end = steps_of(g, i, n, &begin);
        add_to_mean(p, s, g, begin + any_of(s, end - begin), channel, mean);
    }
}

static void take_column(struct br_preview *p, struct sight *s, unsigned i, unsigned n,
                        struct preview_column *column)
{
    for (unsigned c = 0; c < p->nchannels; c++) {
        struct mean mean = {0};
        take_cell(p, s, i, n, c * s->channels / p->nchannels, (c + 1) * s->channels / p->nchannels, &mean);
        for (unsigned l = 0; l < p->nlooks; l++)
            column->power[l][c] = mean.cells > 0 ? mean.sum[l] / (float)mean.cells : NAN;
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
    if (stream->packets != NULL) return "its frames hold packets; look at a queue behind `unpack`";
    if (br_array_axis(&stream->array, "time") < 0 || br_array_axis(&stream->array, "freq") < 0)
        return "its frames have no axes of time and frequency";
    return NULL;
}

/* The last step of a short frame may be less than a step. */
static void look_at_frame(struct sight *s, const struct br_stream *stream, const struct br_frame *frame)
{
    *s = (struct sight){.dtype = stream->array.dtype, .frame = frame, .nparts = br_stream_nparts(stream)};
    s->steps = SIZE_MAX;
    for (unsigned i = 0; i < s->nparts; i++) {
        look_at_part(&s->grid[i], stream, br_stream_part(stream, i, frame->first, frame->samples));
        s->channels += s->grid[i].part.nchannels;
        if (s->grid[i].part.nsteps < s->steps) s->steps = s->grid[i].part.nsteps;
    }
    s->random = (uint32_t)(frame->first * 2654435761u >> 8) | 1;
}

static void prepare(struct br_preview *p, const struct br_stream *stream, const struct sight *s)
{
    size_t items = br_preview_items(stream);
    p->item_step = (items + PREVIEW_ITEMS - 1) / PREVIEW_ITEMS;
    p->nitems = (items + p->item_step - 1) / p->item_step;
    p->nchannels = (unsigned)(s->channels < PREVIEW_CHANNELS ? s->channels : PREVIEW_CHANNELS);
    for (unsigned c = 0; c < p->nchannels; c++) {
        size_t channel = (2 * c + 1) * s->channels / (2 * p->nchannels);
        const struct grid *g = grid_of(s, &channel);
        p->freq_mhz[c] = stream->freq_mhz[g->part.first_channel + channel];
    }
}

void br_preview_clear(struct br_preview *p)
{
    p->nitems = 0;
    p->cells = 0;
    p->ncolumns = 0;
    memset(p->sum, 0, sizeof p->sum);
}

/* Processor time of this thread: a machine that is busy with other things must not make pictures rare. */
static uint64_t worked_ns(void)
{
    return br_clock_of(CLOCK_THREAD_CPUTIME_ID);
}

bool br_preview_add(struct br_preview *p, const struct br_stream *stream, const struct br_frame *frame)
{
    uint64_t begin = br_clock_ns();
    if (begin < p->next_ns) return false;
    uint64_t worked = worked_ns();
    struct sight s;
    look_at_frame(&s, stream, frame);
    if (s.steps == 0 || s.channels == 0) return false;
    prepare(p, stream, &s);
    /* A long frame is several columns. */
    double frame_ns = br_stream_sample_s(stream) * (double)frame->samples * 1e9,
           wanted = frame_ns / (double)PREVIEW_COLUMN_NS;
    size_t most = PREVIEW_COLUMNS - p->ncolumns < s.steps ? PREVIEW_COLUMNS - p->ncolumns : s.steps;
    unsigned n = wanted >= (double)most ? (unsigned)most : wanted > 1 ? (unsigned)wanted : 1;
    for (unsigned i = 0; i < n; i++) {
        struct preview_column *column = &p->column[p->ncolumns++];
        column->first = frame->first + frame->samples * i / n;
        column->samples = frame->samples / n;
        uint64_t before_ns = (uint64_t)(frame_ns * (n - 1 - i) / n);
        column->at_ns = begin > before_ns ? begin - before_ns : 0;
        add_to_sums(p, &s, i, n);
        take_column(p, &s, i, n, column);
    }
    uint64_t end = br_clock_ns();
    p->took_ns = worked_ns() - worked;
    p->next_ns = end + p->took_ns * PREVIEW_SHARE;
    if (p->next_ns < begin + PREVIEW_COLUMN_NS) p->next_ns = begin + PREVIEW_COLUMN_NS;
    return p->ncolumns == PREVIEW_COLUMNS || end >= p->until_ns;
}
