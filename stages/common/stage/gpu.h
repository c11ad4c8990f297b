/* gpu.h - a stage's kernels on the device that the runtime chose for it: its stream, its memory, its
 * failures. */
#ifndef BEAMRING_STAGES_COMMON_STAGE_GPU_H
#define BEAMRING_STAGES_COMMON_STAGE_GPU_H

#include "kernels/common/cuda.h"
#include "runtime/stage.h"

/* For start: which backend the stage's plans are to use. On a GPU makes *cuda for their parameters, on the
 * stage's stream, with room for `upload_bytes` a call; NULL on the CPU. Status; the failure is the
 * stage's. */
int br_stage_backend(struct br_stage *stage, size_t upload_bytes, enum br_backend *backend,
                     struct br_cuda **cuda);

/* The same for prepare of an update: *cuda is aside of what the stage runs with (`now`, NULL on the CPU), so
 * that nothing that runs waits. Destroyed with br_cuda_destroy, after its plans. */
int br_stage_backend_aside(struct br_stage *stage, const struct br_cuda *now, enum br_backend *backend,
                           struct br_cuda **cuda);

/* For memory: adds what br_stage_backend is going to take for uploads, and what lies where the stage's
 * frames do: its buffers (br_stage_scratch) and its plans' tables. */
void br_stage_uploads_memory(const struct br_stage *stage, size_t upload_bytes, struct br_memory *memory);
void br_stage_buffer_memory(const struct br_stage *stage, size_t bytes, struct br_memory *memory);

/* For the end of start: tells the runtime what is held through `cuda` (br_stage_holds). NULL is allowed.
 * BR_OK. */
int br_stage_gpu_holds(struct br_stage *stage, const struct br_cuda *cuda);

/* For process: what has been enqueued so far came to. BR_OK, or the failure is the stage's. */
int br_stage_gpu_check(struct br_stage *stage, struct br_cuda *cuda);

/* Zeroed memory in the stage's space. NULL when there is none, and then the failure is the stage's. */
void *br_stage_scratch(struct br_stage *stage, struct br_cuda *cuda, size_t bytes);
void br_stage_scratch_free(struct br_cuda *cuda, void *memory);

/* For stop, after the plans are gone: counts what the kernels clamped, and destroys `cuda`. NULL is
 * allowed. */
void br_stage_gpu_end(struct br_stage *stage, struct br_cuda *cuda);

#endif
