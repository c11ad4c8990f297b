/* The correlator on a GPU. Products of bytes on the tensor cores are exact and the fastest there are, so
 * E's nibbles become rows of bytes, one pair of rows per input,
 *   x = [real parts | imaginary parts]      y = [imaginary parts | -real parts]
 * whose products are the real and the imaginary parts of visibilities. Rows are filled tile after tile
 * (spread.cuh: 128 real parts, then 128 imaginary ones), multiplied when they are full (products/), and at
 * the end of an integration the sums are gathered into baselines. Autocorrelations alone are sums that
 * need none of this. */
#include "kernels/correlate/gpu/spread.cuh"
#include "kernels/correlate/plan.h"

#include <cuda_runtime.h>
#include <stdlib.h>

using namespace beamring;
using namespace beamring::correlate;

/* Samples of a row, as long as all rows do not take more than MOST_ROWS: the longer, the seldomer are sums
 * read and written. */
enum { MOST_SAMPLES = 8192 };
static const size_t MOST_ROWS = static_cast<size_t>(1) << 30;

struct br_correlate_gpu {
    struct products *products;
    int8_t *xy;    /* [F][2 Np][2 row_samples] */
    int32_t *sums; /* [F][channel_sums]; autos: [F][N][2] */
    size_t padded, row_samples, channel_sums;
    size_t filled; /* samples of rows */
    bool more;     /* there are sums */
};

namespace
{

size_t row_samples_of(const struct br_correlate_params *p)
{
    size_t most = MOST_ROWS / (4 * p->nchannels * products_padded(p->ninputs)) / SPREAD_TILE * SPREAD_TILE;
    return most > MOST_SAMPLES ? MOST_SAMPLES : most > SPREAD_TILE ? most : SPREAD_TILE;
}

size_t sums_of(const struct br_correlate_params *p)
{
    size_t padded = products_padded(p->ninputs);
    return p->autos ? 2 * p->ninputs : products_offset(padded, products_blocks(padded));
}

size_t rows_bytes(const struct br_correlate_params *p)
{
    return p->autos ? 0 : p->nchannels * 4 * products_padded(p->ninputs) * row_samples_of(p);
}

} // namespace

extern "C" size_t br_correlate_cuda_bytes(const struct br_correlate_params *p)
{
    return rows_bytes(p) + p->nchannels * sums_of(p) * sizeof(int32_t) + (p->autos ? 0 : PRODUCTS_WORKSPACE);
}

extern "C" bool br_correlate_has_products(const struct br_correlate_params *p, struct br_why *why)
{
    return p->autos || products_there(why);
}

extern "C" int br_correlate_cuda_create(struct br_correlate *plan, struct br_why *why)
{
    const struct br_correlate_params *p = &plan->p;
    struct br_correlate_gpu *g = static_cast<struct br_correlate_gpu *>(calloc(1, sizeof *g));
    plan->gpu = g;
    if (!g) return br_because(why, "no memory for the correlator");
    if (!br_correlate_has_products(p, why)) return -1;
    g->padded = products_padded(p->ninputs);
    g->row_samples = row_samples_of(p);
    g->channel_sums = sums_of(p);
    g->sums = static_cast<int32_t *>(
        br_cuda_alloc(plan->cuda, p->nchannels * g->channel_sums * sizeof(int32_t), why));
    if (!g->sums) return -1;
    if (p->autos) return 0;
    g->xy = static_cast<int8_t *>(br_cuda_alloc(plan->cuda, rows_bytes(p), why));
    if (!g->xy) return -1;
    return products_create(&g->products, plan->cuda, p->nchannels, g->padded, 2 * g->row_samples, g->xy,
                           g->sums, why);
}

extern "C" void br_correlate_cuda_destroy(struct br_correlate *plan)
{
    struct br_correlate_gpu *g = plan->gpu;
    if (!g) return;
    products_destroy(g->products);
    br_cuda_free(plan->cuda, g->xy);
    br_cuda_free(plan->cuda, g->sums);
    free(g);
}

