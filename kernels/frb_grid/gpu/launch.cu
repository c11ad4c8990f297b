/* FRB stage 1 on a GPU. One warp makes the image of one channel and one block of time, on its own and
 * without barriers (or a part of it, where registers do not suffice for all): bytes of several times are
 * copied to its part of shared memory ahead of their use; all the rest happens in its registers
 * (transform.cuh). One launch does the blocks of any number of plans that share their grid (the zones of a
 * stage), the longest first, so that few channels with long blocks and many with short ones fill the GPU
 * together.
 *
 * Samples are added one after the other, in the order of time, whatever the calls are; missing ones are
 * zeros. The sums of a block that is not complete when a call ends are kept as they are, in device memory.
 * In long blocks the sums are closed every PARTIAL samples, counted from the block's start, and added up
 * in a second sum. */
#include "kernels/common/cuda.h"
#include "kernels/common/half.h"
#include "kernels/frb_grid/gpu/autocorr_1d/autocorr_1d.h"
#include "kernels/frb_grid/gpu/autocorr_2d/autocorr_2d.h"
#include "kernels/frb_grid/gpu/direct/transform.cuh"
#include "kernels/frb_grid/plan.h"

#include <cuda_runtime.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

using namespace beamring;

namespace
{

constexpr unsigned RAW_BYTES = 4096; /* about: of bytes that are copied at once */
constexpr unsigned MOST_TIMES = 32;  /* the same in samples */

/* What is the same for all plans of a launch. */
struct grid {
    unsigned M, N, P, D;
    unsigned zero;                  /* 0, but the compiler does not know it */
    const uint2 *along_m, *along_n; /* see frb_grid_wave */
};

/* The blocks of one plan. */
struct job {
    unsigned first_task;    /* of the launch's: the number of tasks of the jobs before */
    unsigned T;             /* samples of a block */
    unsigned F, pending;    /* samples of block 0 before this launch */
    const uint8_t *e, *end; /* [steps][row]; behind the last byte */
    size_t row, steps;
    const uint8_t *valid; /* [steps][valid_row] or NULL */
    size_t valid_row;
    const unsigned *dishes; /* [pairs][lane]: simd: m0 */
    const uint2 *weights;   /* [F or 1][P][frb_grid_weights] */
    const float *level;     /* [F or 1]: what intensities are multiplied by for the weights' scale */
    const float *factor;    /* [blocks][F] or NULL: all are `unit` */
    uint16_t *out;          /* [F][out_stride][2M][2N] */
    size_t out_stride;
    const float4 *before; /* [F][groups][sums, second sums (long blocks)] of block 0; NULL: none */
    float4 *after;        /* the same of the last block, when it is not complete */
    float unit;
    uint16_t times, pitch; /* that are copied at once; bytes of shared memory for each, a multiple of 16 */
    unsigned inverse;      /* 65536 over the 16 bytes of a pitch, rounded up */
    bool aligned;          /* every row begins and ends at a multiple of 16 */
    bool flush;            /* block 0 ends here */
    bool shared_weights;   /* by all channels */
    bool wide;             /* 16 bytes of out are aligned */
};

struct work {
    struct grid grid;
    unsigned njobs;
    struct job job[MOST_JOBS];
};

/* Copies `times` rows of this channel, from step `first` on, to raw[times][pitch], each from the multiple of
 * 16 below its address on; zeros for missing samples. */
__device__ __forceinline__ void stage(uint8_t *raw, const job &w, unsigned inputs, size_t f, size_t first,
                                      unsigned times)
{
    const unsigned pieces = w.pitch / 16u;
    const uint8_t *here = w.e + first * w.row + f * inputs;
    if (w.aligned) {
#pragma unroll 1
        for (unsigned i = threadIdx.x; i < times * pieces; i += 32) {
            const unsigned t = i * w.inverse >> 16; /* i / pieces */
            const bool there = !w.valid || w.valid[(first + t) * w.valid_row + f];
            copy_async_16(raw + 16 * i, here + t * (w.row - w.pitch) + 16 * i, there);
        }
    } else {
#pragma unroll 1
        for (unsigned i = threadIdx.x; i < times * pieces; i += 32) {
            const unsigned t = i * w.inverse >> 16, piece = (i - t * pieces) * 16;
            const uint8_t *from = here + t * w.row;
            const unsigned skip = static_cast<unsigned>(reinterpret_cast<uintptr_t>(from) % 16);
            if (piece >= skip + inputs) continue;
            const bool there = !w.valid || w.valid[(first + t) * w.valid_row + f];
            const uint8_t *at = from - skip + piece;
            uint8_t *to = raw + 16 * i;
            if (at >= w.e && at + 16 <= w.end) {
                copy_async_16(to, at, there);
            } else { /* the edges of the array */
                for (unsigned k = 0; k < 16; k++)
                    to[k] = there && piece + k >= skip && piece + k < skip + inputs ? at[k]
                                                                                    : static_cast<uint8_t>(0);
            }
        }
    }
    copy_async_commit();
}

/* Warps of a multiprocessor that registers must suffice for: as many as nothing goes to local memory. */
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ < 900
constexpr int resident(int, int NT, int PT)
{
    return PT * NT > 4 || NT == 4 ? 8 : PT * NT > 1 ? 12 : 20;
}
#else
constexpr int resident(int MT, int NT, int PT)
{
    return PT * NT > 6 || (PT == 2 && NT == 3)   ? 8
           : PT * NT > 4 || (MT == 4 && NT == 2) ? 12
           : PT * NT > 2                         ? 12
                                                 : 16;
}
#endif

/* MT, NT: tiles of the grid; PT: tiles of p that a warp makes. */
template <int MT, int NT, int PT>
__global__ void __launch_bounds__(32, resident(MT, NT, PT)) make_images(const __grid_constant__ work all)
{
    constexpr int GROUPS = MT / PT, VECTORS = 2 * PT * NT * 32; /* float4s of the block's sums */
    extern __shared__ uint4 memory[];
    const grid &L = all.grid;
    unsigned j = 0;
    while (j + 1 < all.njobs && blockIdx.x >= all.job[j + 1].first_task) j++;
    const job &w = all.job[j];
    const unsigned task = blockIdx.x - w.first_task, lane = threadIdx.x;
    const unsigned group = task % GROUPS, p_tile = group * PT, block = task / GROUPS / w.F;
    const size_t f = task / GROUPS % w.F;

    const bool is_long = w.T > PARTIAL;
    float4 *total = reinterpret_cast<float4 *>(memory);                           /* in long blocks */
    uint8_t *raw = reinterpret_cast<uint8_t *>(memory + (is_long ? VECTORS : 0)); /* [2][times][pitch] */
    const unsigned inputs = L.P * L.D, chunk_bytes = w.times * w.pitch;

    /* Samples [begin, begin + count) of the block of time are in this launch, from step `first` on. */
    const unsigned begin = block == 0 ? w.pending : 0;
    const size_t first = block == 0 ? 0 : static_cast<size_t>(block) * w.T - w.pending;
    unsigned count = w.steps - first < w.T - begin ? static_cast<unsigned>(w.steps - first) : w.T - begin;
    const bool complete = begin + count == w.T || w.flush;
    float factor = complete && w.factor ? w.factor[static_cast<size_t>(block) * w.F + f] : w.unit;
    if (complete && factor == 0) count = 0; /* masked */
    factor = fminf(factor * w.level[w.shared_weights ? 0 : f], FLT_MAX);

    /* weights: shape (F, P, pairs and lanes), contiguous; after: shape (P, pairs and lanes) */
    const unsigned polarisation = frb_grid_weights(MT * NT);
    const uint2 *weights =
        w.weights + (w.shared_weights ? 0 : f) * L.P * polarisation + frb_grid_weight(0, lane);
    /* before, after: shape (F, groups, 1 or 2, VECTORS), contiguous; after: shape (1 or 2, VECTORS) */
    const size_t state = (f * GROUPS + group) * (is_long ? 2 : 1) * VECTORS;

    waves<MT, NT, PT> waves;
    waves.load(L.along_m, L.along_n, p_tile, lane);
    const bool lone_p = p_tile == 0 && lane / 4 == 0, lone_q = lane % 4 == 0;
    unsigned dishes[MT * NT]; /* simd: m0 */
#pragma unroll
    for (int i = 0; i < MT * NT; i++) dishes[i] = w.dishes[i * 32 + lane];

    power<MT, NT, PT> sums;
    sums.clear();
    if (is_long) sums.store(total, lane);
    if (block == 0 && w.before) {
        if (is_long) {
            sums.add(w.before + state + VECTORS, lane);
            sums.store(total, lane);
            sums.clear();
        }
        sums.add(w.before + state, lane);
    }

    unsigned ahead = 0, times = min(count, min(static_cast<unsigned>(w.times), PARTIAL - begin % PARTIAL));
    if (count > 0) stage(raw, w, inputs, f, first, times);
    for (unsigned c = 0; c < count; ahead ^= 1) {
        /* No chunk reaches over the end of a partial sum. */
        const unsigned at = begin + c, next = c + times,
                       more = min(count - next,
                                  min(static_cast<unsigned>(w.times), PARTIAL - (begin + next) % PARTIAL));
        if (more > 0)
            stage(raw + (ahead ^ 1) * chunk_bytes, w, inputs, f, first + next, more);
        else
            copy_async_commit(); /* nothing: for the count of groups */
        copy_async_wait<1>();
        __syncwarp();
        if (is_long && at % PARTIAL == 0 && at > 0) {
            sums.add(total, lane);
            sums.store(total, lane);
            sums.clear();
        }
        for (unsigned t = 0; t < times; t++) {
            const uintptr_t from = reinterpret_cast<uintptr_t>(w.e) + (first + c + t) * w.row + f * inputs;
            const uint8_t *e = raw + ahead * chunk_bytes + t * w.pitch + from % 16;
            if (PT * NT <= 4 && L.P == 2) { /* two at once: one has too little to do for a warp */
                field<MT, NT> x, y;
                x.fill(e, dishes, weights, lane);
                y.fill(e + L.D, dishes, weights + polarisation, lane);
                sums.add(x, waves, lone_p, lone_q, L.zero);
                sums.add(y, waves, lone_p, lone_q, L.zero);
                continue;
            }
#pragma unroll 1
            for (unsigned pol = 0; pol < L.P; pol++) {
                field<MT, NT> x;
                x.fill(e + pol * L.D, dishes, weights + pol * polarisation, lane);
                sums.add(x, waves, lone_p, lone_q, L.zero);
            }
        }
        __syncwarp();
        c = next, times = more;
    }

    if (!complete) { /* goes on in the next call */
        sums.store(w.after + state, lane);
        if (is_long) {
            sums.clear();
            sums.add(total, lane);
            sums.store(w.after + state + VECTORS, lane);
        }
        return;
    }
    if (is_long) sums.add(total, lane);
    __syncwarp(); /* the rest of shared memory is not needed any more */
    __half *image = reinterpret_cast<__half *>(memory);
    sums.write(image, L.M, L.N, factor, p_tile, lane);
    __syncwarp();
    /* out: shape (F, out_stride, cells), contiguous; after: shape (cells), contiguous */
    const unsigned cells = 4 * L.M * L.N;
    uint16_t *out = w.out + (f * w.out_stride + block) * cells;
#pragma unroll 1
    for (unsigned i = 8 * lane; i < cells;
         i += 8 * 32) { /* N being a multiple of 4, 8 values are in the same row */
        if (GROUPS > 1) {
            const unsigned row = i / (2 * L.N), p = row < L.M ? row : row == L.M ? 0 : 2 * L.M - row;
            if (p / 8 / PT != group) continue;
        }
        if (w.wide)
            *reinterpret_cast<uint4 *>(out + i) = memory[i / 8];
        else
            for (unsigned k = i; k < i + 8; k++) out[k] = reinterpret_cast<const uint16_t *>(memory)[k];
    }
}

using kernel = void (*)(work);

template <int MT, int NT> kernel one()
{
    constexpr int PT = MT == 4 ? 2 : MT == 3 && NT == 4 ? 1 : MT; /* frb_grid_p_tiles */
    return make_images<MT, NT, PT>;
}

template <int MT> kernel of_n(unsigned tiles)
{
    return tiles == 1 ? one<MT, 1>() : tiles == 2 ? one<MT, 2>() : tiles == 3 ? one<MT, 3>() : one<MT, 4>();
}

kernel variant(unsigned m_tiles, unsigned n_tiles)
{
    return m_tiles == 1   ? of_n<1>(n_tiles)
           : m_tiles == 2 ? of_n<2>(n_tiles)
           : m_tiles == 3 ? of_n<3>(n_tiles)
                          : of_n<4>(n_tiles);
}

} // namespace

