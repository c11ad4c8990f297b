/* DADA recordings whose files hold different channels: side by side in one stream. */
#include "formats/common/axes.h"
#include "formats/dada/dada_reader.h"
#include "formats/pieces/extents.h"
#include "formats/pieces/reading.h"

#include <math.h>
#include <string.h>

/* The pipeline's hints, without the channels of all files together. */
static struct br_stream_hints hints_of_one(const struct caller *caller)
{
    struct br_stream_hints hints = *caller->hints;
    hints.nfreq = 0;
    hints.freq_mhz = NULL;
    return hints;
}

/* E[time][freq][pol][dish], a step for each base sample. */
static bool is_field(const struct recording *r)
{
    const struct br_array *a = &r->stream.array;
    return r->flat && axes_are(a, "time,freq,pol,dish") && (a->dtype == BR_INT4X2 || a->dtype == BR_INT8X2) &&
           r->stream.side.naxes == 0 && r->stream.nzones == 1 && r->stream.zone[0].downsample == 1 &&
           r->stream.zone[0].factor == 1;
}

/* Compares the properties that all files must share, and finds the samples between their epochs. */
static int compare(struct caller *caller, const struct recording *a, const char *file_a,
                   const struct recording *b, const char *file_b, int64_t *later)
{
    const struct br_stream *x = &a->stream, *y = &b->stream;
    bool shape = x->array.dtype == y->array.dtype && x->array.axis[2].length == y->array.axis[2].length &&
                 x->array.axis[3].length == y->array.axis[3].length && a->coding == b->coding;
    const char *what = !shape ? "shape (DTYPE, SHAPE, CODING)"
                       : x->sample_ns.num != y->sample_ns.num || x->sample_ns.den != y->sample_ns.den
                           ? "SAMPLE_NS (or TSAMP)"
                       : x->sideband != y->sideband ? "SIDEBAND (or the sign of BW)"
                       : !recording_epochs_agree(x, y, b->first, later)
                           ? "EPOCH_NS (or UTC_START), by no whole number of samples"
                           : NULL;
    if (what == NULL) return BR_OK;
    return caller_refuse(caller, "%s differs from %s in %s; expected files of one recording", file_b, file_a,
                         what);
}

/* A file in which time is not slowest says by its length where channels begin: it must be whole. */
static int check_whole(struct caller *caller, const struct recording *r, const char *path, uint64_t payload,
                       uint64_t left)
{
    uint64_t stride[AXIS_COUNT];
    if (r->plain || r->order.heap > 0) return BR_OK;
    recording_block(r, payload, stride);
    if (stride[AXIS_T] >= r->row_bytes || (left == 0 && payload >= r->announced)) return BR_OK;
    char order[40];
    return caller_refuse(
        caller,
        "%s holds %llu bytes of data, of %llu that its header announces; its axes lie as %s, so "
        "that where they lie depends on its length: expected all of it",
        path, (unsigned long long)payload,
        (unsigned long long)(r->announced > payload ? r->announced : payload - left + r->row_bytes),
        axis_order_format(&r->order, order, sizeof order));
}

/* The samples of `like`, all of a file, as one extent, or one for each heap. */
static int add_blocks(struct caller *caller, struct extents *e, const struct recording *r, uint64_t payload,
                      const struct extent *like)
{
    const struct br_array *a = &r->stream.array;
    uint64_t cell = r->row_bytes / r->stream.nchannels,
             stride[AXIS_COUNT] = {r->row_bytes, cell, cell / a->axis[2].length,
                                   cell / a->axis[2].length / a->axis[3].length};
    uint64_t samples = like->end - like->first,
             block = r->plain ? samples : recording_block(r, payload, stride);
    for (uint64_t at = 0; at < samples || at == 0; at += block) {
        struct extent *x = extents_add(e);
        if (x == NULL) return caller_no_memory(caller, e->count * sizeof *x);
        *x = *like;
        x->offset += at * r->row_bytes;
        x->first = x->begin = like->first + at;
        if (samples > 0) x->end = x->first + block;
        x->stride_time = stride[AXIS_T];
        x->stride_freq = stride[AXIS_F];
        x->stride_pol = stride[AXIS_P];
        x->stride_dish = stride[AXIS_A];
        if (block == 0) break;
    }
    return BR_OK;
}

