#include "formats/vdif/encode.h"
#include "formats/common/axes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_NUMBER = 1 << 24, MOST_FRAME = 32 << 20, LAST_EPOCH = 63 };
#define NS_PER_S INT64_C(1000000000)

/* --- sizes --------------------------------------------------------------------------------------- */

static bool can_spread(const struct vdif_encoder *e, uint64_t spread, size_t most_bytes)
{
    uint64_t bytes = spread * e->nchannels * e->unit;
    return e->rate % spread == 0 && e->rate / spread <= MOST_NUMBER && bytes % 8 == 0 &&
           bytes <= most_bytes - VDIF_HEADER;
}

static int choose_spread(struct vdif_encoder *e, uint64_t spread, size_t most_bytes, bool *of_samples,
                         struct br_error *error)
{
    size_t room = most_bytes > 0 ? most_bytes : MOST_FRAME, row = e->nchannels * e->unit;
    uint64_t most = (room - VDIF_HEADER) / row;
    *of_samples = spread > 0;
    if (spread > 0 && (spread > most || !can_spread(e, spread, room)))
        return br_fail(error, BR_E_INVALID,
                       "%" PRIu64 "; expected a divisor of the %" PRIu64
                       " samples in a second, not below 1/%d of them, so that %zu bytes each make a "
                       "multiple of 8 bytes, "
                       "at most %zu",
                       spread, e->rate, MOST_NUMBER, row, room - VDIF_HEADER);
    for (uint64_t i = 1; *of_samples == false && i <= most && i <= e->rate; i++) {
        if (can_spread(e, i, room)) spread = i;
        if (spread > 0 && most_bytes == 0) break;
    }
    if (spread == 0)
        return br_fail(error, BR_E_INVALID,
                       "vdif: no divisor of the %" PRIu64
                       " samples in a second makes a frame of whole 8 bytes, at most %zu, with %zu "
                       "channels of %zu bytes, which VDIF demands",
                       e->rate, room - VDIF_HEADER, e->nchannels, e->unit);
    e->spread = (size_t)spread;
    e->frame_bytes = VDIF_HEADER + e->spread * row;
    return BR_OK;
}

/* Samples from the Unix epoch to base sample 0. */
static void place_in_time(struct vdif_encoder *e, const struct br_stream *s)
{
    __int128_t scaled = (__int128_t)s->epoch_ns * s->sample_ns.den, num = s->sample_ns.num,
               samples = scaled / num, rest = scaled % num;
    if (rest < 0) samples--, rest += num;
    if (2 * rest >= num) samples++, rest -= num;
    e->since_1970 = (int64_t)samples;
    e->rounded_ns = (double)rest / (double)s->sample_ns.den;
}

/* The input's axes: E, or J. */
static int take_axes(struct vdif_encoder *e, const struct br_stream *s, struct br_error *error)
{
    const struct br_array *a = &s->array;
    char text[160];
    e->beams = axes_are(a, "beam,freq,pol,time");
    if ((!e->beams && !axes_are(a, "time,freq,pol,dish")) || (a->dtype != BR_INT4X2 && a->dtype != BR_INT8X2))
        return br_fail(error, BR_E_INVALID,
                       "its input is %s; VDIF holds E[time][freq][pol][dish] or J[beam][freq][pol][time], in "
                       "int4x2 or int8x2",
                       br_array_format(a, text, sizeof text));
    if (br_stream_is_zoned(s) || s->zone[0].downsample != 1 || s->zone[0].factor != 1)
        return br_fail(error, BR_E_INVALID,
                       "its input is upchannelized or downsampled; VDIF holds channels as the F-engine makes "
                       "them");
    e->unit = a->dtype == BR_INT8X2 ? 2 : 1;
    e->nchannels = s->nchannels;
    e->npol = br_array_length(a, "pol");
    e->rows = br_array_length(a, e->beams ? "beam" : "dish");
    e->threads = e->pitch = e->npol * e->rows;
    return BR_OK;
}

