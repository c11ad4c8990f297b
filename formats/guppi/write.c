/* GUPPI RAW: a block for each frame. Other programs take all blocks of a file to be as long as the first
 * one: a frame of another length, at the start or the end of a stream, has a file of its own. */
#include "formats/guppi/guppi.h"
#include "formats/writer.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { HEADER = 4096, MJD_OF_1970 = 40587 };
#define NS_PER_DAY INT64_C(86400000000000)

struct guppi_out {
    FILE *file;
    uint64_t block; /* samples of the open file's blocks */
    uint64_t bytes; /* of each, with its header */
};

/* One sign, OBSBW's, says the order of the channels and the sideband: where the two differ, the file has the
 * channels in the other order. An unknown sideband leaves them as they are. */
static bool reverses(const struct br_stream *s)
{
    bool falling = s->freq_mhz[s->nchannels - 1] < s->freq_mhz[0];
    return s->nchannels > 1 && s->sideband != BR_SIDEBAND_UNKNOWN &&
           falling != (s->sideband == BR_SIDEBAND_LOWER);
}

/* The header of a block; its length, 0 when it does not fit. */
static size_t put_header(const struct file_writer *f, const struct br_stream *s, uint64_t first,
                         uint64_t samples, char *text)
{
    struct guppi_writer w = {text, HEADER, 0};
    double step = s->nchannels > 1
                      ? (s->freq_mhz[s->nchannels - 1] - s->freq_mhz[0]) / (double)(s->nchannels - 1)
                      : br_sideband_sign(s->sideband) * s->width_mhz[0];
    if (reverses(s)) step = -step;
    /* a band that is exact to its last digits is written so */
    double band = nearbyint(step * (double)s->nchannels * 1e9) / 1e9;
    int64_t days = s->epoch_ns / NS_PER_DAY, rest = s->epoch_ns % NS_PER_DAY;
    if (rest < 0) days--, rest += NS_PER_DAY;
    guppi_put_text(&w, "BACKEND", "GUPPI");
    guppi_put_text(&w, "TELESCOP", s->telescope != NULL ? s->telescope->name : "unset");
    guppi_put_text(&w, "SRC_NAME", "unset");
    guppi_put_real(&w, "OBSFREQ", (s->freq_mhz[0] + s->freq_mhz[s->nchannels - 1]) / 2);
    guppi_put_real(&w, "OBSBW", band);
    guppi_put_int(&w, "OBSNCHAN", (int64_t)(s->nchannels * f->ndish));
    if (f->ndish > 1) guppi_put_int(&w, "NANTS", (int64_t)f->ndish);
    guppi_put_int(&w, "NPOL", f->npol == 2 ? 4 : 1);
    guppi_put_int(&w, "NBITS", 8);
    guppi_put_real(&w, "TBIN", br_stream_sample_s(s));
    guppi_put_int(&w, "OVERLAP", 0);
    guppi_put_int(&w, "BLOCSIZE", (int64_t)(2 * samples * s->nchannels * f->npol * f->ndish));
    guppi_put_int(&w, "PKTIDX", (int64_t)first); /* a packet is a sample */
    guppi_put_int(&w, "PIPERBLK", (int64_t)samples);
    guppi_put_int(&w, "PKTSIZE", (int64_t)(2 * s->nchannels * f->npol * f->ndish));
    guppi_put_int(&w, "PKTSTART", 0); /* STT_* are the time of PKTIDX 0 */
    guppi_put_text(&w, "PKTFMT", "1SFA");
    guppi_put_int(&w, "STT_IMJD", days + MJD_OF_1970);
    guppi_put_int(&w, "STT_SMJD", rest / 1000000000);
    guppi_put_real(&w, "STT_OFFS", (double)(rest % 1000000000) * 1e-9);
    guppi_put_int(&w, "DIRECTIO", 1);
    return guppi_finish(&w, true) ? w.used : 0;
}

