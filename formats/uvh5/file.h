/* file.h - one UVH5 file (version 1.2) that grows by integrations.
 *
 * After each integration the file is complete and on the disk: all lengths in its header are those of what is
 * there, so that a run that is killed leaves what it had. Nothing here may run concurrently with another use
 * of HDF5, unless the library is one that locks itself. */
#ifndef BEAMRING_FORMATS_UVH5_FILE_H
#define BEAMRING_FORMATS_UVH5_FILE_H

#include "buffers/stream.h"
#include "formats/common/baselines.h"
#include "formats/hdf5/hdf5_store.h"

#include <hdf5.h>
#include <stdbool.h>
#include <stdint.h>

struct uvh5_pair {
    uint32_t a, b; /* dishes */
};

/* Properties that all files of a stream share. */
struct uvh5_layout {
    const struct br_stream *stream; /* V[time][freq][baseline], with a telescope that has a site */
    struct baselines inputs;
    size_t npairs;                /* pairs of dishes: Nbls */
    const struct uvh5_pair *pair; /* [npairs]: (0, 0) (0, 1) ... (0, D-1) (1, 1) ..., or (i, i) */
    size_t npols;                 /* 1, 2 or 4: xx, yy, xy, yx */
    double altitude_m, ut1_utc_s;
    bool with_lst;             /* ut1_utc_s is known */
    bool conjugate;            /* UVH5 wants the phases of a lower sideband: an upper one is conjugated */
    const char *x_orientation; /* "east", "north" or "unknown" */
    const char *instrument, *history;
};

struct uvh5_file {
    struct hdf5_store store;
    hid_t header, data;    /* -1: not open */
    uint64_t integrations; /* that are whole, and in the file whatever happens */
    void *scratch;         /* rows of one write */
    size_t rows;           /* that fit there */
};

/* One integration. */
struct uvh5_row {
    uint64_t first, end;  /* base samples that it spans */
    int64_t centre_ns;    /* Unix time */
    double seconds;       /* that it spans */
    double samples;       /* summed up where nothing was missing */
    const int32_t *v;     /* [freq][baseline][2] */
    const uint8_t *valid; /* [freq], or NULL: all complete */
};

/* Makes a file without an integration. Errors: as hdf5_store_create, and then nothing is to be closed; what
 * fails behind that uvh5_append says. */
int uvh5_create(struct uvh5_file *file, const struct uvh5_layout *layout, const char *path, bool overwrite,
                struct br_error *error);

/* 0, or an errno; the file is closed with uvh5_close in either case. After a failure it holds the
 * integrations that were whole before, and stays so. */
int uvh5_append(struct uvh5_file *file, const struct uvh5_layout *layout, const struct uvh5_row *row);
int uvh5_close(struct uvh5_file *file);

/* Writes another text in the place of the history, with the next integration. False when HDF5 cannot. */
bool uvh5_set_history(struct uvh5_file *file, const char *text);

/* header.c: the datasets that do not grow, and those of length Nblts. */
bool uvh5_header_create(hid_t header, const struct uvh5_layout *layout);
bool uvh5_header_append(hid_t header, const struct uvh5_layout *layout, uint64_t integrations,
                        const struct uvh5_row *row);

/* A dataset [0][more...] that grows along its first axis, in chunks of `chunk` rows. `deflate`:
 * compressed. */
bool uvh5_make_growing(hid_t where, const char *name, hid_t type, int rank, const hsize_t *dims,
                       hsize_t chunk, bool deflate);

/* Lengthens the dataset to first + count rows, and writes rows [first, first + count) of it. */
bool uvh5_write_rows(hid_t where, const char *name, hid_t type, hsize_t first, hsize_t count,
                     const void *values);

#endif
