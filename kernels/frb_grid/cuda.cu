/* FRB stage 1 on a GPU. A block of threads makes the image of one channel and one block of time: bytes of
 * several times are copied to shared memory ahead of their use, put on their cells as float16 (field), and
 * both transforms of a sample are small products on the tensor cores (power), whose squares are added up in
 * registers. See transform.cuh.
 *
 * Samples are added one after the other, in the order of time, whatever the calls are; missing ones are
 * zeros. The sums of a block that is not complete when a call ends are kept as they are, in device memory. In
 * long blocks the sums are closed every PARTIAL samples, counted from the block's start, and added up in a
 * second sum. */
#include "kernels/common/cuda.h"
#include "kernels/common/half.h"
#include "kernels/frb_grid/plan.h"
#include "kernels/frb_grid/transform.cuh"

#include <cuda_runtime.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

using namespace beamring;

namespace
{

constexpr unsigned BATCH = 2;        /* samples that are put on their cells at a time */
constexpr unsigned RAW_BYTES = 2048; /* per warp, about: of bytes waiting to be used */
constexpr unsigned MOST_TIMES = 16;  /* that are copied at once */

/* What is the same for all launches of a plan. */
struct fixed {
    unsigned M, N, P, D;
    size_t F;
    unsigned T;            /* samples of a block */
    unsigned times, pitch; /* that are copied at once; bytes of shared memory for each, a multiple of 16 */
    const uint2 *along_m, *along_n;
    const unsigned *dishes; /* [NT][threads] */
    const float4 *weights;  /* [F or 1][P][NT][threads] */
    const float *level;     /* [F or 1]: what intensities are multiplied by for the weights' scale */
    bool shared_weights;    /* by all channels */
};

struct work {
    const uint8_t *e, *end; /* [steps][row]; behind the last byte */
    size_t row;
    const uint8_t *valid; /* [steps][valid_row] or NULL */
    size_t valid_row;
    unsigned pending; /* samples of block 0 before this launch */
    size_t steps;
    bool flush;          /* block 0 ends here */
    const float *factor; /* [blocks][F] or NULL: all are `unit` */
    float unit;
    uint16_t *out; /* [F][out_stride][2M][2N] */
    size_t out_stride;
    bool wide;            /* 16 bytes of out are aligned */
    const float4 *before; /* [F][sums, second sums (long blocks)][2 NT][threads], of block 0; NULL: none */
    float4 *after;        /* the same of the last block, when it is not complete */
};

/* Copies `times` rows of this channel, from step `first` on, to raw[times][pitch], each from the multiple of
 * 16 below its address on; zeros for missing samples. */
template <int THREADS>
__device__ __forceinline__ void stage(uint8_t *raw, const fixed &L, const work &w, size_t f, size_t first,
                                      unsigned times)
{
    const unsigned inputs = L.P * L.D;
    for (unsigned t = 0; t < times; t++, raw += L.pitch) {
        const uint8_t *from = w.e + (first + t) * w.row + f * inputs;
        const unsigned skip = static_cast<unsigned>(reinterpret_cast<uintptr_t>(from) % 16);
        const bool there = !w.valid || w.valid[(first + t) * w.valid_row + f];
        for (unsigned i = 16 * threadIdx.x; i < skip + inputs; i += 16 * THREADS) {
            const uint8_t *at = from - skip + i;
            if (at >= w.e && at + 16 <= w.end) {
                copy_async_16(raw + i, at, there);
            } else { /* the edges of the array */
                for (unsigned k = i; k < i + 16; k++)
                    raw[k] = there && k >= skip && k < skip + inputs ? at[k - i] : static_cast<uint8_t>(0);
            }
        }
    }
    copy_async_commit();
}

/* Warps of a multiprocessor that registers must suffice for. */
constexpr int resident(int NT)
{
    return NT == 4 ? 12 : 16;
}

template <int MT, int NT>
__global__ void __launch_bounds__(32 * MT, resident(NT) / MT) make_images(const fixed L, const work w)
{
    constexpr int THREADS = 32 * MT, VECTORS = 2 * NT * THREADS; /* float4s of the block's sums */
    extern __shared__ uint4 memory[];
    field<MT, NT>(*x)[BATCH] = reinterpret_cast<field<MT, NT>(*)[BATCH]>(memory); /* [2][BATCH] */
    float4 *total = reinterpret_cast<float4 *>(x + 2) + threadIdx.x;              /* in long blocks */
    const bool is_long = L.T > PARTIAL;
    uint8_t *raw =
        reinterpret_cast<uint8_t *>(x + 2) + (is_long ? VECTORS * sizeof(float4) : 0); /* [2][times][pitch] */
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, chunk_bytes = L.times * L.pitch;
    const size_t f = blockIdx.x % L.F, block = blockIdx.x / L.F;
    const unsigned pol_bit = L.P - 1; /* P is 1 or 2 */

    /* Samples [begin, begin + count) of the block of time are in this launch, from step `first` on. */
    const unsigned begin = block == 0 ? w.pending : 0;
    const size_t first = block == 0 ? 0 : block * L.T - w.pending;
    unsigned count = w.steps - first < L.T - begin ? static_cast<unsigned>(w.steps - first) : L.T - begin;
    const bool complete = begin + count == L.T || w.flush;
    float factor = complete && w.factor ? w.factor[block * L.F + f] : w.unit;
    if (complete && factor == 0) count = 0; /* masked */
    factor = fminf(factor * L.level[L.shared_weights ? 0 : f], FLT_MAX);

    /* weights: shape (F, P, NT, threads), contiguous; after: shape (P, NT), strides (NT threads, threads) */
    const float4 *weights = L.weights + (L.shared_weights ? 0 : f) * L.P * NT * THREADS + threadIdx.x;
    /* before, after: shape (F, 1 or 2, 2 NT, threads), contiguous; after: shape (1 or 2, 2 NT), strides (2 NT
     * threads, threads) */
    const size_t state = f * (is_long ? 2 : 1) * VECTORS + threadIdx.x;

    waves<MT, NT> waves;
    waves.load(L.along_m, L.along_n, warp, lane);
    unsigned dishes[NT]; /* [NT]: n3 and up  simd: m0  thread: t4..t0 <-> n2 n1 n0 m2 m1  warp: m3 and up */
#pragma unroll
    for (int nt = 0; nt < NT; nt++) dishes[nt] = L.dishes[nt * THREADS + threadIdx.x];

    power<MT, NT> sums;
    sums.clear();
    if (is_long) sums.store(total);
    if (block == 0 && w.before) {
        if (is_long) {
            sums.load(w.before + state + VECTORS);
            sums.store(total);
        }
        sums.load(w.before + state);
    }

    unsigned flip = 0, ahead = 0;
    if (count > 0) stage<THREADS>(raw, L, w, f, first, min(count, L.times));
    for (unsigned c = 0; c < count; c += L.times, ahead ^= 1) {
        const unsigned times = min(L.times, count - c), samples = times * L.P;
        if (c + times < count)
            stage<THREADS>(raw + (ahead ^ 1) * chunk_bytes, L, w, f, first + c + times,
                           min(L.times, count - c - times));
        else
            copy_async_commit(); /* nothing: for the count of groups */
        copy_async_wait<1>();
        __syncthreads();
        for (unsigned s = 0; s < samples; s += BATCH, flip ^= 1) {
#pragma unroll
            for (unsigned i = 0; i < BATCH; i++) {
                const unsigned t = (s + i) >> pol_bit, pol = (s + i) & pol_bit;
                if (s + i >= samples) break;
                const uintptr_t from =
                    reinterpret_cast<uintptr_t>(w.e) + (first + c + t) * w.row + f * L.P * L.D;
                x[flip][i].fill(raw + ahead * chunk_bytes + t * L.pitch + from % 16 + pol * L.D, dishes,
                                weights + pol * NT * THREADS, warp, lane);
            }
            /* One barrier is enough: who fills this buffer again has passed the next one, and so have its
             * readers. */
            __syncthreads();
#pragma unroll 1
            for (unsigned i = 0; i < BATCH && s + i < samples; i++) {
                const unsigned at = begin + c + ((s + i) >> pol_bit);
                if (is_long && at % PARTIAL == 0 && at > 0 && ((s + i) & pol_bit) == 0) {
                    sums.add(total);
                    sums.store(total);
                    sums.clear();
                }
                sums.add(x[flip][i], waves, warp, lane);
            }
        }
    }

    if (!complete) { /* goes on in the next call */
        sums.store(w.after + state);
        if (is_long) {
            sums.load(total);
            sums.store(w.after + state + VECTORS);
        }
        return;
    }
    if (is_long) sums.add(total);
    __syncthreads(); /* the fields are not needed any more */
    __half *image = reinterpret_cast<__half *>(memory);
    sums.write(image, static_cast<int>(L.M), static_cast<int>(L.N), factor, warp, lane);
    __syncthreads();
    /* out: shape (F, out_stride, cells), contiguous; after: shape (cells), contiguous */
    const unsigned cells = 4 * L.M * L.N;
    uint16_t *out = w.out + (f * w.out_stride + block) * cells;
    if (w.wide) {
        for (unsigned i = threadIdx.x; i < cells / 8; i += THREADS)
            reinterpret_cast<uint4 *>(out)[i] = memory[i];
    } else {
        for (unsigned i = threadIdx.x; i < cells; i += THREADS)
            out[i] = reinterpret_cast<const uint16_t *>(memory)[i];
    }
}

using kernel = void (*)(fixed, work);

template <int MT> kernel of_n(unsigned tiles)
{
    return tiles == 1   ? make_images<MT, 1>
           : tiles == 2 ? make_images<MT, 2>
           : tiles == 3 ? make_images<MT, 3>
                        : make_images<MT, 4>;
}

kernel variant(unsigned m_tiles, unsigned n_tiles)
{
    return m_tiles == 1   ? of_n<1>(n_tiles)
           : m_tiles == 2 ? of_n<2>(n_tiles)
           : m_tiles == 3 ? of_n<3>(n_tiles)
                          : of_n<4>(n_tiles);
}

unsigned host_pair(double low, double high)
{
    return br_half_from_float(static_cast<float>(low)) |
           static_cast<unsigned>(br_half_from_float(static_cast<float>(high))) << 16;
}

} // namespace

