/* DADA recordings: the files of one recording, in the order of their times, as one stream without holes. */
#include "formats/common/fileio.h"
#include "runtime/stage_feed.h"
#include "stages/common/stage/shape.h"
#include "stages/replay/slices.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FRAME_DIRECT = 16 << 20 }; /* of files that do not say: every thread has a read under way */

static void *pipeline_memory(void *owner, size_t bytes)
{
    return br_stage_alloc(owner, bytes);
}

static int by_first(const void *a, const void *b)
{
    const struct segment *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    if (x->end != y->end) return x->end > y->end ? -1 : 1; /* the longer one counts */
    return strcmp(x->path, y->path);
}

/* One file: its header into `recording`, its place in time into `segment`. */
static int describe_file(struct br_stage *stage, const char *path, const char *coding,
                         struct recording *recording, struct segment *segment)
{
    struct br_error error = {0};
    struct dada_header header;
    uint64_t file_bytes = 0, left = 0;
    if (dada_read(&header, path, &file_bytes, &error) != BR_OK)
        return br_stage_fail_at(stage, "files", "%s", error.text);
    struct recording_memory memory = {pipeline_memory, stage};
    int status = recording_describe(recording, &header, br_stage_hints(stage), br_stage_telescope(stage),
                                    coding, memory, &error);
    dada_free(&header);
    if (status != BR_OK) return br_stage_fail_at(stage, "files", "%s", error.text);
    uint64_t payload;
    status = replay_payload(stage, recording, path, file_bytes, &payload);
    if (status != BR_OK) return status;
    uint64_t samples = recording_samples(recording, payload, &left);
    if (samples < recording->samples || payload < recording->announced)
        br_stage_warn(stage,
                      "%s is truncated: it holds %llu of the %llu bytes of data that its header announces; "
                      "the %llu whole "
                      "samples are replayed",
                      path, (unsigned long long)payload,
                      (unsigned long long)(recording->announced > payload
                                               ? recording->announced
                                               : recording_payload_bytes(&recording->stream, recording->first,
                                                                         recording->samples)),
                      (unsigned long long)samples);
    else if (left > 0)
        br_stage_warn(stage, "%s is truncated: its last %llu bytes are no whole sample and are left out",
                      path, (unsigned long long)left);
    *segment = (struct segment){.path = path,
                                .payload_offset = recording->payload_offset,
                                .first = recording->first,
                                .begin = recording->first,
                                .end = recording->first + samples};

    char *name = br_stage_alloc(stage, strlen(path) + 6);
    strcat(strcpy(name, path), ".gaps");
    if (gaps_read(&segment->gaps, name, recording->stream.nchannels, &error) != BR_OK)
        return br_stage_fail_at(stage, "files", "%s", error.text);
    segment->gaps.gap =
        br_stage_keep(stage, segment->gaps.gap, segment->gaps.count * sizeof *segment->gaps.gap);
    return BR_OK;
}

/* The frame size: the user's, else the recording's, else one that suits. */
static int choose_frame(struct br_stage *stage, struct dada_reader *reader, bool own, uint64_t wanted)
{
    struct br_stream *s = &reader->stream;
    uint64_t frame = wanted > 0 ? wanted : own ? s->frame_samples : files_frame_samples(reader->row_bytes);
    if (wanted == 0 && !own && reader->direct)
        while (2 * frame * reader->row_bytes <= FRAME_DIRECT) frame *= 2;
    if (!reader->flat) {
        if (frame == s->frame_samples) return BR_OK;
        return br_stage_fail_at(stage, "frame_samples",
                                "%llu; this recording consists of frames of %llu samples, which "
                                "cannot be cut otherwise: leave frame_samples out",
                                (unsigned long long)frame, (unsigned long long)s->frame_samples);
    }
    unsigned d = s->zone[0].downsample;
    if (frame % d != 0)
        return br_stage_fail_at(stage, "frame_samples",
                                "%llu; expected a multiple of the %u base samples of a time step",
                                (unsigned long long)frame, d);
    s->frame_samples = frame;
    s->array.axis[0].length = (size_t)(frame / d);
    return BR_OK;
}

