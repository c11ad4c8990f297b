/* hdf5_types.h - types that HDF5 does not bring, as h5py writes them, and datasets that are where their file
 * is. To be closed; -1 where HDF5 fails. */
#ifndef BEAMRING_STAGES_COMMON_TABLES_HDF5_TYPES_H
#define BEAMRING_STAGES_COMMON_TABLES_HDF5_TYPES_H

#include <hdf5.h>
#include <stdbool.h>

/* {r, i} of two numbers of the type `part`. */
hid_t hdf5_complex(hid_t part);

/* A bool: an enum of one byte, FALSE and TRUE. */
hid_t hdf5_bool(void);

/* H5Fopen to read, H5Dopen2 and H5Lexists for files of strangers: of a regular file only, and nothing
 * outside of it, neither by an external link anywhere in `name`, nor as external storage or a virtual
 * dataset, which may be any file of the machine, or a pipe that nobody writes to. `outside` (may be NULL):
 * that is why it fails. */
hid_t hdf5_open(const char *path);
hid_t hdf5_dataset(hid_t where, const char *name, bool *outside);
bool hdf5_exists(hid_t where, const char *name);

/* For the message where hdf5_dataset says `outside`. */
#define HDF5_OUTSIDE                                                                                         \
    "refers to another file (an external link, external storage or a virtual dataset); expected it \
in this file: copy it there, as `h5repack` or h5py do"

#endif