/* Writes a header and looks at what comes back. */
static int refuses(struct file_writer *f)
{
    const struct br_stream *s = f->stream;
    char text[HEADER];
    struct guppi_header h;
    struct br_error error = {0};
    if (f->npol > 2)
        return writer_refuse(f, "format", "guppi: it has 1 or 2 polarisations; the input has %zu", f->npol);
    size_t length = put_header(f, s, 0, 1, text);
    if (length == 0 || guppi_parse(&h, f->prefix, 0, text, length, &error) != 0)
        return writer_refuse(f, "format", "guppi cannot describe this stream: %s", error.text);
    if (h.epoch_ns != s->epoch_ns)
        writer_loses(f, "the epoch to the nanosecond (%+lld ns)", (long long)(h.epoch_ns - s->epoch_ns));
    if (h.sample_ns.num != s->sample_ns.num || h.sample_ns.den != s->sample_ns.den)
        writer_loses(f, "the exact sample time %lld/%lld ns (it becomes %lld/%lld)",
                     (long long)s->sample_ns.num, (long long)s->sample_ns.den, (long long)h.sample_ns.num,
                     (long long)h.sample_ns.den);
    double width = fabs(h.obsbw_mhz) / (double)h.nchan;
    bool freq = true, widths = true;
    for (size_t i = 0; i < s->nchannels; i++) {
        double mhz = h.obsfreq_mhz + h.obsbw_mhz * (((double)i + 0.5) / (double)h.nchan - 0.5);
        size_t of = reverses(s) ? s->nchannels - 1 - i : i;
        freq = freq && fabs(mhz - s->freq_mhz[of]) < 1e-9 * mhz;
        widths = widths && fabs(width / s->width_mhz[i] - 1) < 1e-9;
    }
    if (reverses(s))
        writer_note(f,
                    "GUPPI says the order of channels and the sideband by one sign; for the %s sideband "
                    "the files have the channels in the other order",
                    br_sideband_name(s->sideband));
    if (s->sideband == BR_SIDEBAND_UNKNOWN)
        writer_note(f,
                    "the sideband of the channels is not known; readers will take %s from the sign of OBSBW. "
                    "State it: `stream: {sideband: upper}` or `lower`",
                    h.obsbw_mhz > 0 ? "upper" : "lower");
    if (!freq) writer_loses(f, "the frequencies (channels must be equally spaced)");
    if (!widths) writer_loses(f, "the channel widths (a channel is as wide as their spacing)");
    return BR_OK;
}

static int start(struct file_writer *f)
{
    return writer_name(f, 0);
}

/* [time][freq][pol][dish] -> [dish][freq][time][pol], int8 pairs. */
static size_t reorder(const struct file_writer *f, const struct br_stream *s, const struct br_frame *frame,
                      uint8_t *out)
{
    const uint8_t *in = frame->data;
    bool narrow = s->array.dtype == BR_INT4X2, reversed = reverses(s);
    size_t nt = (size_t)frame->samples, nf = s->nchannels, np = f->npol, nd = f->ndish;
    uint8_t *to = out;
    for (size_t d = 0; d < nd; d++)
        for (size_t c = 0; c < nf; c++)
            for (size_t t = 0; t < nt; t++)
                for (size_t p = 0; p < np; p++, to += 2) {
                    size_t at = ((t * nf + (reversed ? nf - 1 - c : c)) * np + p) * nd + d;
                    if (narrow) {
                        to[0] = (uint8_t)(((in[at] & 15) ^ 8) - 8);
                        to[1] = (uint8_t)(((in[at] >> 4) ^ 8) - 8);
                    } else {
                        memcpy(to, in + 2 * at, 2);
                    }
                }
    return (size_t)(to - out);
}

/* Completes the current file, if there is one; after a failure (`why`) as far as it goes. */
static int close_file(struct file_writer *f, int why)
{
    struct guppi_out *g = f->state;
    FILE *file = g->file;
    g->file = NULL;
    return file != NULL ? writer_end_stream(f, file, g->bytes, "blocks", why) : BR_OK;
}

static int put(struct file_writer *f, const struct br_frame *frame)
{
    const struct br_stream *s = f->stream;
    char text[HEADER];
    struct guppi_out *g = f->state;
    if (frame->samples != g->block && close_file(f, 0) != BR_OK) return f->error.status;
    g->block = frame->samples;
    if (g->file == NULL) {
        g->file = writer_stream(f, f->files);
        if (g->file == NULL) return f->error.status;
    }
    size_t head = put_header(f, s, frame->first, frame->samples, text),
           bytes = reorder(f, s, frame, f->bytes);
    g->bytes = head + bytes;
    if (fwrite(text, 1, head, g->file) == head && fwrite(f->bytes, 1, bytes, g->file) == bytes) return BR_OK;
    return close_file(f, errno);
}

static int stop(struct file_writer *f)
{
    return close_file(f, 0);
}

const struct writer_format guppi_files =
    WRITER_FORMAT("guppi", "raw", guppi_out, .wide = true, .says_sideband = true, .refuses = refuses,
                  .open = start, .close = stop);
