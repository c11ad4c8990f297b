/* FRB stage 2 on a GPU: the weights in the order of the tensor cores' registers, and the launches.
 *
 * Weights and, for beams on a grid, the intermediate product are float16, sums float32. Measured beside
 * float64 (noise, and point sources up to 60 dB above it, inside and outside of the beams): 3e-4 to 8e-4
 * relative rms, of which 2e-4 to 3e-4 come from the output's own rounding, so that one float16 per weight is
 * enough. */
#include "kernels/frb_beams/arbitrary.cuh"
#include "kernels/frb_beams/grid.cuh"
#include "kernels/frb_beams/plan.h"

#include "kernels/common/cuda.h"
#include "kernels/common/half.h"

#include <cuda_runtime.h>
#include <math.h>
#include <stdlib.h>

using namespace beamring;

struct br_frb_beams_gpu {
    arbitrary::work arbitrary;
    grid::work grid;
    int variant;         /* largest MT, or IT */
    size_t shared_bytes; /* of grid::form */
    unsigned most_blocks;
    void *weights_q, *weights_p;
};

namespace
{

/* Weights are at most 1: so scaled, they are normal numbers down to 2^-21, and products of two of them down
 * to 2^-28. */
constexpr float WEIGHT_SCALE = 128;

/* U of one channel; as float16, 0 where there is no such q or beam. */
struct axis_weights {
    const struct axis *axis;
    float *u; /* [q][beam] */

