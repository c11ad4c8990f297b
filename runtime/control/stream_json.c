/* stream_json.c - descriptions of streams as JSON, and changes of them; see runtime/embed.h. */
#include "runtime/embed.h"
#include "runtime/stage.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

static const char *const sideband_name[] = {
    [BR_SIDEBAND_UNKNOWN] = NULL, [BR_SIDEBAND_UPPER] = "upper", [BR_SIDEBAND_LOWER] = "lower"};

static json_t *numbers(const double *value, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; value != NULL && i < count; i++) json_array_append_new(list, json_real(value[i]));
    return list;
}

static json_t *array_json(const struct br_array *array)
{
    if (array->naxes == 0) return json_null();
    json_t *axes = json_array(), *shape = json_array();
    for (unsigned i = 0; i < array->naxes; i++) {
        json_array_append_new(axes, json_string(array->axis[i].name));
        json_array_append_new(shape, json_integer((json_int_t)array->axis[i].length));
    }
    return json_pack("{ss so so}", "dtype", br_dtype_name(array->dtype), "axes", axes, "shape", shape);
}

/* Metres east, north and up of each dish; null where they are not known. */
static json_t *positions(const struct br_telescope *t)
{
    if (t == NULL || t->position == NULL) return json_null();
    json_t *list = json_array();
    for (unsigned d = 0; d < t->ndishes; d++) json_array_append_new(list, numbers(t->position[d], 3));
    return list;
}

/* Latitude, longitude and height; null where the site is not known. */
static json_t *site(const struct br_telescope *t)
{
    if (t == NULL || !isfinite(t->latitude_deg) || !isfinite(t->longitude_deg)) return json_null();
    return json_pack("[f, f, o]", t->latitude_deg, t->longitude_deg,
                     isfinite(t->height_m) ? json_real(t->height_m) : json_null());
}

char *br_stream_json(const struct br_stream *s)
{
    json_t *zones = json_array(), *beams = s->beams != NULL ? json_array() : json_null();
    for (unsigned z = 0; z < s->nzones; z++)
        json_array_append_new(
            zones, json_pack("{sI sI si si si}", "first_channel", (json_int_t)s->zone[z].first_channel,
                             "nchannels", (json_int_t)s->zone[z].nchannels, "factor", (int)s->zone[z].factor,
                             "downsample", (int)s->zone[z].downsample, "delay", (int)s->zone[z].delay));
    for (size_t b = 0; s->beams != NULL && b < s->nbeams; b++)
        json_array_append_new(beams, json_pack("[f, f]", s->beams[b].x, s->beams[b].y));
    if (json_array_size(beams) < s->nbeams) { /* some follow the sky */
        json_decref(beams);
        beams = json_null();
    }
    json_t *document = array_json(&s->array);
    json_t *rest = json_pack(
        "{sI sI s[I, I] so so so sf ss? so ss? so so so sb}", "frame_samples", (json_int_t)s->frame_samples,
        "epoch_ns", (json_int_t)s->epoch_ns, "sample_ns", (json_int_t)s->sample_ns.num,
        (json_int_t)s->sample_ns.den, "freq_mhz", numbers(s->freq_mhz, s->nchannels), "width_mhz",
        numbers(s->width_mhz, s->nchannels), "zones", zones, "scale", s->scale, "sideband",
        sideband_name[s->sideband], "beams", beams, "telescope",
        s->telescope != NULL ? s->telescope->name : NULL, "positions_m", positions(s->telescope), "site",
        site(s->telescope), "side", array_json(&s->side), "packets", s->packets != NULL);
    json_object_update(document, rest);
    json_decref(rest);
    char *text = json_dumps(document, JSON_COMPACT);
    json_decref(document);
    return text;
}

/* --- changes --- */

static int read_array(const json_t *from, struct br_array *array, struct br_error *error)
{
    const json_t *axes = json_object_get(from, "axes"), *shape = json_object_get(from, "shape");
    const char *word = json_string_value(json_object_get(from, "dtype"));
    enum br_dtype dtype = word != NULL ? br_dtype_from_name(word) : array->dtype;
    char names[BR_MAX_AXES * BR_AXIS_NAME + 1] = "";
    size_t length[BR_MAX_AXES] = {0}, n = json_array_size(axes);
    if (dtype == BR_DTYPES)
        return br_fail(error, BR_E_INVALID, "dtype: there is no element type '%.40s'", word);
    if (axes == NULL && shape == NULL) {
        array->dtype = dtype;
        return BR_OK;
    }
    if (n == 0 || n > BR_MAX_AXES || json_array_size(shape) != n)
        return br_fail(error, BR_E_INVALID,
                       "axes and shape: %zu names and %zu lengths; expected 1 to %d of each", n,
                       json_array_size(shape), BR_MAX_AXES);
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(axes, i));
        json_int_t one = json_integer_value(json_array_get(shape, i));
        if (name == NULL || strlen(name) >= BR_AXIS_NAME || one < 1)
            return br_fail(error, BR_E_INVALID,
                           "axes and shape: axis %zu has no name, or its length is %lld; "
                           "expected a name and a length of at least 1",
                           i, (long long)one);
        strcat(strcat(names, i > 0 ? "," : ""), name);
        length[i] = (size_t)one;
    }
    return br_array_init(array, dtype, names, length, error);
}