struct br_frb_grid_gpu {
    struct grid grid;
    kernel kernel;
    unsigned m_tiles, n_tiles, groups;
    size_t shared_bytes;
    void *along_m, *along_n, *dishes, *weights, *level;
    float4 *sums[2]; /* of the unfinished block: one is read while the other is written */
    int now;
    bool resume, shared_weights; /* sums[now] holds an unfinished block; */
};

/* C and S of fft.cuh for M cells, see frb_grid_wave. */
static void *make_waves_m(struct br_cuda *cuda, unsigned M, struct br_why *why)
{
    unsigned table[4 * 4 * 32][2] = {{0}};
    const unsigned tiles = (M + 7) / 8;
    for (unsigned i = 0; i < tiles * tiles * 32; i++) {
        const unsigned p_tile = i / 32 / tiles, m_tile = i / 32 % tiles, lane = i % 32,
                       p = frb_grid_wave_p(p_tile, lane);
        double c[2] = {0}, s[2] = {0};
        for (unsigned k = 0; k < 2; k++) {
            const unsigned m = frb_grid_wave_m(m_tile, lane, k);
            if (p >= M || m >= M) continue;
            const double angle = M_PI * (p * m % (2 * M)) / M;
            c[k] = p == 0 ? m % 2 == 0 : cos(angle);
            s[k] = p == 0 ? m % 2 == 1 : sin(angle);
        }
        unsigned *to = table[frb_grid_wave(tiles, p_tile, m_tile, lane)];
        to[0] = br_half_pair(c[0], c[1]);
        to[1] = br_half_pair(s[0], s[1]);
    }
    return br_cuda_table(cuda, table, tiles * tiles * 32 * sizeof *table, why);
}

