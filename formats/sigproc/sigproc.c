#include "formats/sigproc/sigproc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct channel {
    double freq, width;
    unsigned delay;
    uint32_t index;
};

static int falling(const void *a, const void *b)
{
    const struct channel *x = a, *y = b;
    if (x->freq != y->freq) return x->freq > y->freq ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static bool same_kind(const struct channel *a, const struct channel *b)
{
    return a->delay == b->delay && fabs(a->width - b->width) <= 1e-6 * a->width;
}

/* How many channels from the first on lie at first - i * spacing, within a hundredth of the spacing. */
static size_t spaced(const struct channel *c, size_t count, double spacing)
{
    size_t n = 1;
    while (n < count && fabs(c[0].freq - (double)n * spacing - c[n].freq) <= 0.01 * spacing) n++;
    return n;
}

static struct sigproc_band make_band(const struct channel *c, size_t n, const uint32_t *order)
{
    double spacing = n > 1 ? (c[0].freq - c[n - 1].freq) / (double)(n - 1) : c[0].width;
    return (struct sigproc_band){
        .nchannels = n, .channel = order, .fch1_mhz = c[0].freq, .foff_mhz = -spacing, .delay = c[0].delay};
}

size_t sigproc_bands(const struct br_stream *stream, struct sigproc_band *bands, uint32_t *order)
{
    size_t count = stream->nchannels, nbands = 0;
    struct channel *c = malloc((count > 0 ? count : 1) * sizeof *c);
    if (c == NULL) return 0;
    for (size_t i = 0; i < count; i++)
        c[i] = (struct channel){stream->freq_mhz[i], stream->width_mhz[i], 0, (uint32_t)i};
    for (unsigned z = 0; z < stream->nzones; z++)
        for (size_t i = 0; i < stream->zone[z].nchannels; i++)
            if (stream->zone[z].first_channel + i < count)
                c[stream->zone[z].first_channel + i].delay = stream->zone[z].delay;
    qsort(c, count, sizeof *c, falling);
    for (size_t i = 0; i < count; i++) order[i] = c[i].index;

    for (size_t at = 0; at < count;) {
        size_t kind = 1;
        while (at + kind < count && same_kind(&c[at], &c[at + kind])) kind++;
        for (size_t end = at + kind; at < end;) {
            /* channels further apart than they are wide are not neighbours */
            double step = at + 1 < end ? c[at].freq - c[at + 1].freq : 0;
            bool neighbours = step > 0 && step <= 1.01 * c[at].width;
            size_t n = neighbours ? spaced(&c[at], end - at, step) : 1;
            bands[nbands++] = make_band(&c[at], n, order + at);
            at += n;
        }
    }
    free(c);
    return nbands;
}

/* --- the header: all numbers little-endian, names and texts with their length before them
 * -------------------------------------- */

struct out {
    uint8_t *at;
};

static void put_bytes(struct out *out, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) *out->at++ = (uint8_t)(value >> 8 * i);
}

static void put_text(struct out *out, const char *text)
{
    size_t length = strnlen(text, 79);
    put_bytes(out, length, 4);
    memcpy(out->at, text, length);
    out->at += length;
}

static void put_int(struct out *out, const char *name, int value)
{
    put_text(out, name);
    put_bytes(out, (uint32_t)value, 4);
}

static void put_real(struct out *out, const char *name, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_text(out, name);
    put_bytes(out, bits, 8);
}

