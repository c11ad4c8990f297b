/* FRB stage 1 on a GPU, grids of 12 to 24 cells each way: tables and launches; autocorr.cuh says how it is
 * done, warp_roles.cuh who does what. One launch does the blocks of any number of plans, the longest
 * first. */
#include "buffers/half.h"
#include "kernels/common/cuda.h"
#include "kernels/common/exchange.h"
#include "kernels/common/fragments.h"
#include "kernels/frb_grid/gpu/autocorr_1d/autocorr_1d.h"
#include "kernels/frb_grid/gpu/autocorr_1d/warp_roles.cuh"

#include <cuda_runtime.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

using namespace beamring;

namespace
{

/* The cost of the end of a piece, in steps. */
constexpr unsigned END_COST = 1;

using kernel = void (*)(autocorr_1d_work);

struct variant {
    unsigned m_tiles, n_tiles, directions, threads;
    kernel run;
};

template <int MT, int NT, int ROWS, int CW, int FW> constexpr struct variant variant_of()
{
    return {MT, NT, 4 * CW, 32 * (8 * MT / ROWS + CW + FW + 1), autocorr_1d_images<MT, NT, ROWS, CW, 4, FW>};
}

constexpr struct variant variants[] = {variant_of<2, 2, 4, 8, 1>(), variant_of<2, 3, 2, 10, 1>(),
                                       variant_of<2, 3, 2, 12, 1>(), variant_of<3, 3, 3, 12, 3>()};

/* For a grid of M cells along m and N along n; NULL: none. */
const struct variant *find_variant(unsigned M, unsigned N)
{
    for (const struct variant &v : variants)
        if (v.m_tiles == (M + 7) / 8 && v.n_tiles == (N + 7) / 8 && v.directions >= 2 * N) return &v;
    return NULL;
}

} // namespace

struct br_frb_grid_autocorr_1d {
    struct autocorr_1d_grid grid;
    const struct variant *variant;
    int blocks; /* of threads that the device holds at once */
    void *waves, *lag_waves, *table, *place, *weights, *level;
    unsigned gap;   /* see frb_autocorr_1d_byte */
    void *piece[2]; /* of the unfinished block: one is read while the other is written */
    float4 *sums[2];
    int now;
    bool resume, shared_weights; /* piece[now] and sums[now] hold an unfinished block; */
    size_t kept;                 /* its samples, 0 if there is none */
    int headroom;                /* weights are divided by this power of two */
};

/* Which axis m is: the one along which there are more cells, unless rows of n fill three tiles and those of m
 * two. */
static bool transposes(unsigned rows, unsigned columns)
{
    const unsigned row_tiles = (rows + 7) / 8, column_tiles = (columns + 7) / 8;
    return row_tiles == column_tiles ? columns > rows : row_tiles > column_tiles;
}

/* The grid's cells along m and n. */
static void axes_of(const struct br_frb_grid *plan, bool *transposed, unsigned *M, unsigned *N)
{
    *transposed = transposes(plan->grid_m, plan->grid_n);
    *M = *transposed ? plan->grid_n : plan->grid_m;
    *N = *transposed ? plan->grid_m : plan->grid_n;
}

/* A sample of direct/ takes about 1.2 times as long as a sample of a step here; but here steps count whole,
 * and a block's end counts as 3 samples. */
bool br_frb_grid_autocorr_1d_pays(const struct br_frb_grid *plan)
{
    bool transposed;
    unsigned M, N;
    axes_of(plan, &transposed, &M, &N);
    if (M < 12 || N < 12 || !find_variant(M, N)) return false;
    const unsigned npol = static_cast<unsigned>(plan->npol), times = frb_autocorr_1d_times(npol);
    const uint64_t steps = (static_cast<uint64_t>(plan->downsample) + times - 1) / times;
    return 10 * (8 * steps + 3) <= 12 * static_cast<uint64_t>(plan->downsample) * npol;
}

/* Whether that device runs the code in which warpgroups transform, with four places for y: the compiler
 * puts it into what is compiled for sm_90a. */
static bool has_groups(struct br_cuda *cuda)
{
    return br_cuda_runs_sm_90a(br_cuda_device(cuda));
}

