#include "formats/uvh5/apparent.h"

#include <math.h>

#if defined BR_WITH_ERFA && BR_WITH_ERFA
#include <erfa.h>

static const double radians = 0.017453292519943295, day_ns = 86400e9, jd_1970 = 2440587.5;

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
    if (eraUtctai(day, rest, &tai1, &tai2) < 0 || eraTaitt(tai1, tai2, &tt1, &tt2) < 0 ||
        eraUtcut1(day, rest, site->ut1_utc_s, &ut1, &ut2) < 0)
        return no_utc(unix_ns, error);
    *lst = eraAnp(eraGst06a(ut1, ut2, tt1, tt2) + site->longitude_deg * radians);
    return BR_OK;
}

/* A direction of the ICRS as the site sees it: aberration, precession, nutation and the Earth's rotation; no
 * pressure, hence no refraction. With `sun` it is the Sun's, and ra and dec are ignored. */
static int observed(const struct apparent_site *site, int64_t unix_ns, bool sun, double ra, double dec,
                    double s[3], struct br_error *error)
{
    double day, rest, azimuth, zenith, hour, dec_there, ra_there, origins;
    eraASTROM astrom;
    utc_of(unix_ns, &day, &rest);
    if (eraApco13(day, rest, site->ut1_utc_s, site->longitude_deg * radians, site->latitude_deg * radians, 0,
                  0, 0, 0, 0, 0, 0.5, &astrom, &origins) < 0)
        return no_utc(unix_ns, error);
    if (sun) { /* the Sun moves by 0.01 arc seconds while its light travels */
        double from[3] = {-astrom.eh[0], -astrom.eh[1], -astrom.eh[2]};
        eraC2s(from, &ra, &dec);
    }
    eraAtciqz(ra, dec, &astrom, &ra, &dec);
    eraAtioq(ra, dec, &astrom, &azimuth, &zenith, &hour, &dec_there, &ra_there);
    s[0] = sin(zenith) * cos(azimuth);
    s[1] = sin(zenith) * sin(azimuth);
    s[2] = cos(zenith);
    return BR_OK;
}

int apparent_place(const struct apparent_site *site, int64_t unix_ns, double ra, double dec, double s[3],
                   struct br_error *error)
{
    return observed(site, unix_ns, false, ra, dec, s, error);
}

int apparent_sun(const struct apparent_site *site, int64_t unix_ns, double s[3], struct br_error *error)
{
    return observed(site, unix_ns, true, 0, 0, s, error);
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

int apparent_place(const struct apparent_site *site, int64_t unix_ns, double ra, double dec, double s[3],
                   struct br_error *error)
{
    (void)site, (void)unix_ns, (void)ra, (void)dec, (void)s;
    return absent(error);
}

int apparent_sun(const struct apparent_site *site, int64_t unix_ns, double s[3], struct br_error *error)
{
    (void)site, (void)unix_ns, (void)s;
    return absent(error);
}

int apparent_geodetic(const double xyz[3], double *latitude_deg, double *longitude_deg,
                      struct br_error *error)
{
    (void)xyz, (void)latitude_deg, (void)longitude_deg;
    return absent(error);
}

#endif
