#include "buffers/stream.h"

#include "buffers/numbers.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool br_stream_is_zoned(const struct br_stream *stream)
{
    for (unsigned i = 1; i < stream->nzones; i++)
        if (stream->zone[i].downsample != stream->zone[0].downsample) return true;
    return false;
}

size_t br_time_steps(uint64_t first, uint64_t samples, unsigned downsample)
{
    if (samples == 0 || downsample == 0) return 0;
    return (size_t)((first + (samples - 1)) / downsample - first / downsample + 1);
}

unsigned br_stream_nparts(const struct br_stream *stream)
{
    return br_stream_is_zoned(stream) ? stream->nzones : 1;
}

/* Elements of one (time step, channel): the product of the other axes. */
static size_t spectators(const struct br_array *array)
{
    size_t n = 1;
    for (unsigned i = 0; i < array->naxes; i++)
        if (strcmp(array->axis[i].name, "time") != 0 && strcmp(array->axis[i].name, "freq") != 0)
            n *= array->axis[i].length;
    return n;
}

static size_t part_bytes(const struct br_stream *stream, size_t cells)
{
    size_t n = cells * spectators(&stream->array), bits = br_dtype_bits(stream->array.dtype);
    return n / 8 * bits + (n % 8 * bits + 7) / 8;
}

struct br_part br_stream_part(const struct br_stream *stream, unsigned index, uint64_t first,
                              uint64_t samples)
{
    if (!br_stream_is_zoned(stream)) {
        struct br_part whole = {.nchannels = stream->nchannels, .downsample = stream->zone[0].downsample};
        whole.nsteps = br_time_steps(first, samples, whole.downsample);
        whole.bytes = part_bytes(stream, whole.nsteps * whole.nchannels);
        return whole;
    }
    struct br_part part = {0};
    for (unsigned i = 0; i <= index && i < stream->nzones; i++) {
        const struct br_zone *zone = &stream->zone[i];
        part.offset += part.bytes;
        part.valid_offset += part.nsteps * part.nchannels;
        part.first_channel = zone->first_channel;
        part.nchannels = zone->nchannels;
        part.downsample = zone->downsample;
        part.nsteps = br_time_steps(first, samples, zone->downsample);
        part.bytes = part_bytes(stream, part.nsteps * part.nchannels);
    }
    return part;
}

/* Steps of `frame_samples` base samples that start at the worst place: one more than fit, where a step is
 * several samples. */
static size_t most_steps(const struct br_stream *stream, unsigned downsample)
{
    return br_time_steps(downsample - 1, stream->frame_samples, downsample);
}

size_t br_stream_max_validity(const struct br_stream *stream)
{
    if (!br_stream_is_zoned(stream))
        return most_steps(stream, stream->zone[0].downsample) * stream->nchannels;
    size_t cells = 0;
    for (unsigned i = 0; i < stream->nzones; i++)
        cells += most_steps(stream, stream->zone[i].downsample) * stream->zone[i].nchannels;
    return cells;
}

size_t br_stream_max_bytes(const struct br_stream *stream)
{
    if (!br_stream_is_zoned(stream)) return part_bytes(stream, br_stream_max_validity(stream));
    size_t bytes = 0;
    for (unsigned i = 0; i < stream->nzones; i++)
        bytes +=
            part_bytes(stream, most_steps(stream, stream->zone[i].downsample) * stream->zone[i].nchannels);
    return bytes;
}

int64_t br_stream_time_ns(const struct br_stream *stream, uint64_t k)
{
    __uint128_t num = (__uint128_t)k * (uint64_t)stream->sample_ns.num, den = (uint64_t)stream->sample_ns.den;
    __int128_t ns = (__int128_t)((num + den / 2) / den) + stream->epoch_ns;
    return ns > INT64_MAX ? INT64_MAX : (int64_t)ns;
}

double br_stream_sample_s(const struct br_stream *stream)
{
    return (double)stream->sample_ns.num / (double)stream->sample_ns.den * 1e-9;
}

