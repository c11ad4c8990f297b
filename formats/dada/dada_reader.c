/* dada_reader.c - the files of one DADA recording, in the order of their times, as one stream without holes:
 * rows one after the other (extents), or whole frames (framed). */
#include "formats/dada/dada_reader.h"

#include "formats/pieces/extents.h"
#include "formats/pieces/feed.h"
#include "formats/pieces/framed.h"
#include "formats/pieces/reading.h"

enum { FRAME_DIRECT = 16 << 20 }; /* of files that do not say: every thread has a read under way */

/* The frame size: the user's, else the recording's, else one that suits. */
static int choose_frame(struct caller *caller, const struct recording *r, const struct read_options *options,
                        struct br_stream *s)
{
    uint64_t wanted = options->frame_samples, frame = wanted > 0 ? wanted
                                                      : r->own   ? s->frame_samples
                                                                 : reading_frame_samples(r->row_bytes);
    if (wanted == 0 && !r->own && options->direct)
        while (2 * frame * r->row_bytes <= FRAME_DIRECT) frame *= 2;
    if (!r->flat) {
        if (frame == s->frame_samples) return BR_OK;
        return caller_fail_at(caller, "frame_samples",
                              "%llu; this recording consists of frames of %llu samples, which "
                              "cannot be cut otherwise: leave frame_samples out",
                              (unsigned long long)frame, (unsigned long long)s->frame_samples);
    }
    unsigned d = s->zone[0].downsample;
    if (frame % d != 0)
        return caller_fail_at(caller, "frame_samples",
                              "%llu; expected a multiple of the %u base samples of a time step",
                              (unsigned long long)frame, d);
    s->frame_samples = frame;
    s->array.axis[0].length = (size_t)(frame / d);
    return BR_OK;
}

/* A file whose samples are counted from another epoch: where that is a whole number of samples off, they are
 * counted from the first file's. */
static void move_epoch(const struct recording *base, struct dada_file *file)
{
    struct recording *r = &file->recording;
    int64_t later = 0;
    if (!r->flat || r->stream.sample_ns.num != base->stream.sample_ns.num ||
        r->stream.sample_ns.den != base->stream.sample_ns.den ||
        r->stream.epoch_ns == base->stream.epoch_ns || r->stream.zone[0].downsample != 1 ||
        !recording_epochs_agree(&base->stream, &r->stream, r->first, &later))
        return;
    r->stream.epoch_ns = base->stream.epoch_ns;
    dada_move(file, later);
}

/* Describes all files, [files], which must be of one recording. Status. */
static int describe_files(struct caller *caller, const struct file_list *files, const char *coding,
                          struct dada_file *file)
{
    struct br_error error = {0};
    for (size_t i = 0; i < files->count; i++) {
        int status = dada_describe_file(caller, files->path[i], caller->hints, coding, &file[i]);
        if (status != BR_OK) return status;
        if (i == 0) continue;
        move_epoch(&file[0].recording, &file[i]);
        if (recording_same(&file[0].recording, files->path[0], &file[i].recording, files->path[i], &error) !=
            BR_OK)
            return caller_refuse(caller, "%s", error.text);
        struct br_stream *all = &file[0].recording.stream;
        if (file[i].recording.stream.beams != NULL || all->beams == NULL) continue;
        all->beams = NULL; /* they were pointed elsewhere in between */
        all->beams_x = all->beams_y = 0;
    }
    return BR_OK;
}

/* Whether frames can be made on a GPU: bytes as they are in the file, without anything beside them. Floats
 * are looked at first. */
static bool can_feed(const struct recording *r)
{
    enum br_dtype dtype = r->stream.array.dtype;
    return r->coding == CODING_INT4X2 && r->stream.side.naxes == 0 && dtype != BR_F16 && dtype != BR_F32;
}

static int describe_flat(struct caller *caller, void *self, const struct file_list *files,
                         const struct read_options *options, struct description *description)
{
    struct extents *e = self;
    struct dada_file *file = caller_alloc(caller, files->count * sizeof *file);
    const struct recording *base = &file[0].recording;
    int status = describe_files(caller, files, options->coding, file);
    if (status != BR_OK) return status;
    size_t n = base->stream.nchannels;
    *e = (struct extents){.stream = base->stream,
                          .coding = base->coding,
                          .flat = true,
                          .row_bytes = base->row_bytes,
                          .cell_bytes = base->row_bytes / n,
                          .missing_byte = recording_missing_byte(&base->stream),
                          .files = *files,
                          .count = files->count,
                          .extent = caller_alloc(caller, files->count * sizeof *e->extent),
                          .passes = options->passes,
                          .threads = options->readers,
                          .direct = options->direct};
    for (size_t i = 0; i < files->count; i++)
        e->extent[i] = (struct extent){.file = i,
                                       .offset = file[i].recording.payload_offset,
                                       .first = file[i].first,
                                       .end = file[i].first + file[i].samples,
                                       .nchannels = (uint32_t)n,
                                       .stride_time = base->row_bytes,
                                       .gaps = file[i].gaps};
    status = choose_frame(caller, base, options, &e->stream);
    if (status == BR_OK) status = extents_join(caller, e, options->max_gap_s);
    if (status == BR_OK && base->own) status = reading_check_first(caller, files->path[0], e->first);
    if (status != BR_OK) return status;
    uint64_t d = e->stream.zone[0].downsample;
    e->period = (e->last + d - 1) / d * d - e->first / d * d;
    description->stream = &e->stream;
    description->time_from = recording_time_from(base, caller->hints);
    description->feed_bytes = can_feed(base) ? feed_buffer_bytes(br_stream_max_bytes(&e->stream)) : 0;
    description->feed_buffers = FEED_BUFFERS;
    return BR_OK;
}

const struct reader dada_flat_reader = EXTENTS_READER(describe_flat, READER_DIRECT | READER_ORDER);

static int describe_framed(struct caller *caller, void *self, const struct file_list *files,
                           const struct read_options *options, struct description *description)
{
    struct framed *f = self;
    struct dada_file *file = caller_alloc(caller, files->count * sizeof *file);
    const struct recording *base = &file[0].recording;
    int status = describe_files(caller, files, options->coding, file);
    if (status != BR_OK) return status;
    *f = (struct framed){.stream = base->stream,
                         .files = *files,
                         .count = files->count,
                         .block = caller_alloc(caller, files->count * sizeof *f->block),
                         .gridded = true,
                         .passes = options->passes,
                         .threads = options->readers,
                         .direct = options->direct,
                         .fd = -1};
    for (size_t i = 0; i < files->count; i++)
        f->block[i] = (struct block){.file = i,
                                     .offset = file[i].recording.payload_offset,
                                     .first = file[i].first,
                                     .samples = file[i].samples,
                                     .gaps = file[i].gaps};
    status = choose_frame(caller, base, options, &f->stream);
    if (status == BR_OK) status = framed_join(caller, f, options->max_gap_s);
    if (status == BR_OK && base->own) status = reading_check_first(caller, files->path[0], f->first);
    description->stream = &f->stream;
    description->time_from = recording_time_from(base, caller->hints);
    return status;
}

const struct reader dada_framed_reader = {.size = sizeof(struct framed),
                                          .takes = READER_DIRECT | READER_ORDER,
                                          .describe = describe_framed,
                                          .start = framed_start,
                                          .fill = framed_fill,
                                          .stop = framed_stop};
