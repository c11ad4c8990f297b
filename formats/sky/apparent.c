#include "formats/sky/apparent.h"

#include <math.h>

#if defined BR_WITH_ERFA && BR_WITH_ERFA
#include <erfa.h>

static const double radians = 0.017453292519943295, arcsec = 4.84813681109536e-6, day_ns = 86400e9,
                    jd_1970 = 2440587.5;

/* Quasi-Julian date in two parts, as ERFA takes UTC; days of a leap second are off by up to that second. */
static void utc_of(int64_t unix_ns, double *day, double *rest)
{
    double days = floor((double)unix_ns / day_ns);
    *day = jd_1970 + days;
    *rest = (double)(unix_ns - (int64_t)days * INT64_C(86400000000000)) / day_ns;
}

static int no_utc(int64_t unix_ns, struct br_error *error)
{
    return br_fail(error, BR_E_INVALID, "UTC is not known for Unix time %.3f s: the epoch seems to be wrong",
                   (double)unix_ns * 1e-9);
}

bool apparent_is_there(void)
{
    return true;
}

int apparent_lst(const struct apparent_site *site, int64_t unix_ns, double *lst, struct br_error *error)
{
    double day, rest, tai1, tai2, tt1, tt2, ut1, ut2;
    utc_of(unix_ns, &day, &rest);
    double ut1_utc_s = site->eop != NULL ? eop_at(site->eop, unix_ns).ut1_utc_s : site->ut1_utc_s;
    if (eraUtctai(day, rest, &tai1, &tai2) < 0 || eraTaitt(tai1, tai2, &tt1, &tt2) < 0 ||
        eraUtcut1(day, rest, ut1_utc_s, &ut1, &ut2) < 0)
        return no_utc(unix_ns, error);
    *lst = eraAnp(eraGst06a(ut1, ut2, tt1, tt2) + site->longitude_deg * radians);
    return BR_OK;
}

/* What ERFA wants to know of the site at a time. */
static int observer(const struct apparent_site *site, int64_t unix_ns, eraASTROM *astrom,
                    struct br_error *error)
{
    double day, rest, origins, height = isfinite(site->height_m) ? site->height_m : 0;
    struct eop_day eop = {site->ut1_utc_s, 0, 0};
    if (site->eop != NULL) eop = eop_at(site->eop, unix_ns);
    utc_of(unix_ns, &day, &rest);
    if (eraApco13(day, rest, eop.ut1_utc_s, site->longitude_deg * radians, site->latitude_deg * radians,
                  height, eop.x_arcsec * arcsec, eop.y_arcsec * arcsec, 0, 0, 0, 0.5, astrom, &origins) < 0)
        return no_utc(unix_ns, error);
    return BR_OK;
}

/* The place of Sun or Moon from the barycentre, astronomical units, at a time (TT, which is close enough to
 * TDB). */
static void place_of(enum sky_kind kind, double tt1, double tt2, double p[3])
{
    double sun[2][3], earth[2][3], moon[2][3];
    eraEpv00(tt1, tt2, sun, earth);
    if (kind == SKY_MOON) eraMoon98(tt1, tt2, moon);
    for (int i = 0; i < 3; i++) p[i] = earth[0][i] + (kind == SKY_MOON ? moon[0][i] : -sun[0][i]);
}

/* Where Sun or Moon were when the light left that arrives now, as right ascension and declination seen from
 * the site. */
static int body(enum sky_kind kind, int64_t unix_ns, const eraASTROM *astrom, double *ra, double *dec,
                struct br_error *error)
{
    static const double light_days_per_au = 499.004784 / 86400;
    double day, rest, tai1, tai2, tt1, tt2, from[3], distance = 0;
    utc_of(unix_ns, &day, &rest);
    if (eraUtctai(day, rest, &tai1, &tai2) < 0 || eraTaitt(tai1, tai2, &tt1, &tt2) < 0)
        return no_utc(unix_ns, error);
    for (int i = 0; i < 3; i++) {
        place_of(kind, tt1, tt2 - distance * light_days_per_au, from);
        for (int k = 0; k < 3; k++) from[k] -= astrom->eb[k];
        distance = eraPm(from);
    }
    eraC2s(from, ra, dec);
    return BR_OK;
}