static int check_zones(const struct br_stream *s, size_t *coarse, struct br_error *error)
{
    if (s->nzones < 1 || s->nzones > BR_MAX_ZONES)
        return br_fail(error, BR_E_INVALID, "the stream has %u zones; expected 1 to %d", s->nzones,
                       BR_MAX_ZONES);
    size_t next = 0;
    for (unsigned i = 0; i < s->nzones; i++) {
        const struct br_zone *z = &s->zone[i];
        if (z->factor < 1 || z->downsample < 1)
            return br_fail(error, BR_E_INVALID,
                           "zone %u has factor %u and downsample %u; both must be at least 1", i, z->factor,
                           z->downsample);
        if (z->nchannels < 1 || z->nchannels % z->factor != 0)
            return br_fail(error, BR_E_INVALID,
                           "zone %u has %zu channels; expected a multiple of its factor %u", i, z->nchannels,
                           z->factor);
        if (z->first_channel != next || z->nchannels > SIZE_MAX - next)
            return br_fail(error, BR_E_INVALID,
                           "zone %u begins at channel %zu; expected %zu, where the one before ends", i,
                           z->first_channel, next);
        next += z->nchannels;
        *coarse += z->nchannels / z->factor;
        if (s->frame_samples % z->downsample != 0)
            return br_fail(error, BR_E_INVALID,
                           "a frame of %" PRIu64
                           " base samples is not a whole number of the %u-sample steps of zone %u",
                           s->frame_samples, z->downsample, i);
    }
    if (next != s->nchannels)
        return br_fail(error, BR_E_INVALID, "the zones hold %zu channels, but the stream has %zu", next,
                       s->nchannels);
    return BR_OK;
}

/* A byte count with room to spare for the step that max_bytes adds, and for alignment. */
static bool measurable(const struct br_array *array)
{
    size_t n = 64;
    for (unsigned i = 0; i < array->naxes; i++)
        if (array->axis[i].length > 0 && __builtin_mul_overflow(n, array->axis[i].length + 1, &n))
            return false;
    return n < SIZE_MAX / 4;
}

static int check_arrays(const struct br_stream *s, size_t coarse, struct br_error *error)
{
    char text[200];
    const struct br_array *a = &s->array;
    bool zoned = br_stream_is_zoned(s);
    size_t time = zoned ? s->frame_samples : s->frame_samples / s->zone[0].downsample,
           freq = zoned ? coarse : s->nchannels;
    br_array_format(a, text, sizeof text);
    if (a->naxes > BR_MAX_AXES || s->side.naxes > BR_MAX_AXES || !measurable(a) || !measurable(&s->side))
        return br_fail(error, BR_E_INVALID, "a frame, %s, is larger than any memory", text);
    if (br_array_axis(a, "time") < 0 || br_array_axis(a, "freq") < 0)
        return br_fail(error, BR_E_INVALID, "the array is %s; it needs a time and a freq axis", text);
    if (br_dtype_bits(a->dtype) == 0) return br_fail(error, BR_E_INVALID, "the array has no element type");
    if (br_array_length(a, "time") != time)
        return br_fail(error, BR_E_INVALID,
                       "the array is %s, but a frame of %" PRIu64 " base samples has %zu time steps", text,
                       s->frame_samples, time);
    if (br_array_length(a, "freq") != freq)
        return br_fail(error, BR_E_INVALID, "the array is %s, but the stream has %zu %schannels", text, freq,
                       zoned ? "coarse " : "");
    if (br_array_elements(a) == 0)
        return br_fail(error, BR_E_INVALID, "the array is %s; no axis may be empty", text);
    if (zoned) {
        struct br_part last = br_stream_part(s, s->nzones - 1, 0, s->frame_samples);
        if (last.offset + last.bytes != br_array_bytes(a))
            return br_fail(error, BR_E_INVALID,
                           "the zones of a frame have %zu bytes, but the array, %s, has %zu: each zone must "
                           "keep the bytes "
                           "per coarse channel",
                           last.offset + last.bytes, text, br_array_bytes(a));
    }
    if (s->telescope != NULL && br_array_axis(a, "dish") >= 0 &&
        br_array_length(a, "dish") != s->telescope->ndishes)
        return br_fail(error, BR_E_INVALID, "the array is %s, but the telescope '%s' has %u dishes", text,
                       s->telescope->name, s->telescope->ndishes);
    size_t beams = br_array_axis(a, "beam") >= 0 ? br_array_length(a, "beam") : 0;
    if (beams != s->nbeams)
        return br_fail(error, BR_E_INVALID, "the array is %s, but the stream has %zu beams", text, s->nbeams);
    if ((s->beams_x != 0 || s->beams_y != 0) &&
        (s->beams_x == 0 || s->nbeams % s->beams_x != 0 || s->nbeams / s->beams_x != s->beams_y))
        return br_fail(error, BR_E_INVALID, "the stream has %zu beams, which is not %zu x %zu", s->nbeams,
                       s->beams_x, s->beams_y);
    return BR_OK;
}

