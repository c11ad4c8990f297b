/* hdf5_types.c - see hdf5_types.h. */
#include "stages/common/tables/hdf5_types.h"

#include <stdio.h>
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

/* Whether a link of the path leads to another file. Soft links count: they could lead to one that does. */
static bool leads_out(hid_t file, const char *name)
{
    char path[256];
    H5L_info_t link;
    if (strlen(name) >= sizeof path) return true;
    for (const char *end = name; end != NULL;) {
        end = strchr(end + 1, '/');
        snprintf(path, sizeof path, "%.*s", end != NULL ? (int)(end - name) : (int)strlen(name), name);
        if (H5Lexists(file, path, H5P_DEFAULT) <= 0) return false;
        if (H5Lget_info(file, path, &link, H5P_DEFAULT) < 0 || link.type != H5L_TYPE_HARD) return true;
    }
    return false;
}

hid_t hdf5_open_own(hid_t file, const char *name, const char **why)
{
    *why = leads_out(file, name) ? "is a link that may lead to another file" : NULL;
    if (*why != NULL || H5Lexists(file, name, H5P_DEFAULT) <= 0) return -1;
    hid_t set = H5Dopen2(file, name, H5P_DEFAULT);
    hid_t plist = set >= 0 ? H5Dget_create_plist(set) : -1;
    if (plist < 0) return -1;
    if (H5Pget_external_count(plist) != 0) *why = "has its elements in another file";
    if (H5Pget_layout(plist) == H5D_VIRTUAL) *why = "is a view of other files";
    H5Pclose(plist);
    if (*why == NULL) return set;
    H5Dclose(set);
    return -1;
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