int apparent_places(const struct apparent_site *site, int64_t unix_ns, const struct sky_source *source,
                    size_t count, struct br_beam *beam, double *up, struct br_error *error)
{
    eraASTROM astrom;
    double azimuth, zenith, hour, dec_there, ra_there;
    int status = observer(site, unix_ns, &astrom, error);
    for (size_t i = 0; i < count && status == BR_OK; i++) {
        double ra = source[i].ra, dec = source[i].dec;
        if (source[i].kind == SKY_FIXED) {
            beam[i] = (struct br_beam){source[i].x, source[i].y};
            up[i] = br_sky_up(source[i].x, source[i].y);
            continue;
        }
        if (source[i].kind != SKY_RADEC) status = body(source[i].kind, unix_ns, &astrom, &ra, &dec, error);
        eraAtciqz(ra, dec, &astrom, &ra, &dec);
        eraAtioq(ra, dec, &astrom, &azimuth, &zenith, &hour, &dec_there, &ra_there);
        beam[i] = (struct br_beam){sin(zenith) * cos(azimuth), sin(zenith) * sin(azimuth)};
        up[i] = cos(zenith);
    }
    return status;
}

int apparent_radec(const struct apparent_site *site, int64_t unix_ns, const struct br_beam *beam,
                   size_t count, double (*radec)[2], struct br_error *error)
{
    eraASTROM astrom;
    int status = observer(site, unix_ns, &astrom, error);
    for (size_t i = 0; i < count && status == BR_OK; i++) {
        double ra, dec;
        double away = hypot(beam[i].x, beam[i].y);
        radec[i][0] = radec[i][1] = NAN;
        if (!(away <= 1)) continue;
        eraAtoiq("A", atan2(beam[i].y, beam[i].x), asin(away), &astrom, &ra, &dec);
        eraAticq(ra, dec, &astrom, &ra, &dec);
        radec[i][0] = eraAnp(ra);
        radec[i][1] = dec;
    }
    return status;
}

/* ERFA's table warns from five years after its release on. */
int64_t apparent_leap_seconds_end_ns(void)
{
    double seconds, jd, day;
    int year = 1999;
    while (year < 2200 && eraDat(year + 1, 1, 1, 0, &seconds) == 0) year++;
    eraCal2jd(year + 1, 1, 1, &jd, &day);
    return (int64_t)(jd + day - jd_1970) * INT64_C(86400000000000);
}

int apparent_geodetic(const double xyz[3], double *latitude_deg, double *longitude_deg,
                      struct br_error *error)
{
    enum { WGS84 = 1 };
    double elong, phi, height, place[3] = {xyz[0], xyz[1], xyz[2]};
    if (eraGc2gd(WGS84, place, &elong, &phi, &height) < 0)
        return br_fail(error, BR_E_INTERNAL, "ERFA has no WGS84");
    *latitude_deg = phi / radians;
    *longitude_deg = elong / radians;
    return BR_OK;
}

#else

bool apparent_is_there(void)
{
    return false;
}

static int absent(struct br_error *error)
{
    return br_fail(error, BR_E_INVALID,
                   "this beamring was built without ERFA, which knows where the sky stands (liberfa-dev)");
}

int apparent_lst(const struct apparent_site *site, int64_t unix_ns, double *lst, struct br_error *error)
{
    (void)site, (void)unix_ns, (void)lst;
    return absent(error);
}

int apparent_places(const struct apparent_site *site, int64_t unix_ns, const struct sky_source *source,
                    size_t count, struct br_beam *beam, double *up, struct br_error *error)
{
    (void)site, (void)unix_ns, (void)source, (void)count, (void)beam, (void)up;
    return absent(error);
}

int apparent_radec(const struct apparent_site *site, int64_t unix_ns, const struct br_beam *beam,
                   size_t count, double (*radec)[2], struct br_error *error)
{
    (void)site, (void)unix_ns, (void)beam, (void)count, (void)radec;
    return absent(error);
}

int64_t apparent_leap_seconds_end_ns(void)
{
    return INT64_MAX;
}

int apparent_geodetic(const double xyz[3], double *latitude_deg, double *longitude_deg,
                      struct br_error *error)
{
    (void)xyz, (void)latitude_deg, (void)longitude_deg;
    return absent(error);
}

#endif
