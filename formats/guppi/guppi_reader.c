/* GUPPI RAW files: blocks one behind the other, placed in time by their packet numbers. */
#include "buffers/regular_file.h"
#include "formats/common/hints.h"
#include "formats/guppi/guppi_times.h"
#include "formats/pieces/extents.h"
#include "formats/pieces/reading.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEADER_ROOM = (GUPPI_MAX_CARDS + 2) * GUPPI_CARD };

struct scan {
    struct caller *caller;
    struct extents *e;
    struct channel_groups groups;
    struct guppi_header like;
    bool begun;
    char *text;
    bool by_steps; /* the headers have PKTIDX and do not say how many packets a block has */
    struct guppi_steps steps;
    uint64_t least_pktidx;
    int64_t *id;
    double *mhz;
};

/* Channels of a block, [nchan], as frequencies in the file's order. */
static size_t add_channels(struct scan *s, const struct guppi_header *h)
{
    for (size_t i = 0; i < h->nchan; i++) {
        s->mhz[i] = h->obsfreq_mhz + h->obsbw_mhz * (((double)i + 0.5) / (double)h->nchan - 0.5);
        s->id[i] = llround(s->mhz[i] * 1e6);
    }
    return channels_add(s->caller, &s->groups, h->nchan, s->id, s->mhz);
}

static int begin(struct scan *s, const struct guppi_header *h)
{
    s->begun = true;
    s->like = *h;
    s->by_steps = h->have_pktidx && guppi_packets(h) == 0;
    s->least_pktidx = h->pktidx;
    s->id = caller_alloc(s->caller, h->nchan * sizeof *s->id);
    s->mhz = caller_alloc(s->caller, h->nchan * sizeof *s->mhz);
    return BR_OK;
}

/* The number of a block without PKTIDX: behind those of the same channels, of files before too. */
static uint64_t block_number(const struct scan *s, size_t channel, uint64_t step)
{
    for (size_t i = s->e->count; i-- > 0;)
        if (s->e->extent[i].channel == channel) return s->e->extent[i].first / step + 1;
    return 0;
}

/* The sample with which a block begins; its packet number where that is known only after all blocks. */
static int block_first(struct scan *s, const char *path, uint64_t at, const struct guppi_header *h,
                       size_t channel, uint64_t *first)
{
    if (h->pktidx < s->least_pktidx) s->least_pktidx = h->pktidx;
    if (s->by_steps != (h->have_pktidx && guppi_packets(h) == 0))
        return caller_refuse(s->caller,
                             "%s: the GUPPI block at byte %llu has PIPERBLK or a PKTSIZE that divides it, or "
                             "others have it; expected that of all blocks, or of none",
                             path, (unsigned long long)at);
    if (s->by_steps) {
        guppi_steps_add(&s->steps, h->pktidx);
        *first = h->pktidx;
        return BR_OK;
    }
    if (guppi_first(h, block_number(s, channel, h->samples - h->overlap), first) == 0) return BR_OK;
    return caller_refuse(
        s->caller,
        "%s: the GUPPI block at byte %llu has PKTIDX = %llu, which is not a whole number of samples "
        "(%llu packets hold %llu samples)",
        path, (unsigned long long)at, (unsigned long long)h->pktidx, (unsigned long long)guppi_packets(h),
        (unsigned long long)(h->samples - h->overlap));
}

/* NPOL = 2 means what the user says. */
static int settle_polarisations(struct scan *s, const char *path, struct guppi_header *h)
{
    unsigned npol = s->caller->hints->npol;
    if (!h->npol_open || s->caller->run == NULL) return BR_OK;
    if (npol == 0)
        return caller_refuse(
            s->caller,
            "%s: NPOL is 2, for some programs two polarisations, for others the real and the "
            "imaginary part of one; say which: `stream: {npol: 1}` or `stream: {npol: 2}`",
            path);
    if (npol == 1) guppi_one_pol(h);
    return BR_OK;
}

static int check_alike(struct scan *s, const char *path, uint64_t at, const struct guppi_header *h)
{
    const struct guppi_header *like = &s->like;
    const char *what = h->nchan != like->nchan || h->npol != like->npol || h->nants != like->nants
                           ? "shape (OBSNCHAN, NPOL, NANTS)"
                       : h->sample_ns.num != like->sample_ns.num || h->sample_ns.den != like->sample_ns.den
                           ? "sample time (TBIN)"
                       : (h->obsbw_mhz > 0) != (like->obsbw_mhz > 0) ? "sideband (the sign of OBSBW)"
                       : h->have_epoch && like->have_epoch && h->epoch_ns != like->epoch_ns
                           ? "start (STT_IMJD, STT_SMJD, STT_OFFS)"
                           : NULL;
    if (what == NULL) return BR_OK;
    return caller_refuse(
        s->caller,
        "%s: the GUPPI block at byte %llu has another %s than the first one of %s; expected files of "
        "one recording",
        path, (unsigned long long)at, what, s->e->files.path[0]);
}