bool br_frb_grid_autocorr_1d_fits(const struct br_frb_grid *plan, struct br_cuda *cuda)
{
    bool transposed;
    unsigned M, N;
    int most = 0;
    if (!br_frb_grid_autocorr_1d_pays(plan)) return false;
    axes_of(plan, &transposed, &M, &N);
    const struct variant *v = find_variant(M, N);
    return cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, br_cuda_device(cuda)) ==
               cudaSuccess &&
           memory_of(v->m_tiles, v->n_tiles, v->directions, N, true, has_groups(cuda) ? 4 : 2).bytes <=
               static_cast<unsigned>(most);
}

static double wave(unsigned N, unsigned tile, unsigned row, unsigned k)
{
    unsigned q, sine, j;
    if (!frb_autocorr_1d_wave((N + 7) / 8, tile, row, k, &q, &sine, &j) || q >= N || j >= N / 2) return 0;
    const double angle = M_PI * ((sine && q == 0 ? N : q) * (2 * j + 1) % (4 * N)) / (2 * N);
    return sine ? sin(angle) : cos(angle);
}

static void *make_waves(struct br_cuda *cuda, unsigned N, struct br_why *why)
{
    uint32_t table[4 * 32][4];
    const unsigned tiles = frb_autocorr_1d_waves((N + 7) / 8);
    for (unsigned i = 0; i < tiles * 32; i++)
        for (unsigned r = 0; r < 4; r++) {
            const struct br_cell a = br_mma_f16_a(r, 0, i % 32), b = br_mma_f16_a(r, 1, i % 32);
            table[i][r] = br_half_pair(wave(N, i / 32, a.row, a.column), wave(N, i / 32, b.row, b.column));
        }
    return br_cuda_table(cuda, table, tiles * 32 * sizeof *table, why);
}

/* The transform as wgmma's right factors: cos and sin of pi q (j + 1/2) / N. */
static void *make_table(struct br_cuda *cuda, unsigned N, unsigned directions, struct br_why *why)
{
    const unsigned NT = (N + 7) / 8, bytes = frb_autocorr_1d_table_bytes(NT, directions);
    uint16_t table[48 * 96 / 2] = {0};
    for (unsigned third = 0; third < NT - 1; third++)
        for (unsigned i = 0; i < directions << third; i++)
            for (unsigned k = 0; k < 16; k++) {
                const unsigned q = i % directions;
                unsigned j;
                const unsigned what = frb_autocorr_1d_group_wave(third, i / directions, k, &j);
                if (what == FRB_AUTOCORR_1D_NOTHING || q >= 2 * N || j >= N / 2) continue;
                const double angle = M_PI * (q * (2 * j + 1) % (4 * N)) / (2 * N);
                const double value = what == FRB_AUTOCORR_1D_COSINE ? cos(angle)
                                     : what == FRB_AUTOCORR_1D_SINE ? sin(angle)
                                                                    : -sin(angle);
                table[frb_autocorr_1d_table(directions, third, i, k) / 2] =
                    br_half_from_float(static_cast<float>(value));
            }
    return br_cuda_table(cuda, table, bytes, why);
}

/* The contribution of a lag's real (k even) or imaginary part to the even part (row < 8) of direction p, or
 * to the odd one: sum and difference of both are intensities of p and 2M - p. For p = 0 they are to be those
 * of 0 and M: what even and odd lags add. */
static double lag_wave(unsigned M, unsigned tile, unsigned step, struct br_cell at)
{
    const unsigned p = frb_autocorr_1d_p(M, tile, at.row % 8), lag = frb_autocorr_1d_k_lag(step, at.column),
                   odd = at.row / 8, imaginary = at.column % 2;
    if (lag >= M) return 0;
    const double c = lag == 0 ? 1 : 2, angle = M_PI * (p * lag % (2 * M)) / M;
    if (p == 0) return imaginary || lag % 2 != odd ? 0 : c;
    return odd != imaginary ? 0 : odd ? -c * sin(angle) : c * cos(angle);
}

