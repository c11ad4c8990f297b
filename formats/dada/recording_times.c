/* recording_times.c - times, frequencies, coding and place in time of a recording: what the header says, by
 * our keys or by the usual ones, against what the user says (hints.h). */
#include "formats/dada/recording_describe.h"

#include "formats/common/hints.h"
#include "formats/common/text.h"

#include <math.h>
#include <string.h>

#define MAX_SAMPLE     (UINT64_C(1) << 62) /* far below where sums overflow */
#define MOST_MHZ       1e6
#define MOST_SAMPLE_NS 1e12
#define MOST_EPOCH_NS  (INT64_C(1) << 62) /* the year 2116 */
#define NS_PER_DAY     86400e9

/* A number of few digits is coarse, but never so coarse that it says nothing. */
static const double most_coarse_time = 1e-4, most_coarse_channel = 1e-2;

static int reduced(int64_t num, int64_t den, struct br_rational *out)
{
    int64_t a = num, b = den;
    while (b != 0) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    *out = (struct br_rational){num / a, den / a};
    return BR_OK;
}

int describe_sample_time(struct describe *d)
{
    struct br_stream *s = &d->out->stream;
    const char *file = d->header->file, *exact = dada_get(d->header, "SAMPLE_NS"),
               *coarse = dada_get(d->header, "TSAMP");
    struct br_error why = {0};
    if (exact != NULL) {
        if (br_rational_parse(exact, &s->sample_ns, &why) != BR_OK)
            return dada_bad(d->header, "SAMPLE_NS", d->error, "a positive fraction p/q of nanoseconds");
        if ((double)s->sample_ns.num / (double)s->sample_ns.den > MOST_SAMPLE_NS)
            return dada_bad(d->header, "SAMPLE_NS", d->error, "at most %g ns", MOST_SAMPLE_NS);
        return hints_sample(d->hints, file, "SAMPLE_NS", &s->sample_ns, 0, d->error);
    }
    if (coarse == NULL) {
        s->sample_ns = d->hints->sample_ns;
        if (s->sample_ns.num > 0) return BR_OK;
        return br_fail(d->error, BR_E_INVALID,
                       "%s: neither SAMPLE_NS nor TSAMP; give `stream: {sample_ns: ...}`", file);
    }
    struct br_rational us;
    if (br_rational_parse(coarse, &us, &why) != BR_OK || us.num > INT64_MAX / 1000)
        return dada_bad(d->header, "TSAMP", d->error, "a positive number of microseconds");
    reduced(us.num * 1000, us.den, &s->sample_ns);
    double ns = (double)s->sample_ns.num / (double)s->sample_ns.den;
    if (ns > MOST_SAMPLE_NS)
        return dada_bad(d->header, "TSAMP", d->error, "at most %g microseconds", 1e-3 * MOST_SAMPLE_NS);
    return hints_sample(d->hints, file, "TSAMP (microseconds)", &s->sample_ns,
                        fmin(1e3 * hints_precision(coarse), most_coarse_time * ns), d->error);
}

/* UTC_START, with PICOSECONDS where they stand beside it. As start_time. */
static int start_utc(struct describe *d, const char *utc, int64_t *ns, double *precision_ns)
{
    const char *point = strchr(utc, '.');
    uint64_t ps = 0;
    *precision_ns = point != NULL ? 1e9 * hints_precision(point) : 1e9;
    if (text_utc(utc, ns) != 0)
        return dada_bad(d->header, "UTC_START", d->error, "yyyy-mm-dd-hh:mm:ss[.fraction]");
    int found = dada_get_u64(d->header, "PICOSECONDS", 0, UINT64_C(999999999999), &ps, d->error);
    if (found <= 0) return found;
    *ns += (int64_t)((ps + 500) / 1000);
    *precision_ns = 1;
    return 0;
}

/* Time of the first byte of an observation (OBS_OFFSET 0) by the usual keys, and to what precision it stands
 * there. Some readers take UTC_START, others MJD_START: they must agree, and the finer one counts. 1, or 0
 * when there is none. */