/* The same along n, but that the pair q = 0 is C for 0 and S for N: of cells, or of sums and differences of
 * mirror images. */
static void *make_waves_n(struct br_cuda *cuda, unsigned N, struct br_why *why)
{
    unsigned table[4 * 4 * 32][2] = {{0}};
    const unsigned tiles = (N + 7) / 8, inner = frb_grid_sum_tiles(tiles);
    for (unsigned at = 0; at < tiles * inner * 32; at++) {
        const unsigned q_tile = at / 32 / inner, tile = at / 32 % inner, lane = at % 32,
                       q = frb_grid_wave_p(q_tile, lane);
        double c[2] = {0}, s[2] = {0};
        for (unsigned i = 0; i < 4; i++) {
            const unsigned k = i / 2, sine = i % 2, j = frb_grid_wave_j(tiles, sine, tile, lane, k);
            if (q >= N || j >= (tiles < 2 ? N : N / 2)) continue;
            /* half cells from cell 0, or from the middle */
            const double angle =
                M_PI * ((sine && q == 0 ? N : q) * (tiles < 2 ? 2 * j : 2 * j + 1) % (4 * N)) / (2 * N);
            if (!sine)
                c[k] = cos(angle);
            else /* of one tile the pair q = 0 is real */
                s[k] = tiles < 2 && q == 0 ? cos(angle) : sin(angle);
        }
        unsigned *to = table[frb_grid_wave(inner, q_tile, tile, lane)];
        to[0] = br_half_pair(c[0], c[1]);
        to[1] = br_half_pair(s[0], s[1]);
    }
    return br_cuda_table(cuda, table, tiles * inner * 32 * sizeof *table, why);
}

