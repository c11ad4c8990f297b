/* files.h - checks that ranks do not overwrite each other's files. */
#ifndef BEAMRING_RUNTIME_RANKS_FILES_H
#define BEAMRING_RUNTIME_RANKS_FILES_H

#include "buffers/error.h"

struct br_graph;
struct br_ranks;

/* Collective: every rank calls it. Returns BR_E_INVALID if another rank would write files of the same names,
 * on the same machine or in a shared file system. BR_OK if `ranks` is NULL. */
int br_ranks_check_files(struct br_ranks *ranks, const struct br_graph *graph, struct br_error *error);

#endif
