#include "stages/common/tables/apparent.h"

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

int apparent_place(const struct apparent_site *site, int64_t unix_ns, double ra, double dec, double *north,
                   double *east, double *up, struct br_error *error)
{
    double day, rest, azimuth, zenith, hour, dec_there, ra_there, origins;
    utc_of(unix_ns, &day, &rest);
    /* without proper motion; no pressure, hence no refraction */
    if (eraAtco13(ra, dec, 0, 0, 0, 0, day, rest, site->ut1_utc_s, site->longitude_deg * radians,
                  site->latitude_deg * radians, 0, 0, 0, 0, 0, 0, 0.5, &azimuth, &zenith, &hour, &dec_there,
                  &ra_there, &origins) < 0)
        return no_utc(unix_ns, error);
    *north = sin(zenith) * cos(azimuth);
    *east = sin(zenith) * sin(azimuth);
    *up = cos(zenith);
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

int apparent_place(const struct apparent_site *site, int64_t unix_ns, double ra, double dec, double *north,
                   double *east, double *up, struct br_error *error)
{
    (void)site, (void)unix_ns, (void)ra, (void)dec, (void)north, (void)east, (void)up;
    return absent(error);
}

#endif
