/* Files that are published: on the disk first, then by their name, then the name on the disk. */
#include "buffers/output.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static unsigned synced;
static bool renamed_before, disk_fails;

int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    struct stat info;
    assert_int_equal(fstat(fd, &info), 0);
    assert_true(S_ISDIR(info.st_mode) == (synced == 1));
    renamed_before = access("new.part", F_OK) != 0;
    assert_true(renamed_before == (synced == 1));
    synced++;
    errno = EIO;
    return disk_fails ? -1 : 0;
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static char first_of(const char *path)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    int c = fgetc(f);
    fclose(f);
    return (char)c;
}

static void test_publish(void **state)
{
    (void)state;
    struct br_error error = {0};
    put("old", "old");
    put("new.part", "new");
    synced = 0;
    disk_fails = true; /* nothing has happened */
    assert_int_equal(br_output_publish("new.part", "old", &error), BR_E_IO);
    assert_non_null(strstr(error.text, "new.part"));
    assert_int_equal(first_of("old"), 'o');
    disk_fails = false;
    synced = 0;
    assert_int_equal(br_output_publish("new.part", "old", &error), BR_OK);
    assert_int_equal(synced, 2);
    assert_int_equal(first_of("old"), 'n');
    assert_int_not_equal(access("new.part", F_OK), 0);
    error = (struct br_error){0};
    assert_int_equal(br_output_publish("new.part", "old", &error), BR_E_IO);
    assert_int_equal(first_of("old"), 'n');
}

static void test_publish_over_something_else(void **state)
{
    (void)state;
    struct br_error error = {0};
    put("new.part", "new");
    assert_int_equal(symlink("elsewhere", "link"), 0);
    synced = 0;
    assert_int_equal(br_output_publish("new.part", "link", &error), BR_E_IO);
    assert_non_null(strstr(error.text, "a symbolic link"));
    assert_int_equal(first_of("new.part"), 'n');
    assert_int_not_equal(access("elsewhere", F_OK), 0);
}

int main(void)
{
    char folder[] = "/tmp/beamring-output-XXXXXX";
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_publish),
                                       cmocka_unit_test(test_publish_over_something_else)};
    if (mkdtemp(folder) == NULL || chdir(folder) != 0) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    static const char *const made[] = {"old", "new.part", "link"};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) unlink(made[i]);
    if (chdir("/") != 0 || rmdir(folder) != 0) return 1;
    return failed;
}
