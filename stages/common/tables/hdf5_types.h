/* hdf5_types.h - types that HDF5 does not bring, as h5py writes them. To be closed; -1 where HDF5 fails. */
#ifndef BEAMRING_STAGES_COMMON_TABLES_HDF5_TYPES_H
#define BEAMRING_STAGES_COMMON_TABLES_HDF5_TYPES_H

#include <hdf5.h>

/* {r, i} of two numbers of the type `part`. */
hid_t hdf5_complex(hid_t part);

/* A bool: an enum of one byte, FALSE and TRUE. */
hid_t hdf5_bool(void);

#endif
