#include "formats/common/hints.h"

#include "formats/common/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers that went through a decimal or a sum agree to this. */
static const double rounding = 1e-9;

static bool insists(const struct br_stream_hints *hints, enum br_hint key)
{
    return (hints->override & key) != 0;
}

/* "stream: NAME" says `said`, the file `own`. */
static int contradiction(const char *file, const char *key, const char *own, const char *name,
                         const char *said, struct br_error *error)
{
    return br_fail(
        error, BR_E_INVALID,
        "%s: %s says %s, but `stream: %s` says %s; take the key out of `stream:`, or insist on it: "
        "`stream: {override: [%s]}`",
        file, key, own, name, said, name);
}

int hints_sample(const struct br_stream_hints *hints, const char *file, const char *key,
                 struct br_rational *sample_ns, double precision_ns, struct br_error *error)
{
    if (hints == NULL || hints->sample_ns.num <= 0) return BR_OK;
    const struct br_rational *said = &hints->sample_ns;
    double own_ns = (double)sample_ns->num / (double)sample_ns->den,
           said_ns = (double)said->num / (double)said->den;
    bool same = (__int128_t)said->num * sample_ns->den == (__int128_t)sample_ns->num * said->den;
    if (!same && !insists(hints, BR_HINT_SAMPLE) && !(fabs(said_ns - own_ns) <= precision_ns)) {
        char own_text[80], said_text[80];
        snprintf(own_text, sizeof own_text, "%.12g ns", own_ns);
        snprintf(said_text, sizeof said_text, "%.12g ns", said_ns);
        if (strcmp(own_text, said_text) == 0) {
            snprintf(own_text, sizeof own_text, "%" PRId64 "/%" PRId64 " ns", sample_ns->num, sample_ns->den);
            snprintf(said_text, sizeof said_text, "%" PRId64 "/%" PRId64 " ns", said->num, said->den);
        }
        return contradiction(file, key, own_text, "sample_ns", said_text, error);
    }
    *sample_ns = *said;
    return BR_OK;
}

int hints_epoch(const struct br_stream_hints *hints, const char *file, const char *key, int64_t *epoch_ns,
                int64_t precision_ns, struct br_error *error)
{
    if (hints == NULL || !hints->have_epoch) return BR_OK;
    __int128_t apart = (__int128_t)hints->epoch_ns - *epoch_ns;
    if (!insists(hints, BR_HINT_EPOCH) && (apart > precision_ns || -apart > precision_ns)) {
        char own[TEXT_TIME], said[TEXT_TIME], own_text[120], said_text[120];
        snprintf(own_text, sizeof own_text, "%" PRId64 " ns (%s)", *epoch_ns,
                 text_utc_format(own, *epoch_ns));
        snprintf(said_text, sizeof said_text, "%" PRId64 " ns (%s)", hints->epoch_ns,
                 text_utc_format(said, hints->epoch_ns));
        return contradiction(file, key, own_text, "epoch_ns", said_text, error);
    }
    *epoch_ns = hints->epoch_ns;
    return BR_OK;
}

int hints_frequencies(const struct br_stream_hints *hints, const char *file, const char *key, size_t n,
                      double *freq_mhz, double precision_mhz, struct br_error *error)
{
    if (hints == NULL || hints->nfreq == 0) return BR_OK;
    if (hints->nfreq != n)
        return br_fail(
            error, BR_E_INVALID,
            "%s has %zu channels, but `stream: freq_mhz` lists %zu: the recording's shape contradicts it",
            file, n, hints->nfreq);
    for (size_t i = 0; i < n && !insists(hints, BR_HINT_FREQ); i++) {
        double apart = fabs(hints->freq_mhz[i] - freq_mhz[i]);
        if (apart <= precision_mhz || apart <= rounding * freq_mhz[i]) continue;
        char own[80], said[80];
        snprintf(own, sizeof own, "%.12g MHz for channel %zu", freq_mhz[i], i);
        snprintf(said, sizeof said, "%.12g MHz", hints->freq_mhz[i]);
        return contradiction(file, key, own, "freq_mhz", said, error);
    }
    memcpy(freq_mhz, hints->freq_mhz, n * sizeof *freq_mhz);
    return BR_OK;
}

