/* hdf5_store: wherever writing fails, the file is that of the last commit, byte for byte. */
#include "formats/hdf5/hdf5_store.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

enum { COMMITS = 6, ROWS = 700 };

static char path[] = "/tmp/beamring-store-XXXXXX";

/* Lengthens a dataset by ROWS numbers, and adds an attribute: data, and changes of what is there. */
static bool grow(hid_t file, int k)
{
    hsize_t size = (hsize_t)(k + 1) * ROWS, first = size - ROWS, count = ROWS, most = H5S_UNLIMITED,
            chunk = 300;
    int32_t values[ROWS];
    char name[16];
    for (int i = 0; i < ROWS; i++) values[i] = k * ROWS + i;
    if (k == 0) {
        hid_t space = H5Screate_simple(1, &size, &most), plist = H5Pcreate(H5P_DATASET_CREATE);
        H5Pset_chunk(plist, 1, &chunk);
        H5Pset_obj_track_times(plist, false); /* files of different seconds are compared */
        hid_t made = H5Dcreate2(file, "x", H5T_NATIVE_INT32, space, H5P_DEFAULT, plist, H5P_DEFAULT);
        H5Pclose(plist);
        H5Sclose(space);
        if (made < 0 || H5Dclose(made) < 0) return false;
    }
    hid_t set = H5Dopen2(file, "x", H5P_DEFAULT);
    bool good = set >= 0 && H5Dset_extent(set, &size) >= 0;
    hid_t memory = H5Screate_simple(1, &count, NULL), space = H5Dget_space(set),
          scalar = H5Screate(H5S_SCALAR);
    good = good && H5Sselect_hyperslab(space, H5S_SELECT_SET, &first, NULL, &count, NULL) >= 0 &&
           H5Dwrite(set, H5T_NATIVE_INT32, memory, space, H5P_DEFAULT, values) >= 0;
    snprintf(name, sizeof name, "a%d", k);
    hid_t attribute = H5Acreate2(file, name, H5T_NATIVE_INT32, scalar, H5P_DEFAULT, H5P_DEFAULT);
    good = good && attribute >= 0 && H5Awrite(attribute, H5T_NATIVE_INT32, &k) >= 0;
    H5Aclose(attribute);
    H5Sclose(scalar);
    H5Sclose(space);
    H5Sclose(memory);
    return H5Dclose(set) >= 0 && good;
}

/* The file's bytes. */
static uint8_t *bytes_of(size_t *length)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    uint8_t *bytes = malloc(1 << 20);
    *length = fread(bytes, 1, 1 << 20, file);
    fclose(file);
    return bytes;
}

/* With files of at most `most` bytes. Returns the commits that went through; *length, *bytes: what is on the
 * disk after each of them, where they are not NULL. */
static int run(rlim_t most, size_t *length, uint8_t **bytes)
{
    struct rlimit limit;
    struct hdf5_store store;
    getrlimit(RLIMIT_FSIZE, &limit);
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = most;
    setrlimit(RLIMIT_FSIZE, &limit);
    assert_int_equal(hdf5_store_create(&store, path, true, NULL), BR_OK);
    int done = 0;
    for (int k = 0; k < COMMITS; k++) {
        int why = hdf5_store_commit(&store, grow(store.file, k));
        assert_true(why == 0 || why == EFBIG);
        assert_true(why == 0 || k >= done);
        if (why != 0) continue; /* whatever comes then */
        assert_int_equal(done, k);
        done++;
        if (bytes != NULL) bytes[k] = bytes_of(&length[k]);
    }
    assert_int_equal(hdf5_store_close(&store, true), done == COMMITS ? 0 : EFBIG);
    hdf5_store_free(&store);
    limit.rlim_cur = before;
    setrlimit(RLIMIT_FSIZE, &limit);
    return done;
}

