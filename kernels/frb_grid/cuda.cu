/* FRB stage 1 on a GPU: both transforms of a sample are small products on the float16 tensor cores.
 *
 * With A[p][m] = e^{i pi m p / M} and B[n][q] = e^{i pi n q / N} the zero-padded transform of a sample X is Y = A X B. A warp owns
 * 16 rows p. It keeps its part of A in registers for good; the sums of the first product, G = A X, lie in registers exactly as the
 * second product wants its left factor, so that nothing goes to memory between them; X and B are read from shared memory.
 * |Y|^2 is added up in float32 registers over the samples of a block of time.
 *
 * A thread block works on one channel and one block of time. Narrow grids have fewer than four groups of 16 rows: then several teams
 * of warps take turns with the samples (team g has those with g = sample mod teams, counted from the start of the block of
 * time), and their sums are added in the order of the teams. Sums of an unfinished block are kept per team, so that the order of
 * summation never depends on where calls end. */
#include "kernels/common/cuda.h"
#include "kernels/common/device.cuh"
#include "kernels/frb_grid/plan.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

using namespace beamring;

namespace
{

constexpr int WARPS = 4;   /* of a thread block: slabs * teams, or less */
constexpr int QUADS = 4;   /* words of input per thread and sample: P D <= 2 M N fits */
constexpr uint16_t NOWHERE = 0xffff;

/* Everything that is the same for all launches of a plan. */
struct layout {
    int M, N, P, D;
    int slabs, teams;   /* groups of 16 rows p; samples worked on side by side */
    int columns;        /* N rounded up to 8 */
    int pitch_m, pitch_n; /* halves from one n to the next in X, from one q to the next in B */
    int plane;          /* halves of one of re, im of X: [columns][pitch_m] */
    int inputs;         /* P D */
    size_t cells;       /* 2M 2N */
    const uint4 *a;     /* [slabs][KM][re, im][32 lanes] fragments */
    const __half *b;    /* [re, im][2N][pitch_n] */
    const uint16_t *place; /* [P D rounded up to 4]: where an input goes in X, or NOWHERE */
    const float2 *weights; /* [F or 1][P D], largest modulus 1; or NULL */
    size_t weight_step; /* P D, or 0: all channels share them */
};

struct work {
    const uint8_t *e;
    size_t row;
    bool words;           /* input can be read four bytes at a time */
    const uint8_t *valid; /* [steps][valid_row] or NULL */
    size_t valid_row;
    unsigned pending, T;  /* samples of block 0 before this launch; samples of a block */
    size_t steps, blocks;
    const float *factor;  /* [blocks][F] or NULL: all are `unit` */
    float unit;
    __half *out;          /* [F][out_stride][cells] */
    size_t out_stride;
    const float *before;  /* [F][teams][cells] sums of block 0, or NULL: none */
    float *after;         /* the same of the last block, if it is not complete */
};

__device__ __forceinline__ unsigned negate(unsigned pair)
{
    return pair ^ 0x80008000u;
}

__device__ __forceinline__ unsigned pack(float low, float high)
{
    __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<unsigned *>(&pair);
}

/* The words of this thread of one sample; what is behind the last input is anything. */
__device__ __forceinline__ void fetch(unsigned (&raw)[QUADS], const layout &L, const work &w, const uint8_t *from, int thread,
                                      int threads)
{
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
        int at = 4 * (thread + i * threads);
        raw[i] = 0;
        if (at >= L.inputs) continue;
        if (w.words) {
            raw[i] = *reinterpret_cast<const unsigned *>(from + at);
        } else {
            for (int k = 0; k < 4; k++)
                if (at + k < L.inputs) raw[i] |= static_cast<unsigned>(from[at + k]) << (8 * k);
        }
    }
}

