#include "formats/kotekan/kotekan_arrays.h"
#include "buffers/regular_file.h"
#include "formats/dada/recording.h"
#include "formats/pieces/reading.h"

#include "formats/kotekan/kotekan_array.h"
#include "formats/kotekan/kotekan_raw.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_FRAMES = 1 << 22 };

/* --- configure ----------------------------------------------------------------------------------- */

struct scan {
    struct caller *caller;
    struct kotekan_arrays *r;
    struct kotekan_frame frame, like; /* how like.metadata is read stands in r->like */
    bool begun;
};

bool kotekan_arrays_are(const char *path)
{
    struct kotekan_frame *frame = malloc(sizeof *frame);
    struct kotekan_field field;
    uint64_t bytes;
    struct br_error error = {0};
    int fd = frame != NULL ? br_open_regular(path, 0, &bytes, NULL) : -1;
    bool is = fd >= 0 && kotekan_raw_read(frame, fd, path, 0, bytes, &error) == BR_OK &&
              kotekan_raw_field(&frame->metadata, path, &field, &error) != BR_OK;
    /* a field with one thing wrong is that reader's business */
    const struct chord_metadata *m = &frame->metadata;
    bool fine = is && ((m->nfreq > 0 && m->upchan_factor[0] > 1) || chord_metadata_dim(m, "Tbar") >= 0 ||
                       chord_metadata_dim(m, "Fbar") >= 0);
    if (is && (m->type == CHORD_INT4X2_CHIME || (m->type == CHORD_INT4X2 && chord_metadata_dim(m, "D") >= 0)))
        is = fine;
    if (fd >= 0) close(fd);
    free(frame);
    return is;
}

/* The same array, channels and steps in all frames; only the number of steps may differ. */
static const char *unlike(const struct scan *s, const struct kotekan_array *a)
{
    const struct kotekan_array *b = &s->r->like;
    const struct chord_metadata *m = &s->frame.metadata, *n = &s->like.metadata;
    if (a->array.dtype != b->array.dtype || a->array.naxes != b->array.naxes || a->chime != b->chime)
        return "another type or number of dimensions";
    for (unsigned i = 0; i < a->array.naxes; i++) {
        if (strcmp(a->array.axis[i].name, b->array.axis[i].name) != 0 || a->order[i] != b->order[i])
            return "another order of dimensions";
        if (strcmp(a->array.axis[i].name, "time") != 0 && a->array.axis[i].length != b->array.axis[i].length)
            return "other lengths";
    }
    if (a->factor != b->factor || a->downsample != b->downsample)
        return "other upchannelization or time steps";
    if (m->nfreq != n->nfreq || (m->nfreq > 0 && memcmp(m->coarse_freq, n->coarse_freq,
                                                        (size_t)m->nfreq * sizeof *m->coarse_freq) != 0))
        return "other channels";
    return NULL;
}

static int add_frame(void *self, size_t file)
{
    struct scan *s = self;
    struct kotekan_arrays *r = s->r;
    const char *path = r->files.path[file];
    struct kotekan_array a;
    struct br_error error = {0};
    if (kotekan_array_describe(&a, &s->frame.metadata, path, &error) != BR_OK)
        return caller_fail_at(s->caller, "files", "%s", error.text);
    if (!s->begun) {
        s->begun = true;
        s->like = s->frame;
        r->like = a;
    }
    const char *why = unlike(s, &a);
    if (why != NULL)
        return caller_fail_at(s->caller, "files",
                              "%s: its frame at byte %" PRIu64
                              " has %s than the first one of %s; expected frames of one node",
                              path, s->frame.offset, why, r->files.path[0]);
    if (s->frame.there < s->frame.bytes) {
        caller_warn(s->caller,
                    "%s is truncated: its last frame has %" PRIu64 " of %" PRIu64 " bytes and is left out",
                    path, s->frame.there, s->frame.bytes);
        return BR_OK;
    }
    if (r->count == MOST_FRAMES) return caller_fail_at(s->caller, "files", "%s: too many frames", path);
    if (r->count == r->room) {
        size_t room = r->room > 0 ? 2 * r->room : 64;
        struct array_frame *grown = realloc(r->frame, room * sizeof *grown);
        if (grown == NULL) return caller_no_memory(s->caller, room * sizeof *grown);
        r->frame = grown;
        r->room = room;
    }
    uint64_t samples = (uint64_t)br_array_length(&a.array, "time") * a.downsample;
    r->frame[r->count++] = (struct array_frame){file, s->frame.offset, a.first, samples, a.first};
    return BR_OK;
}