static void *make_lag_waves(struct br_cuda *cuda, unsigned M, struct br_why *why)
{
    uint32_t table[4 * 4 * 32][4];
    const unsigned tiles = (M + 7) / 8;
    for (unsigned tile = 0; tile < tiles; tile++)
        for (unsigned i = 0; i < tiles * 32 * 4; i++) {
            const unsigned step = i / 128, lane = i / 4 % 32, r = i % 4;
            table[frb_autocorr_1d_lag_wave(tiles, tile, step, lane)][r] =
                br_half_pair(lag_wave(M, tile, step, br_mma_f16_a(r, 0, lane)),
                             lag_wave(M, tile, step, br_mma_f16_a(r, 1, lane)));
        }
    return br_cuda_table(cuda, table, tiles * tiles * 32 * sizeof *table, why);
}

/* How often shared memory is read for all cells, with that gap behind each 128 bytes: of the eight rows of a
 * tile, four cells each at once, so often as the bank that is asked for most. */
static unsigned wavefronts(const struct br_frb_grid_autocorr_1d *gpu, const int32_t (*dish)[32], unsigned gap)
{
    const unsigned NT = gpu->variant->n_tiles, N = gpu->grid.N;
    unsigned all = 0;
    for (unsigned i = 0; i < gpu->variant->m_tiles * NT * 2; i++) {
        uint32_t words[32][32]; /* of a bank */
        unsigned count[32] = {0}, most = 0;
        for (unsigned lane = 0; lane < 32; lane++) {
            const unsigned m = i / 2 / NT * 8 + lane / 4,
                           n = frb_autocorr_1d_cell_n(N, i / 2 % NT, lane, i % 2);
            if (n >= N || dish[m][n] < 0) continue;
            const unsigned word = frb_autocorr_1d_byte(static_cast<unsigned>(dish[m][n]), gap) / 4,
                           bank = word % 32;
            unsigned k = 0;
            while (k < count[bank] && words[bank][k] != word) k++;
            words[bank][k] = word;
            if (k == count[bank] && ++count[bank] > most) most = count[bank];
        }
        all += most;
    }
    return all;
}

/* A cell without a dish reads a dish that is read at the same time, of the same row if possible, so that it
 * costs nothing. */
static int32_t neighbour(const struct br_frb_grid_autocorr_1d *gpu, const int32_t (*dish)[32], unsigned m,
                         unsigned pair, unsigned simd)
{
    for (unsigned i = 0; i < 32; i++) {
        const unsigned n = frb_autocorr_1d_cell_n(gpu->grid.N, pair, i, simd);
        const int32_t d = n < gpu->grid.N ? dish[m ^ i / 4][n] : -1;
        if (d >= 0) return d;
    }
    return 0;
}

