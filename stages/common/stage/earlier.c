/* earlier.c - see earlier.h. */
#include "stages/common/stage/earlier.h"

#include "buffers/numbers.h"
#include "buffers/output.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *earlier_rest(const char *name, const char *prefix)
{
    size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0 || name[n] != '_') return NULL;
    size_t digits = strspn(name + n + 1, "0123456789");
    return digits >= 6 ? name + n + 1 + digits : NULL;
}

/* The next of our files, as DIRECTORY/NAME in `found`. */
static bool next_of(DIR *dir, const char *directory, const char *prefix, earlier_is_ours *is_ours,
                    char *found, size_t size)
{
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (!is_ours(entry->d_name, prefix)) continue;
        snprintf(found, size, "%s/%s", directory, entry->d_name);
        return true;
    }
    return false;
}

void earlier_files(const char *directory, const char *prefix, earlier_is_ours *is_ours, char *found,
                   size_t size)
{
    DIR *dir = opendir(directory);
    found[0] = '\0';
    if (dir == NULL) return;
    next_of(dir, directory, prefix, is_ours, found, size);
    closedir(dir);
}

int earlier_remove(const char *directory, const char *prefix, earlier_is_ours *is_ours,
                   struct br_error *error)
{
    DIR *dir = opendir(directory);
    char found[PATH_MAX];
    int status = BR_OK;
    while (dir != NULL && status == BR_OK && next_of(dir, directory, prefix, is_ours, found, sizeof found)) {
        status = br_output_check(found, error);
        if (status == BR_OK && unlink(found) != 0)
            status = br_fail(error, BR_E_IO, "cannot remove %s: %s", found, strerror(errno));
    }
    if (dir != NULL) closedir(dir);
    return status;
}

int earlier_claim(struct file_lock *lock, const char *directory, const char *prefix, struct br_error *error)
{
    struct br_error why = {0};
    int64_t byte = (int64_t)(br_fnv(BR_FNV_START, prefix, strlen(prefix)) >> 2);
    snprintf(lock->path, sizeof lock->path, "%.4100s/.beamring.lock", directory);
    if (file_lock_take(lock, &byte, 1, &why) != BR_E_INVALID) return BR_OK;
    return br_fail(
        error, BR_E_IO,
        "another run writes files %s/%s* now; expected another directory or prefix, or that it has ended",
        directory, prefix);
}
