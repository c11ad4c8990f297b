/* arguments.h - the command line of the subcommands that take a pipeline file. */
#ifndef BEAMRING_TOOLS_BEAMRING_ARGUMENTS_H
#define BEAMRING_TOOLS_BEAMRING_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>

enum { MAX_SETS = 64, MAX_RANKS = 1024 };

struct arguments {
    const char *file;
    size_t nset;
    const char *set[MAX_SETS];
    const char *stats, *control, *join, *at;
    unsigned ranks; /* 0: not given */
    double again_s; /* 0: not given */
    bool mpi, quiet, progress, dot, json_log, json;
};

/* Reads the options whose letters are in `allowed` (s: --stats FILE, q: --quiet, p: --progress, d: --dot,
 * c: --control ADDRESS, m: --mpi and --join HOST:PORT, r: --ranks N, l: --log text|json, j: --json,
 * a: --at TIME, g: --again S) and --set, and one file. Prints what is wrong and returns 2, or returns 0. */
int read_arguments(int argc, char **argv, const char *allowed, struct arguments *arguments);

/* Says that the command does not have this option. Returns 2, the exit status. */
int unknown_option(const char *command, const char *option);

#endif
