/* hdf5_types.c - see hdf5_types.h. */
#include "stages/common/tables/hdf5_types.h"

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
