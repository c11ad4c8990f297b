#include "stages/common/sky/towards.h"
#include "formats/common/text.h"
#include "formats/sky/coordinates.h"

#include <math.h>

int br_towards_source(const struct br_towards *towards, struct sky_source *source, size_t *said,
                      struct br_error *error)
{
    const double *xy = towards->xy.value, *azel = towards->azel.value;
    const char *const *radec = towards->radec.value;
    int forms = (towards->xy.count > 0) + (towards->azel.count > 0) + (towards->radec.count > 0);
    bool plain = false;
    *source = (struct sky_source){.name = towards->name};
    if (forms > 1 || (forms == 0 && towards->name == NULL))
        return br_fail(error, BR_E_INVALID, "it has %s of xy, azel, radec and name; expected exactly one",
                       forms > 1 ? "more than one" : "none");
    if (towards->xy.count > 0) return sky_xy(source, xy[0], xy[1], error);
    if (towards->azel.count > 0) return sky_azel(source, azel[0], azel[1], error);
    if (forms == 0) return sky_named(source, towards->name, error);
    int status = sky_radec(source, radec[0], radec[1], &plain, error);
    if (said != NULL && status == BR_OK) *said += plain;
    return status;
}

int br_stage_site(struct br_stage *stage, const char *param, const struct apparent_site **site)
{
    const struct br_telescope *t = br_stage_telescope(stage);
    struct br_error error = {0};
    struct eop eop = {0};
    *site = NULL;
    if (t == NULL || !isfinite(t->latitude_deg) || !isfinite(t->longitude_deg)) return BR_OK;
    struct apparent_site *made = br_stage_alloc(stage, sizeof *made);
    *made = (struct apparent_site){t->latitude_deg, t->longitude_deg, 0, NULL, t->height_m};
    *site = made;
    if (t->eop == NULL) return BR_OK;
    int status = br_stage_reads_file(stage, param, t->eop);
    if (status == BR_OK && eop_read(&eop, t->eop, &error) != BR_OK)
        status = br_stage_fail_at(stage, param, "telescope: eop: %s", error.text);
    if (status == BR_OK) {
        struct eop *kept = br_stage_alloc(stage, sizeof *kept);
        struct eop_day *day = br_stage_alloc(stage, eop.ndays * sizeof *day);
        for (size_t i = 0; i < eop.ndays; i++) day[i] = eop.day[i];
        *kept = (struct eop){eop.ndays, eop.first_mjd, day};
        made->eop = kept;
    }
    eop_free(&eop);
    return status;
}

int br_stage_follows(struct br_stage *stage, const char *param, const struct apparent_site *site, size_t said,
                     int64_t unix_ns)
{
    char when[TEXT_TIME], end[TEXT_TIME];
    if (!apparent_is_there())
        return br_stage_fail_at(stage, param,
                                "this beamring was built without ERFA (liberfa-dev), which knows where the "
                                "sky stands; expected directions as xy or azel");
    if (site == NULL)
        return br_stage_fail_at(
            stage, param,
            "where the sky stands depends on the site: add latitude_deg and longitude_deg "
            "to `telescope:`");
    struct br_beam beam;
    struct br_error error = {0};
    double up;
    const struct sky_source sun = {.kind = SKY_SUN};
    if (apparent_places(site, unix_ns, &sun, 1, &beam, &up, &error) != BR_OK)
        return br_stage_fail_at(stage, param, "%s", error.text);
    if (said > 0)
        br_stage_note(stage,
                      "%s: %zu right ascension%s taken in degrees, as a plain number is; hours have colons "
                      "(05:34:31.9)",
                      param, said, said == 1 ? " is" : "s are");
    double off = eop_error_arcsec(site->eop, unix_ns);
    text_utc_format(when, unix_ns);
    if (site->eop == NULL)
        br_stage_note(
            stage,
            "%s: directions on the sky may be off by %.0f arc seconds, since UT1 - UTC is taken to be "
            "0: add `eop: finals2000A.all` (a file of the IERS) to `telescope:`",
            param, off);
    else if (off > 0)
        br_stage_warn(stage,
                      "%s: the file of the Earth's orientation has the days until %s, but not %s: directions "
                      "on the sky may be off by %.2g arc seconds. Fetch a new finals2000A.all",
                      param, text_utc_format(end, eop_end_ns(site->eop)), when, off);
    if (unix_ns > apparent_leap_seconds_end_ns())
        br_stage_note(stage,
                      "%s: ERFA knows leap seconds until %s; if there was one since, the Moon is off by 0.6 "
                      "and the Sun by 0.04 arc seconds",
                      param, text_utc_format(end, apparent_leap_seconds_end_ns()));
    return BR_OK;
}
