/* direction.c - where an event comes from: what a request says of it, and when its wave crosses the array. */
#include "formats/common/text.h"
#include "stages/common/sky/towards.h"
#include "stages/dump/dump.h"

#include <math.h>
#include <string.h>

/* A request's direction as the parameter of that form. */
struct said {
    struct br_towards towards;
    double xy[2], azel[2];
    char radec[2][64];
    const char *text[2];
};

static bool read_pair(const json_t *list, double *value, struct br_reals *reals)
{
    if (!json_is_array(list) || json_array_size(list) != 2) return false;
    for (size_t i = 0; i < 2; i++) {
        if (!json_is_number(json_array_get(list, i))) return false;
        value[i] = json_number_value(json_array_get(list, i));
    }
    *reals = (struct br_reals){2, value};
    return true;
}

/* Numbers, or texts. */
static bool read_radec(const json_t *list, struct said *s)
{
    if (!json_is_array(list) || json_array_size(list) != 2) return false;
    for (size_t i = 0; i < 2; i++) {
        const json_t *one = json_array_get(list, i);
        if (json_is_number(one))
            text_real_format(s->radec[i], json_number_value(one));
        else if (json_is_string(one) && json_string_length(one) < sizeof s->radec[i])
            strcpy(s->radec[i], json_string_value(one));
        else
            return false;
        s->text[i] = s->radec[i];
    }
    s->towards.radec = (struct br_strings){2, s->text};
    return true;
}

/* It stands in headers of one line. */
static bool read_name(const json_t *name, struct said *s)
{
    const char *text = json_string_value(name);
    if (text == NULL || *text == '\0' || strlen(text) >= sizeof((struct writer_direction *)0)->name)
        return false;
    for (const char *c = text; *c != '\0'; c++)
        if (*c <= ' ' || *c > '~' || *c == '#') return false;
    s->towards.name = text;
    return true;
}

static int read_form(const json_t *json, struct said *s, struct br_error *error)
{
    const char *key;
    json_t *value;
    if (!json_is_object(json))
        return br_fail(error, BR_E_INVALID, "expected an object, such as {\"radec\": [83.633, 22.014]}");
    json_object_foreach((json_t *)(uintptr_t)json, key, value)
    {
        if (strcmp(key, "xy") == 0) {
            if (!read_pair(value, s->xy, &s->towards.xy))
                return br_fail(error, BR_E_INVALID,
                               "xy: expected two numbers, the cosines to north and east");
        } else if (strcmp(key, "azel") == 0) {
            if (!read_pair(value, s->azel, &s->towards.azel))
                return br_fail(error, BR_E_INVALID, "azel: expected azimuth and altitude in degrees");
        } else if (strcmp(key, "radec") == 0) {
            if (!read_radec(value, s))
                return br_fail(
                    error, BR_E_INVALID,
                    "radec: expected right ascension and declination: numbers of degrees, or texts "
                    "with colons, such as [\"05:34:31.9\", \"+22:00:52\"]");
        } else if (strcmp(key, "name") != 0) {
            return br_fail(error, BR_E_INVALID, "'%.40s' is not a key; expected xy, azel, radec or name",
                           key);
        } else if (!read_name(value, s)) {
            return br_fail(error, BR_E_INVALID,
                           "name: expected at most %zu printable characters without blanks and '#'",
                           sizeof((struct writer_direction *)0)->name - 1);
        }
    }
    return BR_OK;
}

/* Where it stands at that time, up to date with the sky. */
static int find(const struct apparent_site *site, const struct sky_source *source, int64_t unix_ns,
                struct br_beam *there, double *up, struct br_error *error)
{
    char when[TEXT_TIME];
    *there = (struct br_beam){source->x, source->y};
    *up = br_sky_up(source->x, source->y);
    if (source->kind == SKY_FIXED) return BR_OK;
    if (site == NULL)
        return br_fail(error, BR_E_INVALID,
                       "where the sky stands depends on the site: expected xy or azel, or latitude_deg and "
                       "longitude_deg in `telescope:`");
    int status = apparent_places(site, unix_ns, source, 1, there, up, error);
    if (status == BR_OK && !(*up >= 0))
        status = br_fail(error, BR_E_INVALID,
                         "it stood %.3g degrees below the horizon when the event begins, at %s UTC",
                         -asin(*up) * 180 / M_PI, text_utc_format(when, unix_ns));
    return status;
}

/* Seconds, from the middle of the array, at which the wave crosses the first and the last of the dishes. */
static void cross(const struct br_telescope *t, const struct dump *d, const double s[3], double *early_s,
                  double *late_s)
{
    double middle = 0, low = INFINITY, high = -INFINITY;
    size_t count = d->ndishes > 0 ? d->ndishes : t->ndishes;
    for (size_t i = 0; i < t->ndishes; i++)
        for (int k = 0; k < 3; k++) middle += t->position[i][k] * s[k] / t->ndishes;
    for (size_t i = 0; i < count; i++) {
        const double *r = t->position[d->ndishes > 0 ? d->dish[i] : i];
        double path = r[0] * s[0] + r[1] * s[1] + r[2] * s[2] - middle;
        low = fmin(low, path);
        high = fmax(high, path);
    }
    *early_s = -high / BR_LIGHT_M_PER_S;
    *late_s = -low / BR_LIGHT_M_PER_S;
}

int dump_direction(const struct dump_stage *stage, struct dump *d, const json_t *json,
                   const struct br_stream *stream, int64_t unix_ns, struct br_error *error)
{
    struct said said = {0};
    struct sky_source source;
    struct br_beam there;
    double up, radec[1][2] = {{NAN, NAN}};
    size_t plain = 0;
    int status = read_form(json, &said, error);
    if (status == BR_OK) status = br_towards_source(&said.towards, &source, &plain, error);
    if (status == BR_OK) status = find(stage->site, &source, unix_ns, &there, &up, error);
    if (status != BR_OK) return status;
    if (stage->site != NULL && apparent_is_there())
        status = apparent_radec(stage->site, unix_ns, &there, 1, radec, error);
    if (status != BR_OK) return status;
    if (source.kind == SKY_RADEC) radec[0][0] = source.ra, radec[0][1] = source.dec;
    d->direction =
        (struct writer_direction){.known = true,
                                  .azimuth_deg = fmod(atan2(there.y, there.x) * 180 / M_PI + 360, 360),
                                  .altitude_deg = asin(fmin(up, 1)) * 180 / M_PI,
                                  .ra_deg = radec[0][0] * 180 / M_PI,
                                  .dec_deg = radec[0][1] * 180 / M_PI};
    snprintf(d->direction.name, sizeof d->direction.name, "%s",
             said.towards.name != NULL ? said.towards.name : "");
    if (plain > 0)
        br_stage_note(stage->writer->stage,
                      "a dump's right ascension %s is taken in degrees, as a plain number is; hours have "
                      "colons (05:34:31.9)",
                      said.radec[0]);
    if (stream->telescope != NULL && stage->ndish == stream->telescope->ndishes)
        cross(stream->telescope, d, (const double[3]){there.y, there.x, up}, &d->sweep.early_s,
              &d->sweep.late_s);
    return BR_OK;
}
