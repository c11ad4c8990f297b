#include "formats/common/gaps.h"
#include "buffers/regular_file.h"

#include "formats/common/fileio.h"
#include "formats/common/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Some ten million lines: more than any recording has. */
#define MOST_BYTES (UINT64_C(1) << 28)

static const uint64_t max_sample = UINT64_C(1) << 62;

static int by_first(const void *a, const void *b)
{
    const struct gap *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return (x->channel > y->channel) - (x->channel < y->channel);
}

/* One line without its newline. 0: nothing on it; 1: a gap; -1: malformed, with `expected` set. */
static int parse_line(char *line, size_t nchannels, struct gap *gap, const char **expected)
{
    char *comment = strchr(line, '#'), *save = NULL, *word[6];
    if (comment != NULL) *comment = '\0';
    unsigned words = 0;
    for (char *w = strtok_r(line, " \t\r", &save); w != NULL && words < 6; w = strtok_r(NULL, " \t\r", &save))
        word[words++] = w;
    if (words == 0) return 0;
    *expected = "FIRST COUNT or FIRST COUNT CHANNEL NCHANNELS WEIGHT, whole numbers";
    if (words != 2 && words != 5) return -1;
    uint64_t v[5] = {0};
    for (unsigned i = 0; i < words; i++)
        if (text_u64(word[i], &v[i]) != 0) return -1;
    *expected = "a span of at least 1 sample that ends below 2^62";
    if (v[1] == 0 || v[0] > max_sample || v[1] > max_sample - v[0]) return -1;
    if (words == 2) {
        v[2] = 0;
        v[3] = nchannels;
    }
    *expected = "channels that the recording has";
    if (v[3] == 0 || v[2] >= nchannels || v[3] > nchannels - v[2]) return -1;
    *expected = "a weight from 0 to 255";
    if (v[4] > 255) return -1;
    *gap = (struct gap){v[0], v[1], (uint32_t)v[2], (uint32_t)v[3], (uint8_t)v[4], 0};
    return 1;
}

int gaps_parse(struct gaps *gaps, const char *path, const char *text, size_t length, size_t nchannels,
               struct br_error *error)
{
    memset(gaps, 0, sizeof *gaps);
    size_t lines = 1;
    for (size_t i = 0; i < length; i++) lines += text[i] == '\n';
    gaps->gap = malloc(lines * sizeof *gaps->gap);
    if (gaps->gap == NULL) return br_fail(error, BR_E_NO_MEMORY, "%s: no memory for %zu lines", path, lines);
    size_t number = 0;
    for (size_t at = 0; at < length;) {
        const char *newline = memchr(text + at, '\n', length - at);
        size_t n = newline != NULL ? (size_t)(newline - (text + at)) : length - at;
        char line[256];
        const char *expected = "a line of at most 255 characters";
        number++;
        int found = -1;
        if (n < sizeof line && memchr(text + at, '\0', n) == NULL) {
            memcpy(line, text + at, n);
            line[n] = '\0';
            found = parse_line(line, nchannels, &gaps->gap[gaps->count], &expected);
        }
        if (found < 0) {
            gaps_free(gaps);
            return br_fail(error, BR_E_FORMAT, "%s:%zu: '%.*s'; expected %s", path, number,
                           n < 60 ? (int)n : 60, text + at, expected);
        }
        gaps->count += (size_t)found;
        at += n + 1;
    }
    qsort(gaps->gap, gaps->count, sizeof *gaps->gap, by_first);
    uint64_t reach = 0;
    for (size_t i = 0; i < gaps->count; i++) {
        uint64_t end = gaps->gap[i].first + gaps->gap[i].count;
        if (end > reach) reach = end;
        gaps->gap[i].reach = reach;
    }
    return BR_OK;
}

