/* The correlator on a GPU. Products of bytes on the tensor cores are exact and the fastest there are, so E's
 * nibbles become rows of bytes, one pair of rows per input,
 *   x = [real parts | imaginary parts]      y = [imaginary parts | -real parts]
 * whose products are the real and the imaginary parts of visibilities. Some milliseconds at a time: rows
 * spread (spread.cuh), multiplied and added up (products/), and at the end of an integration gathered into
 * baselines. Autocorrelations alone are sums that need none of this. */
#include "kernels/correlate/gpu/spread.cuh"
#include "kernels/correlate/plan.h"

#include "kernels/common/cublaslt.h"

#include <cuda_runtime.h>
#include <stdlib.h>

using namespace beamring;
using namespace beamring::correlate;

enum { MOST_SAMPLES = 1024, SHORTEST = 128 };

/* What rows of bytes may take: channels are done in as many groups as that needs. */
static const size_t MOST_ROWS = static_cast<size_t>(256) << 20;

struct br_correlate_gpu {
    struct products *products;
    int8_t *xy;    /* [channel of a group][2 Np][2 MOST_SAMPLES] */
    int32_t *sums; /* [F][channel_sums]; autos: [F][N][2] */
    size_t padded, group, channel_sums;
    bool more; /* there are sums */
};

namespace
{

size_t group_of(const struct br_correlate_params *p)
{
    size_t each = 4 * products_padded(p->ninputs) * MOST_SAMPLES;
    size_t most = MOST_ROWS / each > 0 ? MOST_ROWS / each : 1;
    size_t groups = (p->nchannels + most - 1) / most;
    return (p->nchannels + groups - 1) / groups;
}

size_t sums_of(const struct br_correlate_params *p)
{
    size_t padded = products_padded(p->ninputs);
    return p->autos ? 2 * p->ninputs : products_offset(padded, products_blocks(padded));
}

size_t rows_bytes(const struct br_correlate_params *p)
{
    return p->autos ? 0 : group_of(p) * 4 * products_padded(p->ninputs) * MOST_SAMPLES;
}

} // namespace

extern "C" size_t br_correlate_cuda_bytes(const struct br_correlate_params *p)
{
    return rows_bytes(p) + p->nchannels * sums_of(p) * sizeof(int32_t) + (p->autos ? 0 : PRODUCTS_WORKSPACE);
}

extern "C" bool br_correlate_has_products(const struct br_correlate_params *p, struct br_why *why)
{
#if BR_HAS_CUBLASLT_HEADER
    return p->autos || br_cublaslt(why) != nullptr;
#else
    if (!p->autos) br_because(why, "this beamring was built without cuBLASLt's header");
    return p->autos;
#endif
}

extern "C" int br_correlate_cuda_create(struct br_correlate *plan, struct br_why *why)
{
    const struct br_correlate_params *p = &plan->p;
    struct br_correlate_gpu *g = static_cast<struct br_correlate_gpu *>(calloc(1, sizeof *g));
    plan->gpu = g;
    if (!g) return br_because(why, "no memory for the correlator");
    if (!br_correlate_has_products(p, why)) return -1;
    g->padded = products_padded(p->ninputs);
    g->group = group_of(p);
    g->channel_sums = sums_of(p);
    g->sums = static_cast<int32_t *>(
        br_cuda_alloc(plan->cuda, p->nchannels * g->channel_sums * sizeof(int32_t), why));
    if (!g->sums) return -1;
    if (p->autos) return 0;
    g->xy = static_cast<int8_t *>(br_cuda_alloc(plan->cuda, rows_bytes(p), why));
    if (!g->xy) return -1;
#if BR_HAS_CUBLASLT_HEADER
    return products_create(&g->products, plan->cuda, g->padded, g->group, MOST_SAMPLES, g->xy, g->sums, why);
#else
    return -1;
#endif
}

extern "C" void br_correlate_cuda_destroy(struct br_correlate *plan)
{
    struct br_correlate_gpu *g = plan->gpu;
    if (!g) return;
#if BR_HAS_CUBLASLT_HEADER
    products_destroy(g->products);
#endif
    br_cuda_free(plan->cuda, g->xy);
    br_cuda_free(plan->cuda, g->sums);
    free(g);
}