struct br_frb_grid_gpu {
    fixed fixed;
    kernel kernel;
    unsigned m_tiles, n_tiles, threads;
    size_t shared_bytes;
    void *along_m, *along_n, *dishes, *weights, *level;
    float4 *sums[2]; /* of the unfinished block, in turn: one is read while the other is written */
    int now;
    bool resume; /* sums[now] holds an unfinished block */
};

/* C and S as in waves, for `length` cells: [tiles of p][tiles of m][lane] of (C, S) */
static void *make_waves(struct br_cuda *cuda, unsigned length, unsigned tiles, struct br_why *why)
{
    unsigned table[4 * 4 * 32][2];
    for (unsigned i = 0; i < tiles * tiles * 32; i++) {
        unsigned p = i / 32 / tiles * 8 + i % 32 / 4, m = i / 32 % tiles * 8 + i % 4 * 2;
        double wave[2][2] = {{0}};
        for (unsigned k = 0; k < 2; k++) {
            if (p >= length || m + k >= length) continue;
            double angle = M_PI * (p * (m + k) % (2 * length)) / length;
            wave[0][k] = cos(angle);
            wave[1][k] = p == 0 ? ((m + k) % 2 ? -1 : 1) : sin(angle);
        }
        table[i][0] = host_pair(wave[0][0], wave[0][1]);
        table[i][1] = host_pair(wave[1][0], wave[1][1]);
    }
    return br_cuda_table(cuda, table, tiles * tiles * 32 * sizeof *table, why);
}