int gaps_read(struct gaps *gaps, const char *path, size_t nchannels, struct br_error *error)
{
    memset(gaps, 0, sizeof *gaps);
    uint64_t bytes = 0;
    struct br_error why = {0};
    int fd = br_open_regular(path, 0, &bytes, &why), status = BR_OK;
    if (fd < 0 && errno == ENOENT) return BR_OK;
    if (fd < 0) return br_fail(error, BR_E_IO, "%s", why.text);
    char *text = bytes <= MOST_BYTES ? malloc((size_t)bytes + 1) : NULL;
    ssize_t length = text != NULL ? fileio_read(fd, text, (size_t)bytes, 0) : 0;
    if (bytes > MOST_BYTES)
        status =
            br_fail(error, BR_E_FORMAT, "%s has %llu bytes; expected at most %llu of lines `first count`",
                    path, (unsigned long long)bytes, (unsigned long long)MOST_BYTES);
    else if (text == NULL)
        status =
            br_fail(error, BR_E_NO_MEMORY, "%s: no memory for %llu bytes", path, (unsigned long long)bytes);
    else if (length < 0)
        status = br_fail(error, BR_E_IO, "cannot read %s: %s", path, strerror(errno));
    close(fd);
    if (status == BR_OK) status = gaps_parse(gaps, path, text, (size_t)length, nchannels, error);
    free(text);
    return status;
}

void gaps_free(struct gaps *gaps)
{
    free(gaps->gap);
    memset(gaps, 0, sizeof *gaps);
}

