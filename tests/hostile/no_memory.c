/* no_memory.c - for tests, to be preloaded: the NO_MEMORY_AT-th allocation of the process finds no memory,
 * and so do the NO_MEMORY_COUNT - 1 behind it. CUDA's runtime and HDF5, which crash then while they are
 * loaded, always find some. */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static _Atomic long done;
static long at = -1, count;

__attribute__((constructor)) static void begin(void)
{
    const char *first = getenv("NO_MEMORY_AT"), *many = getenv("NO_MEMORY_COUNT");
    count = many != NULL ? strtol(many, NULL, 10) : 1;
    at = first != NULL ? strtol(first, NULL, 10) : -1;
}

static bool fails(void *caller)
{
    Dl_info info;
    if (at < 0) return false;
    long n = atomic_fetch_add(&done, 1);
    if (n < at || n >= at + count) return false;
    if (dladdr(caller, &info) != 0 &&
        (strstr(info.dli_fname, "libcudart") != NULL || strstr(info.dli_fname, "libhdf5") != NULL))
        return false;
    errno = ENOMEM;
    return true;
}

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);

void *malloc(size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(n, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(memory, bytes);
}
