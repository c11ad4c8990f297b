/* directions.h - the parameter `beams`: where beams point, as direction cosines along the grid's axes.
 *
 *   {grid: [nx, ny], spacing_deg: s or [sx, sy], center: [x_deg, y_deg]}   a regular grid of angles
 *   {directions: [[x, y], ...]}                                             direction cosines
 *   {file: beams.h5}                                                        /beams float64 [beam][2]
 *
 * and how they move, in direction cosines per second: `rates: [[x, y], ...]` beside the grid or the
 * directions, /rates float64 [beam][2] beside /beams; see motion.h.
 *
 * A grid has x_i = sin(center_x + (i - (nx-1)/2) sx) and y_j likewise; beam i * ny + j points to (x_i, y_j),
 * so that a grid is the product of its two axes (factorizable). */
#ifndef BEAMRING_STAGES_COMMON_SKY_DIRECTIONS_H
#define BEAMRING_STAGES_COMMON_SKY_DIRECTIONS_H

#include "runtime/stage.h"
#include "stages/common/sky/motion.h"
#include "stages/common/stage/export.h"

/* Filled in by the loader from YAML. */
struct br_beams_param {
    struct br_ints grid;
    struct br_reals spacing_deg, center, directions, rates;
    const char *file;
    int64_t reference_ns;
    double every_s;
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
};

/* Errors: BR_E_INVALID (not exactly one form, a direction that is none), and those of br_beams_read. */
int br_directions_make(struct br_directions *directions, const struct br_beams_param *param,
                       struct br_error *error);

/* Puts the beams, where they are at the reference time, into a stream's description, and how they move into
 * *motion; both in memory of the pipeline. Times are those of the stage's input 0. Errors are those of the
 * stage, at `beams`. */
int br_directions_configure(struct br_stage *stage, const struct br_beams_param *param, struct br_stream *out,
                            struct br_motion *motion);

/* Adds the incoherent sum of all inputs to a stream's beams, behind the others. It looks nowhere: its
 * direction is that of the middle, and with it the beams are not a grid. */
void br_directions_append_incoherent(struct br_stage *stage, struct br_stream *out);

#endif
