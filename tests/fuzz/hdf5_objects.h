/* hdf5_objects.h - what a reader of HDF5 may leave behind, for its fuzz target. Included by one file of a
 * target.
 *
 * HDF5 (seen in 1.10.8) forgets some bytes of its own when a file's root group is damaged, and LeakSanitizer
 * says so. What we forget, it would never say: an object that was not closed stays in the library's tables,
 * where it can be reached. So the library's memory is left to the library, and the tables are asked. */
#ifndef BEAMRING_TESTS_FUZZ_HDF5_OBJECTS_H
#define BEAMRING_TESTS_FUZZ_HDF5_OBJECTS_H

#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>

/* LeakSanitizer asks by this name. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libhdf5";
}

/* Aborts when a file, dataset, attribute, type or group is open. */
static void expect_all_closed(void)
{
    ssize_t open = H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL);
    if (open == 0) return;
    fprintf(stderr, "%zd objects of HDF5 are still open\n", open);
    abort();
}

#endif
