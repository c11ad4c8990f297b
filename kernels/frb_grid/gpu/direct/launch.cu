/* FRB stage 1 on a GPU by transforming every sample (images.cuh): tables and launches. One launch does the
 * blocks of any number of plans that share their grid (the zones of a stage), the longest first, so that few
 * channels with long blocks and many with short ones fill the GPU together. */
#include "buffers/half.h"
#include "kernels/common/cuda.h"
#include "kernels/common/exchange.h"
#include "kernels/frb_grid/gpu/direct/direct.h"
#include "kernels/frb_grid/gpu/direct/images.cuh"

#include <cuda_runtime.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

using namespace beamring;
using namespace beamring::direct;

namespace
{

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

struct br_frb_grid_direct {
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
    struct br_frb_grid_direct *gpu = plan->direct;
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

void br_frb_grid_direct_destroy(struct br_frb_grid *plan)
{
    struct br_frb_grid_direct *gpu = plan->direct;
    if (!gpu) return;
    void *memory[] = {gpu->along_m, gpu->along_n, gpu->dishes, gpu->weights,
                      gpu->level,   gpu->sums[0], gpu->sums[1]};
    for (void *one : memory) br_cuda_free(plan->cuda, one);
    free(gpu);
    plan->direct = NULL;
}

int br_frb_grid_direct_create(struct br_frb_grid *plan, const struct br_frb_grid_params *params,
                              struct br_why *why)
{
    const unsigned M = plan->grid_m, N = plan->grid_n;
    const size_t F = plan->nchannels;
    struct br_frb_grid_direct *gpu = plan->direct =
        static_cast<struct br_frb_grid_direct *>(calloc(1, sizeof *gpu));
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

void br_frb_grid_direct_exchange(struct br_frb_grid_direct *a, struct br_frb_grid_direct *b)
{
    BR_EXCHANGE(void *, a, b, weights);
    BR_EXCHANGE(void *, a, b, level);
    BR_EXCHANGE(bool, a, b, shared_weights);
}

void br_frb_grid_direct_begin(struct br_frb_grid *plan)
{
    plan->direct->resume = false;
}

static job job_of(struct br_frb_grid *plan, const struct frb_grid_span *span)
{
    struct br_frb_grid_direct *gpu = plan->direct;
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

void br_frb_grid_direct_add(struct br_frb_grid *const *plan, const struct frb_grid_span *span, size_t n)
{
    work w;
    size_t order[MOST_JOBS], tasks = 0, shared_bytes = 0;
    struct br_frb_grid_direct *gpu = plan[0]->direct;
    br_frb_grid_longest_first(plan, n, order);
    w.grid = gpu->grid;
    w.njobs = static_cast<unsigned>(n);
    for (size_t k = 0; k < n; k++) {
        struct br_frb_grid *p = plan[order[k]];
        const struct frb_grid_span *s = &span[order[k]];
        w.job[k] = job_of(p, s);
        w.job[k].first_task = static_cast<unsigned>(tasks);
        tasks += p->nchannels * s->blocks * gpu->groups;
        if (p->direct->shared_bytes > shared_bytes) shared_bytes = p->direct->shared_bytes;
        p->direct->resume = !s->flush && (s->pending + s->steps) % p->downsample != 0;
        if (p->direct->resume) p->direct->now = !p->direct->now;
    }
    gpu->kernel<<<static_cast<unsigned>(tasks), 32, shared_bytes,
                  static_cast<cudaStream_t>(br_cuda_stream(plan[0]->cuda))>>>(w);
    br_cuda_ok(plan[0]->cuda, cudaGetLastError(), "the launch of the FRB grid");
}