/* Which dishes, with which weights, a lane puts on its cells. */
static int make_cells(struct br_frb_grid *plan, const struct br_frb_grid_params *params, struct br_why *why)
{
    struct br_frb_grid_gpu *gpu = plan->gpu;
    const unsigned MT = gpu->m_tiles, NT = gpu->n_tiles, polarisation = frb_grid_weights(MT * NT);
    size_t P = plan->npol, D = plan->ndishes, W = plan->weight_channels;
    int32_t dish[32][32];
    unsigned *dishes = static_cast<unsigned *>(calloc(MT * NT * 32, sizeof *dishes));
    uint16_t(*weights)[4] = static_cast<uint16_t(*)[4]>(calloc(W * P * polarisation, sizeof *weights));
    float *level = static_cast<float *>(malloc(W * sizeof *level));
    bool ok = dishes && weights && level;
    if (!ok) br_because(why, "no memory for the FRB grid");
    for (unsigned i = 0; i < 32 * 32; i++) dish[i / 32][i % 32] = -1;
    for (size_t d = 0; d < D; d++)
        dish[params->dish_cell[2 * d]][params->dish_cell[2 * d + 1]] = static_cast<int32_t>(d);
    for (size_t c = 0; ok && c < W; c++) {
        /* Powers of two that bring the channel's weights below 1, so that float16 holds all sums. */
        const float *given = params->weights ? params->weights + c * P * D * 2 : NULL;
        const int exponent = br_frb_grid_exponent(given, P * D * 2);
        level[c] = static_cast<float>(ldexp(1, 2 * exponent));
        for (unsigned i = 0; i < MT * NT * 64; i++) {
            unsigned mt = i / 64 / NT, nt = i / 64 % NT, lane = i / 2 % 32, k = i % 2,
                     pair = frb_grid_pair(MT, mt, nt);
            unsigned n = frb_grid_cell_n(plan->grid_n, nt, lane);
            int32_t d = n < plan->grid_n ? dish[frb_grid_cell_m(mt, lane, k)][n] : -1;
            if (d < 0) continue; /* weight 0 */
            if (c == 0) dishes[pair * 32 + lane] |= static_cast<unsigned>(d) << 16 * k;
            for (size_t pol = 0; pol < P; pol++) {
                const float *w = given ? given + (pol * D + static_cast<size_t>(d)) * 2 : NULL;
                uint16_t *to = weights[(c * P + pol) * polarisation + frb_grid_weight(pair, lane)];
                for (int part = 0; part < 2; part++) {
                    double value = w ? ldexp(static_cast<double>(w[part]), -exponent) : 1 - part;
                    to[2 * part + k] = br_half_from_float(static_cast<float>(value));
                }
            }
        }
    }
    ok = ok && (gpu->dishes = br_cuda_table(plan->cuda, dishes, MT * NT * 32 * sizeof *dishes, why)) &&
         (gpu->weights = br_cuda_table(plan->cuda, weights, W * P * polarisation * sizeof *weights, why)) &&
         (gpu->level = br_cuda_table(plan->cuda, level, W * sizeof *level, why));
    free(dishes);
    free(weights);
    free(level);
    return ok ? 0 : -1;
}