static void full_disks(void **state)
{
    (void)state;
    size_t length[COMMITS], now;
    uint8_t *bytes[COMMITS];
    assert_int_equal(run(RLIM_INFINITY, length, bytes), COMMITS);
    sleep(1); /* a second begins between the files that are compared, in every run of this test */
    bool seen[COMMITS + 1] = {false};
    for (rlim_t most = 1; most < length[COMMITS - 1] + 500; most += 397) {
        int done = run(most, NULL, NULL);
        uint8_t *left = bytes_of(&now);
        seen[done] = true;
        if (done < COMMITS) assert_int_equal(now, done > 0 ? length[done - 1] : 0);
        if (done > 0 && done < COMMITS) assert_memory_equal(left, bytes[done - 1], now);
        free(left);
    }
    for (int k = 0; k <= COMMITS; k++) assert_true(seen[k]);
    /* each of them is a file that the library reads */
    for (int k = 0; k < COMMITS; k++) {
        FILE *file = fopen(path, "wb");
        assert_int_equal(fwrite(bytes[k], 1, length[k], file), length[k]);
        fclose(file);
        int32_t values[COMMITS * ROWS];
        hid_t read = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT), set = H5Dopen2(read, "x", H5P_DEFAULT),
              space = H5Dget_space(set);
        assert_int_equal(H5Sget_simple_extent_npoints(space), (k + 1) * ROWS);
        assert_true(H5Dread(set, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
        for (int i = 0; i < (k + 1) * ROWS; i++) assert_int_equal(values[i], i);
        H5Sclose(space);
        H5Dclose(set);
        H5Fclose(read);
        free(bytes[k]);
    }
}

/* Mistakes of the library and of the caller are failures too; another file is left alone. */
static void other_failures(void **state)
{
    (void)state;
    struct hdf5_store store;
    size_t length;
    struct br_error there = {0}, nowhere = {0}, folder = {0};
    assert_int_equal(hdf5_store_create(&store, path, false, &there), BR_E_IO);
    assert_non_null(strstr(there.text, strerror(EEXIST)));
    assert_int_equal(hdf5_store_create(&store, "/nowhere/x", true, &nowhere), BR_E_IO);
    assert_non_null(strstr(nowhere.text, strerror(ENOENT)));
    assert_int_equal(hdf5_store_create(&store, "/tmp", true, &folder), BR_E_IO);
    assert_non_null(strstr(folder.text, "/tmp is a directory"));
    assert_int_equal(hdf5_store_create(&store, path, true, NULL), BR_OK);
    assert_int_equal(hdf5_store_commit(&store, grow(store.file, 0)), 0);
    uint8_t *before = bytes_of(&length), *after;
    assert_int_equal(hdf5_store_commit(&store, grow(store.file, 1) && false), EIO);
    assert_int_equal(hdf5_store_close(&store, true), EIO);
    assert_int_equal(hdf5_store_close(&store, true), EIO);
    hdf5_store_free(&store);
    after = bytes_of(&length);
    assert_memory_equal(before, after, length);
    free(before);
    free(after);
}

/* A contiguous dataset of `length` bytes: a text. */
static bool put_text(hid_t file, const char *name, size_t length, const char *text)
{
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    H5Tset_size(type, length);
    hid_t set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    bool good = set >= 0 && H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text) >= 0;
    H5Tclose(type);
    H5Sclose(space);
    return H5Dclose(set) >= 0 && good;
}

/* The library does not keep a buffer of every length of a text that is written again and again. */
static void kept_buffers(void **state)
{
    (void)state;
    enum { TEXTS = 100 };
    static const char text[3000 + TEXTS] = "updates";
    struct hdf5_store store;
    size_t size[TEXTS];
    assert_int_equal(hdf5_store_create(&store, path, true, NULL), BR_OK);
    for (int k = 0; k < TEXTS; k++) {
        if (k > 0) assert_true(H5Ldelete(store.file, "marks", H5P_DEFAULT) >= 0);
        bool good = put_text(store.file, "marks", 3000 + (size_t)k, text);
        assert_int_equal(hdf5_store_commit(&store, good), 0);
        assert_true(H5get_free_list_sizes(NULL, NULL, &size[k], NULL) >= 0);
    }
    assert_int_equal(size[TEXTS - 1], size[1]);
    assert_int_equal(hdf5_store_close(&store, true), 0);
    hdf5_store_free(&store);
}

static int leave(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(full_disks), cmocka_unit_test(other_failures),
                                       cmocka_unit_test(kept_buffers)};
    signal(SIGXFSZ, SIG_IGN);
    close(mkstemp(path));
    return cmocka_run_group_tests(tests, NULL, leave);
}