/* Puts the sample on its cells: X[pol][re, im][n][m]; cells without a dish stay zero. */
__device__ __forceinline__ void place(const unsigned (&raw)[QUADS], const layout &L, const uint16_t *places, const float2 *weights,
                                      __half *x, int thread, int threads)
{
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
        int at = 4 * (thread + i * threads);
        if (at >= L.inputs) continue;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            unsigned cell = places[at + k];
            if (cell == NOWHERE) continue;
            float re = static_cast<float>(int4_re(raw[i] >> (8 * k))), im = static_cast<float>(int4_im(raw[i] >> (8 * k)));
            if (weights != nullptr) {
                float2 v = weights[at + k];
                float turned = v.x * re - v.y * im;
                im = v.x * im + v.y * re;
                re = turned;
            }
            x[cell] = __float2half_rn(re);
            x[cell + L.plane] = __float2half_rn(im);
        }
    }
}

/* Adds |A X B|^2 of one polarisation to the warp's 16 rows.
 *   a[KM][4]   A: simd m0, register (m3 p3), thread (p2 p1 p0 m2 m1), k-step: m4
 *   g[KN][4]   G: simd n0, register (n3 p3), thread (p2 p1 p0 n2 n1), k-step: n4
 *   sum[QT][4]    register (p3 q0), thread (p2 p1 p0 q2 q1), tile: q3 and up */
template <int KM, int QT>
__device__ __forceinline__ void add_power(float (&sum)[QT][4], const unsigned (&a_re)[KM][4], const unsigned (&a_im)[KM][4],
                                          const __half *x, const __half *b, const layout &L, int lane)
{
    constexpr int NT = (QT + 1) / 2, KN = (NT + 1) / 2; /* tiles of 8 n, steps of 16 n: N = 4 QT */
    unsigned g_re[KN][4], g_im[KN][4];
    const __half *at_x = x + (lane >> 2) * L.pitch_m + 2 * (lane & 3);
#pragma unroll
    for (int t = 0; t < 2 * KN; t++) {
        float re[4] = {0, 0, 0, 0}, im[4] = {0, 0, 0, 0};
        if (t < NT) {
#pragma unroll
            for (int k = 0; k < KM; k++) {
                const unsigned *p = reinterpret_cast<const unsigned *>(at_x + 8 * t * L.pitch_m + 16 * k);
                const unsigned *q = reinterpret_cast<const unsigned *>(at_x + 8 * t * L.pitch_m + 16 * k + L.plane);
                unsigned x_re[2] = {p[0], p[4]}, x_im[2] = {q[0], q[4]}, minus[2] = {negate(q[0]), negate(q[4])};
                mma_f16(re, a_re[k], x_re);
                mma_f16(im, a_re[k], x_im);
                mma_f16(re, a_im[k], minus);
                mma_f16(im, a_im[k], x_re);
            }
        }
        g_re[t / 2][2 * (t % 2)] = pack(re[0], re[1]);
        g_re[t / 2][2 * (t % 2) + 1] = pack(re[2], re[3]);
        g_im[t / 2][2 * (t % 2)] = pack(im[0], im[1]);
        g_im[t / 2][2 * (t % 2) + 1] = pack(im[2], im[3]);
    }
    const __half *at_b = b + (lane >> 2) * L.pitch_n + 2 * (lane & 3);
    const int other = 2 * L.N * L.pitch_n;
#pragma unroll
    for (int t = 0; t < QT; t++) {
        float re[4] = {0, 0, 0, 0}, im[4] = {0, 0, 0, 0};
#pragma unroll
        for (int k = 0; k < KN; k++) {
            const unsigned *p = reinterpret_cast<const unsigned *>(at_b + 8 * t * L.pitch_n + 16 * k);
            const unsigned *q = reinterpret_cast<const unsigned *>(at_b + 8 * t * L.pitch_n + 16 * k + other);
            unsigned b_re[2] = {p[0], p[4]}, b_im[2] = {q[0], q[4]}, minus[2] = {negate(q[0]), negate(q[4])};
            mma_f16(re, g_re[k], b_re);
            mma_f16(im, g_re[k], b_im);
            mma_f16(re, g_im[k], minus);
            mma_f16(im, g_im[k], b_re);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) sum[t][i] += re[i] * re[i] + im[i] * im[i];
    }
}