void br_frb_grid_cuda_destroy(struct br_frb_grid *plan)
{
    struct br_frb_grid_gpu *gpu = plan->gpu;
    br_frb_grid_autocorr_2d_destroy(plan);
    br_frb_grid_autocorr_1d_destroy(plan);
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
    size_t F = plan->nchannels;
    if (M % 4 != 0 || N % 4 != 0 || M < 8 || M > 32 || N < 8 || N > 32)
        return br_because(why, "on a GPU the grid must have 8, 12, ... 32 cells each way, not %u x %u", M, N);
    if (plan->npol > 2)
        return br_because(why, "%zu polarisations; on a GPU 1 or 2 are supported", plan->npol);
    if (F > (1u << 30) / (2 * MOST_BLOCKS * MOST_JOBS))
        return br_because(why, "%zu channels are too many for one launch on a GPU", F);
    if (!params->cuda) return br_because(why, "BR_CUDA needs a br_cuda");
    if (br_frb_grid_autocorr_2d_fits(plan)) return br_frb_grid_autocorr_2d_create(plan, params, why);
    if (br_frb_grid_autocorr_1d_fits(plan, params->cuda))
        return br_frb_grid_autocorr_1d_create(plan, params, why);
    struct br_frb_grid_gpu *gpu = plan->gpu = static_cast<struct br_frb_grid_gpu *>(calloc(1, sizeof *gpu));
    if (!gpu) return br_because(why, "no memory for the FRB grid");
    plan->cuda = params->cuda;
    gpu->m_tiles = (M + 7) / 8;
    gpu->n_tiles = (N + 7) / 8;
    gpu->groups = gpu->m_tiles / frb_grid_p_tiles(gpu->m_tiles, gpu->n_tiles);
    gpu->kernel = variant(gpu->m_tiles, gpu->n_tiles);
    gpu->shared_weights = plan->weight_channels == 1;
    gpu->along_m = make_waves_m(plan->cuda, M, why);
    gpu->along_n = make_waves_n(plan->cuda, N, why);
    if (!gpu->along_m || !gpu->along_n || make_cells(plan, params, why) != 0) return -1;
    const size_t sum_bytes = static_cast<size_t>(2) * gpu->m_tiles * gpu->n_tiles * 32 * sizeof(float4);
    const bool is_long = plan->downsample > PARTIAL;
    for (int i = 0; i < 2; i++) {
        gpu->sums[i] =
            static_cast<float4 *>(br_cuda_alloc(plan->cuda, F * (is_long ? 2 : 1) * sum_bytes, why));
        if (!gpu->sums[i]) return -1;
    }

    grid &L = gpu->grid;
    L.M = M, L.N = N, L.P = static_cast<unsigned>(plan->npol), L.D = static_cast<unsigned>(plan->ndishes);
    L.along_m = static_cast<const uint2 *>(gpu->along_m);
    L.along_n = static_cast<const uint2 *>(gpu->along_n);
    const size_t pitch = (plan->npol * plan->ndishes + 30) / 16 * 16;
    const size_t raw = 2 * (pitch > RAW_BYTES ? pitch : RAW_BYTES), image = 8 * static_cast<size_t>(M) * N;
    gpu->shared_bytes = raw + (is_long ? sum_bytes / gpu->groups : 0);
    if (gpu->shared_bytes < image) gpu->shared_bytes = image;
    cudaError_t status = cudaFuncSetAttribute(reinterpret_cast<const void *>(gpu->kernel),
                                              cudaFuncAttributeMaxDynamicSharedMemorySize, 48 << 10);
    if (status == cudaSuccess) return 0;
    (void)cudaGetLastError();
    return br_because(why, "shared memory for the FRB grid on device %d: %s", br_cuda_device(plan->cuda),
                      cudaGetErrorString(status));
}

