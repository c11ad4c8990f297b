/* FRB stage 1 on a GPU by the 2-d autocorrelation (autocorr.cuh says how, work.cuh who does it): plans and
 * launches. One launch does the blocks of any number of plans, the longest first. */
#include "buffers/half.h"
#include "kernels/common/cuda.h"
#include "kernels/common/exchange.h"
#include "kernels/frb_grid/gpu/autocorr_2d/autocorr_2d.h"
#include "kernels/frb_grid/gpu/autocorr_2d/whole_blocks.cuh"
#include "kernels/frb_grid/gpu/direct/layout.h"

#include <cuda_runtime.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

using namespace beamring;

namespace
{

/* Shorter blocks are faster where every sample is transformed (direct/). */
constexpr unsigned shortest(unsigned L)
{
    return L == 8 ? 4 : 7;
}

/* About so many tasks a launch is made of, if there is so much to do. */
constexpr size_t MOST_TASKS = 22000;

/* Bytes of shared memory for a piece of up to `times`, and later for its products and its image. */
unsigned buffer_bytes(unsigned L, unsigned times)
{
    const unsigned raw = times * frb_autocorr_2d_pitch(L), products = frb_autocorr_2d_product(L, 2, 0, 0);
    return ((raw > products ? raw : products) + 127) / 128 * 128;
}

using kernel = void (*)(autocorr_2d_work);

kernel variant(unsigned L, bool words)
{
    return L == 8  ? words ? autocorr_2d_images<8, true> : autocorr_2d_images<8, false>
            : words ? autocorr_2d_images<12, true>
                   : autocorr_2d_images<12, false>;
}

} // namespace

struct br_frb_grid_autocorr_2d {
    struct autocorr_2d_grid grid;
    unsigned L;
    bool words;      /* see autocorr_2d_field::fill */
    bool direct;     /* and whole_blocks.cuh */
    unsigned buffer; /* bytes of shared memory for a piece */
    size_t shared_bytes;
    void *waves, *dish, *weights, *level;
    void *piece[2]; /* of the unfinished block: one is read while the other is written */
    float *sums[2];
    int now;
    bool resume, shared_weights; /* piece[now] and sums[now] hold an unfinished block; */
    size_t kept;                 /* its samples, 0 if there is none */
};

bool br_frb_grid_autocorr_2d_fits(const struct br_frb_grid *plan)
{
    unsigned M = plan->grid_m, N = plan->grid_n;
    return (M == 8 || N == 8) && (M == 8 || M == 12) && (N == 8 || N == 12) &&
           plan->downsample >= shortest(M > N ? M : N);
}

/* Waves of the transforms of the autocorrelation: across exp(i pi q d / 8), along c exp(i pi p lag / L). */
static double wave_across(unsigned row, unsigned g, unsigned h)
{
    const double angle = M_PI * (frb_autocorr_2d_row_across(row) * (g + 16 - h) % 16) / 8;
    return frb_autocorr_2d_row_is_sine(row) ? sin(angle) : cos(angle);
}

static double wave_along(unsigned L, unsigned lag_tile, unsigned p, unsigned k)
{
    const unsigned lag = 8 * lag_tile + k % 8;
    const double angle = M_PI * (p * lag % (2 * L)) / L, c = lag == 0 ? 1 : 2;
    return lag >= L ? 0 : k < 8 ? c * cos(angle) : -c * sin(angle);
}

static void *make_waves(struct br_cuda *cuda, unsigned L, struct br_why *why)
{
    uint32_t table[(4 + 2 * 2) * 32][4] = {{0}};
    const unsigned lag_tiles = (L + 7) / 8;
    for (unsigned i = 0; i < 4 * 32 * 4; i++) {
        const unsigned step = i / 128, lane = i / 4 % 32, r = i % 4;
        const struct br_cell at = br_mma_f16_a(r, 0, lane);
        const unsigned g = 2 * step + at.column / 8, h = at.column % 8;
        table[frb_autocorr_2d_wave_across(step, lane)][r] =
            br_half_pair(wave_across(at.row, g, h), wave_across(at.row, g, h + 1));
    }
    for (unsigned i = 0; i < lag_tiles * (L / 4) * 2 * 32; i++) {
        const unsigned lane = i % 32, r = i / 32 % 2, tile = i / 64 % (L / 4), lag_tile = i / 64 / (L / 4);
        const struct br_cell at = br_mma_f16_b(r, 0, lane), next = br_mma_f16_b(r, 1, lane);
        const unsigned p = frb_autocorr_2d_along(tile, at.column);
        table[frb_autocorr_2d_wave_along(L, lag_tile, tile / 2, lane)][tile % 2 * 2 + r] =
            br_half_pair(wave_along(L, lag_tile, p, at.row), wave_along(L, lag_tile, p, next.row));
    }
    return br_cuda_table(cuda, table, sizeof table, why);
}