static int add_file(struct caller *caller, struct extents *e, struct channel_groups *groups, size_t file,
                    const char *coding, struct recording *base)
{
    struct dada_file f;
    struct br_stream_hints hints = hints_of_one(caller);
    int64_t later = 0;
    const char *path = e->files.path[file];
    int status = dada_describe_file(caller, path, &hints, coding, &f);
    if (status != BR_OK) return status;
    const struct recording *r = &f.recording;
    const struct br_stream *s = &r->stream;
    if (file == 0) *base = *r;
    status = compare(caller, base, e->files.path[0], r, path, &later);
    if (status == BR_OK) status = check_whole(caller, r, path, f.payload, f.left);
    if (status != BR_OK) return status;
    dada_move(&f, later);
    int64_t *id = caller_alloc(caller, s->nchannels * sizeof *id);
    for (size_t i = 0; i < s->nchannels; i++) id[i] = llround(s->freq_mhz[i] * 1e6);
    struct extent like = {.file = file,
                          .offset = r->payload_offset,
                          .first = f.first,
                          .end = f.first + f.samples,
                          .channel = (uint32_t)channels_add(caller, groups, s->nchannels, id, s->freq_mhz),
                          .gaps = f.gaps};
    return add_blocks(caller, e, r, f.payload, &like);
}

static int describe(struct caller *caller, void *self, const struct file_list *files,
                    const struct read_options *options, struct description *description)
{
    struct extents *e = self;
    struct recording base = {0};
    struct channel_groups groups = {0};
    e->files = *files;
    description->stream = &e->stream;
    e->passes = options->passes;
    e->threads = options->readers;
    int status = BR_OK;
    for (size_t i = 0; i < files->count && status == BR_OK; i++)
        status = add_file(caller, e, &groups, i, options->coding, &base);
    e->extent = caller_keep(caller, e->extent, e->count * sizeof *e->extent);
    if (status != BR_OK) return status;
    description->time_from = recording_time_from(&base, caller->hints);
    e->coding = base.coding;
    e->npol = base.stream.array.axis[2].length;
    e->ndish = base.stream.array.axis[3].length;
    e->element_bytes = base.stream.array.dtype == BR_INT8X2 ? 2 : 1;
    e->stream.sample_ns = base.stream.sample_ns;
    e->stream.epoch_ns = base.stream.epoch_ns;
    e->stream.sideband = base.stream.sideband;
    struct channel_words words = {base.freq_key, "the header", base.stream.width_mhz[0], base.freq_precision,
                                  base.freq_precision};
    status = channels_join(caller, e, &groups, &words);
    for (size_t i = 0; status == BR_OK && i < e->count; i++) { /* the lines speak of their file's channels */
        const struct gaps *gaps = e->extent[i].gaps;
        if (i > 0 && gaps == e->extent[i - 1].gaps) continue; /* another heap of the same file */
        for (size_t k = 0; gaps != NULL && k < gaps->count; k++) gaps->gap[k].channel += e->extent[i].channel;
    }
    if (status == BR_OK) status = extents_configure(caller, e, options, 0);
    return status == BR_OK && base.own ? reading_check_first(caller, e->files.path[0], e->first) : status;
}

static const struct reader bands_reader = EXTENTS_READER(describe, READER_PARTS | READER_ORDER);

/* Files of the electric field that do not all have the same channels, or whose axes lie in another order than
 * the stream's, or of which some channels are wanted, are put side by side. Where a file cannot be read, the
 * reader that is chosen says what is wrong. */
static const struct reader *choose(struct caller *caller, const struct file_list *files,
                                   const struct read_options *options)
{
    struct recording first, r;
    uint64_t bytes;
    struct br_stream_hints hints = hints_of_one(caller);
    bool bands = options->part.count > 1;
    for (size_t i = 0; i < files->count; i++) {
        struct br_error ignored = {0};
        struct recording *this = i == 0 ? &first : &r;
        if (dada_describe(caller, files->path[i], &hints, options->coding, this, &bytes, &ignored) != BR_OK)
            return i == 0 || first.flat ? &dada_flat_reader : &dada_framed_reader;
        if (!is_field(this)) return first.flat ? &dada_flat_reader : &dada_framed_reader;
        bands = bands || !this->plain || this->stream.nchannels != first.stream.nchannels ||
                memcmp(this->stream.freq_mhz, first.stream.freq_mhz,
                       this->stream.nchannels * sizeof(double)) != 0;
    }
    return bands ? &bands_reader : &dada_flat_reader;
}

const struct format format_dada = {.name = "dada",
                                   .sideband = "SIDEBAND (or the sign of BW)",
                                   .probe = dada_probe,
                                   .info = dada_info,
                                   .choose = choose};
