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
 * lower one. Positions and directions are east and north: x is the direction cosine to the north (the grid's
 * m axis), y to the east (its n axis). */
#ifndef BEAMRING_BUFFERS_SKY_H
#define BEAMRING_BUFFERS_SKY_H

#include "buffers/telescope.h"

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

/* The phase, in cycles, of the field of a source in direction (x, y) at the position (north_m, east_m) from
 * the origin: E_d = exp(+2 pi i cycles). */
static inline double br_sky_cycles(enum br_sideband sideband, double freq_mhz, double north_m, double east_m,
                                   double x, double y)
{
    return br_sideband_sign(sideband) * (north_m * x + east_m * y) * 1e6 * freq_mhz / BR_LIGHT_M_PER_S;
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
