/* positions.c - the antennas' positions of a UVH5 file, for `telescope: positions_m`; see
 * runtime/base/positions.h. */
#include "runtime/base/positions.h"

#include "formats/hdf5/hdf5_child.h"
#include "formats/hdf5/hdf5_types.h"
#include "formats/uvh5/visibilities_uvh5.h"

#include <stdlib.h>
#include <string.h>

struct request {
    char path[4096];
};

/* In the child: the struct without its pointer, then three numbers for each antenna. */
static int read_file(const void *arg, struct hdf5_sink *to, struct br_error *error)
{
    const struct request *request = arg;
    struct uvh5_reader r = {.path = request->path, .error = error};
    struct br_positions out = {0};
    int status = hdf5_open(request->path, &r.file, error);
    if (status != BR_OK) return status;
    H5Fget_filesize(r.file, &r.bytes);
    status = uvh5_read_antennas(&r);
    if (status != BR_OK) return status;
    const struct visibilities_shape *shape = &r.reply.shape;
    out = (struct br_positions){.count = shape->ndishes,
                                .latitude_deg = shape->latitude_deg,
                                .longitude_deg = shape->longitude_deg,
                                .height_m = uvh5_height(&r)};
    bool sent = hdf5_send(to, &out, sizeof out);
    for (size_t d = 0; sent && d < out.count; d++) {
        const double at[3] = {r.part.east_m[d], r.part.north_m[d], r.part.up_m[d]};
        sent = hdf5_send(to, at, sizeof at);
    }
    H5Fclose(r.file);
    return sent ? BR_OK
                : br_fail(error, BR_E_IO, "%s: the connection to the process that reads it broke", r.path);
}

__attribute__((visibility("default"))) int beamring_read_positions(const char *path, struct br_positions *out,
                                                                   struct br_error *error)
{
    struct request request = {""};
    void *result = NULL;
    size_t bytes = 0;
    *out = (struct br_positions){0};
    if (strlen(path) >= sizeof request.path)
        return br_fail(error, BR_E_INVALID, "the name of the file has %zu letters; expected fewer than %zu",
                       strlen(path), sizeof request.path);
    strcpy(request.path, path);
    int status = hdf5_apart(read_file, &request, sizeof request, path, &result, &bytes, error);
    if (status == BR_OK && bytes >= sizeof *out) memcpy(out, result, sizeof *out);
    if (status == BR_OK && (bytes < sizeof *out || bytes != sizeof *out + out->count * sizeof *out->position))
        status = br_fail(error, BR_E_INTERNAL, "%s: the process that reads it sent %zu bytes", path, bytes);
    out->position = NULL;
    if (status == BR_OK) {
        out->position = result;
        result = NULL;
        memmove(out->position, (char *)out->position + sizeof *out, out->count * sizeof *out->position);
    }
    free(result);
    return status;
}
