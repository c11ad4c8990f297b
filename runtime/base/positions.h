/* positions.h - the positions of antennas in a file that needs a library to read: a plugin, as only some
 * pipelines name such a file. */
#ifndef BEAMRING_RUNTIME_BASE_POSITIONS_H
#define BEAMRING_RUNTIME_BASE_POSITIONS_H

#include "buffers/error.h"

#include <stddef.h>

struct br_positions {
    size_t count;
    double (*position)[3];                        /* [count] east, north, up of the site, metres; malloc'ed */
    double latitude_deg, longitude_deg, height_m; /* of the site; height NAN: not known */
};

/* The function `beamring_read_positions` of beamring_positions.so reads a UVH5 file. The caller frees
 * out->position. Errors, each naming the file: BR_E_IO, BR_E_FORMAT, BR_E_INVALID, BR_E_NO_MEMORY. */
typedef int br_read_positions(const char *path, struct br_positions *out, struct br_error *error);
extern br_read_positions beamring_read_positions;

#endif
