/* earlier.c - see earlier.h. */
#include "stages/common/stage/earlier.h"

#include "buffers/numbers.h"
#include "buffers/output.h"
#include "formats/common/fileio.h"

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

int earlier_check(struct br_stage *stage, const char *at, const struct earlier *e)
{
    char found[PATH_MAX];
    if (e->overwrite) return BR_OK;
    earlier_files(e->directory, e->prefix, e->is_ours, found, sizeof found);
    if (found[0] == '\0') return BR_OK;
    return br_stage_fail_run_at(stage, at,
                                "%s exists and would be lost; move it away, choose another directory or "
                                "prefix, perhaps with {start} in it, or set overwrite: true",
                                found);
}

int earlier_begin(struct br_stage *stage, const struct earlier *e, struct file_lock *claim)
{
    char path[PATH_MAX];
    struct br_error error = {0};
    claim->fd = -1;
    snprintf(path, sizeof path, "%s", e->directory);
    if (fileio_make_directory(path) != 0 || access(e->directory, W_OK | X_OK) != 0)
        return br_stage_fail(stage, BR_E_IO, "cannot write into directory %s: %s", e->directory,
                             strerror(errno));
    if (earlier_claim(claim, e->directory, e->prefix, &error) != BR_OK)
        return br_stage_fail(stage, BR_E_IO, "%s", error.text);
    path[0] = '\0';
    if (e->late && e->is_ours != NULL) earlier_files(e->directory, e->prefix, e->is_ours, path, sizeof path);
    if (path[0] != '\0')
        return br_stage_fail(stage, BR_E_IO, "%s exists and would be lost; move it away, or use {run}", path);
    if (e->overwrite && e->is_ours != NULL &&
        earlier_remove(e->directory, e->prefix, e->is_ours, &error) != BR_OK)
        return br_stage_fail(stage, BR_E_IO, "%s", error.text);
    return BR_OK;
}
