/* framed.c - see framed.h. */
#include "formats/pieces/framed.h"

#include "formats/common/fileio.h"
#include "formats/dada/recording.h"
#include "formats/pieces/feed.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- in describe ------------------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
    const struct block *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    if (x->samples != y->samples) return x->samples > y->samples ? -1 : 1; /* the longer one counts */
    return (x->file > y->file) - (x->file < y->file);
}

int framed_join(struct caller *caller, struct framed *f, double max_gap_s)
{
    double sample_s = br_stream_sample_s(&f->stream);
    bool told = false;
    qsort(f->block, f->count, sizeof *f->block, by_time);
    f->first = f->end = f->block[0].first;
    for (size_t i = 0; i < f->count; i++) {
        struct block *x = &f->block[i];
        double gap = x->first > f->end ? (double)(x->first - f->end) * sample_s : 0;
        if (gap > max_gap_s)
            return caller_refuse(
                caller,
                "%s: a gap of %g s before sample %llu, longer than max_gap_s = %g: a time is wrong, or these "
                "are several recordings; replay them separately, or raise max_gap_s",
                f->files.path[x->file], gap, (unsigned long long)x->first, max_gap_s);
        x->begin = x->first;
        if (x->first < f->end) {
            x->begin = f->end < x->first + x->samples ? f->end : x->first + x->samples;
            if (!told)
                caller_warn(caller, "%s: samples from %llu on are repeated: the overlap is replayed once",
                            f->files.path[x->file], (unsigned long long)x->first);
            told = true;
        }
        if (x->first + x->samples > f->end) f->end = x->first + x->samples;
    }
    if (f->end == f->first)
        return caller_refuse(caller, "%s has a header but not one whole sample", f->files.path[0]);
    uint64_t unit = f->gridded ? f->stream.frame_samples : 1;
    f->period = (f->end + unit - 1) / unit * unit - f->first / unit * unit;
    return BR_OK;
}

/* --- start and stop ---------------------------------------------------------------------------------- */

int framed_start(struct caller *caller, void *self)
{
    struct framed *f = self;
    const struct br_stream *s = &f->stream;
    uint64_t most = s->frame_samples;
    bool parts = !f->gridded;
    for (size_t i = 0; i < f->count; i++) {
        if (!f->gridded && f->block[i].samples > most) most = f->block[i].samples;
        parts = parts || f->block[i].begin > f->block[i].first;
    }
    struct br_frame longest = {.first = 0, .samples = most};
    size_t bytes = br_frame_bytes(s, &longest), cells = br_frame_cells(s, &longest),
           side = s->side.naxes > 0 ? br_array_bytes(&s->side) : 1;
    bool all = f->threads == 0 && f->direct;
    unsigned threads = pool_threads(caller, all ? caller->run->threads(caller->owner) : f->threads);
    f->fd = -1;
    f->cursor = f->first;
    f->pass = 0;
    f->at = 0;
    f->loaded = UINT64_MAX;
    f->source = (struct br_frame){.complete = !f->checked};
    f->raw = f->decode != NULL ? malloc(bytes) : NULL;
    f->pool = pool_start(caller, threads, feed_scratch(f->direct));
    if (parts) {
        f->source.data = malloc(bytes);
        f->source.valid = malloc(cells);
        f->source.side = malloc(side);
    }
    bool good = f->pool != NULL && (f->decode == NULL || f->raw != NULL) &&
                (!parts || (f->source.data != NULL && f->source.valid != NULL && f->source.side != NULL));
    return good ? BR_OK : caller_no_memory(caller, 2 * bytes + cells + side);
}

void framed_stop(struct caller *caller, void *self)
{
    struct framed *f = self;
    (void)caller;
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
    pool_stop(f->pool);
    free(f->source.data);
    free(f->source.valid);
    free(f->source.side);
    free(f->raw);
    f->pool = NULL;
    f->source = (struct br_frame){0};
    f->raw = NULL;
}

/* --- reading ----------------------------------------------------------------------------------------- */

static int open_file(struct caller *caller, struct framed *f, size_t file)
{
    if (f->fd >= 0 && f->fd_file == file) return BR_OK;
    if (f->fd >= 0) close(f->fd);
    struct br_error error = {0};
    f->fd_direct = f->direct;
    f->fd_file = file;
    f->fd = fileio_open(f->files.path[file], &f->fd_direct, &error);
    if (f->fd < 0) return caller_fail(caller, error.status, "%s", error.text);
    if (f->direct && !f->fd_direct && !f->told) {
        f->told = true;
        caller_warn(caller, "direct: the file system of %s has no direct reads; it is read as without",
                    f->files.path[file]);
    }
    return BR_OK;
}

/* The file's frame in which base sample `at` of the pass lies. */
static struct block frame_at(const struct framed *f, uint64_t at)
{
    struct block b = f->block[f->at];
    if (!f->gridded) return b;
    uint64_t end = b.first + b.samples, start = at / f->stream.frame_samples * f->stream.frame_samples,
             stop = recording_frame_end(&f->stream, at);
    if (start > b.first) {
        b.offset += recording_offset(&f->stream, b.first, start);
        b.first = start;
    }
    b.samples = (stop < end ? stop : end) - b.first;
    return b;
}