namespace
{

void add_autos(struct br_correlate *plan, unsigned count, const uint8_t *e, const uint8_t *valid)
{
    const struct br_correlate_params *p = &plan->p;
    autos_work w = {e,
                    valid,
                    plan->gpu->sums,
                    count,
                    static_cast<unsigned>(p->nchannels),
                    static_cast<unsigned>(p->ninputs)};
    dim3 grid((w.N + 255) / 256, w.F, (count + AUTOS_SAMPLES - 1) / AUTOS_SAMPLES);
    autos<<<grid, 256, 0, static_cast<cudaStream_t>(br_cuda_stream(plan->cuda))>>>(w);
}

#if BR_HAS_CUBLASLT_HEADER
/* Rows no longer than need be: 128, 256, 512 or 1024 samples. */
void add_samples(struct br_correlate *plan, unsigned count, const uint8_t *e, const uint8_t *valid)
{
    const struct br_correlate_params *p = &plan->p;
    struct br_correlate_gpu *g = plan->gpu;
    unsigned samples = SHORTEST;
    while (samples < count) samples *= 2;
    bool words = p->ninputs % 4 == 0 && reinterpret_cast<uintptr_t>(e) % 4 == 0;
    for (size_t f = 0; f < p->nchannels; f += g->group) {
        size_t channels = p->nchannels - f < g->group ? p->nchannels - f : g->group;
        spread_work w = {e,
                         valid,
                         g->xy,
                         count,
                         samples,
                         static_cast<unsigned>(p->nchannels),
                         static_cast<unsigned>(p->ninputs),
                         static_cast<unsigned>(g->padded),
                         static_cast<unsigned>(f)};
        dim3 grid(samples / SPREAD_TILE, (w.Np + SPREAD_TILE - 1) / SPREAD_TILE,
                  static_cast<unsigned>(channels));
        cudaStream_t stream = static_cast<cudaStream_t>(br_cuda_stream(plan->cuda));
        if (words)
            spread<true><<<grid, SPREAD_THREADS, 0, stream>>>(w);
        else
            spread<false><<<grid, SPREAD_THREADS, 0, stream>>>(w);
        products_enqueue(g->products, channels, samples, g->xy, g->sums + f * g->channel_sums, g->more);
    }
}
#endif

} // namespace

extern "C" void br_correlate_cuda(struct br_correlate *plan, size_t nsamples, const uint8_t *e,
                                  const uint8_t *valid)
{
    const struct br_correlate_params *p = &plan->p;
    size_t most = p->autos ? 65535 * AUTOS_SAMPLES / 64 : MOST_SAMPLES;
    if (nsamples == 0) return;
    br_cuda_begin(plan->cuda);
    if (valid)
        valid = static_cast<const uint8_t *>(br_cuda_upload(plan->cuda, valid, nsamples * p->nchannels));
    if (p->autos && !plan->gpu->more)
        cudaMemsetAsync(plan->gpu->sums, 0, p->nchannels * plan->gpu->channel_sums * sizeof(int32_t),
                        static_cast<cudaStream_t>(br_cuda_stream(plan->cuda)));
    for (size_t t = 0; t < nsamples; t += most) {
        unsigned count = static_cast<unsigned>(nsamples - t < most ? nsamples - t : most);
        const uint8_t *from = e + t * p->nchannels * p->ninputs,
                      *there = valid ? valid + t * p->nchannels : valid;
        if (p->autos) add_autos(plan, count, from, there);
#if BR_HAS_CUBLASLT_HEADER
        else
            add_samples(plan, count, from, there);
#endif
        plan->gpu->more = true;
    }
}

extern "C" void br_correlate_cuda_read(struct br_correlate *plan, int32_t *v)
{
    const struct br_correlate_params *p = &plan->p;
    struct br_correlate_gpu *g = plan->gpu;
    cudaStream_t stream = static_cast<cudaStream_t>(br_cuda_stream(plan->cuda));
    size_t bytes = p->nchannels * plan->nbaselines * sizeof(int2);
    if (!g->more) {
        cudaMemsetAsync(v, 0, bytes, stream);
    } else if (p->autos) {
        cudaMemcpyAsync(v, g->sums, bytes, cudaMemcpyDeviceToDevice, stream);
    } else {
        gather_work w = {
            g->sums,          reinterpret_cast<int2 *>(v),       g->channel_sums,
            plan->nbaselines, static_cast<unsigned>(p->ninputs), static_cast<unsigned>(g->padded)};
        gather<<<dim3(w.N, static_cast<unsigned>(p->nchannels)), 256, 0, stream>>>(w);
    }
    g->more = false;
}