static const double *read_numbers(struct br_stage *stage, const json_t *list, size_t count)
{
    double *value = br_stage_alloc(stage, (count + 1) * sizeof *value);
    for (size_t i = 0; i < count; i++) value[i] = json_number_value(json_array_get(list, i));
    return value;
}

static int read_channels(struct br_stage *stage, const json_t *from, struct br_stream *s,
                         struct br_error *error)
{
    const json_t *freq = json_object_get(from, "freq_mhz"), *width = json_object_get(from, "width_mhz");
    json_int_t steps = json_integer_value(json_object_get(from, "downsample"));
    if (freq != NULL || width != NULL) {
        size_t n = json_array_size(freq);
        if (n == 0 || json_array_size(width) != n)
            return br_fail(
                error, BR_E_INVALID,
                "freq_mhz and width_mhz: %zu and %zu numbers; expected as many of both as channels", n,
                json_array_size(width));
        s->freq_mhz = read_numbers(stage, freq, n);
        s->width_mhz = read_numbers(stage, width, n);
        s->nchannels = n;
        s->nzones = 1;
        s->zone[0] = (struct br_zone){
            .nchannels = n, .factor = 1, .downsample = s->zone[0].downsample > 0 ? s->zone[0].downsample : 1};
    }
    if (json_object_get(from, "downsample") != NULL && (steps < 1 || steps > INT32_MAX))
        return br_fail(error, BR_E_INVALID, "downsample: %lld; expected 1 or more base samples",
                       (long long)steps);
    for (unsigned z = 0; steps > 0 && z < s->nzones; z++) s->zone[z].downsample = (unsigned)steps;
    return BR_OK;
}

static int read_times(const json_t *from, struct br_stream *s, struct br_error *error)
{
    const json_t *value = json_object_get(from, "frame_samples"),
                 *sample = json_object_get(from, "sample_ns");
    if (value != NULL && json_integer_value(value) < 1)
        return br_fail(error, BR_E_INVALID, "frame_samples: expected 1 or more base samples");
    if (value != NULL) s->frame_samples = (uint64_t)json_integer_value(value);
    value = json_object_get(from, "epoch_ns");
    if (value != NULL) s->epoch_ns = json_integer_value(value);
    if (sample != NULL)
        s->sample_ns = (struct br_rational){json_integer_value(json_array_get(sample, 0)),
                                            json_integer_value(json_array_get(sample, 1))};
    value = json_object_get(from, "scale");
    if (value != NULL) s->scale = json_number_value(value);
    const char *side = json_string_value(json_object_get(from, "sideband"));
    for (unsigned i = 0; side != NULL && i < sizeof sideband_name / sizeof *sideband_name; i++)
        if (sideband_name[i] != NULL && strcmp(side, sideband_name[i]) == 0)
            s->sideband = (enum br_sideband)i;
    return BR_OK;
}

static void read_beams(struct br_stage *stage, const json_t *from, struct br_stream *s)
{
    const json_t *beams = json_object_get(from, "beams");
    size_t n = br_array_axis(&s->array, "beam") >= 0 ? br_array_length(&s->array, "beam") : 0;
    if (n == s->nbeams && beams == NULL) return;
    s->beams = NULL;
    s->beams_x = s->beams_y = 0;
    s->nbeams = n;
    if (n == 0 || json_array_size(beams) != n) return;
    struct br_beam *direction = br_stage_alloc(stage, n * sizeof *direction);
    for (size_t b = 0; b < n; b++)
        direction[b] = (struct br_beam){json_number_value(json_array_get(json_array_get(beams, b), 0)),
                                        json_number_value(json_array_get(json_array_get(beams, b), 1))};
    s->beams = direction;
}

int br_stream_from_json(struct br_stage *stage, unsigned i, const char *text, struct br_error *error)
{
    struct br_stream *s = br_stage_output(stage, i);
    json_error_t bad;
    json_t *from = json_loads(text, JSON_REJECT_DUPLICATES, &bad);
    if (s == NULL) return BR_OK; /* an output that is not connected */
    if (!json_is_object(from)) {
        json_decref(from);
        return br_fail(error, BR_E_INVALID, "the output's description is not JSON object: %.100s", bad.text);
    }
    int status = read_array(from, &s->array, error);
    if (status == BR_OK) status = read_channels(stage, from, s, error);
    if (status == BR_OK) status = read_times(from, s, error);
    if (status == BR_OK) read_beams(stage, from, s);
    const json_t *side = json_object_get(from, "side");
    if (json_is_null(side)) s->side.naxes = 0;
    if (status == BR_OK && json_is_object(side)) status = read_array(side, &s->side, error);
    json_decref(from);
    return status;
}