static int by_time(const void *a, const void *b)
{
    const struct array_frame *x = a, *y = b;
    return x->first != y->first ? (x->first > y->first) - (x->first < y->first)
                                : (x->file > y->file) - (x->file < y->file);
}

/* Puts frames in order; of what comes twice, the second is left out. */
static int join_frames(struct caller *caller, struct kotekan_arrays *r, double max_gap_s)
{
    qsort(r->frame, r->count, sizeof *r->frame, by_time);
    r->end = r->frame[0].first;
    for (size_t i = 0; i < r->count; i++) {
        struct array_frame *f = &r->frame[i];
        double gap = f->first > r->end ? (double)(f->first - r->end) * br_stream_sample_s(&r->stream) : 0;
        if (gap > max_gap_s)
            return caller_fail_at(caller, "files",
                                  "%s: a gap of %g s before sample %" PRIu64
                                  ", longer than max_gap_s = %g: a frame has a wrong time, or "
                                  "these are several recordings",
                                  r->files.path[f->file], gap, f->first, max_gap_s);
        if (f->first < r->end) f->begin = r->end < f->first + f->samples ? r->end : f->first + f->samples;
        if (f->first + f->samples > r->end) r->end = f->first + f->samples;
    }
    return BR_OK;
}

static int set_channels(struct caller *caller, struct scan *s, const char *path)
{
    const struct br_stream_hints *hints = caller->hints;
    struct br_stream *stream = &s->r->stream;
    const struct kotekan_array *a = &s->r->like;
    size_t n = stream->nchannels;
    double width = 1e3 * (double)hints->sample_ns.den / (double)hints->sample_ns.num,
           *mhz = caller_alloc(caller, n * sizeof *mhz), *widths = caller_alloc(caller, n * sizeof *widths),
           *coarse = caller_alloc(caller, n * sizeof *coarse);
    if (hints->nfreq > 0 && hints->nfreq != n)
        return caller_fail_at(caller, "files", "%s has %zu channels, but `stream: freq_mhz` lists %zu", path,
                              n, hints->nfreq);
    if (hints->nfreq == 0 && a->ncoarse == 0)
        return caller_fail_at(
            caller, "files",
            "%s: chordMetadata does not say which channels its %zu are; give `stream: {freq_mhz: ...}`", path,
            n);
    for (size_t i = 0; i < a->ncoarse; i++) {
        if (s->like.metadata.coarse_freq[i] < 1 && hints->nfreq == 0)
            return caller_fail_at(
                caller, "files",
                "%s: chordMetadata says that channel %zu is number %d, which is no frequency; give `stream: "
                "{freq_mhz: ...}`",
                path, i, s->like.metadata.coarse_freq[i]);
        coarse[i] = width * s->like.metadata.coarse_freq[i];
    }
    stream->sideband = hints->sideband;
    kotekan_array_fine(coarse, a->ncoarse, width, a->factor, stream->sideband, mhz, widths);
    for (size_t i = 0; hints->nfreq > 0 && i < n; i++) {
        mhz[i] = hints->freq_mhz[i];
        widths[i] = hints->width_mhz > 0 ? hints->width_mhz : width / a->factor;
    }
    stream->freq_mhz = mhz;
    stream->width_mhz = widths;
    return BR_OK;
}

