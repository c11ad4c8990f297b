/* parallel.h - the parallel loop that a stage hands to a kernel on the CPU. */
#ifndef BEAMRING_STAGES_COMMON_STAGE_PARALLEL_H
#define BEAMRING_STAGES_COMMON_STAGE_PARALLEL_H

#include "kernels/common/parallel.h"
#include "runtime/stage.h"

/* A failure is the stage's, and ends the run when process comes back. */
static inline void br_stage_run_jobs(void *stage, size_t jobs, br_parallel_work *work, void *arg)
{
    br_stage_parallel(stage, jobs, work, arg);
}

static inline struct br_parallel br_stage_parallel_loop(struct br_stage *stage)
{
    return (struct br_parallel){br_stage_threads(stage), stage, br_stage_run_jobs};
}

#endif