/* Where the bytes of a lane's cells are, and which weights they have. */
static int make_cells(struct br_frb_grid *plan, const struct br_frb_grid_params *params, struct br_why *why)
{
    struct br_frb_grid_autocorr_1d *gpu = plan->autocorr_1d;
    const unsigned M = 8 * gpu->variant->m_tiles, N = gpu->grid.N, NT = gpu->variant->n_tiles;
    const size_t P = plan->npol, D = plan->ndishes, W = plan->weight_channels, channel = P * M * NT * 4;
    int32_t dish[32][32];
    uint16_t *places = static_cast<uint16_t *>(calloc(M * NT * 8, sizeof *places));
    uint16_t(*weights)[4] = static_cast<uint16_t(*)[4]>(calloc(W * channel, sizeof *weights));
    float *level = static_cast<float *>(malloc(W * sizeof *level));
    bool ok = places && weights && level;
    if (!ok) br_because(why, "no memory for the FRB grid");
    memset(dish, -1, sizeof dish);
    for (size_t d = 0; d < D; d++) {
        const uint16_t *cell = &params->dish_cell[2 * d];
        dish[cell[gpu->grid.transposed]][cell[!gpu->grid.transposed]] = static_cast<int32_t>(d);
    }
    gpu->gap = wavefronts(gpu, dish, 32) < wavefronts(gpu, dish, 0) ? 32 : 0;
    for (size_t c = 0; ok && c < W; c++) {
        /* Powers of two that bring the channel's weights below 1, and further. */
        const float *given = params->weights ? params->weights + c * P * D * 2 : NULL;
        const int exponent = br_frb_grid_exponent(given, P * D * 2) + gpu->headroom;
        level[c] = static_cast<float>(ldexp(1, 2 * exponent));
        for (size_t i = 0; i < M * NT * 8; i++) {
            const unsigned m = static_cast<unsigned>(i / 8 / NT), pair = i / 8 % NT, lane = i / 2 % 4,
                           k = i % 2, n = frb_autocorr_1d_cell_n(N, pair, lane, k);
            const int32_t d = n < N ? dish[m][n] : -1;
            places[2 * frb_autocorr_1d_weight(NT, 0, m, pair, M, lane) + k] =
                static_cast<uint16_t>(frb_autocorr_1d_byte(
                    static_cast<unsigned>(d < 0 ? neighbour(gpu, dish, m, pair, k) : d), gpu->gap));
            if (d < 0) continue; /* weight 0 */
            for (unsigned pol = 0; pol < P; pol++)
                for (int part = 0; part < 2; part++) {
                    const float *w = given ? given + (pol * D + static_cast<size_t>(d)) * 2 : NULL;
                    const double value = ldexp(w ? static_cast<double>(w[part]) : 1 - part, -exponent);
                    weights[c * channel + frb_autocorr_1d_weight(NT, pol, m, pair, M, lane)][2 * part + k] =
                        br_half_from_float(static_cast<float>(value));
                }
        }
    }
    ok = ok && (gpu->place = br_cuda_table(plan->cuda, places, M * NT * 8 * sizeof *places, why)) &&
         (gpu->weights = br_cuda_table(plan->cuda, weights, W * channel * sizeof *weights, why)) &&
         (gpu->level = br_cuda_table(plan->cuda, level, W * sizeof *level, why));
    free(places);
    free(weights);
    free(level);
    return ok ? 0 : -1;
}

void br_frb_grid_autocorr_1d_destroy(struct br_frb_grid *plan)
{
    struct br_frb_grid_autocorr_1d *gpu = plan->autocorr_1d;
    if (!gpu) return;
    void *memory[] = {gpu->waves, gpu->lag_waves, gpu->table,    gpu->place,   gpu->weights,
                      gpu->level, gpu->piece[0],  gpu->piece[1], gpu->sums[0], gpu->sums[1]};
    for (void *one : memory) br_cuda_free(plan->cuda, one);
    free(gpu);
    plan->autocorr_1d = NULL;
}

/* Bytes of one time of a channel, when kept for the next call. */
static size_t kept_bytes(const struct br_frb_grid *plan)
{
    return (plan->npol * plan->ndishes + 15) / 16 * 16;
}

