/* info_formats.c - `beamring info` for other systems' recordings: CHIME baseband, GUPPI RAW, kotekan's raw
 * frames. */
#include "buffers/regular_file.h"
#include "formats/chime/chime_hdf5.h"
#include "formats/guppi/guppi_times.h"
#include "formats/kotekan/kotekan_array.h"
#include "formats/kotekan/kotekan_raw.h"
#include "tools/beamring/info.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int complain(const char *text)
{
    fprintf(stderr, "beamring info: %s\n", text);
    return 1;
}

/* Opens a file and finds its size; -1 after a message. */
static int open_file(const char *path, uint64_t *size)
{
    struct br_error error = {0};
    int fd = br_open_regular(path, 0, size, &error);
    if (fd < 0) fprintf(stderr, "beamring info: %s\n", error.text);
    return fd;
}

/* --- CHIME ---------------------------------------------------------------------------------------- */

int info_chime(const char *path)
{
    struct chime_file f;
    struct br_error error = {0};
    if (chime_open(&f, &path, 1, &error) != BR_OK) return complain(error.text);
    const struct chime_chunks *c = &f.chunks;
    uint64_t chunks = c->down * c->across, there = 0;
    for (uint64_t i = 0; i < chunks; i++) there += c->chunk[i].offset != UINT64_MAX;
    printf("%s: CHIME baseband (HDF5)\n", path);
    if (f.event_id >= 0) info_line("event", "%" PRId64, f.event_id);
    info_line("array", "int4x2 [time %" PRIu64 "][input %" PRIu64 "], coding chime", c->rows, c->columns);
    info_line("stored", "%s; %" PRIu64 " of %" PRIu64 " pieces written",
              c->bitshuffle ? c->lz4 ? "bitshuffle and LZ4" : "bitshuffle" : "plain", there, chunks);
    double mhz = isnan(f.freq_mhz) ? 800 - 0.390625 * (double)f.freq_id : f.freq_mhz;
    info_line("channel", "number %" PRId64 ", %.10g MHz", f.freq_id, mhz);
    info_sideband(f.sideband);
    info_line("base sample", "%.10g us", 1e6 * f.delta_time);
    info_line("samples", "%" PRIu64 " to %" PRIu64 ": %" PRIu64 ", %.6g s", f.time0_fpga_count,
              f.time0_fpga_count + c->rows, c->rows, (double)c->rows * f.delta_time);
    if (isnan(f.time0_ctime)) {
        info_line("start", "not in the file: give `stream: {epoch_ns: ...}`");
    } else {
        double whole = floor(f.time0_ctime);
        info_time("start", (int64_t)whole * 1000000000 +
                               llround((f.time0_ctime - whole + f.time0_ctime_offset) * 1e9));
    }
    if (!info_updates("updates", f.updates)) info_line("updates", "%s", f.updates);
    chime_free(&f);
    return 0;
}

/* --- GUPPI ---------------------------------------------------------------------------------------- */

enum { GUPPI_ROOM = (GUPPI_MAX_CARDS + 2) * GUPPI_CARD };

/* The header at `at`. 0: read, 1: the file ends in it, negative: a failure. */
static int guppi_header_at(int fd, const char *path, uint64_t at, char *text, struct guppi_header *h,
                           struct br_error *error)
{
    ssize_t got = pread(fd, text, GUPPI_ROOM, (off_t)at);
    if (got < 0) return br_fail(error, BR_E_IO, "cannot read %s: %s", path, strerror(errno));
    return guppi_parse(h, path, at, text, (size_t)got, error);
}

static void print_guppi(const struct guppi_header *h)
{
    const char *const names[] = {"SRC_NAME", "TELESCOP", "BACKEND"}, *const values[] = {
                                                                         h->source, h->telescope, h->backend};
    for (int i = 0; i < 3; i++)
        if (values[i][0] != '\0') info_line(names[i], "%s", values[i]);
    if (h->time_first)
        info_line("array",
                  "int8x2 [time %" PRIu64 "][freq %zu][pol %zu] in a block, overlap %" PRIu64 " samples",
                  h->samples, h->nchan, h->npol, h->overlap);
    else
        info_line("array",
                  "int8x2 [dish %zu][freq %zu][time %" PRIu64 "][pol %zu] in a block, overlap %" PRIu64
                  " samples",
                  h->nants, h->nchan, h->samples, h->npol, h->overlap);
    if (h->npol_open)
        info_line("",
                  "if NPOL = 2 is two polarisations; say which: `stream: {npol: 2}`, or {npol: 1} for one");
    info_line("channels", "%zu around %.10g MHz, %.10g MHz in all%s", h->nchan, h->obsfreq_mhz,
              fabs(h->obsbw_mhz), h->obsbw_mhz < 0 ? ", descending" : "");
    info_sideband(h->obsbw_mhz > 0 ? BR_SIDEBAND_UPPER : BR_SIDEBAND_LOWER);
    info_line("base sample", "%.10g us (%" PRId64 "/%" PRId64 " ns)",
              1e-3 * (double)h->sample_ns.num / (double)h->sample_ns.den, h->sample_ns.num, h->sample_ns.den);
}