static int start_time(struct describe *d, const char **key, int64_t *ns, double *precision_ns)
{
    const char *utc = dada_get(d->header, "UTC_START"), *mjd = dada_get(d->header, "MJD_START");
    if (utc == NULL && mjd == NULL) return 0;
    if (utc != NULL) {
        *key = "UTC_START";
        int status = start_utc(d, utc, ns, precision_ns);
        if (status != 0) return status;
    }
    if (mjd == NULL) return 1;
    int64_t by_mjd;
    /* However many digits there are, writers compute them: a whole second may come out as 0.999999999. */
    double precision = fmax(NS_PER_DAY * hints_precision(mjd), 2);
    if (text_mjd(mjd, &by_mjd) != 0)
        return dada_bad(d->header, "MJD_START", d->error, "a modified Julian date");
    double apart = utc != NULL ? fabs((double)((__int128_t)by_mjd - *ns)) : INFINITY;
    if (utc != NULL && apart > precision + *precision_ns) {
        char text[TEXT_TIME];
        return br_fail(d->error, BR_E_FORMAT,
                       "%s: UTC_START is %s, but MJD_START, %s, is %s: correct or remove the wrong one",
                       d->header->file, utc, mjd, text_utc_format(text, by_mjd));
    }
    if (utc != NULL && (apart <= precision || precision >= *precision_ns)) return 1; /* rounded, not finer */
    *key = "MJD_START";
    *ns = by_mjd;
    *precision_ns = precision;
    return 1;
}

/* Base samples from sample 0 to the observation's first byte, where the header or the user says where that
 * lies. */
static int samples_before(struct describe *d, uint64_t *before)
{
    const struct br_stream *s = &d->out->stream;
    uint64_t first = 0, offset = 0, step = s->zone[0].downsample;
    int found = dada_get_u64(d->header, "SAMPLE0", 0, MAX_SAMPLE, &first, d->error);
    *before = found == 0 && d->hints->have_sample0 ? d->hints->sample0 : first;
    if (found <= 0) return found;
    found = dada_get_u64(d->header, "OBS_OFFSET", 0, UINT64_MAX, &offset, d->error);
    if (found < 0 || offset == 0) return found < 0 ? found : BR_OK;
    size_t row;
    if (!recording_is_flat(s, &row) || offset % row != 0 || offset / row > first / step)
        return dada_bad(d->header, "OBS_OFFSET", d->error,
                        "a whole number of time steps, not beyond SAMPLE0; or give EPOCH_NS");
    *before -= offset / row * step;
    return BR_OK;
}

int describe_epoch(struct describe *d)
{
    struct br_stream *s = &d->out->stream;
    const struct br_stream_hints *hints = d->hints;
    const char *key = "", *file = d->header->file;
    int64_t start = 0;
    double precision = 0;
    int found = dada_get_i64(d->header, "EPOCH_NS", &s->epoch_ns, d->error);
    if (found > 0 && (s->epoch_ns > MOST_EPOCH_NS || s->epoch_ns < -MOST_EPOCH_NS))
        return dada_bad(d->header, "EPOCH_NS", d->error, "nanoseconds since 1970, up to 2^62");
    if (found < 0) return found;
    if (found > 0) return hints_epoch(hints, file, "EPOCH_NS", &s->epoch_ns, 0, d->error);
    found = start_time(d, &key, &start, &precision);
    if (found < 0) return found;
    if (found == 0) {
        s->epoch_ns = hints->epoch_ns;
        if (hints->have_epoch) return BR_OK;
        return br_fail(d->error, BR_E_INVALID,
                       "%s: none of EPOCH_NS, UTC_START, MJD_START; give `stream: {epoch_ns: ...}`", file);
    }
    /* the observation starts at the sample that the user names: then sample 0 lies before */
    uint64_t before = 0;
    int status = samples_before(d, &before);
    if (status != BR_OK) return status;
    __int128_t ns = (__int128_t)before * s->sample_ns.num / s->sample_ns.den;
    if (ns > (__int128_t)start + MOST_EPOCH_NS) {
        if (!hints->have_epoch)
            return br_fail(d->error, BR_E_INVALID,
                           "%s: sample %llu, which `stream: sample0` says, cannot be at its %s", file,
                           (unsigned long long)before, key);
        ns = 0;
    }
    s->epoch_ns = start - (int64_t)ns;
    return hints_epoch(hints, file, key, &s->epoch_ns, (int64_t)fmin(precision, 1e9), d->error);
}