static int describe(struct caller *caller, void *self, const struct file_list *files,
                    const struct read_options *options, struct description *description)
{
    struct kotekan_arrays *r = self;
    const struct br_stream_hints *hints = caller->hints;
    struct scan *s = caller_alloc(caller, sizeof *s);
    s->caller = caller;
    s->r = r;
    description->stream = &r->stream;
    description->time_from = "by the samples that its frames count and `stream: epoch_ns`";
    *r = (struct kotekan_arrays){.files = *files, .passes = options->passes, .fd = -1, .loaded = SIZE_MAX};
    const char *path = files->path[0];
    int status = BR_OK;
    for (size_t i = 0; i < files->count && status == BR_OK; i++)
        status = kotekan_each_frame(caller, files->path[i], &s->frame, add_frame, s, i);
    r->frame = caller_keep(caller, r->frame, r->count * sizeof *r->frame);
    if (status != BR_OK) return status;
    if (r->count == 0) return caller_fail_at(caller, "files", "%s has no whole frame", path);
    const char *coding = options->coding != NULL ? options->coding : hints->coding;
    if (coding != NULL && strcmp(coding, "int4x2") != 0)
        return caller_fail_at(caller, "coding", "%s; %s are read as the metadata says only", coding,
                              r->like.what);
    if (hints->sample_ns.num <= 0 || !hints->have_epoch)
        return caller_fail_at(
            caller, "files",
            "%s: chordMetadata does not say the %s; give `stream: {sample_ns: ..., epoch_ns: ...}`", path,
            hints->sample_ns.num <= 0 ? "sample time" : "epoch");
    struct br_stream *stream = &r->stream;
    size_t steps = br_array_length(&r->like.array, "time");
    if (options->frame_samples % r->like.downsample != 0)
        return caller_fail_at(caller, "frame_samples",
                              "%" PRIu64 "; expected a multiple of the %u samples of a time step of %s",
                              options->frame_samples, r->like.downsample, path);
    if (options->frame_samples > 0) steps = (size_t)(options->frame_samples / r->like.downsample);
    kotekan_array_stream(stream, &r->like, steps);
    stream->sample_ns = hints->sample_ns;
    stream->epoch_ns = hints->epoch_ns;
    stream->scale = 1;
    stream->telescope = caller->telescope;
    status = set_channels(caller, s, path);
    if (status != BR_OK) return status;
    caller_note(caller, "%s: %s", path, r->like.what);
    status = join_frames(caller, r, options->max_gap_s);
    return status == BR_OK ? reading_check_first(caller, path, r->frame[0].first) : status;
}

/* --- reading ------------------------------------------------------------------------------------- */

static int start(struct caller *caller, void *self)
{
    struct kotekan_arrays *r = self;
    uint64_t most = 0;
    for (size_t i = 0; i < r->count; i++) most = r->frame[i].samples > most ? r->frame[i].samples : most;
    struct br_frame longest = {.first = 0, .samples = most};
    size_t bytes = br_frame_bytes(&r->stream, &longest);
    r->source = (struct br_frame){.data = malloc(bytes), .complete = !r->like.chime};
    if (r->like.chime) r->source.valid = malloc(br_frame_cells(&r->stream, &longest));
    if (!r->like.copy) r->raw = malloc(bytes);
    r->cursor = r->frame[0].first;
    r->loaded = SIZE_MAX;
    r->at = 0;
    r->pass = 0;
    bool good = r->source.data != NULL && (r->like.copy || r->raw != NULL) &&
                (!r->like.chime || r->source.valid != NULL);
    return good ? BR_OK : caller_no_memory(caller, bytes);
}