int br_stream_check(const struct br_stream *s, struct br_error *error)
{
    if (s->frame_samples == 0) return br_fail(error, BR_E_INVALID, "a frame spans no samples");
    if (s->sample_ns.num <= 0 || s->sample_ns.den <= 0)
        return br_fail(error, BR_E_INVALID,
                       "the sample time is %" PRId64 "/%" PRId64 " ns; it must be positive", s->sample_ns.num,
                       s->sample_ns.den);
    if (br_common_divisor((uint64_t)s->sample_ns.num, (uint64_t)s->sample_ns.den) != 1)
        return br_fail(error, BR_E_INVALID,
                       "the sample time %" PRId64 "/%" PRId64 " ns is not in lowest terms", s->sample_ns.num,
                       s->sample_ns.den);
    size_t coarse = 0;
    int status = check_zones(s, &coarse, error);
    if (status == BR_OK) status = check_arrays(s, coarse, error);
    if (status != BR_OK) return status;
    if (s->freq_mhz == NULL || s->width_mhz == NULL)
        return br_fail(error, BR_E_INVALID, "the stream does not say the frequencies of its channels");
    for (size_t i = 0; i < s->nchannels; i++)
        if (!isfinite(s->freq_mhz[i]) || !isfinite(s->width_mhz[i]) || s->width_mhz[i] <= 0)
            return br_fail(error, BR_E_INVALID,
                           "channel %zu is centred at %g MHz and %g MHz wide; expected numbers and a "
                           "positive width",
                           i, s->freq_mhz[i], s->width_mhz[i]);
    if (!isfinite(s->scale) || s->scale <= 0)
        return br_fail(error, BR_E_INVALID, "the scale of the values is %g; it must be positive", s->scale);
    return BR_OK;
}

bool br_telescope_same(const struct br_telescope *a, const struct br_telescope *b)
{
    if (a == b) return true;
    if (a == NULL || b == NULL || a->ndishes != b->ndishes || a->grid_m != b->grid_m ||
        a->grid_n != b->grid_n)
        return false;
    for (unsigned i = 0; i < a->ndishes; i++)
        for (int k = 0; k < 3; k++)
            if (a->position[i][k] != b->position[i][k]) return false;
    return true;
}

static bool same_zone(const struct br_zone *a, const struct br_zone *b)
{
    return a->first_channel == b->first_channel && a->nchannels == b->nchannels && a->factor == b->factor &&
           a->downsample == b->downsample && a->delay == b->delay;
}

