#include "stages/common/formats/recording.h"

#include "stages/common/formats/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_CHANNELS = 1 << 20, MAX_ELEMENTS = 1 << 20, MAX_DOWNSAMPLE = 1 << 30 };
#define MAX_FRAME_SAMPLES (UINT64_C(1) << 40)
#define MAX_FRAME_BYTES   (UINT64_C(16) << 30)
#define MAX_SAMPLE        (UINT64_C(1) << 62) /* far below where sums overflow */
#define MOST_MHZ          1e6
#define MOST_SAMPLE_NS    1e12
#define MOST_EPOCH_NS     (INT64_C(1) << 62) /* the year 2116 */

/* The state that the parts of recording_describe share. */
struct describe {
    struct recording *out;
    const struct dada_header *header;
    const struct br_stream_hints *hints;
    const struct br_telescope *telescope;
    struct recording_memory memory;
    struct br_error *error;
};

static const char *copy_text(struct describe *d, const char *key)
{
    const char *value = dada_get(d->header, key);
    if (value == NULL) return "";
    char *copy = d->memory.alloc(d->memory.owner, strlen(value) + 1);
    return strcpy(copy, value);
}

/* "4,0,12" -> lengths; their number, or 0 when malformed. */
static size_t parse_lengths(const char *text, size_t *lengths)
{
    size_t count = 0;
    while (count < BR_MAX_AXES) {
        char word[24];
        size_t n = strcspn(text, ",");
        uint64_t value;
        if (n >= sizeof word) return 0;
        memcpy(word, text, n);
        word[n] = '\0';
        if (text_u64(word, &value) != 0 || value > SIZE_MAX / 2) return 0;
        lengths[count++] = value;
        if (text[n] == '\0') return count;
        text += n + 1;
    }
    return 0;
}

static size_t count_words(const char *text)
{
    size_t n = 1;
    for (; *text != '\0'; text++) n += *text == ',';
    return n;
}

/* The side array of the quantizer has an axis that is none of the field's, so its axes are taken as they are.
 */
static int side_array(struct describe *d, enum br_dtype dtype, const char *axes, const size_t *lengths,
                      size_t count, struct br_array *array)
{
    *array = (struct br_array){.dtype = dtype, .naxes = (unsigned)count};
    __uint128_t bits = br_dtype_bits(dtype);
    for (size_t i = 0; i < count; i++) {
        size_t n = strcspn(axes, ",");
        bits *= lengths[i];
        if (n == 0 || n >= BR_AXIS_NAME)
            return dada_bad(d->header, "AUX_AXES", d->error, "names of 1 to %d letters", BR_AXIS_NAME - 1);
        if (lengths[i] == 0 || bits > MAX_FRAME_BYTES)
            return dada_bad(d->header, "AUX_SHAPE", d->error,
                            "lengths of at least 1, in all at most %llu bytes",
                            (unsigned long long)(MAX_FRAME_BYTES / 8));
        memcpy(array->axis[i].name, axes, n);
        array->axis[i].length = lengths[i];
        axes += n + 1;
    }
    return 1;
}

/* DTYPE, AXES, SHAPE under the given prefix; the time axis stays 0 for now. 1 when present, 0 when absent. */
static int describe_array(struct describe *d, const char *prefix, struct br_array *array)
{
    char key[3][24];
    static const char *const names[3] = {"DTYPE", "AXES", "SHAPE"};
    const char *value[3];
    for (int i = 0; i < 3; i++) {
        snprintf(key[i], sizeof key[i], "%s%s", prefix, names[i]);
        value[i] = dada_get(d->header, key[i]);
    }
    if (value[0] == NULL) return 0;
    enum br_dtype dtype = br_dtype_from_name(value[0]);
    if (dtype == BR_DTYPES)
        return dada_bad(d->header, key[0], d->error,
                        "one of int4x2, int8x2, int8, uint8, int4, f16, f32, uint32");
    size_t lengths[BR_MAX_AXES];
    if (value[1] == NULL)
        return dada_bad(d->header, key[1], d->error, "the names of the axes, slowest first");
    size_t count = value[2] != NULL ? parse_lengths(value[2], lengths) : 0;
    if (count == 0 || count != count_words(value[1]))
        return dada_bad(d->header, key[2], d->error,
                        "one length for each axis of %s '%s', 0 for the streamed one", key[1], value[1]);
    if (prefix[0] != '\0') return side_array(d, dtype, value[1], lengths, count, array);
    int status = br_array_init(array, dtype, value[1], lengths, d->error);
    if (status != BR_OK) {
        br_error_context(d->error, "%s: %s '%s', %s '%s'", d->header->file, key[1], value[1], key[2],
                         value[2]);
        return status;
    }
    for (unsigned i = 0; i < array->naxes; i++)
        if (array->axis[i].length == 0 && strcmp(array->axis[i].name, "time") != 0)
            return dada_bad(d->header, key[2], d->error,
                            "lengths of at least 1 (only the time axis is 0); axis %s has 0",
                            array->axis[i].name);
    return 1;
}