int br_frb_grid_autocorr_1d_create(struct br_frb_grid *plan, const struct br_frb_grid_params *params,
                                   struct br_why *why)
{
    const size_t F = plan->nchannels;
    struct br_frb_grid_autocorr_1d *gpu = plan->autocorr_1d =
        static_cast<struct br_frb_grid_autocorr_1d *>(calloc(1, sizeof *gpu));
    if (!gpu) return br_because(why, "no memory for the FRB grid");
    plan->cuda = params->cuda;
    const bool is_long = plan->downsample > PIECE;
    bool transposed;
    unsigned M, N;
    axes_of(plan, &transposed, &M, &N);
    struct autocorr_1d_grid *grid = &gpu->grid;
    gpu->variant = find_variant(M, N);
    grid->M = M, grid->N = N, grid->transposed = transposed;
    grid->P = static_cast<unsigned>(plan->npol), grid->D = static_cast<unsigned>(plan->ndishes);
    /* Cells are below 16, directions below 16 N; the lags of a piece must be below 2^15. */
    int most;
    (void)frexp(static_cast<double>(plan->npol * (is_long ? PIECE : plan->downsample)) * M * 256 * N * N,
                &most);
    gpu->headroom = most > 15 ? (most - 14) / 2 : 0;
    gpu->shared_weights = plan->weight_channels == 1;
    gpu->waves = make_waves(plan->cuda, N, why);
    gpu->lag_waves = make_lag_waves(plan->cuda, M, why);
    gpu->table = make_table(plan->cuda, N, gpu->variant->directions, why);
    if (!gpu->waves || !gpu->lag_waves || !gpu->table || make_cells(plan, params, why) != 0) return -1;
    grid->waves = static_cast<const uint4 *>(gpu->waves);
    grid->lag_waves = static_cast<const uint4 *>(gpu->lag_waves);
    grid->table = static_cast<const uint4 *>(gpu->table);
    grid->constants = {0x64086408u, 0x64806480u, 0};
    for (int i = 0; i < 2; i++) {
        if (!(gpu->piece[i] = br_cuda_alloc(
                  plan->cuda, F * (is_long ? PIECE : plan->downsample) * kept_bytes(plan), why)))
            return -1;
        if (is_long &&
            !(gpu->sums[i] = static_cast<float4 *>(br_cuda_alloc(
                  plan->cuda, F * frb_autocorr_1d_units((M + 7) / 8, N) * 32 * sizeof(float4), why))))
            return -1;
    }
    int most_shared = 0;
    cudaError_t status = cudaDeviceGetAttribute(&most_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                                br_cuda_device(plan->cuda));
    if (status == cudaSuccess)
        status = cudaFuncSetAttribute(reinterpret_cast<const void *>(gpu->variant->run),
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, most_shared);
    /* Four y rather than two if there is room, the same for all plans that may go together. */
    const unsigned tiles = gpu->variant->m_tiles, directions = gpu->variant->directions,
                   blocks = gpu->variant->threads <= 512 ? 2 : 1;
    const bool room = has_groups(plan->cuda) ||
                      blocks * memory_of(tiles, gpu->variant->n_tiles, directions, N, true, 4).bytes <=
                          static_cast<unsigned>(most_shared);
    grid->memory = memory_of(tiles, gpu->variant->n_tiles, directions, N, is_long, room ? 4 : 2);
    int multiprocessors = 0;
    if (status == cudaSuccess)
        status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount,
                                        br_cuda_device(plan->cuda));
    if (status == cudaSuccess)
        status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &gpu->blocks, reinterpret_cast<const void *>(gpu->variant->run), gpu->variant->threads,
            grid->memory.bytes);
    gpu->blocks = (gpu->blocks < 1 ? 1 : gpu->blocks) * multiprocessors;
    if (status == cudaSuccess) return 0;
    (void)cudaGetLastError();
    return br_because(why, "shared memory for the FRB grid on device %d: %s", br_cuda_device(plan->cuda),
                      cudaGetErrorString(status));
}

void br_frb_grid_autocorr_1d_exchange(struct br_frb_grid_autocorr_1d *a, struct br_frb_grid_autocorr_1d *b)
{
    BR_EXCHANGE(void *, a, b, weights);
    BR_EXCHANGE(void *, a, b, level);
    BR_EXCHANGE(bool, a, b, shared_weights);
}

void br_frb_grid_autocorr_1d_begin(struct br_frb_grid *plan)
{
    plan->autocorr_1d->resume = false;
    plan->autocorr_1d->kept = 0;
}

