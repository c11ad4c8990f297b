/* apparent.h - where the sky stands above a site, by ERFA; times are Unix time, which is UTC.
 *
 * Earth's rotation is UT1, which no computation foretells: ut1_utc_s is UT1 - UTC of the day as the IERS
 * publishes it, at most 0.9 s; a second of it moves the sky by 15 seconds of arc. */
#ifndef BEAMRING_FORMATS_UVH5_APPARENT_H
#define BEAMRING_FORMATS_UVH5_APPARENT_H

#include "buffers/error.h"

#include <stdbool.h>
#include <stdint.h>

struct apparent_site {
    double latitude_deg, longitude_deg; /* geodetic, east positive */
    double ut1_utc_s;
};

/* False in a beamring that was built without ERFA: the functions below then fail with BR_E_INVALID. */
bool apparent_is_there(void);

/* Local apparent sidereal time, radians in [0, 2 pi). */
int apparent_lst(const struct apparent_site *site, int64_t unix_ns, double *lst, struct br_error *error);

/* Where a source at right ascension and declination (ICRS, radians) stands: a unit vector to the north, to
 * the east and up, which is negative below the horizon. Without refraction and polar motion. */
int apparent_place(const struct apparent_site *site, int64_t unix_ns, double ra, double dec, double s[3],
                   struct br_error *error);

/* The same for the centre of the Sun, as the site sees it: with its parallax, light time and aberration. */
int apparent_sun(const struct apparent_site *site, int64_t unix_ns, double s[3], struct br_error *error);

/* Geodetic latitude and longitude, degrees, of a point in axes fixed to the Earth (ITRS, metres). */
int apparent_geodetic(const double xyz[3], double *latitude_deg, double *longitude_deg,
                      struct br_error *error);

#endif