/* Dynamic shared memory: B, X[2 buffers][teams][P][re, im][plane] (afterwards the teams' sums), weights, places. */
struct shared_bytes {
    size_t b, x, weights, places;
};

__host__ __device__ inline shared_bytes shared_of(const layout &L)
{
    shared_bytes s;
    s.b = static_cast<size_t>(2) * 2 * L.N * L.pitch_n * sizeof(__half);
    s.x = static_cast<size_t>(2) * L.teams * L.P * 2 * L.plane * sizeof(__half);
    size_t sums = L.teams > 1 ? L.teams * L.cells * sizeof(float) : 0;
    if (s.x < sums) s.x = sums;
    s.x = (s.x + 15) / 16 * 16;
    s.weights = L.weights != nullptr ? (static_cast<size_t>(L.inputs) * sizeof(float2) + 15) / 16 * 16 : 0;
    s.places = (static_cast<size_t>(L.inputs) + 3) / 4 * 4 * sizeof(uint16_t);
    return s;
}

template <int KM, int QT> __global__ __launch_bounds__(32 * WARPS, QT >= 7 ? 2 : 3) void grid_kernel(const layout L, const work w)
{
    extern __shared__ __align__(16) unsigned char shared[];
    const shared_bytes size = shared_of(L);
    __half *b = reinterpret_cast<__half *>(shared), *x = reinterpret_cast<__half *>(shared + size.b);
    float2 *weights = reinterpret_cast<float2 *>(shared + size.b + size.x);
    uint16_t *places = reinterpret_cast<uint16_t *>(shared + size.b + size.x + size.weights);
    const size_t f = blockIdx.x / w.blocks, block = blockIdx.x % w.blocks, F = gridDim.x / w.blocks;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, slab = warp % L.slabs, team = warp / L.slabs;
    const int threads = 32 * L.slabs, thread = threadIdx.x - team * threads;

    for (size_t i = threadIdx.x; i < size.b / 4; i += blockDim.x)
        reinterpret_cast<unsigned *>(b)[i] = reinterpret_cast<const unsigned *>(L.b)[i];
    for (size_t i = threadIdx.x; i < size.x / 4; i += blockDim.x) reinterpret_cast<unsigned *>(x)[i] = 0;
    for (int i = threadIdx.x; i < (L.inputs + 3) / 4 * 4; i += blockDim.x) places[i] = L.place[i];
    if (L.weights != nullptr)
        for (int i = threadIdx.x; i < L.inputs; i += blockDim.x) weights[i] = L.weights[f * L.weight_step + i];
    const float2 *my_weights = L.weights != nullptr ? weights : nullptr;

    unsigned a_re[KM][4], a_im[KM][4];
#pragma unroll
    for (int k = 0; k < KM; k++) {
        const uint4 re = L.a[((slab * KM + k) * 2 + 0) * 32 + lane], im = L.a[((slab * KM + k) * 2 + 1) * 32 + lane];
        a_re[k][0] = re.x, a_re[k][1] = re.y, a_re[k][2] = re.z, a_re[k][3] = re.w;
        a_im[k][0] = im.x, a_im[k][1] = im.y, a_im[k][2] = im.z, a_im[k][3] = im.w;
    }

    /* Samples [begin, end) of the block of time are in this launch; sample r is step r + shift. */
    const unsigned begin = block == 0 ? w.pending : 0;
    const long long shift = static_cast<long long>(block) * w.T - w.pending;
    const unsigned end = static_cast<long long>(w.steps) - shift < w.T ? static_cast<unsigned>(w.steps - shift) : w.T;

    float sum[QT][4];
    const int p = slab * 16 + (lane >> 2), q = 2 * (lane & 3);
    const bool resume = block == 0 && w.before != nullptr;
    const float *before = w.before + (f * L.teams + team) * L.cells;
#pragma unroll
    for (int t = 0; t < QT; t++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = p + 8 * (i >> 1);
            sum[t][i] = resume && row < 2 * L.M ? before[row * 2 * L.N + 8 * t + q + (i & 1)] : 0;
        }

    /* Turns: every team takes one sample each. Input is one turn ahead in registers; X has two buffers, and one barrier a turn. */
    const uint8_t *channel = w.e + f * L.inputs;
    const size_t team_x = static_cast<size_t>(L.P) * 2 * L.plane, buffer = L.teams * team_x;
    unsigned raw[QUADS];
    unsigned turn = begin / L.teams, r = turn * L.teams + team;
    auto wanted = [&](unsigned sample) {
        return sample >= begin && sample < end &&
               (w.valid == nullptr || w.valid[static_cast<size_t>(sample + shift) * w.valid_row + f] != 0);
    };
    __syncthreads(); /* tables are there, X is clear */
    bool now = wanted(r), next = false;
    if (now) {
        fetch(raw, L, w, channel + static_cast<size_t>(r + shift) * w.row, thread, threads);
        place(raw, L, places, my_weights, x + (turn & 1) * buffer + team * team_x, thread, threads);
    }
    __syncthreads();
    for (; turn * L.teams < end; turn++, now = next) {
        r += L.teams;
        next = wanted(r);
        if (next) fetch(raw, L, w, channel + static_cast<size_t>(r + shift) * w.row, thread, threads);
        if (now)
            for (int pol = 0; pol < L.P; pol++)
                add_power<KM, QT>(sum, a_re, a_im, x + (turn & 1) * buffer + team * team_x + pol * 2 * L.plane, b, L, lane);
        if (next) place(raw, L, places, my_weights, x + (~turn & 1) * buffer + team * team_x, thread, threads);
        __syncthreads();
    }

    if (end < w.T) { /* goes on in the next call */
        float *after = w.after + (f * L.teams + team) * L.cells;
#pragma unroll
        for (int t = 0; t < QT; t++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                if (p + 8 * h < 2 * L.M)
                    *reinterpret_cast<float2 *>(after + (p + 8 * h) * 2 * L.N + 8 * t + q) =
                        make_float2(sum[t][2 * h], sum[t][2 * h + 1]);
        return;
    }
    if (L.teams > 1) {
        float *sums = reinterpret_cast<float *>(x); /* the last barrier stands behind every use of X */
#pragma unroll
        for (int t = 0; t < QT; t++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int row = p + 8 * (i >> 1);
                if (row < 2 * L.M) sums[team * L.cells + row * 2 * L.N + 8 * t + q + (i & 1)] = sum[t][i];
            }
        __syncthreads();
        if (team > 0) return;
#pragma unroll
        for (int t = 0; t < QT; t++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int row = p + 8 * (i >> 1);
                for (int g = 1; g < L.teams && row < 2 * L.M; g++)
                    sum[t][i] += sums[g * L.cells + row * 2 * L.N + 8 * t + q + (i & 1)];
            }
    }
    const float factor = w.factor != nullptr ? w.factor[block * F + f] : w.unit;
    __half *out = w.out + (f * w.out_stride + block) * L.cells;
#pragma unroll
    for (int t = 0; t < QT; t++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (p + 8 * h < 2 * L.M)
                *reinterpret_cast<__half2 *>(out + (p + 8 * h) * 2 * L.N + 8 * t + q) =
                    __floats2half2_rn(fminf(factor * sum[t][2 * h], 65504.f), fminf(factor * sum[t][2 * h + 1], 65504.f));
}

/* Writes an unfinished block as if the rest were missing. */
__global__ __launch_bounds__(256) void flush_kernel(const float *sums, int teams, size_t cells, const float *factor, __half *out,
                                                    size_t out_stride)
{
    const size_t f = blockIdx.x;
    for (size_t i = threadIdx.x; i < cells; i += blockDim.x) {
        float sum = 0;
        for (int g = 0; g < teams && sums != nullptr; g++) {
            float one = sums[(f * teams + g) * cells + i];
            sum = g == 0 ? one : sum + one;
        }
        out[f * out_stride * cells + i] = __float2half_rn(fminf(factor[f] * sum, 65504.f));
    }
}

typedef void (*grid_launch)(const layout, const work);

template <int KM> grid_launch kernel_of(int N)
{
    switch (N / 4) {
    case 2: return grid_kernel<KM, 2>;
    case 3: return grid_kernel<KM, 3>;
    case 4: return grid_kernel<KM, 4>;
    case 5: return grid_kernel<KM, 5>;
    case 6: return grid_kernel<KM, 6>;
    case 7: return grid_kernel<KM, 7>;
    case 8: return grid_kernel<KM, 8>;
    }
    return nullptr;
}

unsigned half_pair(double low, double high)
{
    __half pair[2] = {__float2half_rn(static_cast<float>(low)), __float2half_rn(static_cast<float>(high))};
    unsigned word;
    memcpy(&word, pair, sizeof word);
    return word;
}

} // namespace

struct frb_grid_gpu {
    layout L;
    grid_launch kernel;
    size_t shared;
    float unit;      /* 2^-k and the largest weight squared */
    void *a, *b, *place, *weights;
    float *sums[2];  /* [F][teams][cells] */
    int current;     /* which of them holds the unfinished block */
    bool fresh;      /* nothing is in it yet */
};

/* A as the tensor cores want it: a[slab][k-step][re, im][lane][register], 16 rows p of a slab and 16 m of a step. */
static int make_a(struct br_frb_grid *plan, int slabs, int steps, struct br_why *why)
{
    const int M = static_cast<int>(plan->grid_m);
    const size_t bytes = static_cast<size_t>(slabs) * steps * 2 * 32 * 4 * sizeof(unsigned);
    unsigned *a = static_cast<unsigned *>(calloc(1, bytes)), *at = a;
    if (a == nullptr) return br_because(why, "no memory");
    for (int slab = 0; slab < slabs; slab++)
        for (int k = 0; k < steps; k++)
            for (int part = 0; part < 2; part++)
                for (int lane = 0; lane < 32; lane++)
                    for (int reg = 0; reg < 4; reg++, at++) {
                        double pair[2];
                        for (int simd = 0; simd < 2; simd++) {
                            int p = slab * 16 + (lane >> 2) + 8 * (reg & 1), m = 16 * k + 2 * (lane & 3) + simd + 8 * (reg >> 1);
                            double angle = M_PI * (m * p % (2 * M)) / M;
                            pair[simd] = p >= 2 * M || m >= M ? 0 : part == 0 ? cos(angle) : sin(angle);
                        }
                        *at = half_pair(pair[0], pair[1]);
                    }
    plan->gpu->a = br_cuda_table(plan->cuda, a, bytes, why);
    free(a);
    return plan->gpu->a != nullptr ? 0 : -1;
}

/* B[re, im][q][n], n fastest, zero behind N. */
static int make_b(struct br_frb_grid *plan, int pitch, struct br_why *why)
{
    const int N = static_cast<int>(plan->grid_n);
    const size_t bytes = static_cast<size_t>(2) * 2 * N * pitch * sizeof(__half);
    unsigned *b = static_cast<unsigned *>(calloc(1, bytes));
    if (b == nullptr) return br_because(why, "no memory");
    for (int part = 0; part < 2; part++)
        for (int q = 0; q < 2 * N; q++)
            for (int n = 0; n < N; n += 2) { /* N is even */
                double first = M_PI * (n * q % (2 * N)) / N, second = M_PI * ((n + 1) * q % (2 * N)) / N;
                b[((part * 2 * N + q) * pitch + n) / 2] =
                    part == 0 ? half_pair(cos(first), cos(second)) : half_pair(sin(first), sin(second));
            }
    plan->gpu->b = br_cuda_table(plan->cuda, b, bytes, why);
    free(b);
    return plan->gpu->b != nullptr ? 0 : -1;
}

static int make_places(struct br_frb_grid *plan, const struct br_frb_grid_params *params, const layout &L, struct br_why *why)
{
    const size_t count = (static_cast<size_t>(L.inputs) + 3) / 4 * 4;
    uint16_t *place = static_cast<uint16_t *>(malloc(count * sizeof *place));
    if (place == nullptr) return br_because(why, "no memory");
    for (size_t i = 0; i < count; i++) {
        size_t pol = i / L.D, d = i % L.D;
        place[i] = i >= static_cast<size_t>(L.inputs)
                       ? NOWHERE
                       : static_cast<uint16_t>(pol * 2 * L.plane + params->dish_cell[2 * d + 1] * L.pitch_m + params->dish_cell[2 * d]);
    }
    plan->gpu->place = br_cuda_table(plan->cuda, place, count * sizeof *place, why);
    free(place);
    return plan->gpu->place != nullptr ? 0 : -1;
}

/* Weights with the largest modulus 1, so that float16 holds every partial sum; its square joins the scale. */
static int make_weights(struct br_frb_grid *plan, const struct br_frb_grid_params *params, struct br_why *why)
{
    if (params->weights == nullptr) return 0;
    const size_t count = params->weight_channels * plan->npol * plan->ndishes;
    double largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, hypot(static_cast<double>(params->weights[2 * i]), static_cast<double>(params->weights[2 * i + 1])));
    float *weights = static_cast<float *>(malloc(2 * count * sizeof *weights));
    if (weights == nullptr) return br_because(why, "no memory");
    for (size_t i = 0; i < 2 * count; i++)
        weights[i] = largest > 0 ? static_cast<float>(static_cast<double>(params->weights[i]) / largest) : 0;
    plan->gpu->weights = br_cuda_table(plan->cuda, weights, 2 * count * sizeof *weights, why);
    plan->gpu->unit = static_cast<float>(ldexp(largest * largest, -plan->log2_scale));
    free(weights);
    return plan->gpu->weights != nullptr ? 0 : -1;
}

