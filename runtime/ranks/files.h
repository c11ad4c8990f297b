/* files.h - ranks must not write over each other's files. */
#ifndef BEAMRING_RUNTIME_RANKS_FILES_H
#define BEAMRING_RUNTIME_RANKS_FILES_H

#include "buffers/error.h"

struct br_graph;
struct br_ranks;

/* Collective: BR_E_INVALID where another rank would write the same files: on one machine, or in a file system
 * that machines share. `ranks` NULL: BR_OK. */
int br_ranks_check_files(struct br_ranks *ranks, const struct br_graph *graph, struct br_error *error);

#endif
