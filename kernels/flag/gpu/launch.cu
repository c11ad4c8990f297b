/* The flagger on a GPU: sums while samples come, decisions when a long block ends, and what came of them back
 * to the host, whose thread waits for an event of this plan's alone. */
#include "kernels/common/cuda.h"
#include "kernels/flag/gpu/decide.cuh"
#include "kernels/flag/plan.h"

#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>

using namespace beamring;
using namespace beamring::flag;

struct br_flag_gpu {
    uint32_t *sums;  /* [nblocks][F][2][N] */
    uint16_t *lost;  /* [nblocks][F][N] */
    uint8_t *result; /* reason, used, input: as in locked memory */
    uint8_t *keep;   /* [F][vectors][16] */
    float *table;    /* the plan's */
    unsigned vectors;
    cudaEvent_t done;
    bool waiting;
};

namespace
{

unsigned vectors_of(const struct br_flag_params *p)
{
    return static_cast<unsigned>((p->ninputs + 15) / 16);
}

size_t sums_bytes(const struct br_flag_params *p)
{
    return p->nblocks * p->nchannels * 2 * p->ninputs * sizeof(uint32_t);
}

cudaStream_t stream_of(const struct br_flag *plan)
{
    return static_cast<cudaStream_t>(br_cuda_stream(plan->cuda));
}

/* Whether 16 inputs are 16 aligned bytes. */
bool whole(const struct br_flag_params *p, const void *a, const void *b)
{
    return p->ninputs % 16 == 0 &&
           (reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b)) % 16 == 0;
}

} // namespace

extern "C" size_t br_flag_cuda_bytes(const struct br_flag_params *p)
{
    return sums_bytes(p) + sums_bytes(p) / 4 + br_flag_result_bytes(p) + p->nchannels * vectors_of(p) * 16 +
           sizeof br_flag_table;
}

extern "C" int br_flag_cuda_create(struct br_flag *plan, struct br_why *why)
{
    const struct br_flag_params *p = &plan->p;
    struct br_flag_gpu *g = static_cast<struct br_flag_gpu *>(calloc(1, sizeof *g));
    plan->gpu = g;
    if (!g) return br_because(why, "no memory for the flags");
    g->vectors = vectors_of(p);
    g->sums = static_cast<uint32_t *>(br_cuda_alloc(plan->cuda, sums_bytes(p), why));
    if (g->sums) g->lost = static_cast<uint16_t *>(br_cuda_alloc(plan->cuda, sums_bytes(p) / 4, why));
    if (g->lost) g->result = static_cast<uint8_t *>(br_cuda_alloc(plan->cuda, br_flag_result_bytes(p), why));
    if (g->result)
        g->keep = static_cast<uint8_t *>(br_cuda_alloc(plan->cuda, p->nchannels * g->vectors * 16, why));
    if (g->keep)
        g->table = static_cast<float *>(br_cuda_table(plan->cuda, plan->table, sizeof br_flag_table, why));
    if (!g->table) return -1;
    /* The bytes behind the last input of a channel are never changed. */
    cudaMemsetAsync(g->keep, 0xff, p->nchannels * g->vectors * 16, stream_of(plan));
    void *locked = nullptr;
    bool good = br_cuda_ok(plan->cuda, cudaMallocHost(&locked, br_flag_result_bytes(p)), "cudaMallocHost") &&
                br_cuda_ok(plan->cuda,
                           cudaEventCreateWithFlags(&g->done, cudaEventDisableTiming | cudaEventBlockingSync),
                           "cudaEventCreateWithFlags");
    plan->reason = static_cast<uint8_t *>(locked);
    return good ? 0 : br_cuda_check(plan->cuda, why);
}

extern "C" void br_flag_cuda_destroy(struct br_flag *plan)
{
    struct br_flag_gpu *g = plan->gpu;
    if (!g) return;
    br_cuda_free(plan->cuda, g->sums);
    br_cuda_free(plan->cuda, g->lost);
    br_cuda_free(plan->cuda, g->result);
    br_cuda_free(plan->cuda, g->keep);
    br_cuda_free(plan->cuda, g->table);
    if (g->done) cudaEventDestroy(g->done);
    cudaFreeHost(plan->reason);
    free(g);
}

extern "C" void br_flag_cuda_add(struct br_flag *plan, size_t at, size_t nsteps, const uint8_t *e,
                                 const uint8_t *cells, uint8_t *out)
{
    const struct br_flag_params *p = &plan->p;
    struct br_flag_gpu *g = plan->gpu;
    br_cuda_begin(plan->cuda);
    const void *there =
        cells ? br_cuda_upload(plan->cuda, cells, nsteps * p->nchannels) : static_cast<const void *>(nullptr);
    /* The up to 15 bytes behind the last input are not multiplied. */
    const void *keep = br_cuda_upload(plan->cuda, plan->keep, p->ninputs);
    if (!keep || (cells && !there)) return; /* kept by br_cuda_check */
    sums_work w = {e,
                   static_cast<const uint8_t *>(there),
                   static_cast<const uint8_t *>(keep),
                   out,
                   g->sums,
                   g->lost,
                   static_cast<unsigned>(at),
                   static_cast<unsigned>(nsteps),
                   static_cast<unsigned>(p->nchannels),
                   static_cast<unsigned>(p->ninputs),
                   static_cast<unsigned>(p->block),
                   g->vectors,
                   at % p->block != 0 && at != plan->begin};
    dim3 grid((w.F * w.vectors + SUMS_THREADS - 1) / SUMS_THREADS,
              (w.at + w.count - 1) / w.block - w.at / w.block + 1);
    void (*kernel)(sums_work) = whole(p, e, out) ? (cells ? sums<true, true> : sums<true, false>)
                                                 : (cells ? sums<false, true> : sums<false, false>);
    if (at == plan->begin) cudaMemsetAsync(g->lost, 0, sums_bytes(p) / 4, stream_of(plan));
    kernel<<<grid, SUMS_THREADS, 0, stream_of(plan)>>>(w);
}

