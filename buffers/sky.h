/* sky.h - the convention from which every sign follows: the direction of a wave and the sideband that holds
 * it. docs/conventions.md describes it in full; nothing else in the project chooses a sign.
 *
 * A wave of frequency f from the direction s (a unit vector towards the source) reaches a dish at position r
 * earlier by r.s / c. With the time dependence exp(+2 pi i f t) a channel therefore holds
 *
 *   upper sideband   E_d = g_d exp(+2 pi i r_d.s f / c)         baseband frequencies run up on the sky
 *   lower sideband   E_d = the conjugate of that                baseband frequencies run down on the sky
 *
 * An odd Nyquist zone, or a mixer that keeps the upper sideband, gives the upper one; an even zone gives the
 * lower one. Positions are east, north and up. x is the direction cosine of s to the north (the grid's m
 * axis), y to the east (its n axis). s is above the horizon: upwards it has sqrt(1 - x^2 - y^2). */
#ifndef BEAMRING_BUFFERS_SKY_H
#define BEAMRING_BUFFERS_SKY_H

#include "buffers/telescope.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The sideband that the channels of a stream hold. Unknown is zero, the value in a description that does not
 * set it. */
enum br_sideband { BR_SIDEBAND_UNKNOWN, BR_SIDEBAND_UPPER, BR_SIDEBAND_LOWER };

/* The names of the two, for lists of choices; NULL-terminated. */
static const char *const br_sideband_names[] = {"upper", "lower", NULL};

/* +1 for the upper sideband, -1 for the lower one. An unknown sideband is taken to be the upper one: +1. This
 * is the sign of a source's phase, and of baseband frequencies relative to frequencies on the sky. */
static inline int br_sideband_sign(enum br_sideband sideband)
{
    return sideband == BR_SIDEBAND_LOWER ? -1 : 1;
}

/* "upper", "lower" or "unknown". */
static inline const char *br_sideband_name(enum br_sideband sideband)
{
    return sideband == BR_SIDEBAND_UPPER ? "upper" : sideband == BR_SIDEBAND_LOWER ? "lower" : "unknown";
}

/* The sideband called `name`; unknown for any other text and for NULL. */
static inline enum br_sideband br_sideband_named(const char *name)
{
    if (name != NULL && strcmp(name, "upper") == 0) return BR_SIDEBAND_UPPER;
    if (name != NULL && strcmp(name, "lower") == 0) return BR_SIDEBAND_LOWER;
    return BR_SIDEBAND_UNKNOWN;
}

/* The direction cosine upwards of the direction (x, y). 0 on the horizon, and where rounding puts (x, y) just
 * below it. */
static inline double br_sky_up(double x, double y)
{
    return sqrt(fmax(0, 1 - x * x - y * y));
}

/* The phase, in cycles, of a wave that arrives earlier by the time that light needs for path_m metres. */
static inline double br_sky_path_cycles(enum br_sideband sideband, double freq_mhz, double path_m)
{
    return br_sideband_sign(sideband) * path_m * 1e6 * freq_mhz / BR_LIGHT_M_PER_S;
}

/* The phase, in cycles, of the field of a source in direction (x, y) at a position [east, north, up], metres
 * from the origin: E_d = exp(+2 pi i cycles). */
static inline double br_sky_cycles(enum br_sideband sideband, double freq_mhz, const double position[3],
                                   double x, double y)
{
    return br_sky_path_cycles(sideband, freq_mhz,
                              position[1] * x + position[0] * y + position[2] * br_sky_up(x, y));
}

/* The sky frequency (MHz) of a baseband frequency (MHz) in a channel with its centre at `centre_mhz`. */
static inline double br_sky_frequency(enum br_sideband sideband, double centre_mhz, double baseband_mhz)
{
    return centre_mhz + br_sideband_sign(sideband) * baseband_mhz;
}

#ifdef __cplusplus
}
#endif
#endif
