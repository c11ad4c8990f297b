/* cuda_none.c - cuda.h in a build without the CUDA toolkit: every call fails and says why. */
#include "kernels/common/cuda.h"

int br_cuda_create(struct br_cuda **cuda, int device, void *stream, size_t upload_bytes, struct br_why *why)
{
    (void)stream, (void)upload_bytes;
    *cuda = NULL;
    return br_because(why, "device %d: this beamring was built without CUDA", device);
}

int br_cuda_create_aside(struct br_cuda **cuda, const struct br_cuda *of, struct br_why *why)
{
    (void)of;
    return br_cuda_create(cuda, 0, NULL, 0, why);
}

size_t br_cuda_held_device(const struct br_cuda *cuda)
{
    (void)cuda;
    return 0;
}

size_t br_cuda_held_locked(const struct br_cuda *cuda)
{
    (void)cuda;
    return 0;
}

/* Without a br_cuda nobody comes here; a program that links against a plan still needs the names. */
void br_cuda_destroy(struct br_cuda *cuda)
{
    (void)cuda;
}

void *br_cuda_stream(const struct br_cuda *cuda)
{
    (void)cuda;
    return NULL;
}

void br_cuda_wait(void *stream)
{
    (void)stream;
}

int br_cuda_check(struct br_cuda *cuda, struct br_why *why)
{
    (void)cuda;
    return br_because(why, "this beamring was built without CUDA");
}

uint64_t br_cuda_count(struct br_cuda *cuda)
{
    (void)cuda;
    return 0;
}

void *br_cuda_alloc(struct br_cuda *cuda, size_t bytes, struct br_why *why)
{
    (void)cuda, (void)bytes;
    br_because(why, "this beamring was built without CUDA");
    return NULL;
}

void br_cuda_free(struct br_cuda *cuda, void *memory)
{
    (void)cuda, (void)memory;
}

bool br_cuda_code(char *name, size_t size)
{
    (void)name, (void)size;
    return false;
}