/* The first line that can touch samples from `first` on. */
static size_t find(const struct gaps *gaps, uint64_t first)
{
    size_t low = 0, high = gaps->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (gaps->gap[middle].reach > first)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Bounds within which a line can touch a step that [from, to) touches, for the coarsest steps of the stream.
 */
static void widen(const struct br_stream *stream, uint64_t *from, uint64_t *to)
{
    uint64_t a = *from, b = *to;
    for (unsigned i = 0; i < stream->nzones; i++) {
        uint64_t d = stream->zone[i].downsample;
        if (*from / d * d < a) a = *from / d * d;
        if ((*to + d - 1) / d * d > b) b = (*to + d - 1) / d * d;
    }
    *from = a;
    *to = b;
}

bool gaps_touch(const struct gaps *gaps, uint64_t first, uint64_t samples)
{
    for (size_t i = find(gaps, first); i < gaps->count && gaps->gap[i].first < first + samples; i++)
        if (gaps->gap[i].first + gaps->gap[i].count > first) return true;
    return false;
}

/* Validity of one part of a frame: where (step, channel) stands. */
struct cells {
    uint8_t *valid;
    size_t step_stride, channel_stride;
    struct br_part part;
    uint64_t first_step;
};

static struct cells part_cells(const struct br_stream *stream, const struct br_frame *frame, unsigned index)
{
    struct br_part part = br_stream_part(stream, index, frame->first, frame->samples);
    bool time_slow = br_array_axis(&stream->array, "time") < br_array_axis(&stream->array, "freq");
    return (struct cells){.valid = frame->valid + part.valid_offset,
                          .step_stride = time_slow ? part.nchannels : 1,
                          .channel_stride = time_slow ? 1 : part.nsteps,
                          .part = part,
                          .first_step = frame->first / part.downsample};
}

static void apply_line(const struct gap *gap, const struct cells *cells, uint64_t shift, uint64_t from,
                       uint64_t to)
{
    const struct br_part *part = &cells->part;
    uint64_t d = part->downsample;
    uint64_t first = (gap->first + shift) / d, last = (gap->first + shift + gap->count - 1) / d;
    uint64_t low = from / d, high = (to - 1) / d;
    if (first < low) first = low;
    if (last > high) last = high;
    size_t c0 = gap->channel, c1 = (size_t)gap->channel + gap->nchannels;
    if (c0 < part->first_channel) c0 = part->first_channel;
    if (c1 > part->first_channel + part->nchannels) c1 = part->first_channel + part->nchannels;
    if (first > last || c0 >= c1) return;
    c0 -= part->first_channel;
    c1 -= part->first_channel;
    size_t s0 = (size_t)(first - cells->first_step), s1 = (size_t)(last - cells->first_step) + 1;
    if (cells->channel_stride == 1) {
        for (size_t s = s0; s < s1; s++)
            memset(cells->valid + s * cells->step_stride + c0, gap->weight, c1 - c0);
    } else {
        for (size_t c = c0; c < c1; c++)
            memset(cells->valid + c * cells->channel_stride + s0, gap->weight, s1 - s0);
    }
}

void gaps_apply(const struct gaps *gaps, const struct br_stream *stream, struct br_frame *frame,
                uint64_t shift, uint64_t from, uint64_t to)
{
    if (from >= to || gaps->count == 0) return;
    uint64_t low = from - shift, high = to - shift;
    widen(stream, &low, &high);
    for (unsigned p = 0; p < br_stream_nparts(stream); p++) {
        struct cells cells = part_cells(stream, frame, p);
        for (size_t i = find(gaps, low); i < gaps->count && gaps->gap[i].first < high; i++)
            apply_line(&gaps->gap[i], &cells, shift, from, to);
    }
}

/* Emits the lines of `steps` steps that all have the validity `row`. */
static int emit(const struct cells *cells, const uint8_t *row, uint64_t step, uint64_t steps, bool whole,
                int (*line)(void *, const struct gap *), void *arg)
{
    const struct br_part *part = &cells->part;
    size_t n = part->nchannels;
    struct gap gap = {.first = step * part->downsample, .count = steps * part->downsample};
    for (size_t c = 0; c < n;) {
        size_t end = c + 1;
        while (end < n && row[end] == row[c]) end++;
        if (row[c] != BR_VALID) {
            bool all = whole && row[c] == BR_MISSING && c == 0 && end == n;
            gap.channel = all ? 0 : (uint32_t)(part->first_channel + c);
            gap.nchannels = all ? 0 : (uint32_t)(end - c);
            gap.weight = row[c];
            int status = line(arg, &gap);
            if (status != 0) return status;
        }
        c = end;
    }
    return 0;
}

int gaps_describe(const struct br_stream *stream, const struct br_frame *frame, uint8_t *scratch,
                  int (*line)(void *arg, const struct gap *gap), void *arg)
{
    if (frame->complete) return 0;
    unsigned parts = br_stream_nparts(stream);
    for (unsigned p = 0; p < parts; p++) {
        struct cells cells = part_cells(stream, frame, p);
        size_t n = cells.part.nchannels;
        uint8_t *held = scratch, *row = scratch + n;
        uint64_t since = 0;
        for (size_t s = 0; s < cells.part.nsteps; s++) {
            const uint8_t *at = cells.valid + s * cells.step_stride;
            for (size_t c = 0; c < n; c++) row[c] = at[c * cells.channel_stride];
            if (s > 0 && memcmp(row, held, n) == 0) continue;
            int status =
                s == 0 ? 0 : emit(&cells, held, cells.first_step + since, s - since, parts == 1, line, arg);
            if (status != 0) return status;
            uint8_t *swap = held;
            held = row;
            row = swap;
            since = s;
        }
        int status =
            emit(&cells, held, cells.first_step + since, cells.part.nsteps - since, parts == 1, line, arg);
        if (status != 0) return status;
    }
    return 0;
}

size_t gaps_format(char *buffer, const struct gap *gap)
{
    int n = gap->nchannels == 0
                ? snprintf(buffer, GAPS_LINE, "%" PRIu64 " %" PRIu64 "\n", gap->first, gap->count)
                : snprintf(buffer, GAPS_LINE, "%" PRIu64 " %" PRIu64 " %" PRIu32 " %" PRIu32 " %u\n",
                           gap->first, gap->count, gap->channel, gap->nchannels, gap->weight);
    return (size_t)n;
}