/* Cuts overlaps off, and refuses holes that are more likely a wrong header than a pause. */
static int join_segments(struct br_stage *stage, struct dada_reader *reader, double max_gap_s)
{
    struct segment *s = reader->segment;
    double sample_s = (double)reader->stream.sample_ns.num / (double)reader->stream.sample_ns.den * 1e-9;
    qsort(s, reader->count, sizeof *s, by_first);
    reader->first = reader->end = s[0].first;
    size_t last = 0;
    for (size_t i = 0; i < reader->count; i++) {
        if (s[i].first < reader->end) {
            s[i].begin = reader->end;
            reader->needs_scratch = true;
            br_stage_warn(
                stage, "%s starts at sample %llu, but %s reaches to %llu: the overlap is replayed once",
                s[i].path, (unsigned long long)s[i].first, s[last].path, (unsigned long long)reader->end);
        } else if (i > 0 && (double)(s[i].first - reader->end) * sample_s > max_gap_s) {
            return br_stage_fail_at(
                stage, "files",
                "%s ends at sample %llu and %s starts at %llu, %.6g s later; expected a gap "
                "of at most max_gap_s = %g s: replay them separately, or raise max_gap_s",
                s[last].path, (unsigned long long)reader->end, s[i].path, (unsigned long long)s[i].first,
                (double)(s[i].first - reader->end) * sample_s, max_gap_s);
        }
        if (s[i].end > reader->end) {
            reader->end = s[i].end;
            last = i;
        }
    }
    if (reader->end == reader->first)
        return br_stage_fail_at(stage, "files", "%s has a header but not one whole sample", s[0].path);
    return BR_OK;
}

/* A file whose samples are counted from another epoch: where that is a whole number of samples off, they are
 * counted from the first file's. */
static void move_epoch(const struct recording *base, struct recording *r, struct segment *segment)
{
    int64_t later = 0;
    if (!r->flat || r->stream.sample_ns.num != base->stream.sample_ns.num ||
        r->stream.sample_ns.den != base->stream.sample_ns.den ||
        r->stream.epoch_ns == base->stream.epoch_ns || r->stream.zone[0].downsample != 1 ||
        !recording_epochs_agree(&base->stream, &r->stream, r->first, &later))
        return;
    r->stream.epoch_ns = base->stream.epoch_ns;
    segment->first = segment->begin = (uint64_t)((int64_t)segment->first + later);
    segment->end = (uint64_t)((int64_t)segment->end + later);
    for (size_t i = 0; i < segment->gaps.count; i++) {
        segment->gaps.gap[i].first = (uint64_t)((int64_t)segment->gaps.gap[i].first + later);
        segment->gaps.gap[i].reach = (uint64_t)((int64_t)segment->gaps.gap[i].reach + later);
    }
}

/* Whether frames can be made on a GPU: bytes as they are in the file, without anything beside them. Floats
 * are looked at first. */
static bool can_feed(const struct dada_reader *reader)
{
    enum br_dtype dtype = reader->stream.array.dtype;
    return reader->flat && reader->coding == CODING_INT4X2 && reader->stream.side.naxes == 0 &&
           dtype != BR_F16 && dtype != BR_F32;
}

/* How many bytes the buffers on the way to a GPU have. */
static size_t feed_bytes(const struct dada_reader *reader)
{
    return slices_buffer(br_stream_max_bytes(&reader->stream)) + FILEIO_BLOCK;
}