/* The blocks of a file, as `replay` joins them: what the end of a block repeats counts once. */
struct guppi_blocks {
    struct guppi_header first, last;
    uint64_t blocks, truncated; /* bytes of the last block, where the file ends in it */
    uint64_t begin, end, there; /* samples: the first one, behind the last one, how many */
    uint64_t at;                /* byte where reading ended */
    uint64_t least, packets;    /* PKTIDX of the first block; packets of a block where only `steps` say it */
    struct guppi_steps steps;
    bool blank; /* zero bytes follow the last block */
};

/* 0, 1 when the file ends in a header, or a status. */
static int count_blocks(int fd, const char *path, uint64_t size, char *text, struct guppi_blocks *b,
                        struct br_error *error)
{
    for (b->begin = UINT64_MAX; b->at < size; b->blocks++) {
        struct guppi_header h;
        uint64_t first = 0, left = size - b->at;
        int status = guppi_header_at(fd, path, b->at, text, &h, error);
        b->blank = status < 0 && b->at > 0 && text[0] == '\0';
        if (status != 0) return b->blank ? 0 : status;
        if (h.have_pktidx && guppi_packets(&h) == 0) {
            guppi_steps_add(&b->steps, h.pktidx);
            h.piperblk = b->packets;
        }
        if (b->blocks == 0) b->first = h;
        if (b->blocks == 0 || h.pktidx < b->least) b->least = h.pktidx;
        b->truncated = left < h.header_bytes + h.blocsize ? left : 0;
        b->last = h;
        if (b->truncated > 0) return 0;
        if (guppi_first(&h, b->blocks, &first) != 0)
            return br_fail(error, BR_E_FORMAT,
                           "%s: PKTIDX %" PRIu64 " of block %" PRIu64 " is no whole number of samples", path,
                           h.pktidx, b->blocks);
        uint64_t end = first + h.samples, from = first < b->end ? b->end : first;
        if (b->blocks == 0) from = first;
        b->there += end > from ? end - from : 0;
        if (first < b->begin) b->begin = first;
        if (end > b->end) b->end = end;
        b->at += h.header_bytes + h.blocsize;
    }
    return 0;
}

static void print_guppi_start(const char *path, struct guppi_blocks *b, double sample_s)
{
    struct guppi_header *h = &b->first;
    const char *from;
    struct br_error error = {0};
    if (guppi_settle_epoch(h, path, b->least, h->samples - h->overlap, h->have_pktidx ? guppi_packets(h) : 0,
                           NULL, &from, &error) != BR_OK) {
        info_line("start", "open: %s", error.text);
        return;
    }
    info_time("start", h->epoch_ns + llround((double)(b->blocks > 0 ? b->begin : 0) * sample_s * 1e9));
    info_line("", "%s", from);
}

int info_guppi(const char *path)
{
    uint64_t size = 0;
    int fd = open_file(path, &size), status = 0;
    char *text = fd < 0 ? NULL : malloc(GUPPI_ROOM);
    struct guppi_blocks b = {0};
    struct br_error error = {0};
    if (text != NULL) status = count_blocks(fd, path, size, text, &b, &error);
    if (status >= 0 && guppi_steps_packets(&b.steps) > 0) {
        b = (struct guppi_blocks){.packets = guppi_steps_packets(&b.steps)};
        status = count_blocks(fd, path, size, text, &b, &error);
    }
    if (fd >= 0) close(fd);
    if (text == NULL) return 1;
    free(text);
    if (status < 0) return complain(error.text);
    const struct guppi_header *first = &b.first;
    if (first->samples == 0) {
        fprintf(stderr, "beamring info: %s: the file ends in its first GUPPI header\n", path);
        return 1;
    }
    printf("%s: GUPPI RAW\n", path);
    print_guppi(first);
    info_line("blocks", "%" PRIu64 " of %" PRIu64 " bytes", b.blocks, first->blocsize);
    double sample_s = 1e-9 * (double)first->sample_ns.num / (double)first->sample_ns.den;
    if (b.blocks > 0)
        info_line("samples", "%" PRIu64 " to %" PRIu64 ": %" PRIu64 ", %.6g s; %" PRIu64 " of them missing",
                  b.begin, b.end, b.end - b.begin, (double)(b.end - b.begin) * sample_s,
                  b.end - b.begin - b.there);
    else
        info_line("samples", "no whole block");
    if (first->have_epoch)
        print_guppi_start(path, &b, sample_s);
    else
        info_line("start", "not in the file: give `stream: {epoch_ns: ...}`");
    if (b.blank) info_line("behind them", "zero bytes from byte %" PRIu64 " on", b.at);
    if (status == 1) info_line("truncated", "the file ends in the header at byte %" PRIu64, b.at);
    if (b.truncated > 0)
        info_line("truncated", "the last block has %" PRIu64 " of %" PRIu64 " bytes", b.truncated,
                  b.last.header_bytes + b.last.blocsize);
    return 0;
}

