/* VDIF: a thread for each polarisation of each dish, all channels of a sample side by side.
 *
 * A VDIF frame holds a fixed number of samples of one thread, begins a whole number of frames after a whole
 * second, and is valid as a whole or not. Pipeline frames are cut anew accordingly: what is collected here is
 * one VDIF frame of every thread. */
#include "formats/vdif/vdif.h"
#include "formats/writer.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_NUMBER = 1 << 24, MOST_FRAME = 32 << 20, LAST_EPOCH = 63, ZERO = 0x88 };
#define NS_PER_S INT64_C(1000000000)

struct vdif_out {
    unsigned log2_channels, epoch; /* half years since 2000 */
    size_t threads, spread;        /* samples in a VDIF frame */
    size_t frame_bytes;
    uint64_t rate;           /* samples in a second */
    int64_t since_1970;      /* samples from then to base sample 0 */
    uint32_t rate_word;      /* word 4: the sample rate, where it can be said */
    int64_t seconds0, unix0; /* of the reference epoch: the count of a second, and its Unix time */
    bool begun, open;
    int64_t at;     /* the VDIF frame being filled, counted from 1970 */
    size_t there;   /* samples in it that are not missing */
    uint64_t from;  /* first base sample given for it */
    uint8_t *bytes; /* [threads][frame_bytes] */
    FILE *file;
};

/* --- refuses ------------------------------------------------------------------------------------- */

static bool can_spread(const struct vdif_out *v, size_t nchannels, uint64_t spread)
{
    return v->rate % spread == 0 && v->rate / spread <= MOST_NUMBER && spread * nchannels % 8 == 0 &&
           spread * nchannels <= MOST_FRAME - VDIF_HEADER;
}

/* Samples in a VDIF frame: the user's number, or as few as can be, so that a frame is missing exactly where
 * its samples are. */
static int choose_spread(struct file_writer *f, struct vdif_out *v)
{
    uint64_t most = (MOST_FRAME - VDIF_HEADER) / f->nchannels, spread = f->vdif_samples;
    if (spread > 0 && (spread > most || !can_spread(v, f->nchannels, spread)))
        return writer_refuse(f, "vdif_samples",
                             "%" PRIu64 "; expected a divisor of the %" PRIu64
                             " samples in a second, not below 1/%d of them, so that %zu bytes each make a "
                             "multiple of 8 bytes, "
                             "at most %d",
                             spread, v->rate, MOST_NUMBER, f->nchannels, MOST_FRAME - VDIF_HEADER);
    for (uint64_t i = 1; spread == 0 && i <= most && i <= v->rate; i++)
        if (can_spread(v, f->nchannels, i)) spread = i;
    if (spread == 0)
        return writer_refuse(f, "format",
                             "vdif: no divisor of the %" PRIu64
                             " samples in a second makes a frame of whole 8 bytes with %zu "
                             "channels, which VDIF demands",
                             v->rate, f->nchannels);
    v->spread = (size_t)spread;
    v->frame_bytes = VDIF_HEADER + v->spread * f->nchannels;
    return BR_OK;
}

/* Samples from the Unix epoch to base sample 0: whole, or rounded, which is named. */
static void place_in_time(struct file_writer *f, const struct br_stream *s, struct vdif_out *v)
{
    __int128_t scaled = (__int128_t)s->epoch_ns * s->sample_ns.den, num = s->sample_ns.num,
               samples = scaled / num, rest = scaled % num;
    if (rest < 0) samples--, rest += num;
    if (2 * rest >= num) samples++, rest -= num;
    v->since_1970 = (int64_t)samples;
    if (rest != 0)
        writer_loses(f, "%.9g ns of the epoch (a second of VDIF begins with a sample)",
                     (double)rest / (double)s->sample_ns.den);
}