namespace
{

/* Enqueues the decisions, and what they do to `out`. */
void decide(struct br_flag *plan, const void *s0, const void *bad, uint8_t *out, float *sk)
{
    const struct br_flag_params *p = &plan->p;
    struct br_flag_gpu *g = plan->gpu;
    decide_work w = {static_cast<const uint32_t *>(s0),
                     g->sums,
                     plan->gaps ? g->lost : nullptr,
                     static_cast<const uint8_t *>(bad),
                     reinterpret_cast<table_rows>(g->table),
                     plan->rules,
                     g->result,
                     reinterpret_cast<uint32_t *>(g->result + flag_used_at(p)),
                     reinterpret_cast<uint32_t *>(g->result + flag_input_at(p)),
                     g->keep,
                     sk,
                     static_cast<unsigned>(p->nchannels),
                     static_cast<unsigned>(p->ninputs),
                     static_cast<unsigned>(p->block),
                     g->vectors,
                     plan->expected,
                     static_cast<unsigned>(plan->begin),
                     static_cast<unsigned>(plan->end),
                     static_cast<unsigned>(plan->begin / p->block),
                     static_cast<unsigned>((plan->end - 1) / p->block - plan->begin / p->block + 1)};
    cudaStream_t stream = stream_of(plan);
    decide_blocks<<<(w.nblocks * w.F + DECIDE_WARPS - 1) / DECIDE_WARPS, DECIDE_THREADS, 0, stream>>>(w);
    decide_inputs<<<dim3((w.N + DECIDE_THREADS - 1) / DECIDE_THREADS, w.F), DECIDE_THREADS, 0, stream>>>(w);
    dim3 grid((w.F * w.vectors + DECIDE_THREADS - 1) / DECIDE_THREADS,
              (w.end - w.begin + MASK_STEPS - 1) / MASK_STEPS);
    for (unsigned from = 0; from < grid.y; from += 65535) { /* the most y's of a launch */
        decide_work part = w;
        part.begin += from * MASK_STEPS;
        dim3 some(grid.x, grid.y - from < 65535 ? grid.y - from : 65535);
        uint8_t *at = out + static_cast<size_t>(from) * MASK_STEPS * w.F * w.N;
        if (whole(p, out, nullptr))
            mask<true><<<some, DECIDE_THREADS, 0, stream>>>(part, at);
        else
            mask<false><<<some, DECIDE_THREADS, 0, stream>>>(part, at);
    }
}

} // namespace

extern "C" void br_flag_cuda_end(struct br_flag *plan, uint8_t *out, float *sk)
{
    const struct br_flag_params *p = &plan->p;
    struct br_flag_gpu *g = plan->gpu;
    cudaStream_t stream = stream_of(plan);
    size_t cells = p->nblocks * p->nchannels;
    br_cuda_begin(plan->cuda);
    cudaMemsetAsync(g->result, 0, br_flag_result_bytes(p), stream);
    const void *s0 = br_cuda_upload(plan->cuda, plan->s0, cells * sizeof(uint32_t));
    const void *bad = br_cuda_upload(plan->cuda, plan->bad, p->ninputs);
    if (s0 && bad && plan->open) decide(plan, s0, bad, out, sk);
    br_cuda_ok(
        plan->cuda,
        cudaMemcpyAsync(plan->reason, g->result, br_flag_result_bytes(p), cudaMemcpyDeviceToHost, stream),
        "cudaMemcpyAsync");
    g->waiting = br_cuda_ok(plan->cuda, cudaEventRecord(g->done, stream), "cudaEventRecord");
}

extern "C" void br_flag_cuda_wait(struct br_flag *plan)
{
    if (!plan->gpu->waiting) return;
    br_cuda_ok(plan->cuda, cudaEventSynchronize(plan->gpu->done), "cudaEventSynchronize");
    plan->gpu->waiting = false;
    size_t from, to; /* the device does not write what nobody has asked about */
    for (size_t b = 0; b < plan->p.nblocks; b++)
        if (!flag_span(plan, b, plan->begin, plan->end, &from, &to))
            memset(plan->reason + b * plan->p.nchannels, BR_FLAG_FEW, plan->p.nchannels);
}

extern "C" void br_flag_cuda_sums(struct br_flag *plan, uint32_t *s1_s2, uint16_t *lost)
{
    cudaStream_t stream = stream_of(plan);
    br_cuda_ok(plan->cuda,
               cudaMemcpyAsync(s1_s2, plan->gpu->sums, sums_bytes(&plan->p), cudaMemcpyDeviceToHost, stream),
               "cudaMemcpyAsync");
    br_cuda_ok(
        plan->cuda,
        cudaMemcpyAsync(lost, plan->gpu->lost, sums_bytes(&plan->p) / 4, cudaMemcpyDeviceToHost, stream),
        "cudaMemcpyAsync");
    br_cuda_ok(plan->cuda, cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}