int vdif_encoder_init(struct vdif_encoder *e, const struct br_stream *s, uint64_t samples, size_t most_bytes,
                      bool *of_samples, struct br_error *error)
{
    memset(e, 0, sizeof *e);
    *of_samples = false;
    int status = take_axes(e, s, error);
    if (status != BR_OK) return status;
    size_t part = e->nchannels & -e->nchannels; /* the largest power of two that divides it */
    while ((size_t)1 << e->log2_channels < e->nchannels) e->log2_channels++;
    if (part != e->nchannels)
        return br_fail(error, BR_E_INVALID,
                       "vdif: its number of channels is a power of two; the input has %zu. Divide the band "
                       "before%s (`part: {index: 0, count: %zu}` of replay; fewer streams of capture), or "
                       "record DADA files",
                       e->nchannels, e->beams ? " the beams are made" : "", e->nchannels / part);
    __int128_t in_second = (__int128_t)NS_PER_S * s->sample_ns.den;
    e->rate = (uint64_t)(in_second / s->sample_ns.num);
    if (in_second % s->sample_ns.num != 0 || e->rate == 0)
        return br_fail(
            error, BR_E_INVALID,
            "vdif needs a whole number of samples in a second; a sample time of %.12g ns makes %.9g: record "
            "DADA files",
            (double)s->sample_ns.num / (double)s->sample_ns.den,
            (double)in_second / (double)s->sample_ns.num);
    status = choose_spread(e, samples, most_bytes, of_samples, error);
    if (status != BR_OK) return status;
    place_in_time(e, s);
    uint64_t unit = e->rate % 1000000 == 0 ? 1000000 : 1000; /* EDV 1 has kHz, or MHz with bit 23 set */
    if (e->rate % unit == 0 && e->rate / unit < 1 << 23)
        e->rate_word = 1u << 24 | (unit == 1000000 ? 1u << 23 : 0) | (uint32_t)(e->rate / unit);
    return BR_OK;
}

bool vdif_station(const char *text, uint16_t *station)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);
    if (strlen(text) == 2 && *end != '\0' && text[0] > ' ' && text[0] < 127 && text[1] >= ' ' &&
        text[1] < 127) {
        *station = (uint16_t)(text[0] | text[1] << 8);
        return true;
    }
    *station = (uint16_t)number;
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && number <= UINT16_MAX;
}

int vdif_encoder_start(struct vdif_encoder *e)
{
    e->bytes = malloc(e->threads * e->frame_bytes);
    e->there = calloc(e->threads, sizeof *e->there);
    if (e->bytes != NULL && e->there != NULL) return BR_OK;
    return br_fail(&e->error, BR_E_NO_MEMORY, "not enough memory: %.1f MiB needed",
                   (double)(e->threads * e->frame_bytes) / 1048576);
}

void vdif_encoder_free(struct vdif_encoder *e)
{
    free(e->bytes);
    free(e->there);
    e->bytes = NULL;
    e->there = NULL;
}

/* --- headers ------------------------------------------------------------------------------------- */

static void put32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> 8 * i);
}

/* Headers count seconds since the start of the half year in which the first sample is. */
static int begin(struct vdif_encoder *e, int64_t sample)
{
    time_t second = (time_t)(sample / (int64_t)e->rate);
    struct tm utc;
    if (sample < 0 || gmtime_r(&second, &utc) == NULL || utc.tm_year < 100 ||
        utc.tm_year >= 100 + (LAST_EPOCH + 1) / 2)
        return br_fail(&e->error, BR_E_INVALID,
                       "the first sample is of Unix second %" PRId64
                       "; the format vdif has times of the years 2000 to 2031",
                       (int64_t)second);
    e->epoch = 2 * (unsigned)(utc.tm_year - 100) + (utc.tm_mon >= 6);
    e->unix0 = vdif_unix_seconds(&(struct vdif_header){.epoch = e->epoch});
    e->seconds0 = 0;
    e->begun = true;
    return BR_OK;
}

/* Seconds since the reference epoch, which counts leap seconds, of a Unix second. */
static uint32_t vdif_seconds(struct vdif_encoder *e, int64_t unix_second)
{
    struct vdif_header h = {.epoch = e->epoch, .seconds = (uint32_t)(unix_second - e->unix0 + e->seconds0)};
    while (vdif_unix_seconds(&h) < unix_second) {
        h.seconds++;
        e->seconds0++;
    }
    return h.seconds;
}

int vdif_encoder_flush(struct vdif_encoder *e)
{
    if (!e->open) return BR_OK;
    e->open = false;
    int64_t sample = e->at * (int64_t)e->spread, rate = (int64_t)e->rate;
    uint32_t second = vdif_seconds(e, sample / rate), number = (uint32_t)(sample % rate / (int64_t)e->spread);
    e->lacking = 0;
    for (size_t i = 0; i < e->threads; i++) {
        uint8_t *h = e->bytes + i * e->frame_bytes;
        size_t lacks = e->there[i] > 0 ? e->spread - e->there[i] : 0;
        if (lacks > e->lacking) e->lacking = lacks;
        e->zeros += lacks * e->nchannels;
        memset(h, 0, VDIF_HEADER);
        put32(h, second | (e->there[i] == 0 ? 1u << 31 : 0));
        put32(h + 4, number | e->epoch << 24);
        put32(h + 8, (uint32_t)(e->frame_bytes / 8) | e->log2_channels << 24 | 1u << 29);
        put32(h + 12, e->station | (uint32_t)i << 16 | (uint32_t)(4 * e->unit - 1) << 26 | 1u << 31);
        if (e->rate_word == 0) continue;
        put32(h + 16, e->rate_word);
        put32(h + 20, 0xacabfeed);
        memcpy(h + 24, "beamring", 8);
    }
    return e->sink(e->owner, e);
}

