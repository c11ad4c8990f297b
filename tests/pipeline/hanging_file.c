/* hanging_file.c - for tests, to be preloaded: opening a file NAME waits for as long as there is a file
 * NAME.hangs, as on a disk that does not answer. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static FILE *open_late(const char *symbol, const char *path, const char *mode)
{
    char mark[4096];
    FILE *(*real)(const char *, const char *);
    *(void **)&real = dlsym(RTLD_NEXT, symbol);
    snprintf(mark, sizeof mark, "%s.hangs", path);
    while (access(mark, F_OK) == 0) nanosleep(&(struct timespec){0, 5000000}, NULL);
    return real(path, mode);
}

/* The two names of one function, which headers may turn into each other. */
FILE *open_short(const char *path, const char *mode) __asm__("fopen");
FILE *open_long(const char *path, const char *mode) __asm__("fopen64");

FILE *open_short(const char *path, const char *mode)
{
    return open_late("fopen", path, mode);
}

FILE *open_long(const char *path, const char *mode)
{
    return open_late("fopen64", path, mode);
}