static int add_block(struct scan *s, size_t file, uint64_t at, uint64_t left, const struct guppi_header *h)
{
    const char *path = s->e->files.path[file];
    uint64_t first = 0;
    int status = s->begun ? check_alike(s, path, at, h) : begin(s, h);
    size_t channel = status == BR_OK ? add_channels(s, h) : 0;
    if (status == BR_OK) status = block_first(s, path, at, h, channel, &first);
    if (status != BR_OK) return status;
    if (left < h->header_bytes || left - h->header_bytes < h->blocsize) {
        caller_warn(s->caller, "%s is truncated: its last block has %llu of %llu bytes and is left out", path,
                    (unsigned long long)(left > h->header_bytes ? left - h->header_bytes : 0),
                    (unsigned long long)h->blocsize);
        return BR_OK;
    }
    struct extent *x = extents_add(s->e);
    if (x == NULL) return caller_no_memory(s->caller, s->e->count * sizeof *x);
    uint64_t plane = 2 * h->npol * h->samples;
    uint64_t sample = 2 * h->npol * h->nchan;
    *x = (struct extent){.file = file,
                         .offset = at + h->header_bytes,
                         .first = first,
                         .end = first + h->samples,
                         .channel = (uint32_t)channel,
                         .stride_time = h->time_first ? sample : 2 * h->npol,
                         .stride_freq = h->time_first ? 2 * h->npol : plane,
                         .stride_pol = 2,
                         .stride_dish = plane * h->nchan,
                         .overlap_meant = h->overlap > 0};
    return BR_OK;
}

/* The filling behind the last block of a file that was made longer than needed. */
static bool is_blank(const char *text, size_t length)
{
    return length > 0 && text[0] == '\0' && memcmp(text, text + 1, length - 1) == 0;
}

static int scan_file(struct scan *s, size_t file)
{
    const char *path = s->e->files.path[file];
    struct br_error why = {0};
    uint64_t size, at = 0;
    int fd = br_open_regular(path, 0, &size, &why), status = BR_OK;
    if (fd < 0) return caller_refuse(s->caller, "%s", why.text);
    while (status == BR_OK && at < size) {
        struct guppi_header h;
        struct br_error error = {0};
        size_t length = 0;
        int more = 1;
        for (size_t want = 16 * GUPPI_ALIGN; more == 1 && status == BR_OK && want < 2 * HEADER_ROOM;
             want *= 4) {
            if (want > HEADER_ROOM) want = HEADER_ROOM;
            length = size - at < want ? (size_t)(size - at) : want;
            status = reading_read(s->caller, fd, path, s->text, length, at);
            if (status == BR_OK) more = guppi_parse(&h, path, at, s->text, length, &error);
            if (length < want || want == HEADER_ROOM) break;
        }
        if (status != BR_OK) break;
        if (more < 0 && at > 0 && is_blank(s->text, length)) {
            caller_warn(s->caller, "%s: the bytes from %llu on are zero, not a GUPPI block, and are left out",
                        path, (unsigned long long)at);
            break;
        }
        if (more == 1 && at > 0) {
            caller_warn(s->caller, "%s is truncated in the header of its last block, which is left out",
                        path);
            break;
        }
        if (more == 1) {
            status = caller_refuse(s->caller, "%s: the file ends in its first GUPPI header", path);
        } else if (more < 0) {
            status = caller_refuse(s->caller,
                                   at > 0 ? "%s; %llu blocks before byte %llu are good: to "
                                            "play them, cut a copy of the file there"
                                          : "%s",
                                   error.text, (unsigned long long)s->e->count, (unsigned long long)at);
        } else {
            status = settle_polarisations(s, path, &h);
            if (status == BR_OK) status = add_block(s, file, at, size - at, &h);
            at += h.header_bytes + h.blocsize;
        }
    }
    close(fd);
    if (status == BR_OK && size == 0) status = caller_refuse(s->caller, "%s is empty", path);
    return status;
}