    unsigned half(size_t q, size_t beam) const
    {
        if (q >= 2 * axis->n || beam >= axis->nbeams) return 0;
        return br_half_from_float(WEIGHT_SCALE * u[q * axis->nbeams_even + beam]);
    }
    unsigned halves(size_t q, size_t beam) const { return half(q, beam) | half(q + 1, beam) << 16; }
};

/* Which of 32 beams is column (or row) g of operation n. */
size_t column(unsigned n, unsigned g)
{
    return g / 2 * 8 + 2 * n + g % 2;
}

/* One channel of arbitrary::work's weights. */
void fill(uint4 *to_q, uint4 *to_p, const arbitrary::work &w, const axis_weights &u_m,
          const axis_weights &u_n)
{
    for (size_t block = 0; block < w.blocks; block++) {
        for (unsigned octet = 0; octet < w.octets; octet++)
            for (unsigned lane = 0; lane < 32; lane++) {
                size_t q = 8 * octet + lane % 4 * 2, first = block * 32;
                unsigned g = lane / 4;
                *to_q++ =
                    make_uint4(u_n.halves(q, first + column(0, g)), u_n.halves(q, first + column(1, g)),
                               u_n.halves(q, first + column(2, g)), u_n.halves(q, first + column(3, g)));
            }
        for (unsigned pair = 0; pair < w.pairs; pair++)
            for (unsigned g = 0; g < 8; g++) {
                size_t p = 2 * pair, first = block * 32;
                *to_p++ =
                    make_uint4(u_m.halves(p, first + column(0, g)), u_m.halves(p, first + column(1, g)),
                               u_m.halves(p, first + column(2, g)), u_m.halves(p, first + column(3, g)));
            }
    }
}

/* One channel of grid::work's weights. */
void fill(uint4 *to_q, uint4 *to_p, const grid::work &w, const axis_weights &u_m, const axis_weights &u_n)
{
    for (size_t block = 0; block < w.j_blocks; block++)
        for (unsigned step = 0; step < w.q_steps; step++)
            for (unsigned m = 0; m < 2; m++)
                for (unsigned lane = 0; lane < 32; lane++) {
                    size_t q = 16 * step + lane % 4 * 2, j = block * 32 + column(2 * m, lane / 4),
                           k = block * 32 + column(2 * m + 1, lane / 4);
                    *to_q++ = make_uint4(u_n.halves(q, j), u_n.halves(q, k), u_n.halves(q + 8, j),
                                         u_n.halves(q + 8, k));
                }
    for (size_t block = 0; block < w.p_blocks; block++)
        for (size_t tile = 0; tile < w.i_tiles; tile++)
            for (unsigned lane = 0; lane < 32; lane++) {
                size_t p = 16 * block + lane % 4 * 2, i = 16 * tile + lane / 4;
                *to_p++ = make_uint4(u_m.halves(p, i), u_m.halves(p, i + 8), u_m.halves(p + 8, i),
                                     u_m.halves(p + 8, i + 8));
            }
}

/* Sizes per channel in uint4's. */
size_t size_q(const arbitrary::work &w)
{
    return static_cast<size_t>(w.blocks) * w.octets * 32;
}
size_t size_p(const arbitrary::work &w)
{
    return static_cast<size_t>(w.blocks) * w.pairs * 8;
}
size_t size_q(const grid::work &w)
{
    return static_cast<size_t>(w.j_blocks) * w.q_steps * 64;
}
size_t size_p(const grid::work &w)
{
    return static_cast<size_t>(w.p_blocks) * w.i_tiles * 32;
}

template <class T> T up(T count, T unit)
{
    return (count + unit - 1) / unit;
}

/* Makes the weights of all channels, one at a time, in the given host memory. */
template <class Work>
int make_weights(struct br_frb_beams *plan, Work &w, const axis_weights &u_m, const axis_weights &u_n,
                 uint4 *host, double *largest, struct br_why *why)
{
    struct br_frb_beams_gpu *gpu = plan->gpu;
    cudaStream_t stream = static_cast<cudaStream_t>(br_cuda_stream(plan->cuda));
    size_t nq = size_q(w), np = size_p(w);
    gpu->weights_q = br_cuda_alloc(plan->cuda, plan->nchannels * nq * sizeof(uint4), why);
    if (gpu->weights_q) gpu->weights_p = br_cuda_alloc(plan->cuda, plan->nchannels * np * sizeof(uint4), why);
    if (!gpu->weights_p) return -1;
    w.weights_q = static_cast<const uint4 *>(gpu->weights_q);
    w.weights_p = static_cast<const uint4 *>(gpu->weights_p);
    *largest = 0;
    for (size_t f = 0; f < plan->nchannels; f++) {
        br_frb_beams_axis_weights(u_m.u, u_m.axis, plan->freq_mhz[f]);
        br_frb_beams_axis_weights(u_n.u, u_n.axis, plan->freq_mhz[f]);
        fill(host, host + nq, w, u_m, u_n);
        for (size_t b = 0; b < plan->n.nbeams; b++) {
            double sum = 0;
            for (size_t q = 0; q < 2 * plan->n.n; q++)
                sum += fabs(br_half_to_float(static_cast<uint16_t>(u_n.half(q, b))) / WEIGHT_SCALE);
            *largest = fmax(*largest, sum);
        }
        cudaError_t status = cudaMemcpyAsync(static_cast<uint4 *>(gpu->weights_q) + f * nq, host,
                                             nq * sizeof(uint4), cudaMemcpyHostToDevice, stream);
        if (status == cudaSuccess)
            status = cudaMemcpyAsync(static_cast<uint4 *>(gpu->weights_p) + f * np, host + nq,
                                     np * sizeof(uint4), cudaMemcpyHostToDevice, stream);
        if (status == cudaSuccess) status = cudaStreamSynchronize(stream);
        if (status != cudaSuccess)
            return br_because(why, "copying the weights of %zu beams to device %d: %s", plan->nbeams,
                              br_cuda_device(plan->cuda), cudaGetErrorString(status));
    }
    return 0;
}

/* `largest`: the largest sum of |U_q| over q, as stored. */
template <class Work>
int make_weights(struct br_frb_beams *plan, Work &w, double *largest, struct br_why *why)
{
    const axis_weights u_m = {
        &plan->m, static_cast<float *>(calloc(2 * plan->m.n * plan->m.nbeams_even, sizeof(float)))};
    const axis_weights u_n = {
        &plan->n, static_cast<float *>(calloc(2 * plan->n.n * plan->n.nbeams_even, sizeof(float)))};
    uint4 *host = static_cast<uint4 *>(calloc(size_q(w) + size_p(w), sizeof(uint4)));
    int failed = u_m.u && u_n.u && host
                     ? make_weights(plan, w, u_m, u_n, host, largest, why)
                     : br_because(why, "no memory for the weights of %zu beams", plan->nbeams);
    free(u_m.u);
    free(u_n.u);
    free(host);
    return failed;
}

/* Kernels by their largest tile, and the shared memory that all their launches may take. */
using arbitrary_kernel = void (*)(arbitrary::work);
using grid_kernel = void (*)(grid::work);

arbitrary_kernel arbitrary_variant(int mt)
{
    return mt == 1 ? arbitrary::form<1> : mt == 2 ? arbitrary::form<2> : arbitrary::form<4>;
}

grid_kernel grid_variant(int it)
{
    return it == 1 ? grid::form<1> : it == 2 ? grid::form<2> : grid::form<4>;
}

size_t arbitrary_shared(unsigned stride, int mt)
{
    return static_cast<size_t>(arbitrary::STAGES) * 16 * mt * stride * sizeof(uint4);
}

size_t grid_shared(unsigned steps, unsigned stage_octets)
{
    return static_cast<size_t>(grid::STAGES) * steps * 16 * (stage_octets + 1) * sizeof(uint4);
}

/* What is allowed belongs to the kernel, not to a plan: always the most that any plan needs. */
int allow_shared(struct br_frb_beams *plan, const void *kernel, size_t bytes, struct br_why *why)
{
    cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
    if (status == cudaSuccess) return 0;
    (void)cudaGetLastError();
    return br_because(why, "%zu bytes of shared memory on device %d: %s", bytes, br_cuda_device(plan->cuda),
                      cudaGetErrorString(status));
}

int create_arbitrary(struct br_frb_beams *plan, struct br_why *why)
{
    arbitrary::work &w = plan->gpu->arbitrary;
    w.B = static_cast<unsigned>(plan->nbeams);
    w.nq = 2 * plan->n.n;
    w.cells = static_cast<unsigned>(plan->cells);
    w.blocks = up(w.B, 32u);
    w.pairs = plan->m.n;
    w.octets = up(w.nq, 8u);
    unsigned most = arbitrary::MOST_PIECES / 2;
    w.stage_octets = up(w.octets, up(w.octets, most));
    w.stage_pairs = most / w.stage_octets < w.pairs ? most / w.stage_octets : w.pairs;
    w.stride = 2 * w.stage_pairs * w.stage_octets + 1;
    w.beam_tiles = up(w.blocks, static_cast<unsigned>(arbitrary::WARPS));
    plan->gpu->variant = plan->max_steps <= 16 ? 1 : plan->max_steps <= 32 ? 2 : 4;
    for (int mt = 1; mt <= plan->gpu->variant; mt *= 2)
        if (allow_shared(plan, reinterpret_cast<const void *>(arbitrary_variant(mt)),
                         arbitrary_shared(arbitrary::MOST_PIECES + 1, mt), why) != 0)
            return -1;
    double largest;
    return make_weights(plan, w, &largest, why);
}

int create_grid(struct br_frb_beams *plan, struct br_why *why)
{
    grid::work &w = plan->gpu->grid;
    w.np = 2 * plan->m.n;
    w.nq = 2 * plan->n.n;
    w.bx = static_cast<unsigned>(plan->beams_x);
    w.by = static_cast<unsigned>(plan->beams_y);
    w.j_blocks = up(w.by, 32u);
    int it = plan->gpu->variant = w.bx <= 16 ? 1 : w.bx <= 32 ? 2 : 4;
    w.i_blocks = up(w.bx, 16u * it);
    w.i_tiles = w.i_blocks * it;
    w.p_blocks = up(w.np, 16u);
    unsigned octets = up(w.nq, 16u) * 2, most = grid::MOST_OCTETS;
    w.chunks = up(octets, most);
    w.stage_octets = up(up(octets, w.chunks), 2u) * 2;
    w.q_steps = w.chunks * w.stage_octets / 2;
    w.reciprocal = 65536 / w.stage_octets + 1;
    for (w.warps_j = 1; w.warps_j < w.j_blocks && w.warps_j < grid::WARPS;) w.warps_j *= 2;
    w.steps = grid::WARPS / w.warps_j;
    w.j_tiles = up(w.j_blocks, w.warps_j);
    plan->gpu->shared_bytes = grid_shared(w.steps, w.stage_octets);
    const void *kernel = reinterpret_cast<const void *>(grid_variant(it));
    if (allow_shared(plan, kernel, grid_shared(grid::WARPS, grid::MOST_OCTETS), why) != 0) return -1;
    int per_processor = 1, processors = 1;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, kernel, grid::THREADS,
                                                  plan->gpu->shared_bytes);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, br_cuda_device(plan->cuda));
    plan->gpu->most_blocks = static_cast<unsigned>((per_processor > 0 ? per_processor : 1) * processors);
    double largest;
    if (make_weights(plan, w, &largest, why) != 0) return -1;
    /* |Y| <= 65504 largest: a power of two brings it back into float16's range. */
    float shrink = 1;
    while (shrink < largest) shrink *= 2;
    w.middle_scale = 1 / (WEIGHT_SCALE * shrink);
    w.scale = shrink / WEIGHT_SCALE;
    return 0;
}

} // namespace

