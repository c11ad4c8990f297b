#include "formats/kotekan/kotekan_arrays.h"
#include "buffers/regular_file.h"
#include "formats/pieces/reading.h"

#include "formats/kotekan/kotekan_array.h"
#include "formats/kotekan/kotekan_raw.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
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
    const char *path = r->framed.files.path[file];
    struct kotekan_array a;
    struct br_error error = {0};
    if (kotekan_array_describe(&a, &s->frame.metadata, path, &error) != BR_OK)
        return caller_refuse(s->caller, "%s", error.text);
    if (!s->begun) {
        s->begun = true;
        s->like = s->frame;
        r->like = a;
    }
    const char *why = unlike(s, &a);
    if (why != NULL)
        return caller_refuse(s->caller,
                             "%s: its frame at byte %" PRIu64
                             " has %s than the first one of %s; expected frames of one node",
                             path, s->frame.offset, why, r->framed.files.path[0]);
    if (s->frame.there < s->frame.bytes) {
        caller_warn(s->caller,
                    "%s is truncated: its last frame has %" PRIu64 " of %" PRIu64 " bytes and is left out",
                    path, s->frame.there, s->frame.bytes);
        return BR_OK;
    }
    if (r->framed.count == MOST_FRAMES) return caller_refuse(s->caller, "%s: too many frames", path);
    struct framed *f = &r->framed;
    if (f->count == r->room) {
        size_t room = r->room > 0 ? 2 * r->room : 64;
        struct block *grown = realloc(f->block, room * sizeof *grown);
        if (grown == NULL) return caller_no_memory(s->caller, room * sizeof *grown);
        f->block = grown;
        r->room = room;
    }
    uint64_t samples = (uint64_t)br_array_length(&a.array, "time") * a.downsample;
    f->block[f->count++] =
        (struct block){.file = file, .offset = s->frame.offset, .first = a.first, .samples = samples};
    return BR_OK;
}

static int set_channels(struct caller *caller, struct scan *s, const char *path)
{
    const struct br_stream_hints *hints = caller->hints;
    struct br_stream *stream = &s->r->framed.stream;
    const struct kotekan_array *a = &s->r->like;
    size_t n = stream->nchannels;
    double width = 1e3 * (double)hints->sample_ns.den / (double)hints->sample_ns.num,
           *mhz = caller_alloc(caller, n * sizeof *mhz), *widths = caller_alloc(caller, n * sizeof *widths),
           *coarse = caller_alloc(caller, n * sizeof *coarse);
    if (hints->nfreq > 0 && hints->nfreq != n)
        return caller_refuse(caller, "%s has %zu channels, but `stream: freq_mhz` lists %zu", path, n,
                             hints->nfreq);
    if (hints->nfreq == 0 && a->ncoarse == 0)
        return caller_refuse(
            caller,
            "%s: chordMetadata does not say which channels its %zu are; give `stream: {freq_mhz: ...}`", path,
            n);
    for (size_t i = 0; i < a->ncoarse; i++) {
        if (s->like.metadata.coarse_freq[i] < 1 && hints->nfreq == 0)
            return caller_refuse(caller,
                                 "%s: chordMetadata says that channel %zu is number %d, which is not a "
                                 "frequency; give `stream: "
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

static void decode(const void *self, size_t steps, const uint8_t *raw, void *to, uint8_t *valid)
{
    const struct kotekan_arrays *r = self;
    kotekan_array_decode(&r->like, steps, raw, to, valid);
}

static int describe(struct caller *caller, void *self, const struct file_list *files,
                    const struct read_options *options, struct description *description)
{
    struct kotekan_arrays *r = self;
    const struct br_stream_hints *hints = caller->hints;
    struct scan *s = caller_alloc(caller, sizeof *s);
    s->caller = caller;
    s->r = r;
    description->stream = &r->framed.stream;
    description->time_from = "by the samples that its frames count and `stream: epoch_ns`";
    *r = (struct kotekan_arrays){
        .framed = {.files = *files, .passes = options->passes, .threads = options->readers, .fd = -1}};
    const char *path = files->path[0];
    int status = BR_OK;
    for (size_t i = 0; i < files->count && status == BR_OK; i++)
        status = kotekan_each_frame(caller, files->path[i], &s->frame, add_frame, s, i);
    r->framed.block = caller_keep(caller, r->framed.block, r->framed.count * sizeof *r->framed.block);
    if (status != BR_OK) return status;
    if (r->framed.count == 0) return caller_refuse(caller, "%s has no whole frame", path);
    const char *coding = options->coding != NULL ? options->coding : hints->coding;
    if (coding != NULL && strcmp(coding, "int4x2") != 0)
        return caller_fail_at(caller, "coding", "%s; %s are read as the metadata says only", coding,
                              r->like.what);
    if (hints->sample_ns.num <= 0 || !hints->have_epoch)
        return caller_refuse(
            caller, "%s: chordMetadata does not say the %s; give `stream: {sample_ns: ..., epoch_ns: ...}`",
            path, hints->sample_ns.num <= 0 ? "sample time" : "epoch");
    struct br_stream *stream = &r->framed.stream;
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
    r->framed.checked = r->like.chime && !r->like.copy;
    r->framed.decode = r->like.copy ? NULL : decode;
    status = framed_join(caller, &r->framed, options->max_gap_s);
    return status == BR_OK ? reading_check_first(caller, path, r->framed.first) : status;
}

const struct reader kotekan_arrays_reader = {.size = sizeof(struct kotekan_arrays),
                                             .describe = describe,
                                             .start = framed_start,
                                             .fill = framed_fill,
                                             .stop = framed_stop};
