/* recording.c - recording_describe: beamring's own keys for arrays, zones, frames and beams. */
#include "formats/dada/recording_describe.h"

#include "formats/common/axes.h"
#include "formats/common/text.h"

#include <stdio.h>
#include <string.h>

enum { MAX_DOWNSAMPLE = 1 << 30 };
#define MAX_FRAME_SAMPLES (UINT64_C(1) << 40)
#define MAX_FRAME_BYTES   (UINT64_C(16) << 30)

static const char *copy_text(struct describe *d, const char *key)
{
    const char *value = dada_get(d->header, key);
    if (value == NULL) return "";
    char *copy = d->memory.alloc(d->memory.owner, strlen(value) + 1);
    return strcpy(copy, value);
}

/* Parses "4,0,12" into lengths. Returns their number, or 0 if the text is malformed. */
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

/* The side array of the quantizer has an axis that the field does not have, so its axes are not checked
 * against the known ones. */
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

/* Reads DTYPE, AXES and SHAPE with the given prefix; the time axis stays 0 for now. Returns 1 if present, 0
 * if absent. */
static int describe_array(struct describe *d, const char *prefix, struct br_array *array)
{
    char key[3][24];
    static const char *const names[3] = {"DTYPE", "AXES", "SHAPE"};
    const char *value[3];
    for (int i = 0; i < 3; i++) {
        snprintf(key[i], sizeof key[i], "%s%s", prefix, names[i]);
        value[i] = dada_get(d->header, key[i]);
    }
    if (value[0] == NULL && value[1] == NULL && value[2] == NULL) return 0;
    if (value[0] == NULL)
        return dada_bad(d->header, key[0], d->error, "the type of the elements, since %s is there",
                        key[value[1] != NULL ? 1 : 2]);
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
            first != next || n < 1 || n > RECORDING_MAX_CHANNELS || factor < 1 || factor > n ||
            n % factor != 0 || downsample < 1 || downsample > MAX_DOWNSAMPLE || delay > MAX_DOWNSAMPLE)
            return dada_bad(d->header, key, d->error,
                            "first channel (%zu),channels,factor,downsample,delay with whole factors", next);
        s->zone[i] = (struct br_zone){(size_t)first, (size_t)n, (unsigned)factor, (unsigned)downsample,
                                      (unsigned)delay};
        next += (size_t)n;
    }
    s->nzones = (unsigned)nzones;
    if (nzones == 0) {
        if (dada_get(d->header, "ZONE_0") != NULL)
            return dada_bad(d->header, "NZONES", d->error, "the number of zones, since ZONE_0 is there");
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

/* Reads the beam directions; NULL if absent. */
static int describe_beams(struct describe *d)
{
    struct br_stream *s = &d->out->stream;
    if (br_array_axis(&s->array, "beam") < 0) return BR_OK;
    s->nbeams = br_array_length(&s->array, "beam");
    if (s->nbeams > RECORDING_MAX_ELEMENTS)
        return dada_bad(d->header, "SHAPE", d->error, "at most %d beams", RECORDING_MAX_ELEMENTS);
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

/* Reads FRAME_SAMPLES and sets the length of the time axis. */
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
    char axes[AXES_TEXT];
    size_t lengths[BR_MAX_AXES];
    for (unsigned i = 0; i < s->array.naxes; i++) lengths[i] = s->array.axis[i].length;
    lengths[time] = (size_t)(zoned ? frame : frame / s->zone[0].downsample);
    int status = br_array_init(&s->array, s->array.dtype, axes_of(&s->array, axes), lengths, d->error);
    if (status == BR_OK && br_array_bytes(&s->array) > MAX_FRAME_BYTES)
        status = br_fail(d->error, BR_E_FORMAT, "frames would have %zu bytes; expected at most %llu",
                         br_array_bytes(&s->array), (unsigned long long)MAX_FRAME_BYTES);
    if (status != BR_OK)
        br_error_context(d->error, "%s: FRAME_SAMPLES '%s'", d->header->file,
                         dada_get(d->header, "FRAME_SAMPLES"));
    return status;
}

static int describe_own(struct describe *d)
{
    struct br_stream *s = &d->out->stream;
    int status = describe_zones(d);
    if (status == BR_OK) status = describe_frame(d);
    if (status != BR_OK) return status;
    if (s->nchannels > RECORDING_MAX_CHANNELS)
        return dada_bad(d->header, "SHAPE", d->error, "at most %d channels", RECORDING_MAX_CHANNELS);
    s->scale = 1;
    int found = dada_get_real(d->header, "SCALE", &s->scale, d->error);
    if (found < 0) return found;
    if (!(s->scale > 0)) return dada_bad(d->header, "SCALE", d->error, "a number above 0");
    found = describe_array(d, "AUX_", &s->side);
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
    if (d->out->own && d->hints->npol > 0 && br_array_axis(&s->array, "pol") >= 0 &&
        br_array_length(&s->array, "pol") != d->hints->npol)
        return br_fail(
            d->error, BR_E_INVALID,
            "%s: SHAPE has %zu polarisations, but `stream: npol` is %u: the recording's shape contradicts it",
            d->header->file, br_array_length(&s->array, "pol"), d->hints->npol);
    if (d->telescope == NULL && d->out->array != NULL && br_array_axis(&s->array, "dish") >= 0 &&
        br_array_length(&s->array, "dish") != d->out->array->ndishes)
        return br_fail(d->error, BR_E_FORMAT, "%s: SHAPE has %zu dishes, but there are places of %u",
                       d->header->file, br_array_length(&s->array, "dish"), d->out->array->ndishes);
    s->telescope = d->telescope != NULL ? d->telescope : d->out->array;
    int status = br_stream_check(s, d->error);
    if (status != BR_OK) br_error_context(d->error, "%s", d->header->file);
    return status;
}

int recording_describe(struct recording *recording, const struct dada_header *header,
                       const struct br_stream_hints *hints, const struct br_telescope *telescope,
                       const char *coding, struct recording_memory memory, struct br_error *error)
{
    struct br_stream_hints said = hints != NULL ? *hints : (struct br_stream_hints){0};
    if (coding != NULL) said.coding = coding;
    struct describe d = {recording, header, &said, telescope, memory, error};
    memset(recording, 0, sizeof *recording);
    struct br_stream *s = &recording->stream;
    recording->payload_offset = header->size;
    recording->obs_id = copy_text(&d, "OBS_ID");
    recording->telescope = copy_text(&d, "TELESCOPE");
    recording->source = copy_text(&d, "SOURCE");
    int found = describe_array(&d, "", &s->array);
    if (found < 0) return found;
    recording->own = recording->plain = found > 0;
    int status = recording->own ? describe_own(&d) : describe_external(&d);
    if (status == BR_OK) status = describe_sample_time(&d);
    if (status == BR_OK) status = describe_epoch(&d);
    if (status == BR_OK) status = describe_frequencies(&d);
    if (status == BR_OK) status = describe_sideband(&d);
    if (status == BR_OK) status = describe_beams(&d);
    if (status == BR_OK) status = describe_coding(&d);
    if (status == BR_OK && recording->own) status = describe_telescope(&d);
    if (status == BR_OK) status = check_telescope(&d);
    if (status != BR_OK) return status;
    recording->flat = recording_is_flat(s, &recording->row_bytes);
    status = describe_position(&d);
    return status == BR_OK ? describe_agreement(&d) : status;
}