/* Blocks that are placed by the steps of PKTIDX from one to the next. */
static int place_by_steps(struct scan *s, uint64_t *packets)
{
    uint64_t step = s->like.samples - s->like.overlap;
    *packets = guppi_steps_packets(&s->steps);
    if (s->e->count == 1 && s->least_pktidx == 0) return BR_OK; /* it begins with sample 0 in any case */
    for (size_t i = 0; i < s->e->count; i++) {
        struct extent *x = &s->e->extent[i];
        __uint128_t scaled = (__uint128_t)x->first * step;
        uint64_t samples = x->end - x->first;
        if (*packets == 0 || (x->first - s->like.pktstart) % *packets != 0 || scaled % *packets != 0 ||
            scaled / *packets > (__uint128_t)1 << 61)
            return caller_refuse(
                s->caller,
                "%s: PKTIDX cannot be placed in time: its headers have neither PIPERBLK nor a PKTSIZE that "
                "divides a block, and its steps from block to block do not say how many packets one has; "
                "give the "
                "headers PIPERBLK, or play consecutive blocks",
                s->e->files.path[x->file]);
        x->first = x->begin = (uint64_t)(scaled / *packets);
        x->end = x->first + samples;
    }
    caller_note(s->caller,
                "%s: PKTIDX moves on by %llu from block to block of %llu samples, which places them",
                s->e->files.path[0], (unsigned long long)*packets, (unsigned long long)step);
    return BR_OK;
}

static int set_times(struct scan *s, struct br_stream *stream, const char **from)
{
    const struct br_stream_hints *hints = s->caller->hints;
    struct guppi_header *h = &s->like;
    const char *file = s->e->files.path[0];
    struct br_error error = {0};
    uint64_t packets = h->have_pktidx ? guppi_packets(h) : 0;
    int status = s->by_steps ? place_by_steps(s, &packets) : BR_OK;
    if (status != BR_OK) return status;
    if (guppi_settle_epoch(h, file, s->least_pktidx, h->samples - h->overlap, packets,
                           hints->have_epoch ? &hints->epoch_ns : NULL, from, &error) != BR_OK)
        return caller_refuse(s->caller, "%s", error.text);
    stream->sample_ns = h->sample_ns;
    stream->epoch_ns = h->have_epoch ? h->epoch_ns : hints->epoch_ns;
    if (!hints->have_epoch && !h->have_epoch)
        return caller_refuse(
            s->caller, "%s: no STT_IMJD and STT_SMJD in its headers; give `stream: {epoch_ns: ...}`", file);
    if (hints_sample(hints, file, "TBIN with OBSBW", &stream->sample_ns, h->sample_precision_ns, &error) !=
            BR_OK ||
        hints_epoch(hints, file, "STT_IMJD with STT_SMJD", &stream->epoch_ns, h->epoch_precision_ns,
                    &error) != BR_OK)
        return caller_refuse(s->caller, "%s", error.text);
    return BR_OK;
}

static int describe(struct caller *caller, void *self, const struct file_list *files,
                    const struct read_options *options, struct description *description)
{
    struct extents *e = self;
    struct scan s = {.caller = caller, .e = e, .text = malloc(HEADER_ROOM)};
    if (s.text == NULL) return caller_no_memory(caller, HEADER_ROOM);
    e->files = *files;
    description->stream = &e->stream;
    e->passes = options->passes;
    e->threads = options->readers;
    e->coding = CODING_INT4X2; /* nothing to convert */
    e->element_bytes = 2;
    int status = BR_OK;
    for (size_t i = 0; i < files->count && status == BR_OK; i++) status = scan_file(&s, i);
    free(s.text);
    e->extent = caller_keep(caller, e->extent, e->count * sizeof *e->extent);
    if (status != BR_OK) return status;
    if (e->count == 0) return caller_refuse(caller, "%s has no whole GUPPI block", files->path[0]);
    const char *coding = options->coding != NULL ? options->coding : caller->hints->coding;
    if (coding != NULL)
        return caller_fail_at(caller, "coding",
                              "%s; GUPPI RAW files hold complex samples of 8 + 8 bits, which have no coding",
                              coding);
    status = set_times(&s, &e->stream, &description->time_from);
    if (status == BR_OK)
        status = extents_elements(caller, files->path[0], s.like.nants * s.like.npol, s.like.npol, &e->npol,
                                  &e->ndish);
    struct channel_words words = {"OBSFREQ with OBSBW", "OBSBW / channels",
                                  fabs(s.like.obsbw_mhz) / (double)s.like.nchan, s.like.freq_precision_mhz,
                                  s.like.freq_precision_mhz};
    e->stream.sideband = s.like.obsbw_mhz > 0 ? BR_SIDEBAND_UPPER : BR_SIDEBAND_LOWER;
    if (status == BR_OK) status = channels_join(caller, e, &s.groups, &words);
    if (status == BR_OK) status = extents_configure(caller, e, options, 0);
    return status == BR_OK ? reading_check_first(caller, files->path[0], e->first) : status;
}

