/* kotekan's raw files: the frames say which channels and samples they are. */
#include "buffers/regular_file.h"
#include "formats/kotekan/kotekan_arrays.h"
#include "formats/kotekan/kotekan_raw.h"
#include "formats/pieces/extents.h"
#include "formats/pieces/reading.h"

#include <math.h>
#include <unistd.h>

enum { MOST_FRAMES = 1 << 24 };
static const double chime_top_mhz = 800, chime_step_mhz = -0.390625;

struct scan {
    struct caller *caller;
    struct extents *e;
    struct channel_groups groups;
    struct kotekan_frame frame;
    struct kotekan_field like;
    bool begun;
    struct br_rational sample_ns;
    double width_mhz;
    int64_t *id;
    double *mhz;
};

static int begin(struct scan *s, const char *path, const struct kotekan_field *field)
{
    const struct br_stream_hints *hints = s->caller->hints;
    s->begun = true;
    s->like = *field;
    if (hints->sample_ns.num <= 0)
        return caller_refuse(
            s->caller, "%s: chordMetadata does not say the sample time; give `stream: {sample_ns: ...}`",
            path);
    if (!hints->have_epoch)
        return caller_refuse(
            s->caller,
            "%s: chordMetadata counts samples from an epoch that it does not name; give `stream: "
            "{epoch_ns: ...}`",
            path);
    s->sample_ns = hints->sample_ns;
    s->width_mhz = 1e3 * (double)s->sample_ns.den / (double)s->sample_ns.num;
    s->id = caller_alloc(s->caller, field->nfreq * sizeof *s->id);
    s->mhz = caller_alloc(s->caller, field->nfreq * sizeof *s->mhz);
    return BR_OK;
}

static int check_alike(struct scan *s, const char *path, const struct kotekan_field *f)
{
    const struct kotekan_field *like = &s->like;
    if (f->npol == like->npol && f->ndish == like->ndish && f->chime == like->chime) return BR_OK;
    return caller_refuse(
        s->caller,
        "%s holds %llu polarisations of %llu dishes%s, %s %llu of %llu%s; expected files of one recording",
        path, (unsigned long long)f->npol, (unsigned long long)f->ndish,
        f->chime ? " in the coding chime" : "", s->e->files.path[0], (unsigned long long)like->npol,
        (unsigned long long)like->ndish, like->chime ? " in the coding chime" : "");
}

/* CHIME's channels are numbered down from 800 MHz, all others' are multiples of their width. The coding
 * does not tell them apart, for kotekan's stages for CHORD have it too; the sample time and numbers below
 * 1024 do, for as multiples they would be frequencies below CHIME's band. */
static bool numbers_of_chime(const struct scan *s, const struct kotekan_field *f)
{
    if (!f->chime || fabs(s->width_mhz / chime_step_mhz + 1) > 1e-6) return false;
    for (uint64_t i = 0; i < f->nfreq; i++)
        if (s->frame.metadata.coarse_freq[i] > 1023) return false;
    return true;
}

/* The frame's channels: by their numbers, unless the user lists frequencies. */
static int add_channels(struct scan *s, const char *path, const struct kotekan_field *f, size_t *group)
{
    const struct chord_metadata *m = &s->frame.metadata;
    const struct br_stream_hints *hints = s->caller->hints;
    if (f->nfreq != s->like.nfreq) { /* another node's share may be of another size */
        s->id = caller_alloc(s->caller, f->nfreq * sizeof *s->id);
        s->mhz = caller_alloc(s->caller, f->nfreq * sizeof *s->mhz);
        s->like.nfreq = f->nfreq;
    }
    bool of_chime = numbers_of_chime(s, f);
    for (uint64_t i = 0; i < f->nfreq; i++) {
        bool said = m->nfreq > 0 && m->coarse_freq[i] >= 0;
        if (!said && hints->nfreq != f->nfreq)
            return caller_refuse(
                s->caller,
                "%s: chordMetadata does not say which channels its %llu are; give `stream: {freq_mhz: "
                "...}`",
                path, (unsigned long long)f->nfreq);
        s->id[i] = said ? m->coarse_freq[i] : (int64_t)i;
        s->mhz[i] =
            of_chime ? chime_top_mhz + chime_step_mhz * (double)s->id[i] : s->width_mhz * (double)s->id[i];
    }
    *group = channels_add(s->caller, &s->groups, f->nfreq, s->id, s->mhz);
    return BR_OK;
}