void br_frb_grid_cuda_begin(struct br_frb_grid *plan)
{
    if (plan->autocorr_2d)
        br_frb_grid_autocorr_2d_begin(plan);
    else if (plan->autocorr_1d)
        br_frb_grid_autocorr_1d_begin(plan);
    else
        plan->gpu->resume = false;
}

float br_frb_grid_cuda_unit(const struct br_frb_grid *plan)
{
    return static_cast<float>(ldexp(1, -plan->log2_scale));
}

bool br_frb_grid_cuda_together(const struct br_frb_grid *a, const struct br_frb_grid *b)
{
    return a->cuda == b->cuda && a->grid_m == b->grid_m && a->grid_n == b->grid_n && a->npol == b->npol &&
           a->ndishes == b->ndishes && !a->autocorr_2d == !b->autocorr_2d &&
           !a->autocorr_1d == !b->autocorr_1d;
}

static job job_of(struct br_frb_grid *plan, const struct frb_grid_span *span)
{
    struct br_frb_grid_gpu *gpu = plan->gpu;
    const size_t inputs = plan->npol * plan->ndishes;
    job w = {};
    w.T = plan->downsample;
    w.F = static_cast<unsigned>(plan->nchannels);
    w.pending = span->pending;
    w.e = span->e, w.row = span->row, w.steps = span->steps;
    if (span->steps > 0) w.end = span->e + (span->steps - 1) * span->row + plan->nchannels * inputs;
    w.valid = span->valid, w.valid_row = span->valid_row;
    w.dishes = static_cast<const unsigned *>(gpu->dishes);
    w.weights = static_cast<const uint2 *>(gpu->weights);
    w.level = static_cast<const float *>(gpu->level);
    w.factor = span->factor;
    w.unit = br_frb_grid_cuda_unit(plan);
    w.out = span->out, w.out_stride = span->out_stride;
    w.wide = reinterpret_cast<uintptr_t>(w.out) % 16 == 0;
    w.before = gpu->resume ? gpu->sums[gpu->now] : NULL;
    w.after = gpu->sums[!gpu->now];
    const bool aligned = reinterpret_cast<uintptr_t>(w.e) % 16 == 0 && w.row % 16 == 0 && inputs % 16 == 0;
    w.aligned = aligned;
    w.pitch = static_cast<uint16_t>(aligned ? inputs : (inputs + 30) / 16 * 16);
    w.inverse = 65536u / (w.pitch / 16u) + 1;
    const unsigned times = RAW_BYTES / w.pitch;
    w.times = static_cast<uint16_t>(times < 1 ? 1 : times > MOST_TIMES ? MOST_TIMES : times);
    w.flush = span->flush;
    w.shared_weights = gpu->shared_weights;
    return w;
}

