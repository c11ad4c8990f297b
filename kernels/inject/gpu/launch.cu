/* Launches of inject. */
#include "kernels/common/cuda.h"
#include "kernels/inject/gpu/add.cuh"
#include "kernels/inject/plan.h"

#include <cuda_runtime.h>

using namespace beamring::inject;

namespace
{

cudaStream_t stream_of(const struct br_inject *plan)
{
    return static_cast<cudaStream_t>(br_cuda_stream(plan->p.cuda));
}

unsigned ceil_div(size_t a, size_t b)
{
    return static_cast<unsigned>((a + b - 1) / b);
}

} // namespace

extern "C" void br_inject_cuda_measure(const struct br_inject *plan, const struct br_inject_frame *frame,
                                       const struct br_inject_noise *noise, size_t count)
{
    const struct br_inject_params *p = &plan->p;
    br_cuda_begin(p->cuda);
    const void *noises = br_cuda_upload(p->cuda, noise, count * sizeof *noise);
    if (!noises) return; /* kept by br_cuda_check */
    size_t inputs = p->npol * p->ndishes;
    dim3 grid(ceil_div(inputs, THREADS), static_cast<unsigned>(count), 8);
    measure<<<grid, THREADS, 0, stream_of(plan)>>>(
        static_cast<const br_inject_noise *>(noises), frame->e, static_cast<unsigned>(p->nlines),
        static_cast<unsigned>(p->ndishes), static_cast<unsigned>(inputs));
}

extern "C" void br_inject_cuda_add(const struct br_inject *plan, const struct br_inject_frame *frame,
                                   const uint8_t *pack, size_t bytes, struct br_inject_piece *pieces,
                                   size_t count)
{
    const struct br_inject_params *p = &plan->p;
    uint32_t segments = 0, most = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t n = ceil_div(pieces[i].count, INJECT_SEGMENT);
        pieces[i].segment = segments;
        pieces[i].ends = i + 1 == count || pieces[i + 1].line != pieces[i].line;
        segments += n;
        most = n > most ? n : most;
    }
    br_cuda_begin(p->cuda);
    const void *packed = br_cuda_upload(p->cuda, pack, bytes),
               *table = br_cuda_upload(p->cuda, pieces, count * sizeof *pieces);
    if (!packed || !table) return; /* kept by br_cuda_check */
    unsigned D = static_cast<unsigned>(p->ndishes);
    /* Nobody else reads the upload: inputs become factors there. */
    work w = {plan->tables,
              frame->e,
              static_cast<uint8_t *>(const_cast<void *>(packed)),
              static_cast<const br_inject_piece *>(table),
              plan->side,
              plan->carry,
              static_cast<unsigned>(frame->samples),
              static_cast<unsigned>(p->nlines),
              D,
              (D + 3) / 4};
    bool whole = D % 4 == 0 && reinterpret_cast<uintptr_t>(frame->e) % 4 == 0;
    dim3 grid(ceil_div(static_cast<size_t>(most) * w.groups, THREADS), static_cast<unsigned>(count));
    cudaStream_t stream = stream_of(plan);
    aim<<<ceil_div(count, THREADS / WARP), THREADS, 0, stream>>>(w, static_cast<unsigned>(count));
    if (whole) {
        sides<true><<<grid, THREADS, 0, stream>>>(w);
        add<true><<<grid, THREADS, 0, stream>>>(w);
    } else {
        sides<false><<<grid, THREADS, 0, stream>>>(w);
        add<false><<<grid, THREADS, 0, stream>>>(w);
    }
}

extern "C" int br_inject_fetch(const struct br_inject *plan, void *host, const void *sums, struct br_why *why)
{
    /* Not through the plan's br_cuda, which one thread uses at a time. */
    size_t bytes = br_inject_sums_bytes(&plan->p);
    cudaError_t status = cudaSetDevice(br_cuda_device(plan->p.cuda));
    if (status == cudaSuccess)
        status = cudaMemcpyAsync(host, sums, bytes, cudaMemcpyDeviceToHost, stream_of(plan));
    if (status == cudaSuccess) status = cudaStreamSynchronize(stream_of(plan));
    return status == cudaSuccess ? 0
                                 : br_because(why, "copying the sums of a burst from device %d: %s",
                                              br_cuda_device(plan->p.cuda), cudaGetErrorString(status));
}