/* A weight w as pairs of float16, see weigh(): times 2^(20 - exponent), and what makes up for the offset of
 * nibbles, in units of 2^-24. Both parts are rounded so that float16 holds their sum and difference, too. */
static void round_weight(const float w[2], int exponent, uint16_t weight[2], uint16_t offset[2])
{
    const double part[2] = {ldexp(static_cast<double>(w[0]), 20 - exponent),
                            ldexp(static_cast<double>(w[1]), 20 - exponent)};
    double rounded[2];
    int bits;
    (void)frexp(fabs(part[0]) + fabs(part[1]), &bits);
    const int last = bits - 11 > -3 ? bits - 11 : -3;
    for (int i = 0; i < 2; i++) {
        rounded[i] = ldexp(nearbyint(ldexp(part[i], -last)), last);
        weight[i] = br_half_from_float(static_cast<float>(rounded[i]));
    }
    offset[0] = br_half_from_float(static_cast<float>(ldexp(rounded[1] - rounded[0], 3 - 24)));
    offset[1] = br_half_from_float(static_cast<float>(ldexp(-rounded[0] - rounded[1], 3 - 24)));
}

/* Which dishes, with which weights, a lane puts on its cells. */
static int make_cells(struct br_frb_grid *plan, const struct br_frb_grid_params *params, struct br_why *why)
{
    struct br_frb_grid_autocorr_2d *gpu = plan->autocorr_2d;
    const unsigned L = gpu->L;
    const size_t P = plan->npol, D = plan->ndishes, W = plan->weight_channels, channel = P * L * 8 * 2;
    int32_t dish[12][8]; /* along, across */
    uint8_t first[3][8][4] = {{{0}}};
    uint16_t(*weights)[2] = static_cast<uint16_t(*)[2]>(calloc(W * channel, sizeof *weights));
    float *level = static_cast<float *>(malloc(2 * W * sizeof *level)); /* and times the unit */
    bool ok = weights && level;
    if (!ok) br_because(why, "no memory for the FRB grid");
    memset(dish, -1, sizeof dish);
    for (size_t d = 0; d < D; d++) {
        const uint16_t *cell = &params->dish_cell[2 * d];
        dish[cell[!gpu->grid.transposed]][cell[gpu->grid.transposed]] = static_cast<int32_t>(d);
    }
    for (size_t c = 0; ok && c < W; c++) {
        /* Powers of two that bring the channel's weights below 1/32, and weighed fields to 1/16 of that: the
         * largest transform of 128 full-scale samples along one axis is then 2^6.6. With weights in float16,
         * 2^20 times as large, and nibbles that are the smallest float16s, 2^-24, fields can be no larger. */
        const float *given = params->weights ? params->weights + c * P * D * 2 : NULL;
        const int exponent = br_frb_grid_exponent(given, P * D * 2) + 5;
        level[c] = static_cast<float>(ldexp(1, 2 * (exponent + 24 - 20)));
        level[W + c] = level[c] * br_frb_grid_cuda_unit(plan);
        for (size_t i = 0; i < P * L * 8; i++) {
            const unsigned pol = static_cast<unsigned>(i / (L * 8)), along = i / 8 % L, g = i % 8;
            const int32_t d = dish[along][g];
            if (d < 0) continue; /* weight 0 */
            static const float one[2] = {1, 0};
            uint16_t(*to)[2] = weights + (c * channel + frb_autocorr_2d_weight(L, pol, along, g));
            round_weight(given ? given + (pol * D + static_cast<size_t>(d)) * 2 : one, exponent, to[0],
                         to[frb_autocorr_2d_offset()]);
        }
    }
    /* Whether the dishes of each row of cells are consecutive: then cells without a dish may read whatever
     * stands there, as far as it is inside of the row's bytes in shared memory, or in global memory of the
     * channel's and polarisation's. */
    gpu->words = true;
    gpu->direct = L == 8;
    for (unsigned g = 0; g < 8; g++) {
        int32_t start = 0;
        for (unsigned i = L; i-- > 0;)
            if (dish[i][g] >= 0) start = dish[i][g] - static_cast<int32_t>(i);
        for (unsigned i = 0; i < L; i++) {
            if (dish[i][g] >= 0 && dish[i][g] != start + static_cast<int32_t>(i)) gpu->words = false;
            if (dish[i][g] >= 0) first[i / 4][g][i % 4] = static_cast<uint8_t>(dish[i][g]);
        }
        if (start < 0 || start + L > L * 8) gpu->words = false;
        if (start % 8 != 0 || start + L > D) gpu->direct = false;
        if (gpu->words && dish[0][g] < 0) first[0][g][0] = static_cast<uint8_t>(start);
    }
    gpu->direct = gpu->direct && gpu->words;
    ok = ok && (gpu->dish = br_cuda_table(plan->cuda, first, L * 8, why)) &&
         (gpu->weights = br_cuda_table(plan->cuda, weights, W * channel * sizeof *weights, why)) &&
         (gpu->level = br_cuda_table(plan->cuda, level, 2 * W * sizeof *level, why));
    free(weights);
    free(level);
    return ok ? 0 : -1;
}

