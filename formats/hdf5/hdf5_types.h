/* hdf5_types.h - types and the filter that HDF5 does not bring, as h5py writes them, and files of strangers.
 * Types, files and datasets are to be closed; -1 where HDF5 fails. */
#ifndef BEAMRING_FORMATS_HDF5_HDF5_TYPES_H
#define BEAMRING_FORMATS_HDF5_HDF5_TYPES_H

#include "buffers/error.h"

#include <hdf5.h>
#include <stdbool.h>

/* {r, i} of two numbers of the type `part`. */
hid_t hdf5_complex(hid_t part);

/* A bool: an enum of one byte, FALSE and TRUE. */
hid_t hdf5_bool(void);

/* Write a new dataset of that shape (rank 0: a scalar); a new scalar attribute. False where HDF5 fails. */
bool hdf5_put(hid_t where, const char *name, hid_t type, int rank, const hsize_t *dims, const void *values);
bool hdf5_put_attribute(hid_t where, const char *name, hid_t type, const void *value);
/* The same for a text, in `bytes` bytes. */
bool hdf5_put_text(hid_t where, const char *name, const char *text, size_t bytes);

/* Lets HDF5 read what h5py has compressed by its own filter "lzf", as pyuvdata does by default. */
bool hdf5_know_lzf(void);

/* Files of strangers: H5Fopen to read, H5Dopen2, H5Lexists and H5Literate_by_name, of a regular file only,
 * and of nothing outside of it: neither by an external link anywhere in `name`, nor by soft links to one, nor
 * as external storage or a virtual dataset. These may be any file of the machine, or a pipe that nobody
 * writes to. `outside` (may be NULL): that is why it fails.
 *
 * hdf5_open fails with BR_E_IO where no regular file can be opened, with BR_E_FORMAT where HDF5 cannot read
 * it; *file is -1 then. hdf5_exists does not tell whether the link leads out; hdf5_dataset does. hdf5_each is
 * false where the group cannot be read as a whole. */
int hdf5_open(const char *path, hid_t *file, struct br_error *error);
hid_t hdf5_dataset(hid_t where, const char *name, bool *outside);
bool hdf5_exists(hid_t where, const char *name);
bool hdf5_each(hid_t where, const char *group, H5L_iterate_t each, void *arg, bool *outside);

/* For the message where hdf5_dataset says `outside`. */
#define HDF5_OUTSIDE                                                                                         \
    "refers to another file (an external link, external storage or a virtual dataset); expected it \
in this file: copy it there, as `h5repack` or h5py do"

#endif
