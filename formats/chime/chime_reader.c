/* CHIME baseband files, one for each frequency of an event, in HDF5. */
#include "formats/chime/chime_hdf5.h"
#include "formats/common/hints.h"
#include "formats/pieces/extents.h"
#include "formats/pieces/reading.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const double top_mhz = 800, step_mhz = -0.390625, rounding = 1e-9;
enum { CLOCK_NS = 1000 }; /* to which time0_ctime says when a sample was: a double of Unix seconds */

struct scan {
    struct caller *caller;
    struct extents *e;
    struct channel_groups groups;
    struct chime_file like;
    struct br_rational sample_ns;
    bool have_epoch;
    int64_t epoch_ns;
    uint64_t row_samples;
};

/* Unix time of the file's first sample, where it says it. The parts one by one: each is exact, or much below
 * a nanosecond off. */
static int64_t start_of(const struct chime_file *f)
{
    double whole = floor(f->time0_ctime);
    return (int64_t)whole * 1000000000 + llround((f->time0_ctime - whole + f->time0_ctime_offset) * 1e9);
}

/* Unix time of sample 0 of the counter; false when the file does not say. */
static bool epoch_of(const struct scan *s, const struct chime_file *f, int64_t *ns)
{
    if (isnan(f->time0_ctime)) return false;
    __int128_t since = (__int128_t)f->time0_fpga_count * s->sample_ns.num;
    since = (since + s->sample_ns.den / 2) / s->sample_ns.den;
    if (since > INT64_MAX / 2) return false;
    *ns = start_of(f) - (int64_t)since;
    return true;
}

static int begin(struct scan *s, const char *path, const struct chime_file *f)
{
    const struct br_stream_hints *hints = s->caller->hints;
    struct br_error error = {0};
    char text[64];
    s->like = *f;
    snprintf(text, sizeof text, "%.6f", f->delta_time * 1e9);
    if (br_rational_parse(text, &s->sample_ns, &error) != BR_OK)
        return caller_refuse(s->caller, "%s: delta_time: %s", path, error.text);
    /* a double: to its digits */
    double precision = rounding * 1e9 * f->delta_time;
    if (hints_sample(hints, path, "delta_time", &s->sample_ns, precision, &error) != BR_OK)
        return caller_refuse(s->caller, "%s", error.text);
    s->have_epoch = epoch_of(s, f, &s->epoch_ns);
    if (!s->have_epoch && !hints->have_epoch)
        return caller_refuse(
            s->caller,
            "%s: no attribute time0_ctime, so its time is not known; give `stream: {epoch_ns: ...}`", path);
    return BR_OK;
}

static int check_alike(struct scan *s, const char *path, const struct chime_file *f)
{
    const struct chime_file *like = &s->like;
    const char *what = f->chunks.columns != like->chunks.columns           ? "number of inputs"
                       : fabs(f->delta_time / like->delta_time - 1) > 1e-9 ? "sample time (delta_time)"
                       : f->sideband != like->sideband                     ? "sideband"
                       : like->event_id >= 0 && f->event_id >= 0 && f->event_id != like->event_id ? "event_id"
                                                                                                  : NULL;
    int64_t epoch = 0;
    /* a clock's jitter is not another time; a sample is */
    if (what == NULL && s->have_epoch && epoch_of(s, f, &epoch) &&
        fabs((double)(epoch - s->epoch_ns)) > 0.5e9 * f->delta_time)
        what = "epoch (time0_ctime less time0_fpga_count samples)";
    if (what == NULL) return BR_OK;
    return caller_refuse(s->caller, "%s has another %s than %s; expected files of one event", path, what,
                         s->e->files.path[0]);
}

static int add_file(struct scan *s, size_t file, const struct chime_file *f)
{
    const char *path = s->e->files.path[file];
    struct chime_chunks *chunks = caller_alloc(s->caller, sizeof *chunks);
    *chunks = f->chunks;
    int status = file == 0 ? begin(s, path, f) : check_alike(s, path, f);
    struct extent *x = status == BR_OK ? extents_add(s->e) : NULL;
    if (status == BR_OK && x == NULL) return caller_no_memory(s->caller, s->e->count * sizeof *x);
    if (status != BR_OK) return status;
    double mhz = isnan(f->freq_mhz) ? top_mhz + step_mhz * (double)f->freq_id : f->freq_mhz;
    bool plain =
        chunks->down * chunks->across == 1 && chunks->chunk[0].plain && chunks->chunk[0].offset != UINT64_MAX;
    if (!plain && chunks->down > 1 && chunks->chunk_rows > s->row_samples)
        s->row_samples = chunks->chunk_rows;
    *x = (struct extent){.file = file,
                         .offset = plain ? chunks->chunk[0].offset : 0,
                         .first = f->time0_fpga_count,
                         .end = f->time0_fpga_count + chunks->rows,
                         .channel = (uint32_t)channels_add(s->caller, &s->groups, 1, &f->freq_id, &mhz),
                         .stride_time = chunks->columns,
                         .stride_freq = chunks->columns,
                         .stride_dish = 1,
                         .chunks = plain ? NULL : chunks};
    return BR_OK;
}

