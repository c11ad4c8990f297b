/* bad_disk.c - for tests, to be preloaded: what happens to files below the directory BAD_DISK, as the
 * first word of the file BAD_DISK_DOES says: "full" (no room), "full_late" (it cannot be asked for room,
 * and then has none), "full_at_end" (it shows when the file is to be on the disk), "hangs" (until it says
 * something else), or anything else: nothing. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static bool does(int fd, const char *what)
{
    char link[64], path[4096], word[32] = "";
    const char *directory = getenv("BAD_DISK"), *control = getenv("BAD_DISK_DOES");
    if (directory == NULL || control == NULL) return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return false;
    path[length] = '\0';
    if (strstr(path, directory) == NULL) return false;
    FILE *file = fopen(control, "re");
    bool found = file != NULL && fscanf(file, "%31s", word) == 1 && strcmp(word, what) == 0;
    if (file != NULL) fclose(file);
    return found;
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    ssize_t (*real)(int, const void *, size_t, off_t);
    *(void **)&real = dlsym(RTLD_NEXT, sizeof(off_t) == 8 ? "pwrite64" : "pwrite");
    while (does(fd, "hangs")) nanosleep(&(struct timespec){0, 20000000}, NULL);
    if (does(fd, "full") || does(fd, "full_late")) {
        errno = ENOSPC;
        return -1;
    }
    return real(fd, data, bytes, at);
}

/* Only one that hangs: writers that append find a full disk in other ways, too. */
ssize_t write(int fd, const void *data, size_t bytes)
{
    ssize_t (*real)(int, const void *, size_t);
    *(void **)&real = dlsym(RTLD_NEXT, "write");
    while (does(fd, "hangs")) nanosleep(&(struct timespec){0, 20000000}, NULL);
    return real(fd, data, bytes);
}

int fallocate(int fd, int mode, off_t at, off_t bytes)
{
    int (*real)(int, int, off_t, off_t);
    *(void **)&real = dlsym(RTLD_NEXT, sizeof(off_t) == 8 ? "fallocate64" : "fallocate");
    if (does(fd, "full") || does(fd, "full_late")) {
        errno = does(fd, "full") ? ENOSPC : EOPNOTSUPP;
        return -1;
    }
    return real(fd, mode, at, bytes);
}

int fsync(int fd)
{
    int (*real)(int);
    *(void **)&real = dlsym(RTLD_NEXT, "fsync");
    while (does(fd, "hangs")) nanosleep(&(struct timespec){0, 20000000}, NULL);
    if (does(fd, "full_at_end")) {
        errno = ENOSPC;
        return -1;
    }
    return real(fd);
}
