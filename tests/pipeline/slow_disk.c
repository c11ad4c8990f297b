/* slow_disk.c - for tests, to be preloaded: pwrite takes SLOW_DISK_MS, and after FULL_DISK_BYTES the disk is
 * full. */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    static _Atomic uint64_t written;
    const char *ms = getenv("SLOW_DISK_MS"), *full = getenv("FULL_DISK_BYTES");
    ssize_t (*real)(int, const void *, size_t, off_t);
    *(void **)&real = dlsym(RTLD_NEXT, sizeof(off_t) == 8 ? "pwrite64" : "pwrite");
    if (ms != NULL) {
        long n = strtol(ms, NULL, 10);
        nanosleep(&(struct timespec){n / 1000, n % 1000 * 1000000}, NULL);
    }
    if (full != NULL && atomic_load(&written) > strtoull(full, NULL, 10)) {
        errno = ENOSPC;
        return -1;
    }
    ssize_t done = real(fd, data, bytes, at);
    if (done > 0) atomic_fetch_add(&written, (uint64_t)done);
    return done;
}