/* Reads a whole frame, in our order and coding; `valid` as kotekan_array_decode has it. */
static int read_frame(struct caller *caller, struct kotekan_arrays *r, const struct array_frame *f, void *to,
                      uint8_t *valid)
{
    const char *path = r->files.path[f->file];
    if (r->fd < 0 || r->fd_file != f->file) {
        if (r->fd >= 0) close(r->fd);
        struct br_error why = {0};
        r->fd = br_open_regular(path, 0, NULL, &why);
        r->fd_file = f->file;
        if (r->fd < 0) return caller_fail(caller, BR_E_IO, "%s", why.text);
    }
    struct br_frame whole = {.first = f->first, .samples = f->samples};
    int status = reading_read(caller, r->fd, path, r->like.copy ? to : r->raw,
                              br_frame_bytes(&r->stream, &whole), f->offset);
    if (status == BR_OK && !r->like.copy)
        kotekan_array_decode(&r->like, (size_t)(f->samples / r->like.downsample), r->raw, to, valid);
    return status;
}

static int load(struct caller *caller, struct kotekan_arrays *r, size_t index, uint64_t shift)
{
    const struct array_frame *f = &r->frame[index];
    r->source.first = f->first + shift;
    r->source.samples = f->samples;
    if (r->loaded == index) return BR_OK;
    r->loaded = index;
    return read_frame(caller, r, f, r->source.data, r->source.valid);
}

/* The frame `at` is done. */
static void advance(struct caller *caller, struct kotekan_arrays *r)
{
    const struct array_frame *f = &r->frame[r->at];
    if (f->begin > f->first) caller_lost(caller, CALLER_DUPLICATE, f->begin - f->first);
    if (++r->at < r->count) return;
    r->at = 0;
    r->pass++;
}

static void empty(const struct br_stream *stream, struct br_frame *out)
{
    out->complete = false;
    memset(out->data, recording_missing_byte(stream), br_frame_bytes(stream, out));
    memset(out->valid, BR_MISSING, br_frame_cells(stream, out));
}

static int fill(struct caller *caller, void *self, struct br_frame *out)
{
    struct kotekan_arrays *r = self;
    const struct br_stream *stream = &r->stream;
    uint64_t first = r->frame[0].first, shift = r->pass * (r->end - first);
    if (r->passes != 0 && r->pass >= r->passes) return READER_FINISHED;
    uint64_t a = r->cursor, b = recording_frame_end(stream, a);
    uint64_t end = r->passes != 0 ? first + r->passes * (r->end - first) : UINT64_MAX; /* of all passes */
    out->first = a;
    out->samples = (end < b ? end : b) - a;
    const struct array_frame *f = &r->frame[r->at];
    if (!r->like.chime && f->begin == f->first && f->first + shift == a &&
        f->samples == out->samples) { /* the whole frame */
        out->complete = true;
        out->missing = 0;
        r->cursor = a + out->samples;
        advance(caller, r);
        return read_frame(caller, r, f, out->data, NULL) == BR_OK ? READER_FRAME : BR_E_IO;
    }
    empty(stream, out);
    while (a < out->first + out->samples && (r->passes == 0 || r->pass < r->passes)) {
        f = &r->frame[r->at];
        shift = r->pass * (r->end - first);
        uint64_t from = f->begin + shift, last = f->first + f->samples + shift, to = last;
        if (from >= out->first + out->samples) break;
        if (to > out->first + out->samples) to = out->first + out->samples;
        if (from < a) from = a;
        if (from < to) {
            int status = load(caller, r, r->at, shift);
            if (status != BR_OK) return status;
            recording_place(stream, out, &r->source, from, to);
            a = to;
        }
        if (to < last) break;
        advance(caller, r);
    }
    r->cursor = out->first + out->samples;
    br_frame_close_validity(stream, out);
    return READER_FRAME;
}

static void stop(struct caller *caller, void *self)
{
    struct kotekan_arrays *r = self;
    (void)caller;
    if (r->fd >= 0) close(r->fd);
    r->fd = -1;
    free(r->source.data);
    free(r->source.valid);
    free(r->raw);
    r->source.data = r->source.valid = r->raw = NULL;
}

const struct reader kotekan_arrays_reader = {
    .size = sizeof(struct kotekan_arrays), .describe = describe, .start = start, .fill = fill, .stop = stop};