/* --- kotekan -------------------------------------------------------------------------------------- */

static void print_channels(const struct chord_metadata *m)
{
    char text[100] = "";
    size_t used = 0;
    for (int i = 0; i < m->nfreq && used + 16 < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, i > 0 ? " %d" : "%d", m->coarse_freq[i]);
    if (m->nfreq > 0)
        info_line("channels", "%d: numbers %s%s", m->nfreq, text, used + 16 >= sizeof text ? " ..." : "");
    else
        info_line("channels", "not in the file");
    if (m->nfreq > 0 && m->upchan_factor[0] > 1) info_line("", "upchannelized by %d", m->upchan_factor[0]);
}

static void print_kotekan(const struct kotekan_frame *frame, const char *path)
{
    const struct chord_metadata *m = &frame->metadata;
    char shape[CHORD_MAX_DIMS * (CHORD_NAME + 16)] = "";
    size_t used = 0;
    for (int i = 0; i < m->dims; i++)
        used += (size_t)snprintf(shape + used, sizeof shape - used, "[%s %d]", m->dim_name[i], m->dim[i]);
    info_line("array", "%s, %s %s", m->name[0] != '\0' ? m->name : "without name", chord_type_name(m->type),
              shape);
    struct kotekan_array array = {0};
    struct kotekan_field field;
    struct br_error why = {0}, error = {0};
    uint64_t first = 0;
    uint32_t downsample = 1;
    int timed = chord_metadata_first(m, path, &first, &downsample, &error);
    if (kotekan_raw_field(m, path, &field, &why) == BR_OK) {
        info_line("holds", "the electric field%s", field.chime ? ", coding chime" : "");
    } else if (why = (struct br_error){0}, kotekan_array_describe(&array, m, path, &why) == BR_OK) {
        info_line("holds", "%s%s", array.what, array.chime ? ", coding chime" : "");
        timed = BR_OK;
        first = array.first;
        downsample = array.downsample;
    } else
        info_line("holds", "nothing that can be replayed: %s", why.text);
    print_channels(m);
    info_sideband(BR_SIDEBAND_UNKNOWN);
    if (timed == BR_OK)
        info_line("first sample", "%" PRIu64 "; %u samples of the F-engine in a time step", first,
                  downsample);
    else
        info_line("first sample", "unknown: %s", error.text);
    info_line("times", "not in the file: give `stream: {sample_ns: ..., epoch_ns: ...}`");
}

int info_kotekan(const char *path)
{
    uint64_t size = 0, at = 0, frames = 0;
    int fd = open_file(path, &size), status = 0;
    struct kotekan_frame *frame = fd < 0 ? NULL : malloc(sizeof *frame);
    struct br_error error = {0};
    while (frame != NULL && status == 0 && (at < size || frames == 0)) {
        status = kotekan_raw_read(frame, fd, path, at, size, &error);
        if (status != BR_OK) break;
        if (frames++ == 0) {
            printf("%s: kotekan raw frames\n", path);
            print_kotekan(frame, path);
        }
        at = frame->offset + frame->bytes;
    }
    if (fd >= 0) close(fd);
    if (frame == NULL) return 1;
    if (frames > 0) {
        info_line("frames", "%" PRIu64 " of %" PRIu64 " bytes", frames, frame->bytes);
        if (status == BR_OK && frame->there < frame->bytes)
            info_line("truncated", "the last frame has %" PRIu64 " of %" PRIu64 " bytes", frame->there,
                      frame->bytes);
    }
    free(frame);
    return status == BR_OK ? 0 : complain(error.text);
}