/* Names the values that the headers cannot express. */
static void tell_reader(struct file_writer *f, const struct br_stream *s)
{
    size_t n = s->nchannels;
    double step = n > 1 ? (s->freq_mhz[n - 1] - s->freq_mhz[0]) / (double)(n - 1) : s->width_mhz[0];
    bool even = true;
    for (size_t i = 0; i < n; i++)
        even = even && fabs(s->freq_mhz[0] + step * (double)i - s->freq_mhz[i]) < 1e-9;
    char mhz[96] = "freq_mhz: [the list of channels]";
    if (even)
        snprintf(mhz, sizeof mhz, "freq_mhz: {first: %.15g, step: %.15g, count: %zu}", s->freq_mhz[0], step,
                 n);
    writer_note(f,
                "VDIF has no frequencies, no count of samples from an epoch, and threads %zu to %zu rather "
                "than polarisations and "
                "dishes; who reads it must be told: %s, width_mhz: %.15g, sample_ns: %" PRId64 "/%" PRId64
                ", epoch_ns: %" PRId64 ", npol: %zu",
                (size_t)0, f->npol * f->ndish - 1, mhz, s->width_mhz[0], s->sample_ns.num, s->sample_ns.den,
                s->epoch_ns, f->npol);
}

static int refuses(struct file_writer *f)
{
    const struct br_stream *s = f->stream;
    struct vdif_out *v = f->state;
    v->threads = f->npol * f->ndish;
    if (v->threads > VDIF_MAX_THREADS)
        return writer_refuse(f, "format",
                             "vdif: it has at most %d threads; the input has %zu polarisations of %zu dishes",
                             VDIF_MAX_THREADS, f->npol, f->ndish);
    while ((size_t)1 << v->log2_channels < f->nchannels) v->log2_channels++;
    if ((size_t)1 << v->log2_channels != f->nchannels)
        return writer_refuse(f, "format", "vdif: its number of channels is a power of two; the input has %zu",
                             f->nchannels);
    __int128_t in_second = (__int128_t)NS_PER_S * s->sample_ns.den;
    v->rate = (uint64_t)(in_second / s->sample_ns.num);
    if (in_second % s->sample_ns.num != 0 || v->rate == 0)
        return writer_refuse(
            f, "format",
            "vdif needs a whole number of samples in a second; a sample time of %.12g ns makes %.9g",
            (double)s->sample_ns.num / (double)s->sample_ns.den,
            (double)in_second / (double)s->sample_ns.num);
    int status = choose_spread(f, v);
    if (status != BR_OK) return status;
    place_in_time(f, s, v);
    for (size_t i = 1; i < s->nchannels; i++)
        if (fabs(s->width_mhz[i] / s->width_mhz[0] - 1) > 1e-9) {
            writer_loses(f, "the channel widths (a reader knows one for all)");
            break;
        }
    uint64_t unit = v->rate % 1000000 == 0 ? 1000000 : 1000; /* EDV 1 has kHz, or MHz with bit 23 set */
    if (v->rate % unit == 0 && v->rate / unit < 1 << 23)
        v->rate_word = 1u << 24 | (unit == 1000000 ? 1u << 23 : 0) | (uint32_t)(v->rate / unit);
    tell_reader(f, s);
    return BR_OK;
}

static int start(struct file_writer *f)
{
    struct vdif_out *v = f->state;
    v->bytes = malloc(v->threads * v->frame_bytes);
    return v->bytes != NULL ? writer_name(f, 0) : writer_no_memory(f, v->threads * v->frame_bytes);
}

/* --- writing ------------------------------------------------------------------------------------- */

static void put32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> 8 * i);
}

/* Headers count seconds since the start of the half year in which the first sample is. */
static int begin(struct file_writer *f, struct vdif_out *v, int64_t sample)
{
    time_t second = (time_t)(sample / (int64_t)v->rate);
    struct tm utc;
    if (sample < 0 || gmtime_r(&second, &utc) == NULL || utc.tm_year < 100 ||
        utc.tm_year >= 100 + (LAST_EPOCH + 1) / 2)
        return br_fail(&f->error, BR_E_INVALID,
                       "the first sample is of Unix second %" PRId64
                       "; the format vdif has times of the years 2000 to 2031",
                       (int64_t)second);
    v->epoch = 2 * (unsigned)(utc.tm_year - 100) + (utc.tm_mon >= 6);
    v->unix0 = vdif_unix_seconds(&(struct vdif_header){.epoch = v->epoch});
    v->seconds0 = 0;
    v->begun = true;
    v->file = writer_stream(f, 0);
    return v->file != NULL ? BR_OK : f->error.status;
}

/* Seconds since the reference epoch, which counts leap seconds, of a Unix second. */
static uint32_t vdif_seconds(struct vdif_out *v, int64_t unix_second)
{
    struct vdif_header h = {.epoch = v->epoch, .seconds = (uint32_t)(unix_second - v->unix0 + v->seconds0)};
    while (vdif_unix_seconds(&h) < unix_second) {
        h.seconds++;
        v->seconds0++;
    }
    return h.seconds;
}

