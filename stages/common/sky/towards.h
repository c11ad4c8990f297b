/* towards.h - one direction as a parameter: {xy: [x, y]}, {azel: [azimuth, altitude]}, {radec: [ra, dec]},
 * {name: sun}. */
#ifndef BEAMRING_STAGES_COMMON_SKY_TOWARDS_H
#define BEAMRING_STAGES_COMMON_SKY_TOWARDS_H

#include "formats/sky/motion.h"
#include "runtime/stage.h"
#include "stages/common/stage/export.h"

/* Filled in by the loader from YAML. */
struct br_towards {
    struct br_reals xy, azel;
    struct br_strings radec; /* numbers, or texts with colons */
    const char *name;
};

/* The entries of a schema for a struct that begins with a struct br_towards. */
#define BR_TOWARDS_PARAMS                                                                                    \
    BR_PARAM("xy", BR_P_REALS, struct br_towards, xy, "direction cosines along m (north) and n (east)",      \
             .min = -1, .max = 1, .min_count = 2, .max_count = 2),                                           \
        BR_PARAM("azel", BR_P_REALS, struct br_towards, azel, "azimuth from north over east, and altitude",  \
                 .unit = "degrees", .min = -360, .max = 360, .min_count = 2, .max_count = 2),                \
        BR_PARAM("radec", BR_P_STRINGS, struct br_towards, radec,                                            \
                 "right ascension and declination (ICRS): degrees, or with colons hours and degrees",        \
                 .min_count = 2, .max_count = 2),                                                            \
        BR_PARAM("name", BR_P_STRING, struct br_towards, name, "sun or moon; or a name for `radec`")

/* The direction that the parameter describes. `said` (may be NULL) counts right ascensions that are plain
 * numbers. Errors: BR_E_INVALID (not exactly one form, a direction that is none). */
int br_towards_source(const struct br_towards *towards, struct sky_source *source, size_t *said,
                      struct br_error *error);

/* The telescope's site with its file of the Earth's orientation; both in memory of the pipeline. *site
 * becomes NULL where the telescope has no latitude and longitude. Fails at `param`. */
int br_stage_site(struct br_stage *stage, const char *param, const struct apparent_site **site);

/* Says in which units right ascensions are, how well the sky's place is known at that time, and refuses what
 * needs the sky where it is not known at all. Fails at `param`. */
int br_stage_follows(struct br_stage *stage, const char *param, const struct apparent_site *site, size_t said,
                     int64_t unix_ns);

#endif