static autocorr_1d_job autocorr_1d_job_of(struct br_frb_grid *plan, const struct frb_grid_span *span)
{
    struct br_frb_grid_autocorr_1d *gpu = plan->autocorr_1d;
    const uintptr_t all = reinterpret_cast<uintptr_t>(span->e) | span->row | plan->ndishes;
    autocorr_1d_job w = {};
    w.T = plan->downsample;
    w.F = static_cast<unsigned>(plan->nchannels);
    const size_t pending = span->flush ? gpu->kept : span->pending;
    w.pending = static_cast<unsigned>(pending);
    w.blocks = static_cast<unsigned>(span->blocks);
    w.last = static_cast<unsigned>(pending + span->steps - (span->blocks - 1) * plan->downsample);
    w.complete = w.last == w.T || span->flush;
    w.e = span->e, w.row = span->row;
    w.valid = span->valid, w.valid_row = span->valid_row;
    w.place = static_cast<const unsigned *>(gpu->place);
    w.gap = gpu->gap;
    w.weights = static_cast<const uint2 *>(gpu->weights);
    w.level = static_cast<const float *>(gpu->level);
    w.factor = span->factor;
    w.unit = br_frb_grid_cuda_unit(plan);
    w.out = span->out, w.out_stride = span->out_stride;
    w.wide = reinterpret_cast<uintptr_t>(w.out) % 4 == 0;
    w.before = gpu->resume ? static_cast<const uint8_t *>(gpu->piece[gpu->now]) : NULL;
    w.after = static_cast<uint8_t *>(gpu->piece[!gpu->now]);
    w.piece = min(w.T, PIECE), w.kept = static_cast<unsigned>(kept_bytes(plan));
    w.sums = gpu->resume ? gpu->sums[gpu->now] : NULL;
    w.sums_after = gpu->sums[!gpu->now];
    w.width = all % 16 == 0 ? 16 : all % 4 == 0 ? 4 : 1;
    w.shared_weights = gpu->shared_weights;
    return w;
}

void br_frb_grid_autocorr_1d_add(struct br_frb_grid *const *plan, const struct frb_grid_span *span, size_t n)
{
    autocorr_1d_work w;
    size_t order[MOST_JOBS], cost = 0, shared_bytes = 0;
    int blocks = 0;
    struct br_frb_grid_autocorr_1d *gpu = plan[0]->autocorr_1d;
    br_frb_grid_longest_first(plan, n, order);
    w.grid = gpu->grid;
    w.njobs = static_cast<unsigned>(n);
    const unsigned times = frb_autocorr_1d_times(w.grid.P);
    /* Costs such that their sum is far below 2^32. */
    unsigned coarse = 0;
    do {
        cost = 0;
        for (size_t k = 0; k < n; k++) {
            const unsigned T = plan[order[k]]->downsample;
            const size_t one = ((T + times - 1) / times + (T + PIECE - 1) / PIECE * END_COST) >> coarse;
            w.job[k].first_cost = static_cast<unsigned>(cost);
            w.job[k].cost = static_cast<unsigned>(one < 1 ? 1 : one);
            cost += plan[order[k]]->nchannels * span[order[k]].blocks * w.job[k].cost;
        }
    } while (cost >> 31 && ++coarse < 32);
    for (size_t k = 0; k < n; k++) {
        struct br_frb_grid *p = plan[order[k]];
        const struct frb_grid_span *s = &span[order[k]];
        const unsigned first_cost = w.job[k].first_cost, one = w.job[k].cost;
        w.job[k] = autocorr_1d_job_of(p, s);
        w.job[k].first_cost = first_cost, w.job[k].cost = one;
        if (p->autocorr_1d->grid.memory.bytes > shared_bytes) {
            shared_bytes = p->autocorr_1d->grid.memory.bytes;
            blocks = p->autocorr_1d->blocks;
        }
        p->autocorr_1d->kept = s->flush ? 0 : (s->pending + s->steps) % p->downsample;
        p->autocorr_1d->resume = p->autocorr_1d->kept != 0;
        if (p->autocorr_1d->resume) p->autocorr_1d->now = !p->autocorr_1d->now;
    }
    w.cost = static_cast<unsigned>(cost);
    /* As many blocks of threads as there is room for, or as are needed for their lists of runs. */
    for (;; blocks *= 2) {
        w.share = (w.cost + static_cast<unsigned>(blocks) - 1) / static_cast<unsigned>(blocks);
        unsigned runs = 0;
        for (unsigned k = 0; k < w.njobs; k++) runs += w.share / w.job[k].cost / w.job[k].blocks + 2;
        if (runs <= MOST_RUNS) break;
    }
    gpu->variant->run<<<static_cast<unsigned>(blocks), gpu->variant->threads, shared_bytes,
                        static_cast<cudaStream_t>(br_cuda_stream(plan[0]->cuda))>>>(w);
    br_cuda_ok(plan[0]->cuda, cudaGetLastError(), "the launch of the FRB grid");
}
