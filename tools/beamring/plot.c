/* plot.c - see plot.h. */
#include "tools/beamring/plot.h"

#include <limits.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NO_MODULES = 3 }; /* the script's exit status without its modules */

/* Where the script is: installed, or next to the sources of the build folder. */
static bool find_script(const char *name, char *path, size_t size)
{
    static const char *const places[] = {"/../share/beamring/plots", "/../../tools/plots"};
    char program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0) return false;
    program[length] = '\0';
    *strrchr(program, '/') = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, size, "%s%s/%s", program, places[i], name);
        if (access(path, R_OK) == 0) return true;
    }
    return false;
}

int plot(const char *command, const char *script, const char *needs, const char *data, const char *picture)
{
    static const char *const pythons[] = {"/usr/bin/python3", "python3"};
    char path[PATH_MAX + 64];
    int how = 0;
    if (!find_script(script, path, sizeof path)) {
        fprintf(stderr, "beamring %s: --plot: %s is not there; it is in tools/plots of the sources\n",
                command, script);
        return 1;
    }
    for (size_t i = 0; i < sizeof pythons / sizeof *pythons; i++) {
        char *const words[] = {(char *)(uintptr_t)pythons[i], path,
                               (char *)(uintptr_t)data,       (char *)(uintptr_t)picture,
                               (char *)(uintptr_t) "--try",   NULL};
        pid_t child;
        if (posix_spawnp(&child, pythons[i], NULL, NULL, words, environ) != 0) continue;
        if (waitpid(child, &how, 0) != child || !WIFEXITED(how)) return 1;
        if (WEXITSTATUS(how) != NO_MODULES) return WEXITSTATUS(how) != 0;
    }
    fprintf(stderr, "beamring %s: --plot needs Python with %s\n", command, needs);
    return 1;
}
