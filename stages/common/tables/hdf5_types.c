/* hdf5_types.c - see hdf5_types.h. */
#include "stages/common/tables/hdf5_types.h"

#include <sys/stat.h>

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

hid_t hdf5_open(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) return -1;
    return H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
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