void br_frb_grid_cuda_add(struct br_frb_grid *const *plan, const struct frb_grid_span *span, size_t n)
{
    if (plan[0]->autocorr_2d) {
        br_frb_grid_autocorr_2d_add(plan, span, n);
        return;
    }
    if (plan[0]->autocorr_1d) {
        br_frb_grid_autocorr_1d_add(plan, span, n);
        return;
    }
    work w;
    size_t order[MOST_JOBS], tasks = 0, shared_bytes = 0;
    struct br_frb_grid_gpu *gpu = plan[0]->gpu;
    br_frb_grid_longest_first(plan, n, order);
    w.grid = gpu->grid;
    w.njobs = static_cast<unsigned>(n);
    for (size_t k = 0; k < n; k++) {
        struct br_frb_grid *p = plan[order[k]];
        const struct frb_grid_span *s = &span[order[k]];
        w.job[k] = job_of(p, s);
        w.job[k].first_task = static_cast<unsigned>(tasks);
        tasks += p->nchannels * s->blocks * gpu->groups;
        if (p->gpu->shared_bytes > shared_bytes) shared_bytes = p->gpu->shared_bytes;
        p->gpu->resume = !s->flush && (s->pending + s->steps) % p->downsample != 0;
        if (p->gpu->resume) p->gpu->now = !p->gpu->now;
    }
    gpu->kernel<<<static_cast<unsigned>(tasks), 32, shared_bytes,
                  static_cast<cudaStream_t>(br_cuda_stream(plan[0]->cuda))>>>(w);
    br_cuda_ok(plan[0]->cuda, cudaGetLastError(), "the launch of the FRB grid");
}