/* Which dishes, with which weights, a thread puts on its cells. */
static int make_cells(struct br_frb_grid *plan, const struct br_frb_grid_params *params, struct br_why *why)
{
    struct br_frb_grid_gpu *gpu = plan->gpu;
    size_t pairs = static_cast<size_t>(gpu->n_tiles) * gpu->threads, P = plan->npol, D = plan->ndishes,
           W = plan->weight_channels;
    int32_t dish[32][32];
    unsigned *dishes = static_cast<unsigned *>(calloc(pairs, sizeof *dishes));
    float4 *weights = static_cast<float4 *>(calloc(W * P * pairs, sizeof *weights));
    float *level = static_cast<float *>(malloc(W * sizeof *level));
    bool ok = dishes && weights && level;
    if (!ok) br_because(why, "no memory for the FRB grid");
    for (unsigned i = 0; i < 32 * 32; i++) dish[i / 32][i % 32] = -1;
    for (size_t d = 0; d < D; d++)
        dish[params->dish_cell[2 * d]][params->dish_cell[2 * d + 1]] = static_cast<int32_t>(d);
    for (size_t c = 0; ok && c < W; c++) {
        /* Powers of two that bring the channel's weights below 1, so that float16 holds all sums. */
        const float *given = params->weights ? params->weights + c * P * D * 2 : NULL;
        double most = given ? 0 : 0.5;
        int exponent;
        for (size_t i = 0; given && i < P * D * 2; i++)
            most = fmax(most, fabs(static_cast<double>(given[i])));
        (void)frexp(most, &exponent);
        if (!given || most == 0) exponent = 0;
        level[c] = static_cast<float>(ldexp(1, 2 * exponent));
        for (size_t i = 0; i < pairs; i++) {
            size_t warp = i % gpu->threads / 32, lane = i % 32, n = i / gpu->threads * 8 + lane / 4,
                   m = warp * 8 + lane % 4 * 2;
            for (size_t k = 0; k < 2; k++) {
                int32_t d = dish[m + k][n];
                if (d < 0) continue; /* weight 0 */
                if (c == 0) dishes[i] |= static_cast<unsigned>(d) << 16 * k;
                for (size_t pol = 0; pol < P; pol++) {
                    float *to = &weights[(c * P + pol) * pairs + i].x + 2 * k;
                    const float *w = given ? given + (pol * D + static_cast<size_t>(d)) * 2 : NULL;
                    to[0] = w ? static_cast<float>(ldexp(static_cast<double>(w[0]), -exponent)) : 1;
                    to[1] = w ? static_cast<float>(ldexp(static_cast<double>(w[1]), -exponent)) : 0;
                }
            }
        }
    }
    ok = ok && (gpu->dishes = br_cuda_table(plan->cuda, dishes, pairs * sizeof *dishes, why)) &&
         (gpu->weights = br_cuda_table(plan->cuda, weights, W * P * pairs * sizeof *weights, why)) &&
         (gpu->level = br_cuda_table(plan->cuda, level, W * sizeof *level, why));
    free(dishes);
    free(weights);
    free(level);
    return ok ? 0 : -1;
}

