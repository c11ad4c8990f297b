#include "stages/common/stage/gpu.h"

#include "stages/common/stage/shape.h"

#include <stdlib.h>

int br_stage_backend(struct br_stage *stage, size_t upload_bytes, enum br_backend *backend,
                     struct br_cuda **cuda)
{
    struct br_why why = {""};
    *cuda = NULL;
    *backend = BR_CPU;
    if (br_stage_device(stage) < 0) return BR_OK;
    *backend = BR_CUDA;
    if (br_cuda_create(cuda, br_stage_device(stage), br_stage_stream(stage), upload_bytes, &why) == 0)
        return BR_OK;
    return br_stage_fail(stage, BR_E_DEVICE, "%s", why.text);
}

int br_stage_backend_aside(struct br_stage *stage, const struct br_cuda *now, enum br_backend *backend,
                           struct br_cuda **cuda)
{
    struct br_why why = {""};
    *cuda = NULL;
    *backend = BR_CPU;
    if (now == NULL) return BR_OK;
    *backend = BR_CUDA;
    if (br_cuda_create_aside(cuda, now, &why) == 0) return BR_OK;
    return br_stage_fail(stage, BR_E_DEVICE, "%s", why.text);
}

void br_stage_uploads_memory(const struct br_stage *stage, size_t upload_bytes, struct br_memory *memory)
{
    if (br_stage_device(stage) < 0) return;
    memory->locked += BR_CUDA_ROUNDS * br_cuda_room(upload_bytes);
    memory->device += BR_CUDA_ROUNDS * br_cuda_room(upload_bytes);
}

void br_stage_buffer_memory(const struct br_stage *stage, size_t bytes, struct br_memory *memory)
{
    *(br_stage_device(stage) < 0 ? &memory->host : &memory->device) += bytes;
}

int br_stage_gpu_holds(struct br_stage *stage, const struct br_cuda *cuda)
{
    if (cuda != NULL)
        br_stage_holds(stage, &(struct br_memory){.locked = br_cuda_held_locked(cuda),
                                                  .device = br_cuda_held_device(cuda)});
    return BR_OK;
}

int br_stage_gpu_check(struct br_stage *stage, struct br_cuda *cuda)
{
    struct br_why why = {""};
    if (cuda == NULL || br_cuda_check(cuda, &why) == 0) return BR_OK;
    return br_stage_fail(stage, BR_E_DEVICE, "%s", why.text);
}

void *br_stage_scratch(struct br_stage *stage, struct br_cuda *cuda, size_t bytes)
{
    struct br_why why = {""};
    void *memory = cuda != NULL ? br_cuda_alloc(cuda, bytes, &why) : calloc(bytes, 1);
    if (memory != NULL) return memory;
    if (cuda != NULL)
        br_stage_fail(stage, BR_E_NO_MEMORY, "%s", why.text);
    else
        br_no_memory(stage, bytes);
    return NULL;
}

void br_stage_scratch_free(struct br_cuda *cuda, void *memory)
{
    if (cuda != NULL)
        br_cuda_free(cuda, memory);
    else
        free(memory);
}

void br_stage_gpu_end(struct br_stage *stage, struct br_cuda *cuda)
{
    if (cuda == NULL) return;
    br_stage_count_saturated(stage, br_cuda_count(cuda));
    br_cuda_destroy(cuda);
}
