/* variables.h - ${RANK}, ${RANKS} and ${LOCAL_RANK}. */
#ifndef BEAMRING_RUNTIME_BASE_VARIABLES_H
#define BEAMRING_RUNTIME_BASE_VARIABLES_H

/* getenv, but for RANK, RANKS and LOCAL_RANK: where the environment lacks them, what mpirun and srun say in
 * theirs, else those of a program alone ("0", "1", "0"). */
const char *br_ranks_variable(const char *name);

#endif