namespace
{

/* Whether four inputs are an aligned word. */
bool in_words(const struct br_correlate_params *p, const uint8_t *e)
{
    return p->ninputs % 4 == 0 && reinterpret_cast<uintptr_t>(e) % 4 == 0;
}

void add_autos(struct br_correlate *plan, unsigned count, const uint8_t *e, const uint8_t *valid)
{
    const struct br_correlate_params *p = &plan->p;
    autos_work w = {e,
                    valid,
                    plan->gpu->sums,
                    count,
                    static_cast<unsigned>(p->nchannels),
                    static_cast<unsigned>(p->ninputs)};
    dim3 grid((w.N + 4 * AUTOS_THREADS - 1) / (4 * AUTOS_THREADS), w.F,
              (count + AUTOS_SAMPLES - 1) / AUTOS_SAMPLES);
    cudaStream_t stream = static_cast<cudaStream_t>(br_cuda_stream(plan->cuda));
    if (in_words(p, e))
        autos<true><<<grid, AUTOS_THREADS, 0, stream>>>(w);
    else
        autos<false><<<grid, AUTOS_THREADS, 0, stream>>>(w);
}

void multiply_rows(struct br_correlate_gpu *g)
{
    products_enqueue(g->products, 2 * g->filled, g->more);
    g->filled = 0;
    g->more = true;
}

/* Up to what the rows have room for. */
void fill_rows(struct br_correlate *plan, unsigned count, const uint8_t *e, const uint8_t *valid)
{
    const struct br_correlate_params *p = &plan->p;
    struct br_correlate_gpu *g = plan->gpu;
    spread_work w = {e,
                     valid,
                     g->xy + 2 * g->filled,
                     2 * g->row_samples,
                     count,
                     static_cast<unsigned>(p->nchannels),
                     static_cast<unsigned>(p->ninputs),
                     static_cast<unsigned>(g->padded)};
    unsigned tiles = (count + SPREAD_TILE - 1) / SPREAD_TILE;
    dim3 grid(tiles, (w.Np + SPREAD_TILE - 1) / SPREAD_TILE, w.F);
    cudaStream_t stream = static_cast<cudaStream_t>(br_cuda_stream(plan->cuda));
    if (in_words(p, e))
        spread<true><<<grid, SPREAD_THREADS, 0, stream>>>(w);
    else
        spread<false><<<grid, SPREAD_THREADS, 0, stream>>>(w);
    g->filled += tiles * SPREAD_TILE;
    if (g->filled == g->row_samples) multiply_rows(g);
}

} // namespace

extern "C" void br_correlate_cuda(struct br_correlate *plan, size_t nsamples, const uint8_t *e,
                                  const uint8_t *valid)
{
    const struct br_correlate_params *p = &plan->p;
    struct br_correlate_gpu *g = plan->gpu;
    if (nsamples == 0) return;
    br_cuda_begin(plan->cuda);
    if (valid)
        valid = static_cast<const uint8_t *>(br_cuda_upload(plan->cuda, valid, nsamples * p->nchannels));
    if (p->autos && !g->more) {
        cudaMemsetAsync(g->sums, 0, p->nchannels * g->channel_sums * sizeof(int32_t),
                        static_cast<cudaStream_t>(br_cuda_stream(plan->cuda)));
        g->more = true;
    }
    for (size_t t = 0, room; t < nsamples; t += room) {
        room = p->autos ? 65535 * static_cast<size_t>(AUTOS_SAMPLES) : g->row_samples - g->filled;
        unsigned count = static_cast<unsigned>(nsamples - t < room ? nsamples - t : room);
        const uint8_t *from = e + t * p->nchannels * p->ninputs,
                      *there = valid ? valid + t * p->nchannels : valid;
        if (p->autos)
            add_autos(plan, count, from, there);
        else
            fill_rows(plan, count, from, there);
    }
}

extern "C" void br_correlate_cuda_read(struct br_correlate *plan, int32_t *v)
{
    const struct br_correlate_params *p = &plan->p;
    struct br_correlate_gpu *g = plan->gpu;
    cudaStream_t stream = static_cast<cudaStream_t>(br_cuda_stream(plan->cuda));
    size_t bytes = p->nchannels * plan->nbaselines * sizeof(int2);
    if (g->filled > 0) multiply_rows(g);
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