bool br_stream_compatible(const struct br_stream *a, const struct br_stream *b, struct br_error *why)
{
    char x[200], y[200];
    const char *differs = NULL;
    if (!br_array_equal(&a->array, &b->array)) {
        br_fail(why, BR_E_INVALID, "one array is %s, the other %s", br_array_format(&a->array, x, sizeof x),
                br_array_format(&b->array, y, sizeof y));
        return false;
    }
    if (!br_array_equal(&a->side, &b->side)) {
        br_fail(why, BR_E_INVALID, "one side array is %s, the other %s",
                br_array_format(&a->side, x, sizeof x), br_array_format(&b->side, y, sizeof y));
        return false;
    }
    if (a->frame_samples != b->frame_samples) {
        br_fail(why, BR_E_INVALID, "frames span %" PRIu64 " base samples in one, %" PRIu64 " in the other",
                a->frame_samples, b->frame_samples);
        return false;
    }
    if (a->epoch_ns != b->epoch_ns || a->sample_ns.num != b->sample_ns.num ||
        a->sample_ns.den != b->sample_ns.den)
        differs = "time base";
    else if (a->nchannels != b->nchannels ||
             memcmp(a->freq_mhz, b->freq_mhz, a->nchannels * sizeof *a->freq_mhz) != 0 ||
             memcmp(a->width_mhz, b->width_mhz, a->nchannels * sizeof *a->width_mhz) != 0)
        differs = "frequency channels";
    else if (a->sideband != b->sideband)
        differs = "sideband";
    else if (a->nzones != b->nzones)
        differs = "zones";
    else if (a->scale != b->scale)
        differs = "scale";
    else if (a->nbeams != b->nbeams || (a->beams == NULL) != (b->beams == NULL) ||
             (a->beams != NULL && memcmp(a->beams, b->beams, a->nbeams * sizeof *a->beams) != 0))
        differs = "beams";
    else if (a->packets != b->packets)
        differs = "packets";
    else if (!br_telescope_same(a->telescope, b->telescope))
        differs = "telescope";
    for (unsigned i = 0; differs == NULL && i < a->nzones; i++)
        if (!same_zone(&a->zone[i], &b->zone[i])) differs = "zones";
    if (differs != NULL) br_fail(why, BR_E_INVALID, "they differ in their %s", differs);
    return differs == NULL;
}

/* Digits into *value; false when there is none or the number passes INT64_MAX. */
static bool take_digits(const char **at, uint64_t *value, unsigned *digits)
{
    const char *start = *at;
    for (; **at >= '0' && **at <= '9'; (*at)++)
        if (__builtin_mul_overflow(*value, 10u, value) ||
            __builtin_add_overflow(*value, (uint64_t)(**at - '0'), value) || *value > INT64_MAX)
            return false;
    *digits = (unsigned)(*at - start);
    return true;
}

int br_rational_parse(const char *text, struct br_rational *value, struct br_error *error)
{
    const char *at = text;
    uint64_t num = 0, den = 1;
    unsigned whole = 0, part = 0;
    bool good = take_digits(&at, &num, &whole);
    if (good && *at == '.') {
        at++;
        const char *end = at + strspn(at, "0123456789"), *zeros = end;
        while (zeros > at && zeros[-1] == '0') zeros--; /* 2560.000000000000000000000 fits */
        part = (unsigned)(end - at);
        for (; good && at < zeros; at++) {
            good = !__builtin_mul_overflow(num, 10u, &num) &&
                   !__builtin_add_overflow(num, (uint64_t)(*at - '0'), &num) &&
                   !__builtin_mul_overflow(den, 10u, &den) && num <= INT64_MAX && den <= INT64_MAX;
        }
        at = end;
    } else if (good && *at == '/') {
        at++;
        den = 0;
        good = whole > 0 && take_digits(&at, &den, &part) && part > 0;
    }
    if (!good || *at != '\0' || whole + part == 0 || num == 0 || den == 0)
        return br_fail(
            error, BR_E_INVALID,
            "'%.60s' is not a positive fraction; expected a number such as 2560, 1706.25 or 5120/3", text);
    uint64_t divisor = br_common_divisor(num, den);
    value->num = (int64_t)(num / divisor);
    value->den = (int64_t)(den / divisor);
    return BR_OK;
}