static int check_channels(struct describe *d)
{
    const struct br_stream *s = &d->out->stream;
    for (size_t i = 0; i < s->nchannels; i++) {
        if (!(s->freq_mhz[i] > 0 && s->freq_mhz[i] <= MOST_MHZ))
            return br_fail(d->error, BR_E_FORMAT,
                           "%s: the frequency of channel %zu is %g MHz; expected more than 0, at most %g MHz",
                           d->header->file, i, s->freq_mhz[i], MOST_MHZ);
        if (!(s->width_mhz[i] > 0 && s->width_mhz[i] <= MOST_MHZ))
            return br_fail(d->error, BR_E_FORMAT,
                           "%s: the width of channel %zu is %g MHz; expected more than 0, at most %g MHz",
                           d->header->file, i, s->width_mhz[i], MOST_MHZ);
    }
    return BR_OK;
}

/* FREQ_MHZ and WIDTH_MHZ. Where only centres are given, channels are critically sampled. */
static int exact_frequencies(struct describe *d, size_t n, double *freq, double *width, double critical)
{
    size_t widths = dada_count_reals(d->header, "WIDTH_MHZ", n);
    int found = dada_get_reals(d->header, "WIDTH_MHZ", widths == 1 ? 1 : n, width, d->error);
    if (found < 0) return found;
    for (size_t i = found && widths > 1 ? n : 1; i < n; i++) width[i] = width[0];
    for (size_t i = 0; !found && i < n; i++) width[i] = critical;
    d->out->freq_key = "FREQ_MHZ";
    int status = hints_frequencies(d->hints, d->header->file, "FREQ_MHZ", n, freq, 0, d->error);
    return status == BR_OK ? hints_widths(d->hints, d->header->file, "WIDTH_MHZ", n, width,
                                          found ? 0 : INFINITY, d->error)
                           : status;
}

/* FREQ and BW: the middle and the signed width of the band. */
static int band_frequencies(struct describe *d, size_t n, double *freq, double *width)
{
    double centre = 0, band = 0;
    int has = dada_get_real(d->header, "FREQ", &centre, d->error);
    if (has < 0) return has;
    int has_band = dada_get_real(d->header, "BW", &band, d->error);
    if (has_band < 0) return has_band;
    const char *file = d->header->file;
    if (!has || !has_band) {
        if (d->hints->nfreq == 0)
            return br_fail(d->error, BR_E_INVALID,
                           "%s: neither FREQ_MHZ nor both of FREQ and BW; give `stream: {freq_mhz: ...}`",
                           file);
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        freq[i] = centre + band * (((double)i + 0.5) / (double)n - 0.5);
        width[i] = fabs(band) / (double)n;
    }
    double channel = fabs(band) / (double)n, coarse = most_coarse_channel * channel,
           digits = hints_precision(dada_get(d->header, "BW"));
    d->out->freq_precision = fmin(hints_precision(dada_get(d->header, "FREQ")) + digits, coarse);
    d->out->freq_key = "FREQ with BW";
    int status = hints_frequencies(d->hints, file, "FREQ with BW", n, freq, d->out->freq_precision, d->error);
    if (status == BR_OK)
        status =
            hints_widths(d->hints, file, "BW / NCHAN", n, width, fmin(digits / (double)n, coarse), d->error);
    return status == BR_OK ? 1 : status;
}