static int configure(struct br_stage *stage, void *self, const struct file_list *files,
                     const struct replay_options *options)
{
    struct dada_reader *reader = self;
    struct br_error error = {0};
    struct recording base = {0};
    reader->fd = -1;
    reader->count = files->count;
    reader->segment = br_stage_alloc(stage, files->count * sizeof *reader->segment);
    for (size_t i = 0; i < files->count; i++) {
        struct recording recording;
        int status = describe_file(stage, files->path[i], options->coding, i == 0 ? &base : &recording,
                                   &reader->segment[i]);
        if (status != BR_OK) return status;
        if (i == 0) continue;
        move_epoch(&base, &recording, &reader->segment[i]);
        if (recording_same(&base, files->path[0], &recording, files->path[i], &error) != BR_OK)
            return br_stage_fail_at(stage, "files", "%s", error.text);
    }
    reader->stream = base.stream;
    reader->coding = base.coding;
    reader->flat = base.flat;
    reader->row_bytes = base.row_bytes;
    reader->missing_byte = recording_missing_byte(&base.stream);
    *options->time_from = recording_time_from(&base, br_stage_hints(stage));
    reader->passes = options->passes;
    reader->threads = options->readers;
    reader->direct = options->direct;
    int status = choose_frame(stage, reader, base.own, options->frame_samples);
    if (status == BR_OK) status = join_segments(stage, reader, options->max_gap_s);
    if (status == BR_OK && base.own) status = replay_check_first(stage, files->path[0], reader->first);
    if (status != BR_OK) return status;
    uint64_t unit = reader->flat ? reader->stream.zone[0].downsample : reader->stream.frame_samples;
    reader->period = (reader->end + unit - 1) / unit * unit - reader->first / unit * unit;
    if (can_feed(reader)) br_stage_feeds(stage);
    return BR_OK;
}

size_t dada_feed_bytes(const struct dada_reader *reader)
{
    return SLICES_BUFFERS * feed_bytes(reader);
}

static int start(struct br_stage *stage, void *self)
{
    struct dada_reader *reader = self;
    const struct br_stream *s = &reader->stream;
    bool feeds = br_stage_device(stage) >= 0, all = reader->threads == 0 && (feeds || reader->direct);
    size_t scratch = slices_scratch(reader->direct);
    reader->fd = -1;
    reader->cursor = reader->first;
    reader->nthreads = pool_threads(stage, all ? br_stage_threads(stage) : reader->threads);
    reader->pool = pool_start(stage, reader->nthreads, scratch);
    if (reader->pool == NULL) return br_no_memory(stage, (64 + scratch) * reader->nthreads);
    if (feeds) return br_feed_open(stage, feed_bytes(reader), SLICES_BUFFERS, &reader->feed);
    if (!reader->needs_scratch || reader->flat) return BR_OK;
    size_t data = br_stream_max_bytes(s), side = s->side.naxes > 0 ? br_array_bytes(&s->side) : 1;
    reader->scratch.data = malloc(data);
    reader->scratch.side = malloc(side);
    if (reader->scratch.data == NULL || reader->scratch.side == NULL) return br_no_memory(stage, data + side);
    return BR_OK;
}

static void stop(struct br_stage *stage, void *self)
{
    struct dada_reader *reader = self;
    (void)stage;
    if (reader->fd >= 0) close(reader->fd);
    reader->fd = -1;
    pool_stop(reader->pool);
    br_feed_close(reader->feed);
    reader->pool = NULL;
    reader->feed = NULL;
    free(reader->scratch.data);
    free(reader->scratch.side);
    reader->scratch = (struct br_frame){0};
}

/* Makes the segment's file the open one. */
static int open_segment(struct br_stage *stage, struct dada_reader *reader, size_t index)
{
    if (reader->fd >= 0 && reader->fd_segment == index) return BR_OK;
    if (reader->fd >= 0) close(reader->fd);
    const char *path = reader->segment[index].path;
    struct br_error error = {0};
    reader->fd_direct = reader->direct;
    reader->fd = fileio_open(path, &reader->fd_direct, &error);
    if (reader->fd < 0) return br_stage_fail(stage, error.status, "%s", error.text);
    reader->fd_segment = index;
    if (reader->direct && !reader->fd_direct && !reader->told) {
        br_stage_warn(stage, "direct: the file system of %s has no direct reads; it is read as without",
                      path);
        reader->told = true;
    }
    return BR_OK;
}