static int add_files(struct scan *s)
{
    const struct file_list *list = &s->e->files;
    struct br_error error = {0};
    struct chime_file *f = calloc(list->count, sizeof *f);
    if (f == NULL) return caller_no_memory(s->caller, list->count * sizeof *f);
    int status = chime_open(f, (const char *const *)list->path, list->count, &error);
    if (status != BR_OK) status = caller_refuse(s->caller, "%s", error.text);
    for (size_t i = 0; i < list->count && status == BR_OK; i++)
        f[i].chunks.chunk = caller_keep(s->caller, f[i].chunks.chunk,
                                        f[i].chunks.down * f[i].chunks.across * sizeof *f[i].chunks.chunk);
    for (size_t i = 0; i < list->count && status == BR_OK; i++) status = add_file(s, i, &f[i]);
    free(f);
    return status;
}

static int describe(struct caller *caller, void *self, const struct file_list *files,
                    const struct read_options *options, struct description *description)
{
    struct extents *e = self;
    const struct br_stream_hints *hints = caller->hints;
    struct scan s = {.caller = caller, .e = e};
    e->files = *files;
    description->stream = &e->stream;
    description->time_from = "by time0_ctime and time0_fpga_count in its attributes";
    e->passes = options->passes;
    e->threads = options->readers;
    e->element_bytes = 1;
    int status =
        reading_coding(caller, files->path[0], "CHIME's format", "chime", options->coding, &e->coding);
    if (status == BR_OK) status = add_files(&s);
    e->extent = caller_keep(caller, e->extent, e->count * sizeof *e->extent);
    if (status != BR_OK) return status;
    e->stream.sample_ns = s.sample_ns;
    struct br_error error = {0};
    if (!s.have_epoch)
        s.epoch_ns = hints->epoch_ns;
    else if (hints_epoch(hints, files->path[0], "time0_ctime", &s.epoch_ns, CLOCK_NS, &error) != BR_OK)
        return caller_refuse(caller, "%s", error.text);
    e->stream.epoch_ns = s.epoch_ns;
    status = extents_elements(caller, files->path[0], s.like.chunks.columns, 0, &e->npol, &e->ndish);
    for (size_t i = 0; i < e->count; i++) e->extent[i].stride_pol = e->ndish;
    struct channel_words words = {"freq (or freq_id)", "CHIME's raster", fabs(step_mhz), 0, INFINITY};
    e->stream.sideband = s.like.sideband;
    if (status == BR_OK) status = channels_join(caller, e, &s.groups, &words);
    if (status == BR_OK) status = extents_configure(caller, e, options, s.row_samples);
    return status == BR_OK ? reading_check_first(caller, files->path[0], e->first) : status;
}

static int info(struct caller *caller, const char *path)
{
    struct chime_file f;
    struct br_error error = {0};
    if (chime_open(&f, &path, 1, &error) != BR_OK) return caller_fail(caller, error.status, "%s", error.text);
    const struct chime_chunks *c = &f.chunks;
    uint64_t chunks = c->down * c->across, there = 0;
    for (uint64_t i = 0; i < chunks; i++) there += c->chunk[i].offset != UINT64_MAX;
    caller_fact(caller, NULL, "CHIME baseband (HDF5)");
    if (f.event_id >= 0) caller_fact(caller, "event", "%" PRId64, f.event_id);
    caller_fact(caller, "array", "int4x2 [time %" PRIu64 "][input %" PRIu64 "], coding chime", c->rows,
                c->columns);
    caller_fact(caller, "stored", "%s; %" PRIu64 " of %" PRIu64 " pieces written",
                c->bitshuffle ? c->lz4 ? "bitshuffle and LZ4" : "bitshuffle" : "plain", there, chunks);
    double mhz = isnan(f.freq_mhz) ? 800 - 0.390625 * (double)f.freq_id : f.freq_mhz;
    caller_fact(caller, "channel", "number %" PRId64 ", %.10g MHz", f.freq_id, mhz);
    caller_sideband(caller, f.sideband);
    caller_fact(caller, "base sample", "%.10g us", 1e6 * f.delta_time);
    caller_fact(caller, "samples", "%" PRIu64 " to %" PRIu64 ": %" PRIu64 ", %.6g s", f.time0_fpga_count,
                f.time0_fpga_count + c->rows, c->rows, (double)c->rows * f.delta_time);
    if (isnan(f.time0_ctime))
        caller_fact(caller, "start", "not in the file: give `stream: {epoch_ns: ...}`");
    else
        caller_time(caller, "start", start_of(&f));
    caller_fact(caller, "updates", "%s", f.updates);
    chime_free(&f);
    return BR_OK;
}

static const struct reader reader = EXTENTS_READER(describe, READER_PARTS);
const struct format format_chime = {.name = "chime",
                                    .sideband = "its sideband attribute (else CHIME's second Nyquist zone)",
                                    .probe = chime_probe,
                                    .info = info,
                                    .reader = &reader};
