/* places.h - where sources and bursts are: fixed above the dishes, or on the sky. */
#ifndef BEAMRING_STAGES_SIMULATE_PLACES_H
#define BEAMRING_STAGES_SIMULATE_PLACES_H

#include "stages/common/sky/directions.h"

/* The first members of a source's and a burst's parameters. */
struct place_param {
    struct br_towards at;
    double x_deg, y_deg; /* NAN: not given */
};

/* Their entries of a schema. */
#define PLACE_PARAMS                                                                                         \
    BR_PARAM("x_deg", BR_P_REAL, struct place_param, x_deg,                                                  \
             "direction along m (north-south): the direction cosine is its sine", .min = -90, .max = 90,     \
             .unit = "degrees"),                                                                             \
        BR_PARAM("y_deg", BR_P_REAL, struct place_param, y_deg, "direction along n (east-west)", .min = -90, \
                 .max = 90, .unit = "degrees"),                                                              \
        BR_TOWARDS_PARAMS

/* The direction that item i of the parameter `param` describes; counts plain right ascensions in *said.
 * Status; a failure is the stage's. */
int place_take(struct br_stage *stage, const char *param, size_t i, const struct place_param *p,
               struct sky_source *source, size_t *said);

/* Prepares sources[nsources] that may move for an output stream: how they move into *motion, in memory of the
 * pipeline, and the bursts[nbursts], which stand where they are at arrival_ns[nbursts]. Status; a failure is
 * the stage's, as for a burst below the horizon. */
int places_configure(struct br_stage *stage, const struct br_stream *out, const struct sky_source *sources,
                     size_t nsources, struct sky_source *bursts, size_t nbursts, const int64_t *arrival_ns,
                     size_t said, struct br_motion *motion);

#endif
