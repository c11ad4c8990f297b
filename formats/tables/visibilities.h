/* visibilities.h - visibilities of recordings, added up over time with the phases of one direction taken out.
 *
 * They are the stream's: V_ij = E_i conj(E_j) with the field E that the gains will multiply, whatever its
 * sideband. A source in direction s has the field exp(2 pi i cycles) with the cycles of br_sky_cycles; each
 * integration is multiplied by what makes that phase 0 at its centre, and added.
 *
 * UVH5 files are read as pyuvdata reads them, phase exp(+2 pi i (r_2 - r_1).s / lambda), and turned into the
 * stream's visibilities: those of a lower sideband are the same, those of an upper one the conjugates. DADA
 * recordings of what `correlate` makes hold the stream's as they are; where the dishes stand is the caller's
 * to say. HDF5 files are read in another process (hdf5_child.h). */
#ifndef BEAMRING_FORMATS_TABLES_VISIBILITIES_H
#define BEAMRING_FORMATS_TABLES_VISIBILITIES_H

#include "buffers/error.h"
#include "buffers/sky.h"
#include "buffers/telescope.h"
#include "formats/sky/apparent.h"
#include "runtime/config/arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_SOURCES = 16 };

/* Where the source is: fixed above the array, or the first of several that stands above the horizon. */
struct source_place {
    size_t nsources;
    struct sky_source source[MAX_SOURCES];
    double ut1_utc_s;      /* see apparent.h; NAN: the file's, or 0 */
    const struct eop *eop; /* goes before it; NULL: none */
};

/* Whether it is a source on the sky rather than a direction. */
bool source_on_sky(const struct source_place *place);

/* Properties that all files share. */
struct visibilities_shape {
    size_t ndishes, npol, nchannels;
    double latitude_deg, longitude_deg; /* NAN: not known */
    enum br_sideband sideband;          /* of the stream; unknown in no file and not stated: upper is taken */
    char pol[2][4];                     /* "xx", "yy" */
    char telescope[64];
};

struct time_span {
    int64_t begin_ns, end_ns; /* Unix time */
};

/* Values that were left out, of all polarisations that are used. */
struct left_out {
    uint64_t flagged, unsampled, not_finite;
};

struct visibilities {
    enum br_sideband stated; /* by the caller, before the first file; unknown: the files' own */

    struct visibilities_shape shape;
    struct br_arena memory;          /* of all but `span` */
    const char *first_path;          /* the file that the others have to agree with */
    double *freq_mhz, *width_mhz;    /* [nchannels] */
    double *east_m, *north_m, *up_m; /* [ndishes] */
    int64_t *antenna;                /* [ndishes] numbers in the file; the dishes' own in a DADA file */
    size_t npairs;                   /* ndishes (ndishes + 1) / 2: (0, 0) (0, 1) ... (1, 1) ... */
    double *sum;                     /* [npol][nchannels][npairs][2], E_i conj(E_j) */
    double *samples;                 /* [npol][nchannels][npairs] that were added up */
    size_t nspans;
    struct time_span *span; /* [nspans], of each file's integrations, in the files' order */
    size_t nintegrations;
    double towards[3]; /* the source at the first integration: north, east, up */
    double lowest;     /* sine of the source's elevation where it is lowest; 2: nothing is known of it */
    struct left_out left_out;
};

/* Adds a file to a zeroed struct (but for `stated`), or to what earlier files have left there. `telescope`
 * may be NULL: a DADA file is then refused. Errors: BR_E_IO, BR_E_FORMAT, BR_E_NO_MEMORY; BR_E_INVALID
 * naming both files where they do not belong together, for the same integrations twice, for a source below
 * the horizon, with the time, and for a sideband that is stated otherwise. */
int visibilities_add(struct visibilities *v, const char *path, const struct br_telescope *telescope,
                     const struct source_place *place, struct br_error *error);

/* BR_E_INVALID where no file has left anything that gains can be fitted to, with the reason. */
int visibilities_check(const struct visibilities *v, struct br_error *error);
void visibilities_free(struct visibilities *v);

/* The direction of the source at a time, a unit vector to the north, to the east and up. Errors: BR_E_INVALID
 * where none of the sources is above the horizon. */
int source_direction(const struct source_place *place, double latitude_deg, double longitude_deg,
                     int64_t unix_ns, double s[3], struct br_error *error);

/* --- parts, in files of their own --- */

/* One file as it is read, without memory of its own but for the arrays. */
struct visibilities_part {
    struct visibilities_shape shape;
    const double *freq_mhz, *width_mhz, *east_m, *north_m, *up_m;
    const int64_t *antenna;
};

/* Cycles of the field that a source in direction s has at dish d in a channel. */
double source_cycles(const struct visibilities_part *part, size_t channel, size_t d, const double s[3]);

/* Phases that bring a source in this direction to 0: phase[nchannels][ndishes][2]. */
void source_phases(const struct visibilities_part *part, const double s[3], double *phase);

/* The sideband of a file that says `own` of itself. BR_E_INVALID where `stated` contradicts it. */
int visibilities_sideband(enum br_sideband stated, enum br_sideband own, const char *path,
                          enum br_sideband *sideband, struct br_error *error);

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
