/* hdf5_types.h - types and the filter that HDF5 does not bring, as h5py writes them. Types are to be
 * closed; -1 where HDF5 fails. */
#ifndef BEAMRING_STAGES_COMMON_TABLES_HDF5_TYPES_H
#define BEAMRING_STAGES_COMMON_TABLES_HDF5_TYPES_H

#include <hdf5.h>
#include <stdbool.h>

/* {r, i} of two numbers of the type `part`. */
hid_t hdf5_complex(hid_t part);

/* A bool: an enum of one byte, FALSE and TRUE. */
hid_t hdf5_bool(void);

/* Lets HDF5 read what h5py has compressed by its own filter "lzf", as pyuvdata does by default. */
bool hdf5_know_lzf(void);

/* Opens a dataset whose elements are in this very file. -1 where there is none, or one that leads out of the
 * file, by an external link on its path, external storage or a virtual layout: `why` then says so, and is
 * NULL otherwise. A stranger's file must not make us read another one. */
hid_t hdf5_open_own(hid_t file, const char *name, const char **why);

#endif