/* Moves on to the segment of the current pass that holds `at` or comes next; false at the end of all. */
static bool find_segment(struct br_stage *stage, struct dada_reader *reader, uint64_t at)
{
    for (;;) {
        if (reader->at == reader->count) {
            if (reader->passes != 0 && reader->pass + 1 >= reader->passes) return false;
            reader->pass++;
            reader->at = 0;
        }
        const struct segment *s = &reader->segment[reader->at];
        if (!reader->counted && s->begin > s->first)
            br_stage_count_lost(stage, BR_LOST_DUPLICATE, (s->begin < s->end ? s->begin : s->end) - s->first);
        reader->counted = true;
        if (s->begin < s->end && s->end + reader->pass * reader->period > at) return true;
        reader->at++;
        reader->counted = false;
    }
}

/* Marks steps as valid or missing. Only for flat payloads, where time is slowest. */
static void mark_steps(const struct br_stream *stream, struct br_frame *frame, uint64_t step, uint64_t end,
                       uint8_t validity)
{
    size_t n = stream->nchannels;
    uint64_t step0 = frame->first / stream->zone[0].downsample;
    if (end > step) memset(frame->valid + (step - step0) * n, validity, (size_t)(end - step) * n);
}

/* Base samples [from, to) of a flat frame, from the current segment. */
static int read_rows(struct br_stage *stage, struct dada_reader *reader, struct br_frame *out, uint64_t from,
                     uint64_t to)
{
    const struct segment *s = &reader->segment[reader->at];
    uint64_t d = reader->stream.zone[0].downsample, shift = reader->pass * reader->period;
    uint64_t step = from / d, skip = step - shift / d - s->first / d;
    size_t steps = br_time_steps(from, to - from, (unsigned)d), bytes = steps * reader->row_bytes;
    uint8_t *data = (uint8_t *)out->data + (size_t)(step - out->first / d) * reader->row_bytes;
    int status = open_segment(stage, reader, reader->at);
    if (status != BR_OK) return status;
    struct slices slices = {.path = s->path,
                            .coding = reader->coding,
                            .data = data,
                            .bytes = bytes,
                            .offset = s->payload_offset + skip * reader->row_bytes};
    if (reader->coding == CODING_CHIME) { /* its bytes can say that they are missing */
        br_frame_open_validity(&reader->stream, out);
        slices.cell = reader->row_bytes / reader->stream.nchannels;
        slices.valid = out->valid + (size_t)(step - out->first / d) * reader->stream.nchannels;
    }
    if (!out->complete) mark_steps(&reader->stream, out, step, step + steps, BR_VALID);
    slices.fd = reader->fd;
    slices.room = slices_scratch(reader->fd_direct);
    status = reader->feed != NULL ? slices_feed(stage, reader->pool, reader->nthreads < 2, reader->feed,
                                                feed_bytes(reader) - FILEIO_BLOCK, &slices)
                                  : slices_read(stage, reader->pool, &slices);
    if (status != BR_OK) return status;
    if (gaps_touch(&s->gaps, from - shift, to - from)) {
        br_frame_open_validity(&reader->stream, out);
        gaps_apply(&s->gaps, &reader->stream, out, shift, from, to);
    }
    return BR_OK;
}

static int miss_rows(struct br_stage *stage, const struct dada_reader *reader, struct br_frame *out,
                     uint64_t from, uint64_t to)
{
    uint64_t d = reader->stream.zone[0].downsample;
    uint64_t step = from / d, end = (to + d - 1) / d;
    if (from > out->first && from % d != 0) step++; /* what came before it covers a part of that step */
    if (end <= step) return BR_OK;
    br_frame_open_validity(&reader->stream, out);
    mark_steps(&reader->stream, out, step, end, BR_MISSING);
    uint8_t *data = (uint8_t *)out->data + (size_t)(step - out->first / d) * reader->row_bytes;
    return br_stage_set_rows(stage, data, reader->row_bytes, reader->missing_byte, reader->row_bytes,
                             (size_t)(end - step));
}

static int fill_flat(struct br_stage *stage, struct dada_reader *reader, struct br_frame *out)
{
    uint64_t at = reader->cursor, end = recording_frame_end(&reader->stream, at);
    out->first = at;
    out->samples = end - at; /* for now: validity is laid out by it only through `first` */
    while (at < end && find_segment(stage, reader, at)) {
        const struct segment *s = &reader->segment[reader->at];
        uint64_t shift = reader->pass * reader->period;
        uint64_t begin = s->begin + shift < end ? s->begin + shift : end,
                 stop = s->end + shift < end ? s->end + shift : end;
        int status = begin > at ? miss_rows(stage, reader, out, at, begin) : BR_OK;
        if (status != BR_OK) return status;
        if (begin > at) at = begin;
        if (at >= stop) continue;
        status = read_rows(stage, reader, out, at, stop);
        if (status != BR_OK) return status;
        at = stop;
    }
    out->samples = at - out->first;
    reader->cursor = at;
    return BR_OK;
}

