/* apparent.h - where the sky stands above a site, by ERFA; times are Unix time, which is UTC.
 *
 * Directions are unit vectors: x to the north, y to the east, and up, which is negative below the horizon.
 * They are those of light in a vacuum: without refraction. */
#ifndef BEAMRING_FORMATS_SKY_APPARENT_H
#define BEAMRING_FORMATS_SKY_APPARENT_H

#include "buffers/stream.h"
#include "formats/sky/eop.h"

struct apparent_site {
    double latitude_deg, longitude_deg; /* geodetic, east positive */
    double ut1_utc_s;                   /* UT1 - UTC where there is no eop, without which the pole is at 0 */
    const struct eop *eop;              /* NULL: none */
    double height_m;                    /* above the ellipsoid */
};

enum sky_kind {
    SKY_FIXED, /* a direction of the site */
    SKY_RADEC,
    SKY_SUN, /* its centre, with parallax, light time and aberration; so the Moon's, within 10 arc seconds */
    SKY_MOON
};

/* Something in the sky. */
struct sky_source {
    enum sky_kind kind;
    double x, y;      /* SKY_FIXED: direction cosines to the north and to the east */
    double ra, dec;   /* SKY_RADEC: ICRS, radians */
    const char *name; /* for people; NULL: none */
};

/* False in a beamring that was built without ERFA: the functions below then fail with BR_E_INVALID. */
bool apparent_is_there(void);

/* Local apparent sidereal time, radians in [0, 2 pi). */
int apparent_lst(const struct apparent_site *site, int64_t unix_ns, double *lst, struct br_error *error);

/* Where `count` sources stand at one time: their direction cosines beam[count] to the north and to the east,
 * and up[count]. Any thread. Errors: BR_E_INVALID for a time at which there is no UTC. */
int apparent_places(const struct apparent_site *site, int64_t unix_ns, const struct sky_source *source,
                    size_t count, struct br_beam *beam, double *up, struct br_error *error);

/* The way back: right ascension in [0, 2 pi) and declination (ICRS, radians) of what stands in these
 * directions at that time: radec[count][2], NAN where beam is NAN or below the horizon. */
int apparent_radec(const struct apparent_site *site, int64_t unix_ns, const struct br_beam *beam,
                   size_t count, double (*radec)[2], struct br_error *error);

/* The last Unix time for which the leap seconds are known: after it one may be missing, which puts the Moon
 * off by 0.6 arc seconds, the Sun by 0.04 and all else by less. */
int64_t apparent_leap_seconds_end_ns(void);

/* Geodetic latitude and longitude, degrees, of a point in axes fixed to the Earth (ITRS, metres). */
int apparent_geodetic(const double xyz[3], double *latitude_deg, double *longitude_deg,
                      struct br_error *error);

#endif
