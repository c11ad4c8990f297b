/* fileio: reads end where the file ends and say so, writes go where they are told, folders are made with
 * those above. */
#include "formats/common/fileio.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static int in_temporary_folder(void **state)
{
    char *folder = strdup("/tmp/beamring-test-XXXXXX");
    if (folder == NULL || mkdtemp(folder) == NULL || chdir(folder) != 0) return -1;
    *state = folder;
    return 0;
}

static int leave(void **state)
{
    char command[256];
    snprintf(command, sizeof command, "rm -r '%s'", (char *)*state);
    free(*state);
    return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

static void reads_and_writes(void **state)
{
    (void)state;
    int fd = open("file", O_RDWR | O_CREAT, 0666);
    assert_true(fd >= 0);
    assert_int_equal(fileio_write(fd, "abcdef", 6, 3), 0);
    char got[16] = "................";
    assert_int_equal(fileio_read(fd, got, sizeof got, 2), 7); /* the byte before, which is a hole, and six */
    assert_memory_equal(got, "\0abcdef.", 8);
    assert_int_equal(fileio_read(fd, got, 4, 9), 0);
    struct br_error error = {0};
    assert_int_equal(fileio_read_all(fd, "file", got, 6, 3, &error), BR_OK);
    assert_memory_equal(got, "abcdef", 6);
    assert_int_equal(fileio_read_all(fd, "file", got, 7, 3, &error), BR_E_IO);
    assert_string_equal(error.text, "file ends at byte 9: it became shorter while it was read");
    close(fd);
    assert_int_equal(fileio_read(fd, got, 1, 0), -1);
    assert_int_equal(errno, EBADF);
    assert_int_equal(fileio_read_all(fd, "file", got, 1, 0, &error), BR_E_IO);
    assert_int_equal(fileio_write(fd, "a", 1, 0), EBADF);
}

enum { LONG = 3 * FILEIO_BLOCK + 1234 };

/* Direct reads give the same bytes whatever does not lie in blocks: place and length in the file, place in
 * memory. */
static void reads_directly(void **state)
{
    (void)state;
    static uint8_t data[LONG];
    for (size_t i = 0; i < LONG; i++) data[i] = (uint8_t)(i * 7 + i / 256);
    int fd = open("long", O_RDWR | O_CREAT, 0666);
    assert_int_equal(fileio_write(fd, data, LONG, 0), 0);
    close(fd);
    struct br_error error = {0};
    bool direct = true;
    fd = fileio_open("long", &direct, &error);
    assert_true(fd >= 0);
    uint8_t *scratch = aligned_alloc(FILEIO_BLOCK, 2 * FILEIO_BLOCK),
            *to = aligned_alloc(FILEIO_BLOCK, 5 * FILEIO_BLOCK);
    static const size_t at[] = {0, 1, 512, 4095, 4096, 4097, 8192, 12288, 12289},
                        lengths[] = {1, 100, 4095, 4096, 4097, 8192, 9000, LONG},
                        places[] = {0, 1, 512, 4095};
    for (size_t a = 0; a < sizeof at / sizeof *at; a++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
            for (size_t p = 0; p < 4; p++)
                for (int same = 0; same < 2; same++) {
                    size_t place = same ? at[a] % FILEIO_BLOCK : places[p], n = lengths[l];
                    memset(to, 0xaa, 5 * FILEIO_BLOCK);
                    error = (struct br_error){0};
                    int status = fileio_read_direct(fd, "long", to + place, n, at[a], scratch,
                                                    2 * FILEIO_BLOCK, &error);
                    if (at[a] + n > LONG) {
                        assert_int_equal(status, BR_E_IO);
                        assert_non_null(strstr(error.text, "long ends at byte 13522"));
                        continue;
                    }
                    assert_int_equal(status, BR_OK);
                    assert_memory_equal(to + place, data + at[a], n);
                    assert_int_equal(to[place + n], 0xaa);
                    if (place > 0) assert_int_equal(to[place - 1], 0xaa);
                }
    free(scratch);
    free(to);
    close(fd);
    assert_int_equal(fileio_read_direct(fd, "long", data, 1, 0, data, 2 * FILEIO_BLOCK, &error), BR_E_IO);
}

/* A file that does not allow direct reading is opened normally. */
static void opens_directly_or_not(void **state)
{
    (void)state;
    struct br_error error = {0};
    bool direct = true;
    int fd = fileio_open("/proc/self/status", &direct, &error);
    assert_true(fd >= 0);
    assert_false(direct);
    char got[4];
    assert_int_equal(fileio_read_all(fd, "status", got, 4, 0, &error), BR_OK);
    assert_memory_equal(got, "Name", 4);
    close(fd);
    direct = true;
    assert_int_equal(fileio_open("nowhere", &direct, &error), -1);
    assert_string_equal(error.text, "cannot open nowhere: No such file or directory");
}

static void full_disk(void **state)
{
    (void)state;
    int fd = open("/dev/full", O_WRONLY);
    if (fd < 0) skip();
    assert_int_equal(fileio_write(fd, "a", 1, 0), ENOSPC);
    close(fd);
}

static void folders(void **state)
{
    (void)state;
    struct stat info;
    assert_int_equal(fileio_make_directory("a/b/c"), 0);
    assert_int_equal(stat("a/b/c", &info), 0);
    assert_true(S_ISDIR(info.st_mode));
    assert_int_equal(fileio_make_directory("a/b/c"), 0);
    assert_int_equal(fileio_make_directory("a/d/"), 0);
    assert_int_equal(fclose(fopen("plain", "w")), 0);
    assert_int_equal(fileio_make_directory("plain/b"), -1);
    assert_int_equal(errno, ENOTDIR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reads_and_writes), cmocka_unit_test(full_disk),
                                       cmocka_unit_test(reads_directly),
                                       cmocka_unit_test(opens_directly_or_not), cmocka_unit_test(folders)};
    return cmocka_run_group_tests(tests, in_temporary_folder, leave);
}