extern "C" void br_frb_beams_cuda_destroy(struct br_frb_beams *plan)
{
    if (!plan->gpu) return;
    br_cuda_free(plan->cuda, plan->gpu->weights_q);
    br_cuda_free(plan->cuda, plan->gpu->weights_p);
    free(plan->gpu);
    plan->gpu = NULL;
}

extern "C" int br_frb_beams_cuda_create(struct br_frb_beams *plan, struct br_why *why)
{
    double times = static_cast<double>(plan->nchannels) * static_cast<double>(plan->max_steps);
    if (times * static_cast<double>(up(plan->nbeams, static_cast<size_t>(256))) > 1e9 ||
        plan->nbeams > 1u << 28)
        return br_because(why, "%zu channels, %zu steps, %zu beams are too many for one launch",
                          plan->nchannels, plan->max_steps, plan->nbeams);
    plan->gpu = static_cast<struct br_frb_beams_gpu *>(calloc(1, sizeof *plan->gpu));
    if (!plan->gpu) return br_because(why, "no memory for the FRB beams");
    return plan->beams_x > 0 ? create_grid(plan, why) : create_arbitrary(plan, why);
}

extern "C" void br_frb_beams_cuda(struct br_frb_beams *plan, const uint16_t *in, const uint8_t *in_valid,
                                  size_t nsteps, uint16_t *out)
{
    if (nsteps == 0) return;
    const uint8_t *valid = NULL;
    br_cuda_begin(plan->cuda);
    if (in_valid) {
        valid = static_cast<const uint8_t *>(br_cuda_upload(plan->cuda, in_valid, plan->nchannels * nsteps));
        if (!valid) return; /* the failure is kept */
    }
    cudaStream_t stream = static_cast<cudaStream_t>(br_cuda_stream(plan->cuda));
    unsigned T = static_cast<unsigned>(nsteps), F = static_cast<unsigned>(plan->nchannels);
    bool wide_in = plan->n.n % 4 == 0 && reinterpret_cast<uintptr_t>(in) % 16 == 0;
    bool aligned_out = reinterpret_cast<uintptr_t>(out) % 16 == 0;
    if (plan->beams_x > 0) {
        grid::work w = plan->gpu->grid;
        w.in = in, w.valid = valid, w.out = out, w.T = T, w.wide_in = wide_in;
        w.wide_out = aligned_out && w.by % 8 == 0;
        w.step_tiles = up(T, w.steps);
        w.tasks = F * w.step_tiles * w.j_tiles * w.i_blocks;
        unsigned blocks = w.tasks < plan->gpu->most_blocks ? w.tasks : plan->gpu->most_blocks;
        grid_variant(plan->gpu->variant)<<<blocks, grid::THREADS, plan->gpu->shared_bytes, stream>>>(w);
    } else {
        arbitrary::work w = plan->gpu->arbitrary;
        int mt = T <= 16 ? 1 : T <= 32 ? 2 : 4;
        w.in = in, w.valid = valid, w.out = out, w.T = T, w.wide_in = wide_in;
        w.wide_out = aligned_out && w.B % 8 == 0;
        w.step_tiles = up(T, 16u * mt);
        arbitrary_variant(mt)<<<F * w.step_tiles * w.beam_tiles, arbitrary::THREADS,
                                arbitrary_shared(w.stride, mt), stream>>>(w);
    }
    br_cuda_ok(plan->cuda, cudaGetLastError(), "the launch of the FRB beams");
}