/* Completes the file; after a failure (`why`) as far as it goes. */
static int close_file(struct file_writer *f, struct vdif_out *v, int why)
{
    FILE *file = v->file;
    v->file = NULL;
    return writer_end_stream(f, file, v->threads * v->frame_bytes, "frames of every thread", why);
}

/* Writes the VDIF frame of every thread that was being filled. */
static int flush(struct file_writer *f, struct vdif_out *v)
{
    if (!v->open) return BR_OK;
    v->open = false;
    if (v->there > 0 && v->there < v->spread) {
        if (!f->lossy)
            return br_fail(&f->error, BR_E_INVALID,
                           "of the %zu samples of the VDIF frame with sample %" PRIu64
                           ", %zu are missing or before or behind the recording, "
                           "which the format vdif cannot say: `vdif_samples: 0` makes frames as short "
                           "as can be; `lossy: true` writes zeros",
                           v->spread, v->from, v->spread - v->there);
        f->unmarked += (v->spread - v->there) * f->nchannels;
    }
    int64_t sample = v->at * (int64_t)v->spread, rate = (int64_t)v->rate;
    uint32_t second = vdif_seconds(v, sample / rate), number = (uint32_t)(sample % rate / (int64_t)v->spread);
    for (size_t i = 0; i < v->threads; i++) {
        uint8_t *h = v->bytes + i * v->frame_bytes;
        memset(h, 0, VDIF_HEADER);
        put32(h, second | (v->there == 0 ? 1u << 31 : 0));
        put32(h + 4, number | v->epoch << 24);
        put32(h + 8, (uint32_t)(v->frame_bytes / 8) | v->log2_channels << 24 | 1u << 29);
        put32(h + 12, (uint32_t)i << 16 | (4u - 1) << 26 | 1u << 31);
        if (v->rate_word == 0) continue;
        put32(h + 16, v->rate_word);
        put32(h + 20, 0xacabfeed);
        memcpy(h + 24, "beamring", 8);
    }
    bool good = fwrite(v->bytes, v->frame_bytes, v->threads, v->file) == v->threads;
    return good ? BR_OK : close_file(f, v, errno);
}

/* One time step [freq][element] into place `k` of every thread's payload: offset binary differs in the sign
 * bit of each nibble. */
static void put_row(const struct file_writer *f, struct vdif_out *v, const uint8_t *in, size_t k)
{
    for (size_t e = 0; e < v->threads; e++) {
        uint8_t *to = v->bytes + e * v->frame_bytes + VDIF_HEADER + k * f->nchannels;
        for (size_t c = 0; c < f->nchannels; c++) to[c] = in[c * v->threads + e] ^ ZERO;
    }
}

static int put(struct file_writer *f, const struct br_frame *frame)
{
    struct vdif_out *v = f->state;
    int64_t first = (int64_t)frame->first + v->since_1970, spread = (int64_t)v->spread;
    int status = v->begun ? BR_OK : begin(f, v, first);
    for (size_t row = 0; row < frame->samples && status == BR_OK; row++) {
        int64_t sample = first + (int64_t)row;
        if (v->open && sample / spread != v->at) status = flush(f, v);
        if (status != BR_OK) break;
        if (!v->open) {
            v->open = true;
            v->at = sample / spread;
            v->there = 0;
            v->from = frame->first + row;
            memset(v->bytes, ZERO, v->threads * v->frame_bytes);
        }
        if (writer_row_is_missing(f, frame, row)) continue;
        put_row(f, v, (const uint8_t *)frame->data + row * f->cell * f->nchannels, (size_t)(sample % spread));
        v->there++;
    }
    return status;
}

static int stop(struct file_writer *f)
{
    struct vdif_out *v = f->state;
    int status = v->file != NULL ? flush(f, v) : BR_OK;
    if (v->file != NULL) {
        int closed = close_file(f, v, 0);
        if (status == BR_OK) status = closed;
    }
    free(v->bytes);
    v->bytes = NULL;
    return status;
}

const struct writer_format vdif_files = {.name = "vdif",
                                         .size = sizeof(struct vdif_out),
                                         .suffix = "vdif",
                                         .says_missing_rows = true,
                                         .refuses = refuses,
                                         .open = start,
                                         .put = put,
                                         .close = stop};
