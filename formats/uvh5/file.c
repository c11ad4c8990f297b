#include "formats/uvh5/file.h"

#include "buffers/frame.h"
#include "formats/hdf5/hdf5_types.h"

#include <stdlib.h>

enum { CHUNK_BYTES = 1 << 20, MAX_RANK = 3 };

bool uvh5_make_growing(hid_t where, const char *name, hid_t type, int rank, const hsize_t *dims,
                       hsize_t chunk, bool deflate)
{
    hsize_t most[MAX_RANK], now[MAX_RANK], chunks[MAX_RANK];
    for (int i = 0; i < rank; i++) now[i] = most[i] = chunks[i] = dims[i];
    now[0] = 0;
    most[0] = H5S_UNLIMITED;
    chunks[0] = chunk;
    hid_t space = H5Screate_simple(rank, now, most), plist = H5Pcreate(H5P_DATASET_CREATE);
    bool good = H5Pset_chunk(plist, rank, chunks) >= 0;
    if (deflate && H5Zfilter_avail(H5Z_FILTER_DEFLATE) > 0) good = H5Pset_deflate(plist, 1) >= 0 && good;
    hid_t set = H5Dcreate2(where, name, type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    good = set >= 0 && H5Dclose(set) >= 0 && good;
    H5Pclose(plist);
    H5Sclose(space);
    return good;
}

bool uvh5_write_rows(hid_t where, const char *name, hid_t type, hsize_t first, hsize_t count,
                     const void *values)
{
    hsize_t size[MAX_RANK] = {0}, at[MAX_RANK] = {first};
    hid_t set = H5Dopen2(where, name, H5P_DEFAULT);
    if (set < 0) return false;
    hid_t space = H5Dget_space(set);
    int rank = H5Sget_simple_extent_dims(space, size, NULL);
    H5Sclose(space);
    size[0] = first + count;
    bool good = H5Dset_extent(set, size) >= 0;
    size[0] = count;
    hid_t memory = H5Screate_simple(rank, size, NULL);
    space = H5Dget_space(set);
    good = good && H5Sselect_hyperslab(space, H5S_SELECT_SET, at, NULL, size, NULL) >= 0 &&
           H5Dwrite(set, type, memory, space, H5P_DEFAULT, values) >= 0;
    H5Sclose(space);
    H5Sclose(memory);
    return H5Dclose(set) >= 0 && good;
}

int uvh5_create(struct uvh5_file *file, const struct uvh5_layout *layout, const char *path, bool overwrite,
                struct br_error *error)
{
    size_t cell = layout->stream->nchannels * layout->npols, row = 8 * cell;
    hsize_t dims[3] = {0, layout->stream->nchannels, layout->npols};
    hsize_t chunk = row < CHUNK_BYTES ? CHUNK_BYTES / row : 1;
    if (chunk > layout->npairs) chunk = layout->npairs;
    file->integrations = 0;
    file->header = file->data = -1;
    file->rows = chunk;
    file->scratch = malloc(chunk * row);
    if (file->scratch == NULL) return br_fail(error, BR_E_NO_MEMORY, "%s: no memory for its rows", path);
    int status = hdf5_store_create(&file->store, path, overwrite, error);
    if (status != BR_OK) {
        free(file->scratch);
        file->scratch = NULL;
        return status;
    }
    file->header = H5Gcreate2(file->store.file, "Header", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    file->data = H5Gcreate2(file->store.file, "Data", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    /* Correlator integers, as the specification has them. */
    hid_t value = hdf5_complex(H5T_NATIVE_INT32), flag = hdf5_bool();
    bool good = file->header >= 0 && file->data >= 0 && uvh5_header_create(file->header, layout) &&
                uvh5_make_growing(file->data, "visdata", value, 3, dims, chunk, false) &&
                uvh5_make_growing(file->data, "flags", flag, 3, dims, chunk, true) &&
                uvh5_make_growing(file->data, "nsamples", H5T_NATIVE_FLOAT, 3, dims, chunk, true);
    H5Tclose(value);
    H5Tclose(flag);
    if (!good) hdf5_store_commit(&file->store, false); /* uvh5_append says it */
    return BR_OK;
}

/* The visibilities of one pair of dishes: [freq][pol][2]. */
static void gather(const struct uvh5_layout *layout, const struct uvh5_row *row, size_t pair, int32_t *out)
{
    const struct baselines *in = &layout->inputs;
    size_t nbaselines = layout->stream->array.axis[2].length, at[4];
    size_t a = layout->pair[pair].a, b = layout->pair[pair].b;
    at[0] = baselines_index(in, a, b); /* xx, yy, xy, yx */
    if (layout->npols > 1) at[1] = baselines_index(in, in->ndishes + a, in->ndishes + b);
    if (layout->npols > 2) {
        at[2] = baselines_index(in, a, in->ndishes + b);
        at[3] = baselines_index(in, b, in->ndishes + a); /* its conjugate is here */
    }
    for (size_t f = 0; f < layout->stream->nchannels; f++)
        for (size_t p = 0; p < layout->npols; p++, out += 2) {
            const int32_t *v = row->v + 2 * (f * nbaselines + at[p]);
            out[0] = v[0];
            out[1] = (p == 3) != layout->conjugate ? -v[1] : v[1];
        }
}

int uvh5_append(struct uvh5_file *file, const struct uvh5_layout *layout, const struct uvh5_row *row)
{
    size_t nchannels = layout->stream->nchannels, npols = layout->npols, cell = nchannels * npols;
    hsize_t first = file->integrations * layout->npairs;
    hid_t value = hdf5_complex(H5T_NATIVE_INT32), flag = hdf5_bool();
    bool good = true;
    for (size_t from = 0; good && from < layout->npairs; from += file->rows) {
        size_t n = layout->npairs - from < file->rows ? layout->npairs - from : file->rows;
        int32_t *v = file->scratch;
        for (size_t i = 0; i < n; i++) gather(layout, row, from + i, v + 2 * i * cell);
        good = uvh5_write_rows(file->data, "visdata", value, first + from, n, v);
        float *share = file->scratch;
        for (size_t i = 0; i < n * cell; i++) {
            uint8_t valid = row->valid == NULL ? BR_VALID : row->valid[i / npols % nchannels];
            share[i] = (float)(row->samples * valid / BR_VALID);
        }
        good = good && uvh5_write_rows(file->data, "nsamples", H5T_NATIVE_FLOAT, first + from, n, share);
        int8_t *flags = file->scratch;
        for (size_t i = 0; i < n * cell; i++)
            flags[i] = row->valid != NULL && row->valid[i / npols % nchannels] == 0;
        good = good && uvh5_write_rows(file->data, "flags", flag, first + from, n, flags);
    }
    H5Tclose(value);
    H5Tclose(flag);
    good = good && uvh5_header_append(file->header, layout, file->integrations, row);
    int why = hdf5_store_commit(&file->store, good);
    if (why == 0) file->integrations++;
    return why;
}

int uvh5_close(struct uvh5_file *file)
{
    if (file->data >= 0) H5Gclose(file->data);
    if (file->header >= 0) H5Gclose(file->header);
    int why = hdf5_store_close(&file->store, true);
    hdf5_store_free(&file->store);
    file->data = file->header = -1;
    free(file->scratch);
    file->scratch = NULL;
    return why;
}