/* The file's frame that starts at `first` (counted in this pass), into `frame`. */
static int read_frame(struct br_stage *stage, struct dada_reader *reader, struct br_frame *frame,
                      uint64_t first)
{
    const struct br_stream *stream = &reader->stream;
    const struct segment *s = &reader->segment[reader->at];
    size_t bytes = br_frame_bytes(stream, frame);
    uint64_t offset = s->payload_offset + recording_offset(stream, s->first, first);
    int status = open_segment(stage, reader, reader->at);
    if (status != BR_OK) return status;
    struct slices slices = {.fd = reader->fd,
                            .path = s->path,
                            .coding = reader->coding,
                            .data = frame->data,
                            .bytes = bytes,
                            .offset = offset,
                            .room = slices_scratch(reader->fd_direct)};
    status = slices_read(stage, reader->pool, &slices);
    if (status != BR_OK || stream->side.naxes == 0) return status;
    slices.data = frame->side;
    slices.offset = offset + bytes;
    slices.bytes = br_array_bytes(&stream->side);
    slices.coding = CODING_INT4X2; /* as it is */
    return slices_read(stage, reader->pool, &slices);
}

static int fill_framed(struct br_stage *stage, struct dada_reader *reader, struct br_frame *out)
{
    const struct br_stream *stream = &reader->stream;
    uint64_t at = reader->cursor, end = recording_frame_end(stream, at);
    out->first = at;
    out->samples = 0;
    if (!find_segment(stage, reader, at)) return BR_OK;
    const struct segment *s = &reader->segment[reader->at];
    uint64_t shift = reader->pass * reader->period;
    if (s->begin + shift > at) { /* nothing until there */
        if (s->begin + shift < end) end = s->begin + shift;
        out->samples = end - at;
        memset(out->data, reader->missing_byte, br_frame_bytes(stream, out));
        if (stream->side.naxes > 0) memset(out->side, 0, br_array_bytes(&stream->side));
        br_frame_open_validity(stream, out);
        memset(out->valid, BR_MISSING, br_frame_cells(stream, out));
        reader->cursor = end;
        return BR_OK;
    }
    uint64_t start = (at - shift) / stream->frame_samples * stream->frame_samples; /* of the file's frame */
    if (start < s->first) start = s->first;
    if (s->end + shift < end) end = s->end + shift;
    out->samples = end - at;
    int status;
    if (start + shift == at) {
        status = read_frame(stage, reader, out, start);
    } else {
        struct br_frame *whole = &reader->scratch;
        whole->first = start;
        whole->samples = end - shift - start;
        whole->complete = true;
        status = read_frame(stage, reader, whole, start);
        if (status != BR_OK) return status;
        br_frame_open_validity(stream, out);
        whole->first += shift;
        recording_place(stream, out, whole, at, end);
    }
    if (status != BR_OK) return status;
    if (gaps_touch(&s->gaps, at - shift, end - at)) {
        br_frame_open_validity(stream, out);
        gaps_apply(&s->gaps, stream, out, shift, at, end);
    }
    reader->cursor = end;
    return BR_OK;
}

static int fill(struct br_stage *stage, void *self, struct br_frame *out)
{
    struct dada_reader *reader = self;
    out->complete = true;
    out->missing = 0;
    int status = reader->flat ? fill_flat(stage, reader, out) : fill_framed(stage, reader, out);
    if (status != BR_OK) return status;
    if (out->samples == 0) return BR_FINISHED;
    if (!out->complete) br_frame_close_validity(&reader->stream, out);
    return BR_PRODUCED;
}

const struct replay_reader replay_dada = {configure, start, fill, stop};
