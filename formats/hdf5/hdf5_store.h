/* hdf5_store.h - the one way in which HDF5 files are written: as transactions.
 *
 * The library does not survive a disk that is full: what it cannot flush it keeps, the file stays open, and
 * it crashes at exit; and the file's tables have different lengths by then. Here it writes through a driver
 * of ours, which never fails. Bytes behind what was committed go to the disk at once, changes of what was
 * committed wait in memory. A commit writes these; if anything could not be written, it cuts the file back
 * to the last commit instead, and whatever the library still does to the file goes nowhere. So a file on the
 * disk is always that of a commit, but for the moment of the commit itself, also after a kill.
 *
 * Without a path the file exists in memory only. Nothing here may run concurrently with another use of HDF5,
 * unless the library is one that locks itself. */
#ifndef BEAMRING_FORMATS_HDF5_HDF5_STORE_H
#define BEAMRING_FORMATS_HDF5_HDF5_STORE_H

#include "buffers/error.h"

#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An open file. It must stay where it is; `file` and `why` are for the caller to read. */
struct hdf5_store {
    hid_t file; /* of the library; -1: none */
    int why;    /* the errno of the first failure, 0: none; after it nothing is written */

    /* our own */
    hid_t driver;
    int fd;                   /* -1: in memory only */
    uint64_t committed, size; /* bytes of the last commit; up to where was written */
    uint64_t allocated;       /* by the library */
    bool cut;                 /* after a failure: the file is that of the last commit again */
    size_t npages, room;
    struct hdf5_page *page; /* [npages] by place */
};

/* Creates the file, by br_output_open. `path` NULL: in memory. Errors: BR_E_IO with the file's name,
 * BR_E_NO_MEMORY; then nothing is open, and what was made is gone. */
int hdf5_store_create(struct hdf5_store *store, const char *path, bool overwrite, struct br_error *error);

/* Makes the present contents of the file permanent. `good`: all calls of the library have succeeded. 0, or an
 * errno: then the file is that of the last commit, and stays so. */
int hdf5_store_commit(struct hdf5_store *store, bool good);

/* Closes it; commits, unless something has failed before. A file in memory can be read until
 * hdf5_store_free. 0, or an errno: the first failure's. Nothing to do where `file` is -1. */
int hdf5_store_close(struct hdf5_store *store, bool good);

/* Copies `bytes` from `offset` on, of a file in memory that is closed; what was never written is 0. */
void hdf5_store_read(const struct hdf5_store *store, void *to, size_t bytes, uint64_t offset);
void hdf5_store_free(struct hdf5_store *store);

#endif
