/* Whether what a recording of ours says to every reader of DADA files agrees with what it says to us. Keys
 * that were changed in one place only would be read one way here and another way elsewhere. */
#include "formats/dada/recording_describe.h"

#include "formats/common/hints.h"
#include "formats/common/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define NS_PER_DAY 86400e9

static int contradicts(struct describe *d, const char *key, const char *ours, const char *value)
{
    return br_fail(d->error, BR_E_FORMAT,
                   "%s: %s is %s, but by its %s it is %s: one of them was changed; mend it, or remove %s",
                   d->header->file, key, dada_get(d->header, key), ours, value, key);
}

static int agree_counts(struct describe *d)
{
    const struct br_stream *s = &d->out->stream;
    const struct br_array *a = &s->array;
    bool pairs = a->dtype == BR_INT4X2 || a->dtype == BR_INT8X2 || a->dtype == BR_INT32X2;
    const struct {
        const char *key, *ours;
        uint64_t value;
    } counts[] = {{"NBIT", "DTYPE", br_dtype_bits(a->dtype) / (pairs ? 2 : 1)},
                  {"NDIM", "DTYPE", pairs ? 2 : 1},
                  {"NPOL", "SHAPE", br_array_length(a, "pol")},
                  {"NCHAN", br_stream_is_zoned(s) ? "ZONE_n" : "SHAPE", s->nchannels},
                  {"NANT", "SHAPE", br_array_length(a, "dish")},
                  {"DOWNSAMPLE", "ZONE_n", s->zone[0].downsample},
                  {"RESOLUTION", "SHAPE", d->out->row_bytes}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        uint64_t value = 0;
        char text[24];
        int found = dada_get_u64(d->header, counts[i].key, 0, UINT64_MAX, &value, d->error);
        if (found < 0) return found;
        if (!found || value == counts[i].value) continue;
        if (strcmp(counts[i].key, "RESOLUTION") == 0 && !d->out->flat) continue;
        if (strcmp(counts[i].key, "DOWNSAMPLE") == 0 && br_stream_is_zoned(s)) continue;
        snprintf(text, sizeof text, "%llu", (unsigned long long)counts[i].value);
        return contradicts(d, counts[i].key, counts[i].ours, text);
    }
    const char *order = dada_get(d->header, "ORDER");
    char letters[BR_MAX_AXES + 1];
    recording_order(a, letters);
    if (order != NULL && strchr(order, '?') == NULL && strcasecmp(order, letters) != 0)
        return contradicts(d, "ORDER", "AXES", letters);
    return BR_OK;
}

/* A number that may differ by `most`. */
static int agree_real(struct describe *d, const char *key, const char *ours, double meant, double most)
{
    double value;
    char text[TEXT_REAL];
    int found = dada_get_real(d->header, key, &value, d->error);
    if (found < 0) return found;
    if (!found || fabs(value - meant) <= most) return BR_OK;
    return contradicts(d, key, ours, text_real_format(text, meant));
}

static int agree_band(struct describe *d)
{
    const struct br_stream *s = &d->out->stream;
    double centre, band, most = 1e-3 * s->width_mhz[0];
    recording_band(s, &centre, &band);
    int status = BR_OK;
    if ((d->hints->override & BR_HINT_SAMPLE) == 0) {
        double step_us = br_stream_sample_s(s) * 1e6 * s->zone[0].downsample;
        status = agree_real(d, "TSAMP", "SAMPLE_NS", step_us, 1e-6 * step_us);
    }
    if (status != BR_OK || (d->hints->override & (BR_HINT_FREQ | BR_HINT_WIDTH | BR_HINT_SAMPLE)) != 0 ||
        dada_get(d->header, "FREQ_MHZ") == NULL)
        return status;
    status = agree_real(d, "FREQ", "FREQ_MHZ", centre, most);
    /* of a single channel the sign is the sideband's, which older recordings did not know */
    if (status != BR_OK || s->nchannels == 1) return status;
    return agree_real(d, "BW", "WIDTH_MHZ", band, most);
}

static double apart(int64_t a, int64_t b)
{
    return fabs((double)((__int128_t)a - b));
}

/* UTC_START and MJD_START are the time of the observation's first byte, OBS_OFFSET bytes before this
 * file's. */
static int agree_times(struct describe *d)
{
    const struct br_stream *s = &d->out->stream;
    const char *utc = dada_get(d->header, "UTC_START"), *mjd = dada_get(d->header, "MJD_START");
    uint64_t offset = 0, step = s->zone[0].downsample;
    int64_t said = 0;
    int found = dada_get_u64(d->header, "OBS_OFFSET", 0, UINT64_MAX, &offset, d->error);
    if (found < 0) return found;
    if ((d->hints->override & (BR_HINT_EPOCH | BR_HINT_SAMPLE)) != 0 ||
        dada_get(d->header, "EPOCH_NS") == NULL || (offset > 0 && !d->out->flat))
        return BR_OK;
    uint64_t steps = d->out->flat ? offset / d->out->row_bytes : 0;
    if (d->out->flat && (offset % d->out->row_bytes != 0 || steps > d->out->first / step))
        return dada_bad(d->header, "OBS_OFFSET", d->error,
                        "a multiple of the %zu bytes of a time step, not beyond SAMPLE0", d->out->row_bytes);
    double sample_ns = 1e9 * br_stream_sample_s(s);
    int64_t meant = br_stream_time_ns(s, d->out->first - steps * step);
    double slack = 2 + (offset > 0 ? (double)(step - 1) * sample_ns : 0);
    char text[TEXT_TIME];
    if (utc != NULL) {
        const char *point = strchr(utc, '.');
        if (text_utc(utc, &said) != 0)
            return dada_bad(d->header, "UTC_START", d->error, "yyyy-mm-dd-hh:mm:ss[.fraction]");
        double precision = point != NULL ? 1e9 * hints_precision(point) : 1e9;
        if (apart(said, meant) > slack + precision)
            return contradicts(d, "UTC_START", "EPOCH_NS with SAMPLE0", text_utc_format(text, meant));
    }
    if (mjd != NULL) {
        if (text_mjd(mjd, &said) != 0)
            return dada_bad(d->header, "MJD_START", d->error, "a modified Julian date");
        if (apart(said, meant) > slack + NS_PER_DAY * hints_precision(mjd))
            return contradicts(d, "MJD_START", "EPOCH_NS with SAMPLE0", text_mjd_format(text, meant));
    }
    return BR_OK;
}

int describe_agreement(struct describe *d)
{
    int status = d->out->own ? agree_counts(d) : BR_OK;
    if (status == BR_OK && d->out->own) status = agree_band(d);
    return status == BR_OK ? agree_times(d) : status;
}