static int describe_zones(struct describe *d)
{
    struct br_stream *s = &d->out->stream;
    uint64_t nzones = 0;
    int found = dada_get_u64(d->header, "NZONES", 1, BR_MAX_ZONES, &nzones, d->error);
    if (found < 0) return found;
    size_t next = 0;
    for (unsigned i = 0; i < nzones; i++) {
        char key[16], rest;
        snprintf(key, sizeof key, "ZONE_%u", i);
        const char *value = dada_get(d->header, key);
        unsigned long long first, n, factor, downsample, delay;
        if (value == NULL || strchr(value, '-') != NULL ||
            sscanf(value, "%llu,%llu,%llu,%llu,%llu%c", &first, &n, &factor, &downsample, &delay, &rest) !=
                5 ||
            first != next || n < 1 || n > MAX_CHANNELS || factor < 1 || factor > n || n % factor != 0 ||
            downsample < 1 || downsample > MAX_DOWNSAMPLE || delay > MAX_DOWNSAMPLE)
            return dada_bad(d->header, key, d->error,
                            "first channel (%zu),channels,factor,downsample,delay with whole factors", next);
        s->zone[i] = (struct br_zone){(size_t)first, (size_t)n, (unsigned)factor, (unsigned)downsample,
                                      (unsigned)delay};
        next += (size_t)n;
    }
    s->nzones = (unsigned)nzones;
    if (nzones == 0) {
        uint64_t downsample = 1;
        found = dada_get_u64(d->header, "DOWNSAMPLE", 1, MAX_DOWNSAMPLE, &downsample, d->error);
        if (found < 0) return found;
        next = br_array_length(&s->array, "freq");
        s->nzones = 1;
        s->zone[0] = (struct br_zone){0, next, 1, (unsigned)downsample, 0};
    }
    s->nchannels = next;
    return BR_OK;
}

/* SAMPLE_NS, else the hint, else TSAMP. */
static int describe_sample_time(struct describe *d)
{
    struct br_stream *s = &d->out->stream;
    const char *value = dada_get(d->header, "SAMPLE_NS");
    struct br_error why = {0};
    if (value != NULL) {
        if (br_rational_parse(value, &s->sample_ns, &why) != BR_OK)
            return dada_bad(d->header, "SAMPLE_NS", d->error, "a positive fraction p/q of nanoseconds");
        if ((double)s->sample_ns.num / (double)s->sample_ns.den > MOST_SAMPLE_NS)
            return dada_bad(d->header, "SAMPLE_NS", d->error, "at most %g", MOST_SAMPLE_NS);
        return BR_OK;
    }
    if (d->hints != NULL && d->hints->sample_ns.num > 0) {
        s->sample_ns = d->hints->sample_ns;
        return BR_OK;
    }
    value = dada_get(d->header, "TSAMP");
    if (value == NULL)
        return br_fail(d->error, BR_E_INVALID,
                       "%s: neither SAMPLE_NS nor TSAMP; give `stream: {sample_ns: ...}`", d->header->file);
    struct br_rational us;
    if (br_rational_parse(value, &us, &why) != BR_OK || us.num > INT64_MAX / 1000)
        return dada_bad(d->header, "TSAMP", d->error, "a positive number of microseconds");
    int64_t num = us.num * 1000, den = us.den, a = num, b = den;
    while (b != 0) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    s->sample_ns = (struct br_rational){num / a, den / a};
    return BR_OK;
}