/* --- facts ------------------------------------------------------------------------------------------- */

static void print_header(struct caller *caller, const struct guppi_header *h)
{
    const char *const names[] = {"SRC_NAME", "TELESCOP", "BACKEND"}, *const values[] = {
                                                                         h->source, h->telescope, h->backend};
    for (int i = 0; i < 3; i++)
        if (values[i][0] != '\0') caller_fact(caller, names[i], "%s", values[i]);
    if (h->time_first)
        caller_fact(caller, "array",
                    "int8x2 [time %" PRIu64 "][freq %zu][pol %zu] in a block, overlap %" PRIu64 " samples",
                    h->samples, h->nchan, h->npol, h->overlap);
    else
        caller_fact(caller, "array",
                    "int8x2 [dish %zu][freq %zu][time %" PRIu64 "][pol %zu] in a block, overlap %" PRIu64
                    " samples",
                    h->nants, h->nchan, h->samples, h->npol, h->overlap);
    if (h->npol_open)
        caller_fact(caller, "",
                    "if NPOL = 2 is two polarisations; say which: `stream: {npol: 2}`, or {npol: 1} for one");
    caller_fact(caller, "channels", "%zu around %.10g MHz, %.10g MHz in all%s", h->nchan, h->obsfreq_mhz,
                fabs(h->obsbw_mhz), h->obsbw_mhz < 0 ? ", descending" : "");
    caller_sideband(caller, h->obsbw_mhz > 0 ? BR_SIDEBAND_UPPER : BR_SIDEBAND_LOWER);
    caller_fact(caller, "base sample", "%.10g us (%" PRId64 "/%" PRId64 " ns)",
                1e-3 * (double)h->sample_ns.num / (double)h->sample_ns.den, h->sample_ns.num,
                h->sample_ns.den);
}

static void print_start(struct caller *caller, const char *path, const struct scan *s, uint64_t packets)
{
    struct guppi_header h = s->like;
    const char *from;
    struct br_error error = {0};
    if (!h.have_epoch) {
        caller_fact(caller, "start", "not in the file: give `stream: {epoch_ns: ...}`");
    } else if (guppi_settle_epoch(&h, path, s->least_pktidx, h.samples - h.overlap, packets, NULL, &from,
                                  &error) != BR_OK) {
        caller_fact(caller, "start", "open: %s", error.text);
    } else {
        double sample_ns = (double)h.sample_ns.num / (double)h.sample_ns.den;
        caller_time(caller, "start", h.epoch_ns + llround((double)s->e->first * sample_ns));
        caller_fact(caller, "", "%s", from);
    }
}

/* The blocks of a file, as they are joined for replay: what the end of a block repeats counts once. */
static int info(struct caller *caller, const char *path)
{
    struct extents e = {.files = {1, &path}};
    struct scan s = {.caller = caller, .e = &e, .text = caller_alloc(caller, HEADER_ROOM)};
    int status = scan_file(&s, 0);
    e.extent = caller_keep(caller, e.extent, e.count * sizeof *e.extent);
    if (status != BR_OK) return status;
    const struct guppi_header *h = &s.like;
    uint64_t packets = h->have_pktidx ? guppi_packets(h) : 0, there = 0;
    e.stream.sample_ns = h->sample_ns;
    caller_fact(caller, NULL, "GUPPI RAW");
    print_header(caller, h);
    caller_fact(caller, "blocks", "%zu of %" PRIu64 " bytes", e.count, h->blocsize);
    if (e.count > 0) {
        status = s.by_steps ? place_by_steps(&s, &packets) : BR_OK;
        if (status == BR_OK) status = extents_join(caller, &e, INFINITY);
        if (status != BR_OK) return status;
        for (size_t i = 0; i < e.count; i++) there += e.extent[i].end - e.extent[i].begin;
        caller_fact(caller, "samples",
                    "%" PRIu64 " to %" PRIu64 ": %" PRIu64 ", %.6g s; %" PRIu64 " of them missing", e.first,
                    e.last, e.period, (double)e.period * br_stream_sample_s(&e.stream), e.period - there);
    } else {
        caller_fact(caller, "samples", "no whole block");
    }
    print_start(caller, path, &s, packets);
    return BR_OK;
}

static const struct reader reader = EXTENTS_READER(describe, READER_PARTS);
const struct format format_guppi = {
    .name = "guppi", .sideband = "the sign of OBSBW", .probe = guppi_probe, .info = info, .reader = &reader};
