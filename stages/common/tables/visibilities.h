/* visibilities.h - visibilities of recordings, added up over time with the phases of one direction taken out.
 *
 * A source in direction cosines (x, y) to the north and to the east has the field exp(-2 pi i (north x + east
 * y) / lambda) at a dish that stands `north` and `east` of the origin, lambda being that of the channel's
 * centre. Each integration is multiplied by what makes that phase 0 at its centre, and added.
 *
 * Read are UVH5 files as the stage `uvh5` writes them (dishes and site come with them) and DADA recordings of
 * what `correlate` makes (the telescope is the caller's). HDF5 files are read in another process
 * (hdf5_child.h). */
#ifndef BEAMRING_STAGES_COMMON_TABLES_VISIBILITIES_H
#define BEAMRING_STAGES_COMMON_TABLES_VISIBILITIES_H

#include "buffers/error.h"
#include "buffers/telescope.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where the source is: fixed above the array, or on the sky. */
struct source_place {
    bool on_sky;
    double x, y;      /* direction cosines to the north and to the east */
    double ra, dec;   /* radians, ICRS */
    double ut1_utc_s; /* see apparent.h */
};

/* What all files have in common. */
struct visibilities_shape {
    size_t ndishes, npol, nchannels;
    double latitude_deg, longitude_deg; /* NAN: not known */
    char telescope[64];
};

struct time_span {
    int64_t begin_ns, end_ns; /* Unix time */
};

struct visibilities {
    struct visibilities_shape shape;
    char *first_path;             /* the file that the others have to agree with */
    double *freq_mhz, *width_mhz; /* [nchannels] */
    double *east_m, *north_m;     /* [ndishes] */
    size_t npairs;                /* ndishes (ndishes + 1) / 2: (0, 0) (0, 1) ... (1, 1) ... */
    double *sum;                  /* [npol][nchannels][npairs][2], E_i conj(E_j) */
    double *samples;              /* [npol][nchannels][npairs] that were added up */
    size_t nspans;
    struct time_span *span; /* [nspans], of each file's integrations, in the files' order */
    size_t nintegrations;
    double lowest; /* sine of the source's elevation where it is lowest; 2: nothing is known of it */
};

/* Adds a file to a zeroed struct, or to what earlier files have left there. `telescope` may be NULL: a DADA
 * file is then refused. Errors: BR_E_IO, BR_E_FORMAT, BR_E_NO_MEMORY; BR_E_INVALID naming both files where
 * they do not belong together, for the same integrations twice, and for a source below the horizon, with the
 * time. */
int visibilities_add(struct visibilities *v, const char *path, const struct br_telescope *telescope,
                     const struct source_place *place, struct br_error *error);
void visibilities_free(struct visibilities *v);

/* --- parts, in files of their own --- */

/* One file as it is read, without memory of its own but for the arrays. */
struct visibilities_part {
    struct visibilities_shape shape;
    const double *freq_mhz, *width_mhz, *east_m, *north_m;
};

/* The direction of the source at a time. */
int source_direction(const struct source_place *place, double latitude_deg, double longitude_deg,
                     int64_t unix_ns, double *north, double *east, double *up, struct br_error *error);

/* Phases that bring a source in this direction to 0: phase[nchannels][ndishes][2] = exp(+2 pi i (north x +
 * east y) / lambda). */
void source_phases(const struct visibilities_part *part, double north, double east, double *phase);

/* Makes room for, or compares with, what a file says of itself. */
int visibilities_agree(struct visibilities *v, const char *path, const struct visibilities_part *part,
                       struct br_error *error);
/* Notes that a file covers this span, which no other one may touch. */
int visibilities_cover(struct visibilities *v, const char *path, struct time_span span,
                       struct br_error *error);

int visibilities_add_uvh5(struct visibilities *v, const char *path, const struct source_place *place,
                          struct br_error *error);
int visibilities_add_dada(struct visibilities *v, const char *path, const struct br_telescope *telescope,
                          const struct source_place *place, struct br_error *error);

#endif
