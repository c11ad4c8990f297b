/* motion.h - where beams point at a sample: they stand still, move evenly, or follow what is in the sky.
 *
 *   x(t) = x + rate (t - t_ref)          where there are rates
 *   x(t) = that of a source at t         where there are sources; below the horizon NAN, and so is y
 *
 * Directions hold for `every` base samples, counted from sample 0, and are those of the middle of that
 * interval: which ones hold at a sample depends on the sample alone. */
#ifndef BEAMRING_FORMATS_SKY_MOTION_H
#define BEAMRING_FORMATS_SKY_MOTION_H

#include "formats/sky/apparent.h"

struct br_motion {
    size_t nbeams;
    const struct br_beam *beams; /* [nbeams] at the reference time */
    const struct br_beam *rates; /* [nbeams] direction cosines per second; NULL: see `sources` */
    uint64_t every;              /* base samples; at least 1 where beams move */
    double sample_s;             /* seconds of a base sample */
    double reference_s;          /* of the reference time, from sample 0 on */

    /* The beams follow these: [nbeams], or one, around which nx * ny beams are a grid. NULL: none. */
    const struct sky_source *sources;
    size_t nx, ny;
    double spacing[2]; /* of that grid, radians along x and y */

    const struct apparent_site *site; /* NULL: not known, and nothing is followed */
    int64_t epoch_ns;                 /* Unix time of sample 0 */
    struct br_pointings *pointings;   /* of a stream: where its beams point later on; NULL: as they do here */
};

/* Whether they move at all. */
bool br_motion_moves(const struct br_motion *motion);

/* The number of the interval in which a base sample lies; 0 where beams stand still. */
uint64_t br_motion_interval(const struct br_motion *motion, uint64_t sample);

/* The first base sample behind it; UINT64_MAX: there is none. */
uint64_t br_motion_end(const struct br_motion *motion, uint64_t interval);

/* Where the beams point in it: beams[nbeams]. Any thread. */
void br_motion_at(const struct br_motion *motion, uint64_t interval, struct br_beam *beams);

/* Where a beam looks at one moment, in degrees; NAN where that is not known: below the horizon; RA and Dec
 * (ICRS) without the telescope's site, or without ERFA. */
struct br_look {
    double x, y, azimuth_deg, altitude_deg, ra_deg, dec_deg;
};

/* Where the beams look at a Unix time (br_stream_time_ns has that of a base sample): look[nbeams].
 * BR_E_NO_MEMORY. */
int br_motion_looks(const struct br_motion *motion, int64_t unix_ns, struct br_look *look);

/* Beam (i, j) = i ny + j of nx by ny points to (sin(asin(x) + (i - (nx-1)/2) spacing[0]), likewise y), so
 * that a grid is the product of its axes; NAN below the horizon. */
void br_grid_around(struct br_beam centre, size_t nx, size_t ny, const double spacing[2],
                    struct br_beam *beams);

#endif
