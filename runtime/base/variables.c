/* variables.c - what mpirun and srun say about ranks in the environment. */
#include "runtime/base/variables.h"

#include <stdlib.h>
#include <string.h>

const char *br_ranks_variable(const char *name)
{
    static const struct {
        const char *name, *alone, *from[6];
    } known[] = {
        {"RANK", "0", {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}},
        {"RANKS", "1", {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"}},
        {"LOCAL_RANK", "0", {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}},
    };
    const char *value = getenv(name);
    if (value != NULL) return value;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        if (strcmp(name, known[k].name) != 0) continue;
        for (size_t i = 0; known[k].from[i] != NULL; i++)
            if ((value = getenv(known[k].from[i])) != NULL) return value;
        return known[k].alone;
    }
    return NULL;
}