void br_frb_grid_cuda_destroy(struct br_frb_grid *plan)
{
    struct br_frb_grid_gpu *gpu = plan->gpu;
    if (!gpu) return;
    void *memory[] = {gpu->along_m, gpu->along_n, gpu->dishes, gpu->weights,
                      gpu->level,   gpu->sums[0], gpu->sums[1]};
    for (void *one : memory) br_cuda_free(plan->cuda, one);
    free(gpu);
    plan->gpu = NULL;
}

int br_frb_grid_cuda_create(struct br_frb_grid *plan, const struct br_frb_grid_params *params,
                            struct br_why *why)
{
    unsigned M = plan->grid_m, N = plan->grid_n;
    size_t F = plan->nchannels, inputs = plan->npol * plan->ndishes;
    if (M % 4 != 0 || N % 4 != 0 || M < 8 || M > 32 || N < 8 || N > 32)
        return br_because(why, "on a GPU the grid must have 8, 12, ... 32 cells each way, not %u x %u", M, N);
    if (plan->npol > 2)
        return br_because(why, "%zu polarisations; on a GPU 1 or 2 are supported", plan->npol);
    if (F > (1u << 31) / (MOST_BLOCKS + 1))
        return br_because(why, "%zu channels are too many for one launch on a GPU", F);
    if (!params->cuda) return br_because(why, "BR_CUDA needs a br_cuda");
    struct br_frb_grid_gpu *gpu = plan->gpu = static_cast<struct br_frb_grid_gpu *>(calloc(1, sizeof *gpu));
    if (!gpu) return br_because(why, "no memory for the FRB grid");
    plan->cuda = params->cuda;
    gpu->m_tiles = (M + 7) / 8;
    gpu->n_tiles = (N + 7) / 8;
    gpu->threads = 32 * gpu->m_tiles;
    gpu->kernel = variant(gpu->m_tiles, gpu->n_tiles);
    gpu->along_m = make_waves(plan->cuda, M, gpu->m_tiles, why);
    gpu->along_n = make_waves(plan->cuda, N, gpu->n_tiles, why);
    if (!gpu->along_m || !gpu->along_n || make_cells(plan, params, why) != 0) return -1;
    size_t sum_bytes = static_cast<size_t>(2) * gpu->n_tiles * gpu->threads * sizeof(float4);
    bool is_long = plan->downsample > PARTIAL;
    for (int i = 0; i < 2; i++) {
        gpu->sums[i] =
            static_cast<float4 *>(br_cuda_alloc(plan->cuda, F * (is_long ? 2 : 1) * sum_bytes, why));
        if (!gpu->sums[i]) return -1;
    }

