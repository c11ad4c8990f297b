/* check_ranks.h - `check --ranks N`: every rank of a job is a process of its own for a moment. */
#ifndef BEAMRING_TOOLS_BEAMRING_CHECK_RANKS_H
#define BEAMRING_TOOLS_BEAMRING_CHECK_RANKS_H

#include "tools/beamring/arguments.h"

struct br_ranks;

/* Calls `check` as each of a->ranks ranks, which are connected like those of a job, and prints what they
 * print, one after the other. Returns the exit status: the first that is not 0. */
int check_ranks(const struct arguments *a, int (*check)(const struct arguments *a, struct br_ranks *ranks));

#endif