size_t sigproc_format(uint8_t *buffer, const struct sigproc_header *h)
{
    struct out out = {buffer};
    put_text(&out, "HEADER_START");
    put_text(&out, "rawdatafile");
    put_text(&out, h->rawdatafile);
    put_text(&out, "source_name");
    put_text(&out, h->source_name);
    put_int(&out, "machine_id", h->machine_id);
    put_int(&out, "telescope_id", h->telescope_id);
    put_int(&out, "data_type", 1);
    put_int(&out, "barycentric", 0);
    put_int(&out, "pulsarcentric", 0);
    put_real(&out, "src_raj", h->src_raj);
    put_real(&out, "src_dej", h->src_dej);
    put_real(&out, "az_start", h->az_start_deg);
    put_real(&out, "za_start", h->za_start_deg);
    put_real(&out, "fch1", h->fch1_mhz);
    put_real(&out, "foff", h->foff_mhz);
    put_int(&out, "nchans", h->nchans);
    put_int(&out, "nbeams", h->nbeams);
    put_int(&out, "ibeam", h->ibeam);
    put_int(&out, "nbits", h->nbits);
    put_real(&out, "tstart", h->tstart_mjd);
    put_real(&out, "tsamp", h->tsamp_s);
    put_int(&out, "nifs", 1);
    put_text(&out, "HEADER_END");
    return (size_t)(out.at - buffer);
}

double sigproc_angle(double value)
{
    double seconds = nearbyint(fabs(value) * 3600e4) / 1e4; /* never 60 of them */
    double whole = floor(seconds / 3600), minutes = floor((seconds - 3600 * whole) / 60);
    return copysign(1e4 * whole + 100 * minutes + (seconds - 3600 * whole - 60 * minutes), value);
}

double sigproc_mjd(int64_t unix_ns)
{
    const int64_t day_ns = INT64_C(86400000000000);
    int64_t day = unix_ns / day_ns, rest = unix_ns % day_ns;
    if (rest < 0) {
        day--;
        rest += day_ns;
    }
    return (double)(40587 + day) + (double)rest / (double)day_ns;
}

int64_t sigproc_arrival_ns(const struct br_stream *stream, uint64_t step, unsigned downsample, unsigned delay)
{
    double sample_ns = (double)stream->sample_ns.num / (double)stream->sample_ns.den;
    int64_t end = br_stream_time_ns(stream, step * downsample), arrival;
    bool before = __builtin_sub_overflow(end, (int64_t)llround(delay * sample_ns), &arrival);
    return before ? INT64_MIN : arrival; /* a recording's epoch may be anything */
}

/* A length and as many characters. */
static bool read_text(FILE *file, char text[81])
{
    int32_t n;
    if (fread(&n, sizeof n, 1, file) != 1 || n < 1 || n > 80 || fread(text, 1, (size_t)n, file) != (size_t)n)
        return false;
    text[n] = '\0';
    return true;
}

static bool is_one_of(const char *const *words, const char *word)
{
    while (*words != NULL && strcmp(*words, word) != 0) words++;
    return *words != NULL;
}

enum sigproc_kind sigproc_read(FILE *file, struct sigproc_value *value)
{
    static const char *const integers[] = {"machine_id",    "telescope_id", "data_type", "barycentric",
                                           "pulsarcentric", "nbits",        "nsamples",  "nchans",
                                           "nifs",          "nbeams",       "ibeam",     NULL};
    static const char *const reals[] = {"src_raj", "src_dej", "az_start", "za_start", "tstart", "tsamp",
                                        "fch1",    "foff",    "refdm",    "period",   NULL};
    char text[81];
    int32_t integer;
    value->number = 0;
    if (!read_text(file, text)) return SIGPROC_CORRUPT;
    strcpy(value->key, text);
    if (strcmp(text, "HEADER_START") == 0) return SIGPROC_START;
    if (strcmp(text, "HEADER_END") == 0) return SIGPROC_END;
    if (is_one_of(reals, text))
        return fread(&value->number, sizeof value->number, 1, file) == 1 ? SIGPROC_NUMBER : SIGPROC_CORRUPT;
    if (!is_one_of(integers, text)) return read_text(file, value->text) ? SIGPROC_TEXT : SIGPROC_CORRUPT;
    if (fread(&integer, sizeof integer, 1, file) != 1) return SIGPROC_CORRUPT;
    value->number = integer;
    return SIGPROC_NUMBER;
}