void br_frb_grid_autocorr_2d_destroy(struct br_frb_grid *plan)
{
    struct br_frb_grid_autocorr_2d *gpu = plan->autocorr_2d;
    if (!gpu) return;
    void *memory[] = {gpu->waves,    gpu->dish,     gpu->weights, gpu->level,
                      gpu->piece[0], gpu->piece[1], gpu->sums[0], gpu->sums[1]};
    for (void *one : memory) br_cuda_free(plan->cuda, one);
    free(gpu);
    plan->autocorr_2d = NULL;
}

int br_frb_grid_autocorr_2d_create(struct br_frb_grid *plan, const struct br_frb_grid_params *params,
                                   struct br_why *why)
{
    const size_t F = plan->nchannels;
    struct br_frb_grid_autocorr_2d *gpu = plan->autocorr_2d =
        static_cast<struct br_frb_grid_autocorr_2d *>(calloc(1, sizeof *gpu));
    if (!gpu) return br_because(why, "no memory for the FRB grid");
    plan->cuda = params->cuda;
    const unsigned L = gpu->L = plan->grid_m > plan->grid_n ? plan->grid_m : plan->grid_n;
    const bool is_long = plan->downsample > PIECE;
    gpu->grid.transposed = plan->grid_m > plan->grid_n;
    gpu->grid.P = static_cast<unsigned>(plan->npol), gpu->grid.D = static_cast<unsigned>(plan->ndishes);
    gpu->shared_weights = plan->weight_channels == 1;
    gpu->waves = make_waves(plan->cuda, L, why);
    gpu->grid.waves = static_cast<const uint4 *>(gpu->waves);
    gpu->grid.constants = {0x08080808u, 0};
    if (!gpu->waves || make_cells(plan, params, why) != 0) return -1;
    for (int i = 0; i < 2; i++) {
        if (!(gpu->piece[i] = br_cuda_alloc(plan->cuda, F * PIECE * frb_autocorr_2d_row(L), why))) return -1;
        if (is_long && !(gpu->sums[i] = static_cast<float *>(
                             br_cuda_alloc(plan->cuda, F * L * 32 * sizeof(float), why))))
            return -1;
    }
    gpu->buffer = buffer_bytes(L, is_long ? PIECE : (plan->downsample + 7) / 8 * 8);
    gpu->shared_bytes = 2 * gpu->buffer + 16 + (is_long ? L * 32 * sizeof(float) : 0);
    return 0;
}

void br_frb_grid_autocorr_2d_exchange(struct br_frb_grid_autocorr_2d *a, struct br_frb_grid_autocorr_2d *b)
{
    BR_EXCHANGE(void *, a, b, weights);
    BR_EXCHANGE(void *, a, b, level);
    BR_EXCHANGE(bool, a, b, shared_weights);
}

void br_frb_grid_autocorr_2d_begin(struct br_frb_grid *plan)
{
    plan->autocorr_2d->resume = false;
    plan->autocorr_2d->kept = 0;
}