static int describe_epoch(struct describe *d)
{
    struct br_stream *s = &d->out->stream;
    int found = dada_get_i64(d->header, "EPOCH_NS", &s->epoch_ns, d->error);
    if (found > 0 && (s->epoch_ns > MOST_EPOCH_NS || s->epoch_ns < -MOST_EPOCH_NS))
        return dada_bad(d->header, "EPOCH_NS", d->error, "nanoseconds since 1970, up to 2^62");
    if (found != 0) return found < 0 ? found : BR_OK;
    if (d->hints != NULL && d->hints->have_epoch) {
        s->epoch_ns = d->hints->epoch_ns;
        return BR_OK;
    }
    const char *utc = dada_get(d->header, "UTC_START"), *mjd = dada_get(d->header, "MJD_START");
    if (utc != NULL) {
        if (text_utc(utc, &s->epoch_ns) != 0)
            return dada_bad(d->header, "UTC_START", d->error, "yyyy-mm-dd-hh:mm:ss[.fraction]");
        return BR_OK;
    }
    if (mjd != NULL) {
        if (text_mjd(mjd, &s->epoch_ns) != 0)
            return dada_bad(d->header, "MJD_START", d->error, "a modified Julian date");
        return BR_OK;
    }
    return br_fail(d->error, BR_E_INVALID,
                   "%s: none of EPOCH_NS, UTC_START, MJD_START; give `stream: {epoch_ns: ...}`",
                   d->header->file);
}

