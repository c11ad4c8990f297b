#include "formats/chime/chime_attributes.h"

#include "formats/hdf5/hdf5_store.h"
#include "formats/hdf5/hdf5_types.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool chime_get_text(hid_t file, const char *name, char *text, size_t size)
{
    memset(text, 0, size);
    if (H5Aexists(file, name) <= 0) return true;
    hid_t attribute = H5Aopen(file, name, H5P_DEFAULT), own = attribute >= 0 ? H5Aget_type(attribute) : -1;
    hid_t space = attribute >= 0 ? H5Aget_space(attribute) : -1;
    bool one = own >= 0 && H5Tget_class(own) == H5T_STRING && H5Sget_simple_extent_npoints(space) == 1;
    if (one && H5Tis_variable_str(own) > 0) { /* as h5py writes them */
        char *value = NULL;
        one = H5Aread(attribute, own, &value) >= 0 && value != NULL;
        if (one && strlen(value) < size) strcpy(text, value);
        if (value != NULL) H5free_memory(value);
    } else if (one && H5Tget_size(own) <= size) {
        one = H5Aread(attribute, own, text) >= 0;
    }
    text[size - 1] = '\0';
    for (char *c = text; *c != '\0'; c++)
        if (*c < ' ' || *c > '~') *c = '?';
    if (space >= 0) H5Sclose(space);
    if (own >= 0) H5Tclose(own);
    if (attribute >= 0) H5Aclose(attribute);
    return one;
}

bool chime_put_attributes(hid_t file, const struct br_stream *stream, size_t channel, int64_t freq_id,
                          uint64_t first)
{
    int64_t ns = br_stream_time_ns(stream, first);
    double delta = br_stream_sample_s(stream), ctime = (double)(ns / 1000) * 1e-6;
    /* what the double has not: as a reader adds it, whole seconds apart */
    double whole = floor(ctime),
           offset = ((double)(ns - (int64_t)whole * 1000000000) - (ctime - whole) * 1e9) * 1e-9;
    /* not one of CHIME's attributes: whoever does not know it takes the lower sideband */
    return (stream->sideband == BR_SIDEBAND_UNKNOWN ||
            hdf5_put_text(file, "sideband", br_sideband_name(stream->sideband), 5)) &&
           hdf5_put_attribute(file, "freq_id", H5T_NATIVE_INT64, &freq_id) &&
           hdf5_put_attribute(file, "freq", H5T_NATIVE_DOUBLE, &stream->freq_mhz[channel]) &&
           hdf5_put_attribute(file, "delta_time", H5T_NATIVE_DOUBLE, &delta) &&
           hdf5_put_attribute(file, "time0_fpga_count", H5T_NATIVE_UINT64, &first) &&
           hdf5_put_attribute(file, "time0_ctime", H5T_NATIVE_DOUBLE, &ctime) &&
           hdf5_put_attribute(file, "time0_ctime_offset", H5T_NATIVE_DOUBLE, &offset);
}

bool chime_put_inputs(hid_t file, size_t inputs, const uint32_t *number)
{
    hsize_t count = inputs;
    hid_t group = H5Gcreate2(file, "index_map", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    uint32_t *numbers = malloc(inputs * sizeof *numbers);
    for (size_t i = 0; numbers != NULL && i < inputs; i++)
        numbers[i] = number != NULL ? number[i] : (uint32_t)i;
    bool good = numbers != NULL && hdf5_put(group, "input", H5T_NATIVE_UINT32, 1, &count, numbers);
    free(numbers);
    if (group >= 0) H5Gclose(group);
    return good;
}

/* The dataset, without its bytes; *offset receives where they begin. */
static bool put_data(hid_t file, uint64_t rows, uint64_t columns, uint64_t *offset)
{
    hsize_t size[2] = {rows, columns};
    hid_t space = H5Screate_simple(2, size, NULL), plist = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_alloc_time(plist, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(plist, H5D_FILL_TIME_NEVER);
    hid_t dataset = H5Dcreate2(file, "baseband", H5T_NATIVE_UINT8, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    haddr_t at = dataset >= 0 ? H5Dget_offset(dataset) : HADDR_UNDEF;
    *offset = at;
    if (dataset >= 0) H5Dclose(dataset);
    H5Pclose(plist);
    H5Sclose(space);
    return at != HADDR_UNDEF;
}

static uint8_t *copy(const struct hdf5_store *store, uint64_t offset, uint64_t bytes)
{
    uint8_t *memory = calloc(bytes + 1, 1);
    if (memory != NULL) hdf5_store_read(store, memory, bytes, offset);
    return memory;
}

bool chime_describe(struct chime_around *around, uint64_t rows, uint64_t columns,
                    bool (*put)(hid_t file, const void *arg), const void *arg)
{
    struct hdf5_store store;
    *around = (struct chime_around){0};
    if (hdf5_store_create(&store, NULL, true, NULL) != BR_OK) return false;
    bool good = put(store.file, arg) && put_data(store.file, rows, columns, &around->head_bytes);
    good = hdf5_store_close(&store, good) == 0;
    if (good) {
        uint64_t end = around->head_bytes + rows * columns;
        around->tail_bytes = store.allocated > end ? store.allocated - end : 0;
        around->head = copy(&store, 0, around->head_bytes);
        around->tail = copy(&store, end, around->tail_bytes);
        good = around->head != NULL && around->tail != NULL;
    }
    hdf5_store_free(&store);
    return good;
}
