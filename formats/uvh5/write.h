/* write.h - a stream of visibilities into UVH5 files, by the interface of formats/writer.h.
 *
 * Nothing here may run concurrently with another use of HDF5, unless the library is one that locks itself. */
#ifndef BEAMRING_FORMATS_UVH5_WRITE_H
#define BEAMRING_FORMATS_UVH5_WRITE_H

#include "formats/uvh5/file.h"
#include "formats/writer.h"

/* The state of a writer of `uvh5_files`. */
struct uvh5_out {
    struct uvh5_layout layout; /* the caller's, but for its history */
    uint64_t integrations;     /* in a file; 0: all in one; the caller's */
    uint64_t written;          /* integrations in all */

    struct uvh5_file file;
    bool open;
    uint64_t file_first, told_until; /* base samples: of the file's first; up to which its history speaks */
    char history[WRITER_UPDATES + 128];
};

extern const struct writer_format uvh5_files;

#endif