int hints_widths(const struct br_stream_hints *hints, const char *file, const char *key, size_t n,
                 double *width_mhz, double precision_mhz, struct br_error *error)
{
    if (hints == NULL || !(hints->width_mhz > 0)) return BR_OK;
    for (size_t i = 0; i < n; i++) {
        double apart = fabs(hints->width_mhz - width_mhz[i]);
        if (insists(hints, BR_HINT_WIDTH) || apart <= precision_mhz || apart <= rounding * width_mhz[i])
            continue;
        char own[80], said[80];
        snprintf(own, sizeof own, "%.12g MHz for channel %zu", width_mhz[i], i);
        snprintf(said, sizeof said, "%.12g MHz", hints->width_mhz);
        return contradiction(file, key, own, "width_mhz", said, error);
    }
    for (size_t i = 0; i < n; i++) width_mhz[i] = hints->width_mhz;
    return BR_OK;
}

int hints_first(const struct br_stream_hints *hints, const char *file, uint64_t first, struct br_error *error)
{
    if (hints == NULL || !hints->have_sample0 || hints->sample0 == first) return BR_OK;
    return br_fail(error, BR_E_INVALID,
                   "%s starts at sample %" PRIu64 " by its own count, but `stream: sample0` says %" PRIu64
                   "; take `sample0` out of `stream:`",
                   file, first, hints->sample0);
}

int hints_coding(const struct br_stream_hints *hints, const char *file, const char *key, const char **coding,
                 struct br_error *error)
{
    if (hints == NULL || hints->coding == NULL) return BR_OK;
    if (*coding != NULL && !insists(hints, BR_HINT_CODING) && strcmp(*coding, hints->coding) != 0)
        return contradiction(file, key, *coding, "coding", hints->coding, error);
    *coding = hints->coding;
    return BR_OK;
}

int hints_sideband(const struct br_stream_hints *hints, const char *file, const char *key,
                   enum br_sideband *sideband, struct br_error *error)
{
    if (hints == NULL || hints->sideband == BR_SIDEBAND_UNKNOWN) return BR_OK;
    if (*sideband != BR_SIDEBAND_UNKNOWN && *sideband != hints->sideband && !insists(hints, BR_HINT_SIDEBAND))
        return contradiction(file, key, br_sideband_name(*sideband), "sideband",
                             br_sideband_name(hints->sideband), error);
    *sideband = hints->sideband;
    return BR_OK;
}

double hints_precision(const char *number)
{
    int decimals = 0;
    bool point = false;
    for (; *number != '\0' && *number != 'e' && *number != 'E'; number++) {
        decimals += point && isdigit((unsigned char)*number);
        point = point || *number == '.';
    }
    double exponent = *number != '\0' ? strtod(number + 1, NULL) : 0;
    return pow(10, exponent - decimals);
}

/* The least distance of a channel from another one, or infinity. They are usually in order. */
static double least_step(const struct br_stream *s)
{
    double least = INFINITY;
    for (size_t i = 1; i < s->nchannels; i++) least = fmin(least, fabs(s->freq_mhz[i] - s->freq_mhz[i - 1]));
    return least;
}

const char *hints_doubt(const struct br_stream *s, char *text, size_t size)
{
    bool inputs = br_array_axis(&s->array, "dish") >= 0 || br_array_axis(&s->array, "input") >= 0;
    bool field = inputs && s->nzones == 1 && s->zone[0].factor == 1 && s->zone[0].downsample == 1;
    if (!field || s->nchannels == 0) return NULL;
    double top = 0;
    for (size_t i = 0; i < s->nchannels; i++) top = fmax(top, s->freq_mhz[i]);
    double sample_ns = (double)s->sample_ns.num / (double)s->sample_ns.den, width = s->width_mhz[0],
           step = least_step(s), product = width * sample_ns * 1e-3;
    if (top < 5)
        snprintf(
            text, size,
            "all channels are below 5 MHz (the highest is at %.9g MHz); expected MHz in `freq_mhz`, not GHz",
            top);
    else if (!(fabs(product - 1) <= 0.01))
        snprintf(
            text, size,
            "channels of %.9g MHz and samples of %.9g ns: width x sample time is %.4g, and 1 where channels "
            "are critically sampled; see `stream: {width_mhz, sample_ns}`",
            width, sample_ns, product);
    else if (width > 2 * s->freq_mhz[0] || (isfinite(step) && width > 2 * step))
        snprintf(
            text, size,
            "samples of %.9g ns make channels of %.9g MHz, but %s %.9g MHz: can `sample_ns`, in nanoseconds, "
            "be meant?",
            sample_ns, width, isfinite(step) ? "they lie apart by" : "the first one lies at",
            isfinite(step) ? step : s->freq_mhz[0]);
    else
        return NULL;
    return text;
}
