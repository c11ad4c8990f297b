#include "formats/sky/coordinates.h"
#include "formats/common/text.h"

#include <math.h>
#include <string.h>

static const double radians = 0.017453292519943295;

/* "83.63" or "-22:00:52.1" in units of the first number; false where it is neither. With colons, numbers have
 * digits alone, and a point in the last one: 05:34.5:10 and 1e1:00 are mistakes. */
static bool read_angle(const char *text, double *value, bool *plain)
{
    double part[3] = {0}, unit = 1, sum = 0;
    int count = 0;
    char copy[64], *rest = copy;
    if (strlen(text) >= sizeof copy) return false;
    strcpy(copy, text);
    bool negative = copy[0] == '-';
    if (copy[0] == '-' || copy[0] == '+') rest++;
    while (rest != NULL && count < 3) {
        char *colon = strchr(rest, ':');
        if (colon != NULL) *colon++ = '\0';
        bool parts = colon != NULL || count > 0;
        if (parts && rest[strspn(rest, colon != NULL ? "0123456789" : "0123456789.")] != '\0') return false;
        if (text_real(rest, &part[count]) != 0 || part[count] < 0 || (count > 0 && part[count] >= 60))
            return false;
        sum += part[count++] * unit;
        unit /= 60;
        rest = colon;
    }
    *value = negative ? -sum : sum;
    *plain = count == 1;
    return rest == NULL;
}

int sky_radec(struct sky_source *source, const char *ra, const char *dec, bool *plain, struct br_error *error)
{
    double there[2];
    bool ignored;
    if (!read_angle(ra, &there[0], plain) || !read_angle(dec, &there[1], &ignored))
        return br_fail(error, BR_E_INVALID,
                       "'%s, %s' are not a right ascension and a declination; expected degrees, such as "
                       "83.633, 22.014, or hours and degrees with colons, such as 05:34:31.9, +22:00:52",
                       ra, dec);
    if (!*plain) there[0] *= 15;
    if (!(there[0] >= 0 && there[0] <= 360 && fabs(there[1]) <= 90))
        return br_fail(error, BR_E_INVALID,
                       "'%s, %s': expected a right ascension of 0 to 360 degrees (24 h) and a declination of "
                       "-90 to 90",
                       ra, dec);
    source->kind = SKY_RADEC;
    source->ra = there[0] * radians;
    source->dec = there[1] * radians;
    return BR_OK;
}

int sky_xy(struct sky_source *source, double x, double y, struct br_error *error)
{
    if (!(x * x + y * y <= 1 + 1e-12))
        return br_fail(error, BR_E_INVALID,
                       "(%.6g, %.6g) is not a direction but below the horizon: x^2 + y^2 must not exceed 1",
                       x, y);
    source->kind = SKY_FIXED;
    source->x = x;
    source->y = y;
    return BR_OK;
}

int sky_azel(struct sky_source *source, double azimuth_deg, double altitude_deg, struct br_error *error)
{
    if (!(fabs(azimuth_deg) <= 360 && altitude_deg >= 0 && altitude_deg <= 90))
        return br_fail(error, BR_E_INVALID,
                       "azimuth %.6g, altitude %.6g degrees: expected an azimuth of -360 to 360 and an "
                       "altitude of 0, the horizon, to 90",
                       azimuth_deg, altitude_deg);
    double azimuth = azimuth_deg * radians, away = cos(altitude_deg * radians);
    return sky_xy(source, cos(azimuth) * away, sin(azimuth) * away, error);
}

int sky_named(struct sky_source *source, const char *name, struct br_error *error)
{
    if (strcmp(name, "sun") != 0 && strcmp(name, "moon") != 0)
        return br_fail(error, BR_E_INVALID, "'%s' is not a source that beamring knows; expected sun or moon",
                       name);
    source->kind = strcmp(name, "sun") == 0 ? SKY_SUN : SKY_MOON;
    source->name = name;
    return BR_OK;
}