int br_frb_grid_cuda_create(struct br_frb_grid *plan, const struct br_frb_grid_params *params, struct br_why *why)
{
    const unsigned M = plan->grid_m, N = plan->grid_n;
    if (M % 4 != 0 || N % 4 != 0 || M < 8 || M > 32 || N < 8 || N > 32 || plan->npol > 2)
        return br_because(why, "on a GPU the grid must have 8, 12, ... 32 cells each way and one or two polarisations, not %u x %u cells "
                          "and %zu", M, N, plan->npol);
    if (params->cuda == nullptr) return br_because(why, "BR_CUDA needs params.cuda");
    struct frb_grid_gpu *gpu = plan->gpu = static_cast<struct frb_grid_gpu *>(calloc(1, sizeof *gpu));
    if (gpu == nullptr) return br_because(why, "no memory");
    plan->cuda = params->cuda;
    layout L = {};
    L.M = static_cast<int>(M), L.N = static_cast<int>(N);
    L.P = static_cast<int>(plan->npol), L.D = static_cast<int>(plan->ndishes);
    L.inputs = L.P * L.D;
    L.slabs = (2 * L.M + 15) / 16;
    L.teams = WARPS / L.slabs;
    L.columns = (L.N + 7) / 8 * 8;
    /* Rows of 12 or 20 words: the 8 rows by 4 words that a warp reads at once lie in 32 different banks. */
    L.pitch_m = L.M > 16 ? 40 : 24;
    L.pitch_n = L.N > 16 ? 40 : 24;
    L.plane = L.columns * L.pitch_m;
    L.cells = plan->cells;
    gpu->unit = static_cast<float>(ldexp(1, -plan->log2_scale));
    gpu->fresh = true;
    gpu->kernel = M > 16 ? kernel_of<2>(L.N) : kernel_of<1>(L.N);
    if (make_a(plan, L.slabs, M > 16 ? 2 : 1, why) != 0 || make_b(plan, L.pitch_n, why) != 0 ||
        make_places(plan, params, L, why) != 0 || make_weights(plan, params, why) != 0) return -1;
    for (int i = 0; i < 2; i++) {
        gpu->sums[i] = static_cast<float *>(
            br_cuda_alloc(plan->cuda, plan->nchannels * L.teams * L.cells * sizeof(float), why));
        if (gpu->sums[i] == nullptr) return -1;
    }
    L.a = static_cast<const uint4 *>(gpu->a);
    L.b = static_cast<const __half *>(gpu->b);
    L.place = static_cast<const uint16_t *>(gpu->place);
    L.weights = static_cast<const float2 *>(gpu->weights);
    L.weight_step = plan->weight_channels > 1 ? static_cast<size_t>(L.inputs) : 0;
    gpu->L = L;
    shared_bytes s = shared_of(L);
    gpu->shared = s.b + s.x + s.weights + s.places;
    cudaError_t status = cudaFuncSetAttribute(reinterpret_cast<const void *>(gpu->kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              static_cast<int>(gpu->shared));
    if (status != cudaSuccess)
        return br_because(why, "the FRB grid needs %zu bytes of shared memory: %s", gpu->shared, cudaGetErrorString(status));
    return 0;
}

void br_frb_grid_cuda_destroy(struct br_frb_grid *plan)
{
    struct frb_grid_gpu *gpu = plan->gpu;
    if (gpu == nullptr) return;
    void *memory[] = {gpu->a, gpu->b, gpu->place, gpu->weights, gpu->sums[0], gpu->sums[1]};
    for (void *one : memory) br_cuda_free(plan->cuda, one);
    free(gpu);
    plan->gpu = nullptr;
}

void br_frb_grid_cuda_begin(struct br_frb_grid *plan)
{
    plan->gpu->fresh = true;
}

void br_frb_grid_cuda_add(struct br_frb_grid *plan, const struct frb_grid_span *span)
{
    struct frb_grid_gpu *gpu = plan->gpu;
    work w = {};
    w.e = span->e;
    w.row = span->row;
    w.words = reinterpret_cast<uintptr_t>(span->e) % 4 == 0 && span->row % 4 == 0 && gpu->L.inputs % 4 == 0;
    w.valid = span->valid;
    w.valid_row = span->valid_row;
    w.pending = span->pending;
    w.T = plan->downsample;
    w.steps = span->steps;
    w.blocks = span->blocks;
    w.factor = span->factor;
    w.unit = gpu->unit;
    w.out = reinterpret_cast<__half *>(span->out);
    w.out_stride = span->out_stride;
    w.before = gpu->fresh ? nullptr : gpu->sums[gpu->current];
    w.after = gpu->sums[!gpu->current];
    gpu->kernel<<<static_cast<unsigned>(plan->nchannels * span->blocks), 32 * gpu->L.slabs * gpu->L.teams, gpu->shared,
                  static_cast<cudaStream_t>(br_cuda_stream(plan->cuda))>>>(gpu->L, w);
    br_cuda_ok(plan->cuda, cudaGetLastError(), "launching the FRB grid");
    const bool unfinished = (span->pending + span->steps) % plan->downsample != 0;
    if (unfinished) gpu->current = !gpu->current;
    gpu->fresh = !unfinished;
}

float br_frb_grid_cuda_unit(const struct br_frb_grid *plan)
{
    return plan->gpu->unit;
}

void br_frb_grid_cuda_flush(struct br_frb_grid *plan, const float *factor, uint16_t *out, size_t out_stride)
{
    struct frb_grid_gpu *gpu = plan->gpu;
    flush_kernel<<<static_cast<unsigned>(plan->nchannels), 256, 0, static_cast<cudaStream_t>(br_cuda_stream(plan->cuda))>>>(
        gpu->fresh ? nullptr : gpu->sums[gpu->current], gpu->L.teams, gpu->L.cells, factor, reinterpret_cast<__half *>(out), out_stride);
    br_cuda_ok(plan->cuda, cudaGetLastError(), "launching the end of the FRB grid");
    gpu->fresh = true;
}
