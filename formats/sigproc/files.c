#include "formats/sigproc/files.h"
#include "formats/common/fileio.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void path_of(const struct files *files, size_t i, char path[FILES_PATH])
{
    char name[FILES_NAME] = "";
    files->name(files->owner, i, name);
    snprintf(path, FILES_PATH, "%.4090s/%.255s", files->directory, name);
}

int files_create(struct files *files, size_t count, struct br_error *error)
{
    files->count = count;
    files->fd = malloc(count * sizeof *files->fd);
    files->size = calloc(count, sizeof *files->size);
    for (size_t i = 0; files->fd != NULL && i < count; i++) files->fd[i] = -1;
    if (files->fd == NULL || files->size == NULL)
        return br_fail(error, BR_E_NO_MEMORY, "no memory for %zu files", count);
    files->keep_open = fileio_allow_files(count);
    return BR_OK;
}

/* Closes file i. Some file systems report only now that they could not store what was written. */
static int close_one(struct files *files, size_t i, struct br_error *error)
{
    int fd = files->fd[i];
    files->fd[i] = -1;
    if (fd < 0 || close(fd) == 0) return BR_OK;
    char path[FILES_PATH];
    int reason = errno;
    path_of(files, i, path);
    return br_fail(error, BR_E_IO, "cannot complete %s: %s", path, strerror(reason));
}

static int open_one(struct files *files, size_t i, int flags, struct br_error *error)
{
    if (files->fd[i] >= 0) return BR_OK;
    char path[FILES_PATH];
    path_of(files, i, path);
    files->fd[i] = open(path, O_WRONLY | O_CLOEXEC | flags, 0666);
    if (files->fd[i] >= 0) return BR_OK;
    return br_fail(error, BR_E_IO, "cannot open %s: %s", path, strerror(errno));
}

static int write_all(struct files *files, size_t i, const void *data, size_t bytes, struct br_error *error)
{
    int why = fileio_write(files->fd[i], data, bytes, files->size[i]);
    if (why == 0) {
        files->size[i] += bytes;
        return BR_OK;
    }
    char path[FILES_PATH];
    path_of(files, i, path);
    const char *cut =
        ftruncate(files->fd[i], (off_t)files->size[i]) == 0 ? "" : " (it ends with a part of a sample)";
    return br_fail(error, BR_E_IO, "cannot write %s: %s; the %llu bytes before this are good%s", path,
                   strerror(why), (unsigned long long)files->size[i], cut);
}

int files_begin(struct files *files, size_t i, const void *data, size_t bytes, struct br_error *error)
{
    int status = close_one(files, i, error);
    files->size[i] = 0;
    if (status == BR_OK) status = open_one(files, i, O_CREAT | O_EXCL, error);
    if (status == BR_OK) status = write_all(files, i, data, bytes, error);
    if (status == BR_OK && !files->keep_open) status = close_one(files, i, error);
    return status;
}

int files_append(struct files *files, size_t i, const void *data, size_t bytes, struct br_error *error)
{
    int status = open_one(files, i, 0, error);
    if (status == BR_OK) status = write_all(files, i, data, bytes, error);
    if (status == BR_OK && !files->keep_open) status = close_one(files, i, error);
    return status;
}

int files_close(struct files *files, struct br_error *error)
{
    int status = BR_OK;
    for (size_t i = 0; files->fd != NULL && i < files->count; i++) {
        int result = close_one(files, i, status == BR_OK ? error : NULL);
        if (status == BR_OK) status = result;
    }
    return status;
}

void files_destroy(struct files *files)
{
    files_close(files, NULL);
    free(files->fd);
    free(files->size);
    files->fd = NULL;
    files->size = NULL;
}
