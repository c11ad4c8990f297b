/* fileio: reads end where the file ends and say so, writes go where they are told, folders are made with
 * those above. */
#include "stages/common/stage/fileio.h"

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
                                       cmocka_unit_test(folders)};
    return cmocka_run_group_tests(tests, in_temporary_folder, leave);
}