static int add_frame(void *self, size_t file)
{
    struct scan *s = self;
    const char *path = s->e->files.path[file];
    const struct kotekan_frame *frame = &s->frame;
    struct kotekan_field f;
    struct br_error error = {0};
    if (s->e->count >= MOST_FRAMES) return caller_refuse(s->caller, "%s: too many frames", path);
    if (kotekan_raw_field(&frame->metadata, path, &f, &error) != BR_OK)
        return caller_refuse(s->caller, "%s", error.text);
    int status = s->begun ? check_alike(s, path, &f) : begin(s, path, &f);
    if (status != BR_OK) return status;
    uint64_t samples = f.samples;
    if (frame->there < frame->bytes) {
        bool time_slowest = f.stride_time >= f.stride_freq;
        samples = time_slowest ? frame->there / f.stride_time : 0;
        caller_warn(
            s->caller,
            "%s is truncated: its last frame has %llu of %llu bytes; %llu whole samples of it are replayed",
            path, (unsigned long long)frame->there, (unsigned long long)frame->bytes,
            (unsigned long long)samples);
    }
    if (samples == 0) return BR_OK;
    size_t group = 0;
    status = add_channels(s, path, &f, &group);
    struct extent *x = status == BR_OK ? extents_add(s->e) : NULL;
    if (status == BR_OK && x == NULL) return caller_no_memory(s->caller, s->e->count * sizeof *x);
    if (status != BR_OK) return status;
    *x = (struct extent){.file = file,
                         .offset = frame->offset,
                         .first = f.first,
                         .end = f.first + samples,
                         .channel = (uint32_t)group,
                         .stride_time = f.stride_time,
                         .stride_freq = f.stride_freq,
                         .stride_pol = f.stride_pol,
                         .stride_dish = f.stride_dish};
    return BR_OK;
}

int kotekan_each_frame(struct caller *caller, const char *path, struct kotekan_frame *frame,
                       int (*take)(void *self, size_t file), void *self, size_t file)
{
    struct br_error why = {0};
    uint64_t size, at = 0;
    int fd = br_open_regular(path, 0, &size, &why), status = BR_OK;
    if (fd < 0) return caller_refuse(caller, "%s", why.text);
    while (status == BR_OK && (at < size || at == 0)) {
        struct br_error error = {0};
        if (at > 0 && size - at < KOTEKAN_RAW_HEADER && size - at < 4 + CHORD_METADATA_NEW_BYTES) {
            caller_warn(caller, "%s is truncated in the header of its last frame, which is left out", path);
            break;
        }
        status = kotekan_raw_read(frame, fd, path, at, size, &error);
        if (status != BR_OK) status = caller_refuse(caller, "%s", error.text);
        if (status == BR_OK) status = take(self, file);
        at = frame->offset + frame->bytes;
    }
    close(fd);
    return status;
}

static int describe(struct caller *caller, void *self, const struct file_list *files,
                    const struct read_options *options, struct description *description)
{
    struct extents *e = self;
    const struct br_stream_hints *hints = caller->hints;
    struct scan *s = caller_alloc(caller, sizeof *s);
    *s = (struct scan){.caller = caller, .e = e};
    e->files = *files;
    description->stream = &e->stream;
    description->time_from = "by the samples that its frames count and `stream: epoch_ns`";
    e->passes = options->passes;
    e->threads = options->readers;
    e->element_bytes = 1;
    int status = BR_OK;
    for (size_t i = 0; i < files->count && status == BR_OK; i++)
        status = kotekan_each_frame(caller, files->path[i], &s->frame, add_frame, s, i);
    e->extent = caller_keep(caller, e->extent, e->count * sizeof *e->extent);
    if (status != BR_OK) return status;
    if (e->count == 0) return caller_refuse(caller, "%s has no whole sample", files->path[0]);
    status = reading_coding(caller, files->path[0], "chordMetadata", s->like.chime ? "chime" : "int4x2",
                            options->coding, &e->coding);
    if (status != BR_OK) return status;
    e->stream.sample_ns = s->sample_ns;
    e->stream.epoch_ns = hints->epoch_ns;
    size_t npol = 0, ndish = 0, elements = (size_t)(s->like.npol * s->like.ndish);
    /* a frame of inputs without polarisations is split as the pipeline says */
    status = extents_elements(caller, files->path[0], elements, s->like.npol > 1 ? (size_t)s->like.npol : 0,
                              &npol, &ndish);
    e->npol = npol;
    e->ndish = ndish;
    for (size_t i = 0; i < e->count; i++) e->extent[i].stride_pol = ndish;
    /* it says numbers of channels; frequencies are what is usually meant by them */
    struct channel_words words = {"the channel numbers", "the sample time", s->width_mhz, INFINITY, INFINITY};
    if (status == BR_OK) status = channels_join(caller, e, &s->groups, &words);
    if (status == BR_OK) status = extents_configure(caller, e, options, 0);
    return status == BR_OK ? reading_check_first(caller, files->path[0], e->first) : status;
}

static const struct reader field_reader = EXTENTS_READER(describe, READER_PARTS);

static const struct reader *choose(struct caller *caller, const struct file_list *files,
                                   const struct read_options *options)
{
    (void)caller, (void)options;
    return kotekan_arrays_are(files->path[0]) ? &kotekan_arrays_reader : &field_reader;
}

const struct format format_kotekan = {
    .name = "kotekan", .probe = kotekan_raw_probe, .info = kotekan_info, .choose = choose};