static int describe_frequencies(struct describe *d)
{
    struct br_stream *s = &d->out->stream;
    size_t n = s->nchannels;
    double *freq = d->memory.alloc(d->memory.owner, n * sizeof *freq);
    double *width = d->memory.alloc(d->memory.owner, n * sizeof *width);
    s->freq_mhz = freq;
    s->width_mhz = width;
    double critical = 1e3 * (double)s->sample_ns.den / (double)s->sample_ns.num;
    int found = dada_get_reals(d->header, "FREQ_MHZ", n, freq, d->error);
    if (found < 0) return found;
    if (found > 0) {
        size_t widths = dada_count_reals(d->header, "WIDTH_MHZ", n);
        found = dada_get_reals(d->header, "WIDTH_MHZ", widths == 1 ? 1 : n, width, d->error);
        if (found < 0) return found;
        for (size_t i = found && widths > 1 ? n : 1; i < n; i++) width[i] = width[0];
        if (!found)
            for (size_t i = 0; i < n; i++) width[i] = critical;
    } else if (d->hints != NULL && d->hints->nfreq > 0) {
        if (d->hints->nfreq != n)
            return br_fail(d->error, BR_E_INVALID, "%s has %zu channels; `stream: freq_mhz` lists %zu",
                           d->header->file, n, d->hints->nfreq);
        memcpy(freq, d->hints->freq_mhz, n * sizeof *freq);
        for (size_t i = 0; i < n; i++) width[i] = d->hints->width_mhz > 0 ? d->hints->width_mhz : critical;
    } else {
        double centre, band;
        int has = dada_get_real(d->header, "FREQ", &centre, d->error);
        if (has < 0) return has;
        int has_band = dada_get_real(d->header, "BW", &band, d->error);
        if (has_band < 0) return has_band;
        if (!has || !has_band)
            return br_fail(d->error, BR_E_INVALID,
                           "%s: neither FREQ_MHZ nor both of FREQ and BW; give `stream: {freq_mhz: ...}`",
                           d->header->file);
        for (size_t i = 0; i < n; i++) {
            freq[i] = centre + band * (((double)i + 0.5) / (double)n - 0.5);
            width[i] = fabs(band) / (double)n;
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (!(freq[i] > 0 && freq[i] <= MOST_MHZ))
            return br_fail(d->error, BR_E_FORMAT,
                           "%s: the frequency of channel %zu is %g MHz; expected more than 0, at most %g",
                           d->header->file, i, freq[i], MOST_MHZ);
        if (!(width[i] > 0 && width[i] <= MOST_MHZ))
            return br_fail(d->error, BR_E_FORMAT,
                           "%s: the width of channel %zu is %g MHz; expected more than 0, at most %g",
                           d->header->file, i, width[i], MOST_MHZ);
    }
    return BR_OK;
}

/* Beam directions; absent ones stay NULL. */
static int describe_beams(struct describe *d)
{
    struct br_stream *s = &d->out->stream;
    if (br_array_axis(&s->array, "beam") < 0) return BR_OK;
    s->nbeams = br_array_length(&s->array, "beam");
    if (s->nbeams > MAX_ELEMENTS)
        return dada_bad(d->header, "SHAPE", d->error, "at most %d beams", MAX_ELEMENTS);
    if (dada_get(d->header, "BEAMS_XY") == NULL) return BR_OK;
    struct br_beam *beams = d->memory.alloc(d->memory.owner, s->nbeams * sizeof *beams);
    double *flat = d->memory.alloc(d->memory.owner, 2 * s->nbeams * sizeof *flat);
    int found = dada_get_reals(d->header, "BEAMS_XY", 2 * s->nbeams, flat, d->error);
    if (found < 0) return found;
    for (size_t i = 0; i < s->nbeams; i++) beams[i] = (struct br_beam){flat[2 * i], flat[2 * i + 1]};
    s->beams = beams;
    const char *grid = dada_get(d->header, "BEAMS_GRID");
    if (grid == NULL) return BR_OK;
    size_t n[BR_MAX_AXES];
    if (parse_lengths(grid, n) != 2 || n[0] == 0 || n[1] == 0 || n[0] > s->nbeams || n[0] * n[1] != s->nbeams)
        return dada_bad(d->header, "BEAMS_GRID", d->error, "two numbers whose product is %zu beams",
                        s->nbeams);
    s->beams_x = n[0];
    s->beams_y = n[1];
    return BR_OK;
}

/* FRAME_SAMPLES, and with it the length of the time axis. */
static int describe_frame(struct describe *d)
{
    struct br_stream *s = &d->out->stream;
    uint64_t frame = 0;
    int found = dada_get_u64(d->header, "FRAME_SAMPLES", 1, MAX_FRAME_SAMPLES, &frame, d->error);
    if (found < 0) return found;
    if (!found) return dada_bad(d->header, "FRAME_SAMPLES", d->error, "base samples in a full frame");
    for (unsigned i = 0; i < s->nzones; i++)
        if (frame % s->zone[i].downsample != 0)
            return dada_bad(d->header, "FRAME_SAMPLES", d->error,
                            "a multiple of the downsampling %u of zone %u", s->zone[i].downsample, i);
    s->frame_samples = frame;
    bool zoned = br_stream_is_zoned(s);
    int time = br_array_axis(&s->array, "time");
    if (time < 0) return dada_bad(d->header, "AXES", d->error, "a time axis");
    if (s->array.axis[time].length != 0)
        return dada_bad(d->header, "SHAPE", d->error, "0 for the time axis, which is the streamed one");
    char axes[BR_MAX_AXES * (BR_AXIS_NAME + 1)] = "";
    size_t lengths[BR_MAX_AXES];
    for (unsigned i = 0; i < s->array.naxes; i++) {
        if (i > 0) strcat(axes, ",");
        strcat(axes, s->array.axis[i].name);
        lengths[i] = s->array.axis[i].length;
    }
    lengths[time] = (size_t)(zoned ? frame : frame / s->zone[0].downsample);
    int status = br_array_init(&s->array, s->array.dtype, axes, lengths, d->error);
    if (status == BR_OK && br_array_bytes(&s->array) > MAX_FRAME_BYTES)
        status = br_fail(d->error, BR_E_FORMAT, "frames would have %zu bytes; expected at most %llu",
                         br_array_bytes(&s->array), (unsigned long long)MAX_FRAME_BYTES);
    if (status != BR_OK)
        br_error_context(d->error, "%s: FRAME_SAMPLES '%s'", d->header->file,
                         dada_get(d->header, "FRAME_SAMPLES"));
    return status;
}

/* A length from the header or from the pipeline, which must agree. */
static int agree(struct describe *d, const char *key, const char *axis, size_t given, const char *giver,
                 size_t fallback, size_t *length)
{
    uint64_t value = 0;
    int found = dada_get_u64(d->header, key, 1, MAX_ELEMENTS, &value, d->error);
    if (found < 0) return found;
    if (found && given > 0 && given != value)
        return br_fail(d->error, BR_E_INVALID,
                       "%s: %s is %llu, but %s has %zu: the recording's shape contradicts it",
                       d->header->file, key, (unsigned long long)value, giver, given);
    if (!found) value = given > 0 ? given : fallback;
    if (value == 0)
        return br_fail(d->error, BR_E_INVALID, "%s: %s is missing and %s does not say how many (%s axis)",
                       d->header->file, key, giver, axis);
    *length = (size_t)value;
    return BR_OK;
}

static int expect(struct describe *d, const char *key, const char *wanted, const char *why)
{
    const char *value = dada_get(d->header, key);
    if (value == NULL || strcmp(value, wanted) == 0) return BR_OK;
    return dada_bad(d->header, key, d->error, "%s (%s)", wanted, why);
}

/* A file without our keys: the electric field, E[time][freq][pol][dish], 4+4 or 8+8 bit. */
static int describe_external(struct describe *d)
{
    struct br_stream *s = &d->out->stream;
    const char *why = "a file without DTYPE holds complex 4+4-bit or 8+8-bit E[time][freq][pol][dish]",
               *bits = dada_get(d->header, "NBIT");
    bool wide = bits != NULL && strcmp(bits, "8") == 0;
    int status = wide ? BR_OK : expect(d, "NBIT", "4", why);
    if (status == BR_OK) status = expect(d, "NDIM", "2", why);
    if (status == BR_OK) status = expect(d, "ORDER", "TFPA", why);
    size_t f, p, n;
    const struct br_stream_hints *hints = d->hints;
    if (status == BR_OK)
        status = agree(d, "NCHAN", "freq", hints ? hints->nfreq : 0, "`stream: freq_mhz`", 0, &f);
    if (status == BR_OK) status = agree(d, "NPOL", "pol", hints ? hints->npol : 0, "`stream: npol`", 0, &p);
    if (status == BR_OK)
        status =
            agree(d, "NANT", "dish", d->telescope ? d->telescope->ndishes : 0, "`telescope: dishes`", 0, &n);
    if (status != BR_OK) return status;
    /* one step a frame until the reader chooses */
    status = br_array_init(&s->array, wide ? BR_INT8X2 : BR_INT4X2, "time,freq,pol,dish",
                           (size_t[]){1, f, p, n}, d->error);
    if (status != BR_OK) {
        br_error_context(d->error, "%s", d->header->file);
        return status;
    }
    s->frame_samples = 1;
    s->nzones = 1;
    s->zone[0] = (struct br_zone){0, f, 1, 1, 0};
    s->nchannels = f;
    s->scale = 1;
    return BR_OK;
}

static int describe_own(struct describe *d)
{
    struct br_stream *s = &d->out->stream;
    int status = describe_zones(d);
    if (status == BR_OK) status = describe_frame(d);
    if (status != BR_OK) return status;
    if (s->nchannels > MAX_CHANNELS)
        return dada_bad(d->header, "SHAPE", d->error, "at most %d channels", MAX_CHANNELS);
    s->scale = 1;
    int found = dada_get_real(d->header, "SCALE", &s->scale, d->error);
    if (found < 0) return found;
    if (!(s->scale > 0)) return dada_bad(d->header, "SCALE", d->error, "a number above 0");
    found = describe_array(d, "AUX_", &s->side);
    return found < 0 ? found : BR_OK;
}

/* Which coding: what the user said, else the hint or the header's own word for a file without our keys. */
static int describe_coding(struct describe *d, const char *coding)
{
    struct recording *r = d->out;
    const char *said = coding;
    if (said == NULL && !r->own && d->hints != NULL) said = d->hints->coding;
    if (said == NULL) said = dada_get(d->header, "CODING");
    if (said == NULL) said = "int4x2";
    r->coding = coding_from_name(said);
    if (r->coding == CODING_UNKNOWN)
        return br_fail(d->error, BR_E_INVALID,
                       "%s: the coding '%s' is unknown; expected int4x2, chime or vdif", d->header->file,
                       said);
    if (r->coding != CODING_INT4X2 && r->stream.array.dtype != BR_INT4X2)
        return br_fail(d->error, BR_E_INVALID, "%s: coding %s does not go with DTYPE %s", d->header->file,
                       said, br_dtype_name(r->stream.array.dtype));
    return BR_OK;
}

static int describe_position(struct describe *d)
{
    struct recording *r = d->out;
    const struct dada_header *h = d->header;
    uint64_t offset = 0;
    int found = dada_get_u64(h, "OBS_OFFSET", 0, UINT64_MAX, &offset, d->error);
    if (found < 0) return found;
    found = dada_get_u64(h, "SAMPLE0", 0, MAX_SAMPLE, &r->first, d->error);
    if (found < 0) return found;
    if (!found) {
        uint64_t start = d->hints != NULL && d->hints->have_sample0 ? d->hints->sample0 : 0;
        if (!r->flat && offset != 0) return dada_bad(h, "SAMPLE0", d->error, "the first sample of the file");
        if (r->flat && offset % r->row_bytes != 0)
            return dada_bad(h, "OBS_OFFSET", d->error, "a multiple of the %zu bytes of a time step",
                            r->row_bytes);
        r->first = start + (r->flat ? offset / r->row_bytes * r->stream.zone[0].downsample : 0);
        if (start > MAX_SAMPLE || r->first > MAX_SAMPLE)
            return dada_bad(h, "OBS_OFFSET", d->error, "a start below sample 2^62");
    }
    found = dada_get_u64(h, "SAMPLES", 0, MAX_SAMPLE, &r->samples, d->error);
    if (found < 0) return found;
    found = dada_get_u64(h, "FILE_NUMBER", 0, UINT64_MAX, &r->number, d->error);
    if (found < 0) return found;
    r->numbered = found > 0;
    found = dada_get_u64(h, "FILE_SIZE", 0, UINT64_MAX, &r->announced, d->error);
    return found < 0 ? found : BR_OK;
}

static int check_telescope(struct describe *d)
{
    struct br_stream *s = &d->out->stream;
    if (d->telescope != NULL && br_array_axis(&s->array, "dish") >= 0 &&
        br_array_length(&s->array, "dish") != d->telescope->ndishes)
        return br_fail(
            d->error, BR_E_INVALID,
            "%s: SHAPE has %zu dishes, but the telescope '%s' has %u: the recording's shape contradicts it",
            d->header->file, br_array_length(&s->array, "dish"), d->telescope->name, d->telescope->ndishes);
    if (d->out->own && d->hints != NULL && d->hints->npol > 0 && br_array_axis(&s->array, "pol") >= 0 &&
        br_array_length(&s->array, "pol") != d->hints->npol)
        return br_fail(
            d->error, BR_E_INVALID,
            "%s: SHAPE has %zu polarisations, but `stream: npol` is %u: the recording's shape contradicts it",
            d->header->file, br_array_length(&s->array, "pol"), d->hints->npol);
    s->telescope = d->telescope;
    int status = br_stream_check(s, d->error);
    if (status != BR_OK) br_error_context(d->error, "%s", d->header->file);
    return status;
}

int recording_describe(struct recording *recording, const struct dada_header *header,
                       const struct br_stream_hints *hints, const struct br_telescope *telescope,
                       const char *coding, struct recording_memory memory, struct br_error *error)
{
    struct describe d = {recording, header, hints, telescope, memory, error};
    memset(recording, 0, sizeof *recording);
    struct br_stream *s = &recording->stream;
    recording->payload_offset = header->size;
    recording->obs_id = copy_text(&d, "OBS_ID");
    recording->telescope = copy_text(&d, "TELESCOPE");
    recording->source = copy_text(&d, "SOURCE");
    int found = describe_array(&d, "", &s->array);
    if (found < 0) return found;
    recording->own = found > 0;
    int status = recording->own ? describe_own(&d) : describe_external(&d);
    if (status == BR_OK) status = describe_sample_time(&d);
    if (status == BR_OK) status = describe_epoch(&d);
    if (status == BR_OK) status = describe_frequencies(&d);
    if (status == BR_OK) status = describe_beams(&d);
    if (status == BR_OK) status = describe_coding(&d, coding);
    if (status == BR_OK) status = check_telescope(&d);
    if (status != BR_OK) return status;
    recording->flat = recording_is_flat(s, &recording->row_bytes);
    return describe_position(&d);
}