static autocorr_2d_job autocorr_2d_job_of(struct br_frb_grid *plan, const struct frb_grid_span *span)
{
    struct br_frb_grid_autocorr_2d *gpu = plan->autocorr_2d;
    const size_t inputs = plan->npol * plan->ndishes;
    const uintptr_t all = reinterpret_cast<uintptr_t>(span->e) | span->row | inputs;
    autocorr_2d_job w = {};
    w.T = plan->downsample;
    w.F = static_cast<unsigned>(plan->nchannels);
    const size_t pending = span->flush ? gpu->kept : span->pending;
    w.pending = static_cast<unsigned>(pending);
    w.blocks = static_cast<unsigned>(span->blocks);
    w.last = static_cast<unsigned>(pending + span->steps - (span->blocks - 1) * plan->downsample);
    w.complete = w.last == w.T || span->flush;
    w.e = span->e, w.row = span->row;
    w.valid = span->valid, w.valid_row = span->valid_row;
    w.dish = static_cast<const unsigned *>(gpu->dish);
    w.weights = static_cast<const uint4 *>(gpu->weights);
    w.level = static_cast<const float *>(gpu->level);
    w.scaled = w.level + plan->weight_channels;
    w.factor = span->factor;
    w.unit = br_frb_grid_cuda_unit(plan);
    w.out = span->out, w.out_stride = span->out_stride;
    w.wide = reinterpret_cast<uintptr_t>(w.out) % 16 == 0;
    w.before = gpu->resume ? static_cast<const uint4 *>(gpu->piece[gpu->now]) : NULL;
    w.after = static_cast<uint8_t *>(gpu->piece[!gpu->now]);
    w.sums = gpu->resume ? gpu->sums[gpu->now] : NULL;
    w.sums_after = gpu->sums[!gpu->now];
    w.width = all % 16 == 0 ? 16 : all % 4 == 0 ? 4 : 1;
    w.fast = w.width == 16 && !w.valid && inputs <= 512 && 512 % inputs == 0 && w.row <= UINT32_MAX / 8 &&
             plan->nchannels * inputs <= UINT32_MAX;
    w.times = w.fast ? 512 / static_cast<unsigned>(inputs) : 0;
    w.further = w.times * w.row;
    w.inverse = (1u << 20) / static_cast<unsigned>(inputs / w.width) + 1;
    w.buffer = gpu->buffer;
    w.shared_weights = gpu->shared_weights;
    if (span->flush) w.e = w.after; /* some address: nothing is read */
    return w;
}

/* Whether whole_blocks.cuh does it. */
static bool is_whole(const struct br_frb_grid_autocorr_2d *gpu, const autocorr_2d_job &w, bool flush)
{
    const unsigned step = frb_autocorr_2d_times(gpu->grid.P);
    const size_t steps = static_cast<size_t>(w.blocks - 1) * w.T + w.last - w.pending;
    return gpu->direct && w.fast && w.wide && !w.factor && !flush && w.T <= PIECE && w.T % step == 0 &&
           w.pending % step == 0 && (w.pending == 0 || w.before) && (w.complete || w.blocks > 1) &&
           (steps + step) * w.row / 8 <= UINT32_MAX;
}

void br_frb_grid_autocorr_2d_add(struct br_frb_grid *const *plan, const struct frb_grid_span *span, size_t n)
{
    autocorr_2d_work w;
    size_t order[MOST_JOBS], tasks = 0, samples = 0, shared_bytes = 0;
    struct br_frb_grid_autocorr_2d *gpu = plan[0]->autocorr_2d;
    bool words = true, whole = true;
    br_frb_grid_longest_first(plan, n, order);
    for (size_t i = 0; i < n; i++) {
        samples += plan[i]->nchannels * span[i].blocks * plan[i]->downsample;
        words = words && plan[i]->autocorr_2d->words;
    }
    w.grid = gpu->grid;
    w.njobs = static_cast<unsigned>(n);
    for (size_t k = 0; k < n; k++) {
        struct br_frb_grid *p = plan[order[k]];
        const struct frb_grid_span *s = &span[order[k]];
        w.job[k] = autocorr_2d_job_of(p, s);
        whole = whole && is_whole(p->autocorr_2d, w.job[k], s->flush);
        w.job[k].first_task = static_cast<unsigned>(tasks);
        /* Long enough runs to hide what a task begins with, and enough of them to fill the device evenly. */
        size_t run = samples / (MOST_TASKS * p->downsample);
        run = run < 1 ? 1 : run > 16 ? 16 : run;
        const size_t runs = (s->blocks + run - 1) / run;
        w.job[k].run = static_cast<unsigned>((s->blocks + runs - 1) / runs);
        tasks += p->nchannels * runs;
        if (p->autocorr_2d->shared_bytes > shared_bytes) shared_bytes = p->autocorr_2d->shared_bytes;
        p->autocorr_2d->kept = s->flush ? 0 : (s->pending + s->steps) % p->downsample;
        p->autocorr_2d->resume = p->autocorr_2d->kept != 0;
        if (p->autocorr_2d->resume) p->autocorr_2d->now = !p->autocorr_2d->now;
    }
    if (whole) shared_bytes = frb_autocorr_2d_product(8, 2, 0, 0);
    (whole ? autocorr_2d_whole_blocks
           : variant(gpu->L, words))<<<static_cast<unsigned>(tasks), 32, shared_bytes,
                                       static_cast<cudaStream_t>(br_cuda_stream(plan[0]->cuda))>>>(w);
    br_cuda_ok(plan[0]->cuda, cudaGetLastError(), "the launch of the FRB grid");
}