    fixed &L = gpu->fixed;
    L.M = M, L.N = N, L.P = static_cast<unsigned>(plan->npol), L.D = static_cast<unsigned>(plan->ndishes);
    L.F = F, L.T = plan->downsample;
    L.pitch = static_cast<unsigned>((inputs + 30) / 16 * 16);
    L.times = RAW_BYTES * gpu->m_tiles / L.pitch;
    L.times = L.times < 2 ? 2 : L.times > MOST_TIMES ? MOST_TIMES : L.times;
    L.along_m = static_cast<const uint2 *>(gpu->along_m);
    L.along_n = static_cast<const uint2 *>(gpu->along_n);
    L.dishes = static_cast<const unsigned *>(gpu->dishes);
    L.weights = static_cast<const float4 *>(gpu->weights);
    L.level = static_cast<const float *>(gpu->level);
    L.shared_weights = plan->weight_channels == 1;
    gpu->shared_bytes = 2 * BATCH * sizeof(uint2) * 32 * gpu->m_tiles * gpu->n_tiles +
                        (is_long ? sum_bytes : 0) + static_cast<size_t>(2) * L.times * L.pitch;
    cudaError_t status = cudaFuncSetAttribute(reinterpret_cast<const void *>(gpu->kernel),
                                              cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10);
    if (status == cudaSuccess) return 0;
    (void)cudaGetLastError();
    return br_because(why, "shared memory for the FRB grid on device %d: %s", br_cuda_device(plan->cuda),
                      cudaGetErrorString(status));
}

void br_frb_grid_cuda_begin(struct br_frb_grid *plan)
{
    plan->gpu->resume = false;
}

float br_frb_grid_cuda_unit(const struct br_frb_grid *plan)
{
    return static_cast<float>(ldexp(1, -plan->log2_scale));
}

static void launch(struct br_frb_grid *plan, work &w, size_t blocks)
{
    struct br_frb_grid_gpu *gpu = plan->gpu;
    w.unit = br_frb_grid_cuda_unit(plan);
    w.wide = reinterpret_cast<uintptr_t>(w.out) % 16 == 0;
    w.before = gpu->resume ? gpu->sums[gpu->now] : NULL;
    w.after = gpu->sums[!gpu->now];
    gpu->kernel<<<static_cast<unsigned>(plan->nchannels * blocks), gpu->threads, gpu->shared_bytes,
                  static_cast<cudaStream_t>(br_cuda_stream(plan->cuda))>>>(gpu->fixed, w);
    br_cuda_ok(plan->cuda, cudaGetLastError(), "the launch of the FRB grid");
}

void br_frb_grid_cuda_add(struct br_frb_grid *plan, const struct frb_grid_span *span)
{
    struct br_frb_grid_gpu *gpu = plan->gpu;
    work w = {};
    w.e = span->e, w.row = span->row, w.steps = span->steps;
    w.end = span->e + (span->steps - 1) * span->row + plan->nchannels * plan->npol * plan->ndishes;
    w.valid = span->valid, w.valid_row = span->valid_row;
    w.pending = span->pending;
    w.factor = span->factor;
    w.out = span->out, w.out_stride = span->out_stride;
    launch(plan, w, span->blocks);
    gpu->resume = (span->pending + span->steps) % plan->downsample != 0;
    if (gpu->resume) gpu->now = !gpu->now;
}

void br_frb_grid_cuda_flush(struct br_frb_grid *plan, const float *factor, uint16_t *out, size_t out_stride)
{
    work w = {};
    w.flush = true;
    w.factor = factor;
    w.out = out, w.out_stride = out_stride;
    launch(plan, w, 1);
    plan->gpu->resume = false;
}
