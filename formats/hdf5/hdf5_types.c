/* hdf5_types.c - see hdf5_types.h. */
#include "formats/hdf5/hdf5_types.h"

#include "buffers/regular_file.h"

#include <string.h>

static hid_t whole(hid_t type, herr_t first, herr_t second)
{
    if (type >= 0 && first >= 0 && second >= 0) return type;
    if (type >= 0) H5Tclose(type);
    return -1;
}

hid_t hdf5_complex(hid_t part)
{
    size_t size = H5Tget_size(part);
    hid_t type = H5Tcreate(H5T_COMPOUND, 2 * size);
    herr_t re = H5Tinsert(type, "r", 0, part);
    return whole(type, re, H5Tinsert(type, "i", size, part));
}

hid_t hdf5_bool(void)
{
    hid_t type = H5Tenum_create(H5T_NATIVE_INT8);
    int8_t no = 0, yes = 1;
    herr_t f = H5Tenum_insert(type, "FALSE", &no);
    return whole(type, f, H5Tenum_insert(type, "TRUE", &yes));
}

bool hdf5_put(hid_t where, const char *name, hid_t type, int rank, const hsize_t *dims, const void *values)
{
    hid_t space = rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(rank, dims, NULL);
    hid_t set = H5Dcreate2(where, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    bool good = set >= 0 && H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0;
    if (set >= 0) H5Dclose(set);
    H5Sclose(space);
    return good;
}

bool hdf5_put_attribute(hid_t where, const char *name, hid_t type, const void *value)
{
    hid_t space = H5Screate(H5S_SCALAR),
          attribute = H5Acreate2(where, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    bool good = attribute >= 0 && H5Awrite(attribute, type, value) >= 0;
    if (attribute >= 0) H5Aclose(attribute);
    H5Sclose(space);
    return good;
}

bool hdf5_put_text(hid_t where, const char *name, const char *text, size_t bytes)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    bool good = H5Tset_size(type, bytes > 0 ? bytes : 1) >= 0 && H5Tset_strpad(type, H5T_STR_NULLPAD) >= 0 &&
                hdf5_put_attribute(where, name, type, text);
    H5Tclose(type);
    return good;
}

int hdf5_open(const char *path, hid_t *file, struct br_error *error)
{
    *file = -1;
    if (br_check_regular(path, error) != BR_OK) return BR_E_IO;
    *file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (*file >= 0) return BR_OK;
    return br_fail(error, BR_E_FORMAT,
                   "%s: HDF5 cannot open it: it is not an HDF5 file, cut off, damaged or still being written",
                   path);
}

/* Asked before an external link is followed. */
static herr_t refuse(const char *file, const char *group, const char *other, const char *object,
                     unsigned *flags, hid_t fapl, void *arg)
{
    (void)file, (void)group, (void)other, (void)object, (void)flags, (void)fapl;
    *(bool *)arg = true;
    return -1;
}

hid_t hdf5_dataset(hid_t where, const char *name, bool *outside)
{
    bool refused = false;
    hid_t access = H5Pcreate(H5P_DATASET_ACCESS), set = -1;
    if (H5Pset_elink_cb(access, refuse, &refused) >= 0) set = H5Dopen2(where, name, access);
    H5Pclose(access);
    hid_t made = set >= 0 ? H5Dget_create_plist(set) : -1;
    if (made >= 0) {
        refused = H5Pget_external_count(made) != 0 || H5Pget_layout(made) == H5D_VIRTUAL;
        H5Pclose(made);
    }
    if (outside != NULL) *outside = refused;
    if (set < 0 || (made >= 0 && !refused)) return set;
    H5Dclose(set);
    return -1;
}

bool hdf5_exists(hid_t where, const char *name)
{
    bool refused = false;
    hid_t access = H5Pcreate(H5P_LINK_ACCESS);
    bool found = H5Pset_elink_cb(access, refuse, &refused) >= 0 && H5Lexists(where, name, access) > 0;
    H5Pclose(access);
    return found || refused;
}

bool hdf5_each(hid_t where, const char *group, H5L_iterate_t each, void *arg, bool *outside)
{
    bool refused = false;
    hid_t access = H5Pcreate(H5P_LINK_ACCESS);
    bool good = H5Pset_elink_cb(access, refuse, &refused) >= 0 &&
                H5Literate_by_name(where, group, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, each, arg, access) >= 0;
    H5Pclose(access);
    if (outside != NULL) *outside = refused;
    return good;
}

/* Decompresses LZF (liblzf's format): a byte c below 32 is followed by c + 1 literals; others hold a
 * length of 3 or more and, with the next byte, the distance back to the bytes to repeat. Returns the
 * length, 0 for data that are damaged or longer than `room`. */
static size_t lzf_expand(const uint8_t *from, size_t bytes, uint8_t *to, size_t room)
{
    const uint8_t *end = from + bytes;
    size_t n = 0;
    while (from < end) {
        size_t c = *from++, length = c + 1;
        if (c < 32) {
            if (length > (size_t)(end - from) || length > room - n) return 0;
            memcpy(to + n, from, length);
            from += length;
            n += length;
            continue;
        }
        length = (c >> 5) + 2;
        if (length == 9 && from < end) length += *from++;
        if (from == end) return 0;
        size_t back = ((c & 31) << 8 | *from++) + 1;
        if (back > n || length > room - n) return 0;
        for (size_t i = 0; i < length; i++, n++) to[n] = to[n - back]; /* they may overlap */
    }
    return n;
}

/* h5py tells the bytes of a chunk as the third value. */
static size_t lzf_filter(unsigned flags, size_t count, const unsigned values[], size_t bytes, size_t *room,
                         void **data)
{
    if (!(flags & H5Z_FLAG_REVERSE) || count < 3 || values[2] == 0) return 0;
    void *longer = H5allocate_memory(values[2], 0);
    size_t length = longer != NULL ? lzf_expand(*data, bytes, longer, values[2]) : 0;
    if (length == 0) {
        H5free_memory(longer);
        return 0;
    }
    H5free_memory(*data);
    *data = longer;
    *room = values[2];
    return length;
}

bool hdf5_know_lzf(void)
{
    static const H5Z_class2_t lzf = {H5Z_CLASS_T_VERS, 32000, 0, 1, "lzf", NULL, NULL, lzf_filter};
    return H5Zregister(&lzf) >= 0;
}