/* Reads one, in our order and coding; `valid` only where `checked`. */
static int read_frame(struct caller *caller, struct framed *f, const struct block *b, struct br_frame *to)
{
    struct br_frame whole = {.first = b->first, .samples = b->samples};
    size_t bytes = br_frame_bytes(&f->stream, &whole);
    int status = open_file(caller, f, b->file);
    if (status != BR_OK) return status;
    struct feed_source source = {.fd = f->fd,
                                 .path = f->files.path[b->file],
                                 .direct = f->fd_direct,
                                 .offset = b->offset,
                                 .bytes = bytes};
    status = feed_host(caller, f->pool, &source, f->decode != NULL ? f->raw : to->data);
    if (status != BR_OK) return status;
    if (f->decode != NULL)
        f->decode(f, br_time_steps(b->first, b->samples, f->stream.zone[0].downsample), f->raw, to->data,
                  to->valid);
    if (f->stream.side.naxes == 0) return BR_OK;
    source.offset += bytes;
    source.bytes = br_array_bytes(&f->stream.side);
    return feed_host(caller, f->pool, &source, to->side);
}

/* Makes the frame of the file the one in `source`, `shift` samples late. */
static int load(struct caller *caller, struct framed *f, const struct block *b, uint64_t shift)
{
    f->source.first = b->first + shift;
    f->source.samples = b->samples;
    if (f->loaded == b->first && f->loaded_block == f->at) return BR_OK;
    f->loaded = b->first;
    f->loaded_block = f->at;
    int status = read_frame(caller, f, b, &f->source);
    if (status != BR_OK) f->loaded = UINT64_MAX;
    return status;
}

static bool is_over(const struct framed *f)
{
    return f->passes != 0 && f->pass >= f->passes;
}

/* Leaves the blocks of which nothing comes after base sample `at` any more. */
static void advance(struct caller *caller, struct framed *f, uint64_t at)
{
    while (!is_over(f)) {
        const struct block *b = &f->block[f->at];
        if (b->begin < b->first + b->samples && b->first + b->samples + f->pass * f->period > at) return;
        if (b->begin > b->first) caller_lost(caller, CALLER_DUPLICATE, b->begin - b->first);
        if (++f->at < f->count) continue;
        f->at = 0;
        f->pass++;
    }
}

static void apply_gaps(const struct framed *f, const struct block *b, struct br_frame *out, uint64_t shift,
                       uint64_t from, uint64_t to)
{
    if (b->gaps == NULL || !gaps_touch(b->gaps, from - shift, to - from)) return;
    br_frame_open_validity(&f->stream, out);
    gaps_apply(b->gaps, &f->stream, out, shift, from, to);
}

/* A frame of which samples are missing, or which is made of parts of the files' frames. */
static int fill_parts(struct caller *caller, struct framed *f, struct br_frame *out)
{
    const struct br_stream *s = &f->stream;
    uint64_t a = out->first, b = a + out->samples;
    out->complete = false;
    memset(out->data, recording_missing_byte(s), br_frame_bytes(s, out));
    memset(out->valid, BR_MISSING, br_frame_cells(s, out));
    if (s->side.naxes > 0) memset(out->side, 0, br_array_bytes(&s->side));
    while (a < b) {
        advance(caller, f, a);
        uint64_t shift = f->pass * f->period, begin = f->block[f->at].begin + shift;
        if (begin > a) a = begin;
        if (is_over(f) || a >= b) break;
        struct block x = frame_at(f, a - shift);
        uint64_t end = x.first + x.samples + shift, to = end < b ? end : b;
        int status = load(caller, f, &x, shift);
        if (status != BR_OK) return status;
        recording_place(s, out, &f->source, a, to);
        apply_gaps(f, &x, out, shift, a, to);
        a = to;
    }
    return BR_OK;
}

int framed_fill(struct caller *caller, void *self, struct br_frame *out)
{
    struct framed *f = self;
    uint64_t a = f->cursor, b = recording_frame_end(&f->stream, a), end = UINT64_MAX;
    advance(caller, f, a);
    if (is_over(f)) return READER_FINISHED;
    struct block x = f->block[f->at];
    uint64_t shift = f->pass * f->period, begin = x.begin + shift;
    if (f->gridded)
        end = begin > a ? begin : x.first + x.samples + shift;
    else if (f->passes != 0)
        end = f->end + (f->passes - 1) * f->period;
    out->first = a;
    out->samples = (end < b ? end : b) - a;
    out->complete = true;
    out->missing = 0;
    bool whole = begin <= a && !f->checked;
    if (whole) {
        x = frame_at(f, a - shift);
        whole = x.begin <= x.first && x.first + shift == a && x.samples == out->samples;
    }
    int status = whole ? read_frame(caller, f, &x, out) : fill_parts(caller, f, out);
    if (status != BR_OK) return status;
    f->cursor = a + out->samples;
    if (whole) apply_gaps(f, &x, out, shift, a, f->cursor);
    if (!out->complete) br_frame_close_validity(&f->stream, out);
    return READER_FRAME;
}
