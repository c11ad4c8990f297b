/* info.c - facts of GUPPI RAW files. */
#include "buffers/regular_file.h"
#include "formats/guppi/guppi_reader.h"
#include "formats/guppi/guppi_times.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { HEADER_ROOM = (GUPPI_MAX_CARDS + 2) * GUPPI_CARD };

/* The header at `at`. 0: read, 1: the file ends in it, negative: a failure. */
static int guppi_header_at(int fd, const char *path, uint64_t at, char *text, struct guppi_header *h,
                           struct br_error *error)
{
    ssize_t got = pread(fd, text, HEADER_ROOM, (off_t)at);
    if (got < 0) return br_fail(error, BR_E_IO, "cannot read %s: %s", path, strerror(errno));
    return guppi_parse(h, path, at, text, (size_t)got, error);
}

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

static void print_start(struct caller *caller, const char *path, struct guppi_blocks *b, double sample_s)
{
    struct guppi_header *h = &b->first;
    const char *from;
    struct br_error error = {0};
    if (guppi_settle_epoch(h, path, b->least, h->samples - h->overlap, h->have_pktidx ? guppi_packets(h) : 0,
                           NULL, &from, &error) != BR_OK) {
        caller_fact(caller, "start", "open: %s", error.text);
        return;
    }
    caller_time(caller, "start",
                h->epoch_ns + llround((double)(b->blocks > 0 ? b->begin : 0) * sample_s * 1e9));
    caller_fact(caller, "", "%s", from);
}

int guppi_info(struct caller *caller, const char *path)
{
    uint64_t size = 0;
    struct br_error error = {0};
    int fd = br_open_regular(path, 0, &size, &error);
    if (fd < 0) return caller_fail(caller, BR_E_IO, "%s", error.text);
    char *text = caller_alloc(caller, HEADER_ROOM);
    struct guppi_blocks b = {0};
    int status = count_blocks(fd, path, size, text, &b, &error);
    if (status >= 0 && guppi_steps_packets(&b.steps) > 0) {
        b = (struct guppi_blocks){.packets = guppi_steps_packets(&b.steps)};
        status = count_blocks(fd, path, size, text, &b, &error);
    }
    close(fd);
    if (status < 0) return caller_fail(caller, status, "%s", error.text);
    const struct guppi_header *first = &b.first;
    if (first->samples == 0)
        return caller_fail(caller, BR_E_FORMAT, "%s: the file ends in its first GUPPI header", path);
    caller_fact(caller, NULL, "GUPPI RAW");
    print_header(caller, first);
    caller_fact(caller, "blocks", "%" PRIu64 " of %" PRIu64 " bytes", b.blocks, first->blocsize);
    double sample_s = 1e-9 * (double)first->sample_ns.num / (double)first->sample_ns.den;
    if (b.blocks > 0)
        caller_fact(caller, "samples",
                    "%" PRIu64 " to %" PRIu64 ": %" PRIu64 ", %.6g s; %" PRIu64 " of them missing", b.begin,
                    b.end, b.end - b.begin, (double)(b.end - b.begin) * sample_s, b.end - b.begin - b.there);
    else
        caller_fact(caller, "samples", "no whole block");
    if (first->have_epoch)
        print_start(caller, path, &b, sample_s);
    else
        caller_fact(caller, "start", "not in the file: give `stream: {epoch_ns: ...}`");
    if (b.blank) caller_fact(caller, "behind them", "zero bytes from byte %" PRIu64 " on", b.at);
    if (status == 1) caller_fact(caller, "truncated", "the file ends in the header at byte %" PRIu64, b.at);
    if (b.truncated > 0)
        caller_fact(caller, "truncated", "the last block has %" PRIu64 " of %" PRIu64 " bytes", b.truncated,
                    b.last.header_bytes + b.last.blocsize);
    return 0;
}