int describe_frequencies(struct describe *d)
{
    struct br_stream *s = &d->out->stream;
    size_t n = s->nchannels;
    double *freq = d->memory.alloc(d->memory.owner, n * sizeof *freq);
    double *width = d->memory.alloc(d->memory.owner, n * sizeof *width);
    s->freq_mhz = freq;
    s->width_mhz = width;
    d->out->freq_key = "FREQ_MHZ";
    double critical = 1e3 * (double)s->sample_ns.den / (double)s->sample_ns.num;
    int found = dada_get_reals(d->header, "FREQ_MHZ", n, freq, d->error);
    if (found < 0) return found;
    if (found > 0) {
        int status = exact_frequencies(d, n, freq, width, critical);
        return status == BR_OK ? check_channels(d) : status;
    }
    found = band_frequencies(d, n, freq, width);
    if (found < 0) return found;
    if (found == 0) {
        for (size_t i = 0; i < n; i++) width[i] = d->hints->width_mhz > 0 ? d->hints->width_mhz : critical;
        int status = hints_frequencies(d->hints, d->header->file, "", n, freq, INFINITY, d->error);
        if (status != BR_OK) return status;
    }
    return check_channels(d);
}

/* SIDEBAND; in files of others the sign of BW, as dspsr takes it. A recording of ours without the key is
 * older than the key: unknown. */
int describe_sideband(struct describe *d)
{
    enum br_sideband *sideband = &d->out->stream.sideband;
    const char *own = dada_get(d->header, "SIDEBAND"), *key = "SIDEBAND";
    double band = 0;
    if (own != NULL) {
        *sideband = br_sideband_named(own);
        if (*sideband == BR_SIDEBAND_UNKNOWN)
            return dada_bad(d->header, "SIDEBAND", d->error, "upper or lower");
    } else if (!d->out->own) {
        key = "the sign of BW";
        int found = dada_get_real(d->header, "BW", &band, d->error);
        if (found < 0) return found;
        *sideband = band > 0 ? BR_SIDEBAND_UPPER : band < 0 ? BR_SIDEBAND_LOWER : BR_SIDEBAND_UNKNOWN;
    }
    return hints_sideband(d->hints, d->header->file, key, sideband, d->error);
}

/* Our int4x2 says its coding by its name; else CODING does, or the user. */
int describe_coding(struct describe *d)
{
    struct recording *r = d->out;
    const char *own = dada_get(d->header, "CODING"), *key = "CODING", *file = d->header->file;
    if (own != NULL && coding_from_name(own) == CODING_UNKNOWN)
        return br_fail(d->error, BR_E_FORMAT,
                       "%s: the coding '%s' is unknown; expected int4x2, chime or vdif", file, own);
    if (own == NULL && r->own) own = "int4x2", key = "DTYPE";
    if (r->stream.array.dtype != BR_INT4X2) {
        const char *said = own != NULL && strcmp(key, "CODING") == 0 ? own : d->hints->coding;
        if (said != NULL && strcmp(said, "int4x2") != 0)
            return br_fail(d->error, BR_E_INVALID, "%s: coding %s does not go with the %s that it holds",
                           file, said, br_dtype_name(r->stream.array.dtype));
        r->coding = CODING_INT4X2;
        return BR_OK;
    }
    int status = hints_coding(d->hints, file, key, &own, d->error);
    if (status != BR_OK) return status;
    r->coding = coding_from_name(own != NULL ? own : "int4x2");
    if (r->coding == CODING_UNKNOWN)
        return br_fail(d->error, BR_E_INVALID,
                       "%s: the coding '%s' is unknown; expected int4x2, chime or vdif", file, own);
    return BR_OK;
}

int describe_position(struct describe *d)
{
    struct recording *r = d->out;
    const struct dada_header *h = d->header;
    uint64_t offset = 0;
    int found = dada_get_u64(h, "OBS_OFFSET", 0, UINT64_MAX, &offset, d->error);
    if (found < 0) return found;
    found = dada_get_u64(h, "SAMPLE0", 0, MAX_SAMPLE, &r->first, d->error);
    if (found < 0) return found;
    if (!found) {
        uint64_t start = d->hints->have_sample0 ? d->hints->sample0 : 0;
        bool counted = (r->own || offset != 0) && dada_get(h, "EPOCH_NS") != NULL && !d->hints->have_sample0;
        if (counted || (!r->flat && offset != 0))
            return dada_bad(h, "SAMPLE0", d->error, "the first sample of the file");
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
    found = dada_get_u64(h, "FILE_SIZE", 0, UINT64_MAX, &r->announced, d->error);
    return found < 0 ? found : BR_OK;
}
