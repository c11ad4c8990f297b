#include "formats/tables/gains_file.h"

#include "buffers/output.h"
#include "formats/hdf5/hdf5_store.h"
#include "formats/hdf5/hdf5_types.h"

#include <hdf5.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool text(hid_t file, const char *name, const char *value)
{
    return hdf5_put_text(file, name, value, strlen(value));
}

static bool write_all(hid_t file, const struct gains_file *g)
{
    hsize_t dims[3] = {g->nfreq, g->npol, g->ndishes};
    char digest[20];
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)g->digest);
    hid_t number = hdf5_complex(H5T_NATIVE_FLOAT);
    bool good = hdf5_put(file, "gain", number, 3, dims, g->gain) &&
                hdf5_put(file, "flag", H5T_NATIVE_UINT8, 3, dims, g->flag) &&
                hdf5_put(file, "weight", H5T_NATIVE_FLOAT, 3, dims, g->weight) &&
                hdf5_put(file, "residual", H5T_NATIVE_FLOAT, 3, dims, g->residual) &&
                hdf5_put(file, "snr", H5T_NATIVE_FLOAT, 2, dims, g->snr) &&
                hdf5_put(file, "reference", H5T_NATIVE_INT32, 2, dims, g->reference) &&
                hdf5_put(file, "freq_mhz", H5T_NATIVE_DOUBLE, 1, dims, g->freq_mhz) &&
                hdf5_put(file, "width_mhz", H5T_NATIVE_DOUBLE, 1, dims, g->width_mhz) &&
                hdf5_put(file, "antenna_numbers", H5T_NATIVE_INT64, 1, dims + 2, g->antenna) &&
                text(file, "sideband", g->sideband) && text(file, "polarisations", g->polarisations) &&
                text(file, "telescope", g->telescope) && text(file, "source", g->source) &&
                text(file, "visibilities", g->visibilities) && text(file, "digest", digest) &&
                text(file, "flags", "0 good, 1 dead, 2 weak, 3 misfit, 4 no result") &&
                hdf5_put_attribute(file, "begin_ns", H5T_NATIVE_INT64, &g->begin_ns) &&
                hdf5_put_attribute(file, "end_ns", H5T_NATIVE_INT64, &g->end_ns);
    H5Tclose(number);
    return good;
}

int gains_file_write(const struct gains_file *g, const char *path, bool overwrite, struct br_error *error)
{
    char part[PATH_MAX];
    if (!overwrite && access(path, F_OK) == 0)
        return br_fail(error, BR_E_IO, "%s exists already; --overwrite replaces it", path);
    if (snprintf(part, sizeof part, "%s.part", path) >= (int)sizeof part)
        return br_fail(error, BR_E_IO, "%s: the name is too long", path);
    if (br_output_check(path, error) != BR_OK) return BR_E_IO;
    struct hdf5_store store;
    int status = hdf5_store_create(&store, part, true, error);
    if (status != BR_OK) return status;
    int why = hdf5_store_close(&store, write_all(store.file, g));
    hdf5_store_free(&store);
    if (why != 0) br_fail(error, BR_E_IO, "%s cannot be written: %s", path, strerror(why));
    if (why == 0 && br_output_publish(part, path, error) == BR_OK) return BR_OK;
    unlink(part);
    return BR_E_IO;
}