/* --- samples ------------------------------------------------------------------------------------- */

/* Zero in offset binary, which differs from two's complement in the sign bit of each component. */
static uint8_t zero_of(const struct vdif_encoder *e)
{
    return e->unit == 1 ? 0x88 : 0x80;
}

/* One time step [freq][element] of E into place `k` of every thread's payload. */
static void put_row(const struct vdif_encoder *e, const uint8_t *in, size_t k)
{
    size_t row = e->nchannels * e->unit;
    uint8_t zero = zero_of(e);
    for (size_t i = 0; i < e->threads; i++) {
        uint8_t *to = e->bytes + i * e->frame_bytes + VDIF_HEADER + k * row;
        const uint8_t *from = in + (e->first + i) * e->unit;
        for (size_t c = 0; c < e->nchannels; c++, from += e->pitch * e->unit)
            for (size_t u = 0; u < e->unit; u++) *to++ = from[u] ^ zero;
        e->there[i]++;
    }
}

/* Steps [t, t + n) of J, of `nsteps`, into places `k` on of every thread's payload. A sample is missing where
 * it is so in all channels; in a single one it becomes zero. */
static void put_steps(struct vdif_encoder *e, const uint8_t *in, size_t nsteps, size_t t, size_t n, size_t k)
{
    size_t row = e->nchannels * e->unit;
    uint8_t zero = zero_of(e), missing = e->unit == 1 ? 0x88 : 0x80; /* (-8, -8) or (-128, -128) */
    for (size_t i = 0; i < e->threads; i++) {
        size_t beam = (e->first + i) / e->npol, pol = (e->first + i) % e->npol;
        uint8_t *to = e->bytes + i * e->frame_bytes + VDIF_HEADER + k * row;
        for (size_t s = 0; s < n; s++) {
            size_t lacks = 0;
            for (size_t c = 0; c < e->nchannels; c++, to += e->unit) {
                const uint8_t *from =
                    in + (((beam * e->nchannels + c) * e->npol + pol) * nsteps + t + s) * e->unit;
                if (from[0] == missing && from[e->unit - 1] == missing) {
                    lacks++; /* it is zero already */
                    continue;
                }
                for (size_t u = 0; u < e->unit; u++) to[u] = from[u] ^ zero;
            }
            if (lacks == e->nchannels) continue;
            e->there[i]++;
            e->zeros += lacks;
        }
    }
}

static bool row_is_missing(const struct vdif_encoder *e, const struct br_frame *frame, size_t row)
{
    if (frame->complete) return false;
    for (size_t c = 0; c < e->nchannels; c++)
        if (frame->valid[row * e->nchannels + c] != BR_MISSING) return false;
    return true;
}

int vdif_encoder_put(struct vdif_encoder *e, const struct br_frame *frame)
{
    int64_t first = (int64_t)frame->first + e->since_1970, spread = (int64_t)e->spread;
    size_t nsteps = (size_t)frame->samples, n;
    int status = e->begun ? BR_OK : begin(e, first);
    for (size_t t = 0; t < nsteps && status == BR_OK; t += n) {
        int64_t sample = first + (int64_t)t;
        size_t k = (size_t)(sample % spread);
        n = nsteps - t < e->spread - k ? nsteps - t : e->spread - k;
        if (e->open && sample / spread != e->at) status = vdif_encoder_flush(e);
        if (status != BR_OK) break;
        if (!e->open) {
            e->open = true;
            e->at = sample / spread;
            e->from = frame->first + t;
            memset(e->bytes, zero_of(e), e->threads * e->frame_bytes);
            memset(e->there, 0, e->threads * sizeof *e->there);
        }
        if (e->beams) {
            put_steps(e, frame->data, nsteps, t, n, k);
            continue;
        }
        const uint8_t *in = frame->data;
        size_t row = e->pitch * e->nchannels * e->unit;
        for (size_t i = 0; i < n; i++)
            if (!row_is_missing(e, frame, t + i)) put_row(e, in + (t + i) * row, k + i);
    }
    return status;
}
