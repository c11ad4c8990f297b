/* visibilities_uvh5.h - one UVH5 file in the process that reads it, which ends afterwards: its memory is
 * left to that. */
#ifndef BEAMRING_FORMATS_UVH5_VISIBILITIES_UVH5_H
#define BEAMRING_FORMATS_UVH5_VISIBILITIES_UVH5_H

#include "formats/tables/visibilities.h"

#include <hdf5.h>

/* DENSEST: nothing of a file is believed that needs so many times more memory than the file has bytes */
enum { UVH5_MAX_AXIS = 1 << 20, UVH5_DENSEST = 1000 };

/* The process sends this before the arrays. */
struct uvh5_reply {
    struct visibilities_shape shape;
    uint64_t next, rows; /* the first one that is not in the sums; how many there are */
    uint64_t integrations;
    struct time_span span;     /* of the file */
    double towards[3], lowest; /* as in struct visibilities */
    struct left_out left_out;
};

/* A number of an antenna, and which dish that is: its position in Header/antenna_numbers. */
struct uvh5_antenna {
    int64_t number;
    size_t dish;
};

struct uvh5_reader {
    hid_t file;
    const char *path;
    hsize_t bytes; /* of the file */
    struct source_place place;
    struct br_error *error;
    struct uvh5_reply reply;
    struct visibilities_part part;
    size_t npols;                 /* of the file */
    struct uvh5_antenna *antenna; /* [ndishes], by number */
    int pol_at[2];                /* where the file has shape.pol */
    bool conjugated;              /* the file has the conjugates of the stream's visibilities */
    bool sums;                    /* visdata are sums over nsamples samples, not means */
    double *jd, *seconds;         /* [rows] */
    double *time;                 /* [integrations] Julian dates, ascending */
    double (*direction)[3];       /* [integrations] of the source */
    size_t *a, *b;                /* [rows] dishes */
    double *w;                    /* [rows], metres that the file's phases are turned by; NULL: none are */
};

/* Fails with BR_E_FORMAT: a dataset is missing or of another form, or leads out of the file. */
int uvh5_bad(struct uvh5_reader *r, const char *name, const char *expected);

/* Everything but the visibilities. `stated`: the caller's sideband. */
int uvh5_read_header(struct uvh5_reader *r, enum br_sideband stated);

/* The site and the antennas only: shape.ndishes and site, part's positions, and the antennas' numbers. */
int uvh5_read_antennas(struct uvh5_reader *r);

/* The height of the site, metres; NAN where the file does not say it. */
double uvh5_height(struct uvh5_reader *r);

/* The source's direction at a row's time. */
const double *uvh5_direction(const struct uvh5_reader *r, size_t row);

/* Rows [first, first + count) of a dataset [rows][channels][polarisations], or [rows][1][channels]
 * [polarisations] as files had it before 2022. H5T_NATIVE_INT8 reads a bool, too. False where it is not like
 * that. */
bool uvh5_read_rows(struct uvh5_reader *r, const char *name, hid_t type, hsize_t first, hsize_t count,
                    void *to);

#endif
