/* coordinates.h - directions as people write them. */
#ifndef BEAMRING_FORMATS_SKY_COORDINATES_H
#define BEAMRING_FORMATS_SKY_COORDINATES_H

#include "formats/sky/apparent.h"

/* "83.633", "22.014": degrees; "05:34:31.9", "+22:00:52": hours and degrees. *plain: the right ascension is a
 * plain number. Errors: BR_E_INVALID. */
int sky_radec(struct sky_source *source, const char *ra, const char *dec, bool *plain,
              struct br_error *error);

/* Azimuth from north over east, and altitude, in degrees. Errors: BR_E_INVALID for one below the horizon. */
int sky_azel(struct sky_source *source, double azimuth_deg, double altitude_deg, struct br_error *error);

/* Direction cosines to the north and to the east. Errors: BR_E_INVALID where x^2 + y^2 is more than 1. */
int sky_xy(struct sky_source *source, double x, double y, struct br_error *error);

/* "sun" or "moon". Errors: BR_E_INVALID for any other name. */
int sky_named(struct sky_source *source, const char *name, struct br_error *error);

#endif
