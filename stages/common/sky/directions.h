/* directions.h - the parameter `beams`: where beams point, as direction cosines along the grid's axes.
 *
 *   {grid: [nx, ny], spacing_deg: s or [sx, sy], center: [x_deg, y_deg]}   a regular grid of angles
 *   {directions: [[x, y], ...]}                                             direction cosines
 *   {file: beams.h5}                                                        /beams float64 [beam][2]
 *   {towards: [{radec: [83.6, 22.0]}, {name: sun}, {azel: [180, 45]}, ...]} towards.h
 *   {grid: [nx, ny], spacing_deg: s, around: {radec: [83.6, 22.0]}}         a grid around one of these
 *
 * and how they move. RA and Dec, the Sun and the Moon are followed; with `follow: false` beams stay where
 * these are at reference_ns. Or, in direction cosines per second: `rates: [[x, y], ...]` beside the grid or
 * the directions, /rates float64 [beam][2] beside /beams; see motion.h.
 *
 * A grid has x_i = sin(center_x + (i - (nx-1)/2) sx) and y_j likewise; beam i * ny + j points to (x_i, y_j),
 * so that a grid is the product of its two axes (factorizable). */
#ifndef BEAMRING_STAGES_COMMON_SKY_DIRECTIONS_H
#define BEAMRING_STAGES_COMMON_SKY_DIRECTIONS_H

#include "formats/sky/pointings.h"
#include "stages/common/sky/towards.h"

/* Filled in by the loader from YAML. */
struct br_beams_param {
    struct br_ints grid;
    struct br_reals spacing_deg, center, directions, rates;
    const struct br_towards *around;
    struct br_maps towards;
    bool follow;
    const char *file;
    int64_t reference_ns;
    double every_s; /* NAN: not given */
};

extern const struct br_param br_beams_fields[];

/* An entry of a stage's schema whose field is `const struct br_beams_param *`. */
#define BR_BEAMS_PARAM(owner, member, need, text)                                                            \
    {                                                                                                        \
        .name = "beams", .type = BR_P_MAP, .offset = offsetof(owner, member), .help = text,                  \
        .required = need, .fields = br_beams_fields, .size = sizeof(struct br_beams_param)                   \
    }

struct br_directions {
    size_t nbeams;
    struct br_beam *beams; /* [nbeams], malloc'ed, freed by the caller */
    size_t nx, ny;         /* nbeams = nx * ny for a grid, else 0, 0 */
    struct br_beam *rates; /* [nbeams] per second, malloc'ed, freed by the caller; NULL: they stand still */
    /* Directions on the sky, whose beams are NAN: [nbeams], or the centre of a grid; malloc'ed, freed by the
     * caller. NULL: none is. */
    struct sky_source *sources;
    double spacing[2]; /* of a grid, radians */
    size_t said;       /* right ascensions that are plain numbers */
};

/* Errors: BR_E_INVALID (not exactly one form, a direction that is none), and those of br_beams_read. */
int br_directions_make(struct br_directions *directions, const struct br_beams_param *param,
                       struct br_error *error);

void br_directions_free(struct br_directions *directions);

/* Seconds in which the sky rotates so little that no phase of the stream's channels and telescope is off by
 * more than so many degrees with the directions of their middle: degrees / 360 of a cycle = rate x half the
 * interval x longest baseline / wavelength. */
double br_sky_interval_s(const struct br_stream *stream, double degrees);

/* The same in base samples: a power of two, so that intervals of nodes with other channels begin at the same
 * samples. */
uint64_t br_sky_interval(const struct br_stream *stream, double degrees);

/* Puts the beams, where they are at the reference time (those that follow the sky: NAN), into a stream's
 * description, and how they move into *motion and there; all in memory of the pipeline. Times and channels
 * are those of the stage's input 0. Errors are those of the stage, at `beams`. */
int br_directions_configure(struct br_stage *stage, const struct br_beams_param *param, struct br_stream *out,
                            struct br_motion *motion);

/* Adds the incoherent sum of all inputs to a stream's beams, behind the others. It looks nowhere: its
 * direction is that of the middle, and with it the beams are not a grid. */
void br_directions_append_incoherent(struct br_stage *stage, struct br_stream *out);

#endif
